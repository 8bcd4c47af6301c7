"""The few file-system steps that the protocol is made of. Each goes through `os.…`, so that tests can
interpose.

They hold on a POSIX file system shared by the nodes (NFS, CephFS, Lustre, EFS). On NFS mount with
`lookupcache=none` or a short `actimeo`: a client that still caches a renamed directory's name can write into
it for that long. SMB has no hard links: there a folder is renamed onto a name that may hold one already.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any

NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
LARGEST_JSON = 64 * 1024 * 1024  # bytes; the manifest of a checkpoint of 50 TB fits
DEEPEST_JSON = 100  # levels


def fsync_path(path: Path) -> None:
    """Flush a file's content, or a directory's entries, to the volume."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_new(path: Path) -> int:
    """A descriptor of a file that did not exist yet. Raises FileExistsError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)


def fill(descriptor: int, content: bytes, durable: bool = True) -> None:
    """Write all of it, flush it, close the descriptor."""
    try:
        view = memoryview(content)
        while view:  # a volume that fills up may take a part
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, content: bytes, durable: bool = True) -> None:
    """Create a file that does not exist yet, whole or not at all, and flush it. Raises FileExistsError."""
    descriptor = create_new(path)
    try:
        fill(descriptor, content, durable)
    except OSError:
        # Ours, because the create was exclusive, and not whole. Left behind, a heartbeat on a full volume
        # would add a file each second.
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def create_exclusively(path: Path, content: bytes, scratch: Path) -> bool:
    """Create `path` whole and durable, unless it exists: True for exactly one of any number of callers.

    The content is written below `scratch` and linked, so that no reader ever sees half of it. On NFS a `link`
    can report EEXIST after it succeeded (the reply was lost): the link count tells.
    """
    temporary = scratch / f"tmp-{path.name}-{secrets.token_hex(8)}"
    write_new(temporary, content)
    try:
        try:
            os.link(temporary, path)
            won = True
        except FileExistsError:
            won = os.stat(temporary).st_nlink == 2
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            won = _create_by_folder(path, content, scratch)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    fsync_path(path.parent)
    return won


def _create_by_folder(path: Path, content: bytes, scratch: Path) -> bool:
    """Without hard links: whose folder is renamed to `PATH.first` before the others' has won.

    Everybody then writes that content. A rename onto a folder that is not empty fails everywhere. An O_EXCL
    create of the file itself would be as exclusive, but a crash in the middle of it leaves half a file that
    nobody may replace.
    """
    first, ours = path.with_name(f"{path.name}.first"), scratch / f"tmp-{path.name}-{secrets.token_hex(8)}"
    os.mkdir(ours)
    try:
        write_new(ours / "content", content)
        fsync_path(ours)
        try:
            os.rename(ours, first)
        except OSError:
            # The errno differs between file systems, and a reply may have been lost: what is there tells.
            if not os.path.lexists(first / "content"):
                raise
        fsync_path(path.parent)
    finally:
        remove_tree(ours)
    winners = (first / "content").read_bytes()
    if not os.path.lexists(path):
        replace_whole(path, winners, scratch)
    return path.read_bytes() == content


def replace_whole(path: Path, content: bytes, scratch: Path, durable: bool = True) -> None:
    """Replace a file so that a reader sees the old or the new one. `durable=False` is for heartbeats.

    scratch: directory for the temporary file, one whose leftovers the next attempt removes.
    """
    temporary = scratch / f"tmp-{path.name}-{secrets.token_hex(4)}"
    write_new(temporary, content, durable)
    try:
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        fsync_path(path.parent)


def open_plain(path: Path) -> int:
    """A descriptor for reading a plain file. Raises ValueError for anything else under that name.

    What a volume holds is input: a symbolic link leads elsewhere, and opening a pipe waits for ever.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError(f"{path.name} is not a plain file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not a plain file")
    return descriptor


def parse_json(path: Path) -> Any:
    """The JSON value in a plain file. Raises ValueError for one that is none or too large, and OSError."""
    with open(open_plain(path), "rb") as stream:
        content = stream.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise ValueError(f"{path.name} is larger than {LARGEST_JSON} bytes")
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise ValueError(f"{path.name} is nested too deeply") from error
    check_depth(value, path.name)
    return value


def check_depth(value: Any, name: str) -> None:
    """Raise ValueError for JSON that functions which call themselves could not walk through."""
    level = [value]
    for _ in range(DEEPEST_JSON):
        inner = [part for part in level if isinstance(part, (dict, list))]
        level = [part for outer in inner for part in (outer.values() if isinstance(outer, dict) else outer)]
        if not level:
            return
    raise ValueError(f"{name} is nested too deeply")


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None when it is absent or is not one."""
    try:
        value = parse_json(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def encode_json(value: Any) -> bytes:
    return (json.dumps(finite(value), indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def finite(value: Any) -> Any:
    """The value with "NaN", "Infinity" and "-Infinity" as text: JSON has no such numbers, but losses have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return value


def sha256_of(path: Path) -> str:
    """Hex digest of a whole plain file, as `sha256sum` prints it. Raises ValueError for another kind."""
    with open(open_plain(path), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a directory that nothing reads any more. One that does not go away now is tried again later."""
    with contextlib.suppress(OSError):  # `ignore_errors` leaves out those of fstat
        shutil.rmtree(path, ignore_errors=True)
