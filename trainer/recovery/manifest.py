"""The manifest that makes a directory a checkpoint: what is in it, chunk by chunk, and what state it holds.

A directory without a manifest that verifies does not exist.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.recovery.errors import Unverified
from trainer.recovery.events import now
from trainer.recovery.files import check_depth, fsync_path, parse_json
from trainer.recovery.parallel import Workers

NAME = "manifest.json"
FORMAT = "holdfast.checkpoint/1"
CHUNK_BYTES = 64 * 1024 * 1024


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

    @property
    def digest(self) -> str:
        """Hex SHA-256 of everything that the manifest says, chunk hashes included."""
        return _digest(self._body())

    def encode(self) -> bytes:
        """The file's content. Raises ValueError for a cursor or rng that could not be read back."""
        body = self._body()
        check_depth(body, NAME)
        return (json.dumps({**body, "digest": _digest(body)}, indent=1, sort_keys=True) + "\n").encode()

    def _body(self) -> dict[str, Any]:
        # As it will be read: the keys of a cursor become text, which sorts differently than numbers.
        return json.loads(json.dumps(self._plain()))

    def _plain(self) -> dict[str, Any]:
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
        if folder.is_symlink():
            raise Unverified(f"{folder.name} is a symbolic link")
        body = parse_json(folder / NAME)
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
        found = Manifest(files=files, chunk_bytes=body["chunk_bytes"], **{name: body[name] for name in names})
        _check_types(found)
        return found
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Unverified(f"{NAME} is missing") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unverified(f"{NAME} is not readable as a manifest: {error}") from error


def _check_types(manifest: Manifest) -> None:
    """Raises TypeError. The digest only tells that nobody changed it, not who wrote it."""
    kinds: list[tuple[str, Any, type]] = [
        *((name, getattr(manifest, name), int) for name in ("step", "generation", "attempt", "chunk_bytes")),
        *((name, getattr(manifest, name), dict) for name in ("cursor", "rng", "frameworks")),
        ("run_id", manifest.run_id, str),
        *(("path", entry.path, str) for entry in manifest.files),
        *(("size", entry.size, int) for entry in manifest.files),
    ]
    for name, value, kind in kinds:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}")
    if manifest.step < 0 or manifest.chunk_bytes < 1:
        raise TypeError(f"step is {manifest.step} and chunk_bytes is {manifest.chunk_bytes}")
    for entry in manifest.files:
        # Else one byte to a chunk would ask for a million hashes of a small file.
        if len(entry.chunks) != -(-entry.size // manifest.chunk_bytes):
            raise TypeError(f"{entry.path!r} has {entry.size} bytes and {len(entry.chunks)} chunks")


def describe_files(folder: Path, chunk_bytes: int = CHUNK_BYTES) -> tuple[FileEntry, ...]:
    """Hash every file below a directory in chunks on all cores, and flush files and directories.

    Raises ValueError for what is no plain file, and OSError.
    """
    files, folders = _walk(folder)
    sizes = [os.stat(path).st_size for path in files]
    with Workers(len(files), sum(sizes)) as workers:
        flushed, hashed = [], []
        for path, size in zip(files, sizes, strict=True):
            flushed.append(workers.flush(path))
            hashed.append(workers.hash_chunks(path, size, chunk_bytes))
        entries = tuple(
            FileEntry(path.relative_to(folder).as_posix(), size, tuple(future.result() for future in futures))
            for path, size, futures in zip(files, sizes, hashed, strict=True)
        )
        for future in flushed:
            future.result()
    for inner in folders:  # also those that hold nothing but folders
        fsync_path(inner)
    return entries


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """The cheap part of `verify`: every file is there with its size. Raises Unverified."""
    real: set[Path] = {folder}
    for entry in manifest.files:
        path = _inside(folder, entry.path)
        try:
            _check_parents(path.parent, real)
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Unverified(f"{entry.path} is missing") from error
        except ValueError as error:
            raise Unverified(f"{NAME} names the file {entry.path!r}, which is no path") from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise Unverified(f"{NAME} names a file whose path is too long") from error
        if not stat.S_ISREG(found.st_mode):
            raise Unverified(f"{entry.path} is not a plain file")
        size = found.st_size
        if size != entry.size:
            raise Unverified(f"{entry.path} has {size} bytes instead of {entry.size}")


def verify(folder: Path, manifest: Manifest) -> None:
    """Read every file and compare every chunk, on all cores. Raises Unverified naming a file that differs."""
    check_sizes(folder, manifest)
    with Workers(len(manifest.files), manifest.size) as workers:
        pending = [
            (entry, workers.hash_chunks(folder / entry.path, entry.size, manifest.chunk_bytes))
            for entry in manifest.files
        ]
        for entry, futures in pending:
            for number, (future, expected) in enumerate(zip(futures, entry.chunks, strict=True)):
                if future.result() != expected:
                    raise Unverified(f"{entry.path} differs from its hash in chunk {number}")


def _walk(folder: Path) -> tuple[list[Path], list[Path]]:
    """Every file below a directory, and every directory, the innermost first."""
    files, folders = [], []
    for parent, inner, names in os.walk(folder, onerror=_refuse):
        for name in (*names, *inner):
            path = Path(parent) / name
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                folders.append(path)
            elif stat.S_ISREG(mode):
                files.append(path)
            else:
                kind = "symbolic link" if stat.S_ISLNK(mode) else "device, pipe or socket"
                raise ValueError(f"{path} is a {kind}; a checkpoint holds plain files only")
    if folder / NAME in files:
        raise ValueError(f"{folder / NAME} has the manifest's name: call the program's own file otherwise")
    return sorted(files), sorted(folders, reverse=True)


def _refuse(error: OSError) -> None:
    raise error  # os.walk leaves out what it can not list: the checkpoint would lack it, and verify


def _check_parents(folder: Path, real: set[Path]) -> None:
    """Raise Unverified when a directory on the way is a link that leads out. `real`: those checked."""
    if folder in real:
        return
    _check_parents(folder.parent, real)
    if stat.S_ISLNK(os.lstat(folder).st_mode):
        raise Unverified(f"{folder.name} is a symbolic link")
    real.add(folder)


def _inside(folder: Path, relative: str) -> Path:
    """A manifest is input: it must not lead the reader out of its directory."""
    parts = Path(relative).parts
    if not parts or Path(relative).is_absolute() or ".." in parts:
        raise Unverified(f"{NAME} names the file {relative!r} outside of the checkpoint")
    return folder / relative
