"""The few file-system steps that the protocol is made of. Each goes through `os.…`, so that tests can
interpose.

They hold on a POSIX file system shared by the nodes (NFS, CephFS, Lustre, EFS). On NFS mount with
`lookupcache=none` or a short `actimeo`: a client that still caches a renamed directory's name can write into
it for that long. SMB has no hard links: there the exclusive create is O_EXCL.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)


def fsync_path(path: Path) -> None:
    """Flush a file's content, or a directory's entries, to the volume."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, content: bytes) -> None:
    """Create a file that does not exist yet, with this content, and flush it. Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(content)
        while view:  # a volume that fills up may take a part
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_exclusively(path: Path, content: bytes, scratch: Path) -> bool:
    """Create `path` whole and durable, unless it exists: True for exactly one of any number of callers.

    The content is written below `scratch` and linked, so that no reader ever sees half of it. Without hard
    links the file itself is created exclusively, and a reader may see it grow. On NFS a `link` can report
    EEXIST after it succeeded (the reply was lost): the link count tells.
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
            won = _create_in_place(path, content)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    fsync_path(path.parent)
    return won


def _create_in_place(path: Path, content: bytes) -> bool:
    try:
        write_new(path, content)
    except FileExistsError:
        return False
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)  # ours, and not whole
        raise
    return True


def replace_whole(path: Path, content: bytes, scratch: Path, durable: bool = True) -> None:
    """Replace a file so that a reader sees the old or the new one. `durable=False` is for heartbeats.

    scratch: directory for the temporary file, one whose leftovers the next attempt removes.
    """
    temporary = scratch / f"tmp-{path.name}-{secrets.token_hex(4)}"
    if durable:
        write_new(temporary, content)
    else:
        temporary.write_bytes(content)
    os.replace(temporary, path)
    if durable:
        fsync_path(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None when it is absent or is not one."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def encode_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def sha256_of(path: Path) -> str:
    """Hex digest of a whole file, as `sha256sum` prints it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a directory that nothing reads any more. One that does not go away now is tried again later."""
    shutil.rmtree(path, ignore_errors=True)
