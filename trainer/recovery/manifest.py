"""The manifest that makes a directory a checkpoint: what is in it, chunk by chunk, and what state it holds.

A directory without a manifest that verifies does not exist.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.recovery.errors import Unverified
from trainer.recovery.events import now
from trainer.recovery.files import fsync_path

NAME = "manifest.json"
FORMAT = "holdfast.checkpoint/1"
CHUNK_BYTES = 64 * 1024 * 1024
READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class FileEntry:
    """One file: path relative to the checkpoint, size in bytes, SHA-256 of each chunk in order."""

    path: str
    size: int
    chunks: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is; `cursor` (data order) and `rng` (where its state is) in the program's words."""

    step: int
    run_id: str
    generation: int
    files: tuple[FileEntry, ...]
    cursor: Mapping[str, Any] = field(default_factory=dict)
    rng: Mapping[str, Any] = field(default_factory=dict)
    frameworks: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    attempt: int = 1
    created_at: str = field(default_factory=now)
    chunk_bytes: int = CHUNK_BYTES

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def encode(self) -> bytes:
        body = self._body()
        return (json.dumps({**body, "digest": _digest(body)}, indent=1, sort_keys=True) + "\n").encode()

    def _body(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "step": self.step,
            "run_id": self.run_id,
            "generation": self.generation,
            "attempt": self.attempt,
            "image": self.image,
            "created_at": self.created_at,
            "cursor": dict(self.cursor),
            "rng": dict(self.rng),
            "frameworks": dict(self.frameworks),
            "hash": "sha256",
            "chunk_bytes": self.chunk_bytes,
            "files": [{"path": e.path, "size": e.size, "chunks": list(e.chunks)} for e in self.files],
        }


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read(folder: Path) -> Manifest:
    """The manifest of a checkpoint directory, checked against its own digest; the files are not read yet.

    Raises Unverified for one that is missing, damaged or of another format, and OSError for a volume that
    fails.
    """
    try:
        body = json.loads((folder / NAME).read_bytes())
        claimed = body.pop("digest")
        if body["format"] != FORMAT or body["hash"] != "sha256":
            raise Unverified(f"{NAME} is of the unknown format {body['format']!r}")
        if claimed != _digest(body):
            raise Unverified(f"{NAME} does not match its own digest")
        files = tuple(FileEntry(e["path"], e["size"], tuple(e["chunks"])) for e in body["files"])
        names = (
            "step",
            "run_id",
            "generation",
            "cursor",
            "rng",
            "frameworks",
            "image",
            "attempt",
            "created_at",
        )
        return Manifest(files=files, chunk_bytes=body["chunk_bytes"], **{name: body[name] for name in names})
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Unverified(f"{NAME} is missing") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unverified(f"{NAME} is not readable as a manifest: {error}") from error


def describe_files(folder: Path, chunk_bytes: int = CHUNK_BYTES) -> tuple[FileEntry, ...]:
    """Hash every file below a directory in chunks on all cores, and flush files and directories."""
    files = sorted(_walk_files(folder))
    sizes = [os.stat(path).st_size for path in files]
    with _pool() as pool:
        flushed = [pool.submit(fsync_path, path) for path in files]
        hashed = [
            _submit_chunks(pool, path, size, chunk_bytes) for path, size in zip(files, sizes, strict=True)
        ]
        entries = tuple(
            FileEntry(path.relative_to(folder).as_posix(), size, tuple(future.result() for future in futures))
            for path, size, futures in zip(files, sizes, hashed, strict=True)
        )
        for future in flushed:
            future.result()
    for parent in sorted({path.parent for path in files if path.parent != folder}, reverse=True):
        fsync_path(parent)
    return entries


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """The cheap part of `verify`: every file is there with its size. Raises Unverified."""
    for entry in manifest.files:
        path = _inside(folder, entry.path)
        try:
            size = os.stat(path, follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Unverified(f"{entry.path} is missing") from error
        if size != entry.size:
            raise Unverified(f"{entry.path} has {size} bytes instead of {entry.size}")


def verify(folder: Path, manifest: Manifest) -> None:
    """Read every file and compare every chunk, on all cores. Raises Unverified naming a file that differs."""
    check_sizes(folder, manifest)
    with _pool() as pool:
        pending = [
            (entry, _submit_chunks(pool, folder / entry.path, entry.size, manifest.chunk_bytes))
            for entry in manifest.files
        ]
        for entry, futures in pending:
            found = tuple(future.result() for future in futures)
            if found != entry.chunks:
                number = next(
                    (
                        i
                        for i, pair in enumerate(zip(found, entry.chunks, strict=False))
                        if pair[0] != pair[1]
                    ),
                    0,
                )
                raise Unverified(f"{entry.path} differs from its hash in chunk {number}")


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1), thread_name_prefix="hash")


def _submit_chunks(pool: ThreadPoolExecutor, path: Path, size: int, chunk_bytes: int) -> list[Future[str]]:
    return [
        pool.submit(_hash_chunk, path, start, min(chunk_bytes, size - start))
        for start in range(0, size, chunk_bytes)
    ]


def _hash_chunk(path: Path, start: int, length: int) -> str:
    # hashlib lets go of the interpreter lock for large buffers, so threads use all cores.
    content = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        while length > 0 and (part := stream.read(min(READ_BYTES, length))):
            content.update(part)
            length -= len(part)
    return content.hexdigest()


def _walk_files(folder: Path) -> Iterable[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            if path.is_symlink():
                raise ValueError(f"{path} is a symbolic link; a checkpoint holds plain files only")
            yield path


def _inside(folder: Path, relative: str) -> Path:
    """A manifest is input: it must not lead the reader out of its directory."""
    parts = Path(relative).parts
    if not parts or Path(relative).is_absolute() or ".." in parts:
        raise Unverified(f"{NAME} names the file {relative!r} outside of the checkpoint")
    return folder / relative
