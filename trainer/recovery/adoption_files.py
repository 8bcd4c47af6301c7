"""What stands under a step's name, compared cheaply, and linked from one directory into another.

A sealed step has the same files as the program's own, by hard links: nothing is written twice, and a step
that the program removes lives on until ours is removed too. A volume without hard links gets copies.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from trainer.recovery import manifest as manifests
from trainer.recovery.errors import Unverified
from trainer.recovery.files import NO_HARD_LINKS, open_plain
from trainer.recovery.manifest import Manifest

# (path, kind, inode, bytes, modification time in ns) of every entry: what changes when content does.
Signature = tuple[tuple[str, int, int, int, int], ...]


def signature(root: Path, path: str) -> Signature:
    """What stands at `root/path` and below it. Raises FileNotFoundError when it is gone, and OSError."""
    return tuple(sorted(_entries(root, path)))


def _entries(root: Path, path: str) -> Iterator[tuple[str, int, int, int, int]]:
    about = os.lstat(root / path)
    kind = stat.S_IFMT(about.st_mode)
    if kind != stat.S_IFDIR:
        yield path, kind, about.st_ino, about.st_size, about.st_mtime_ns
        return
    yield path, kind, about.st_ino, 0, about.st_mtime_ns
    for name in os.listdir(root / path):
        yield from _entries(root, f"{path}/{name}")


def plain_files(found: Signature) -> dict[str, tuple[int, int]]:
    """Path to (bytes, modification time in ns) of what is a plain file."""
    return {path: (size, at) for path, kind, _, size, at in found if kind == stat.S_IFREG}


def contents(found: Signature) -> list[tuple[str, int, int, int, int]]:
    """A signature without the directories, whose times change when something beside is removed."""
    return [entry for entry in found if entry[1] != stat.S_IFDIR]


def odd_one(found: Signature) -> str | None:
    """The path of something that is neither a plain file nor a directory."""
    return next((path for path, kind, *_ in found if kind not in (stat.S_IFREG, stat.S_IFDIR)), None)


def head_of(root: Path, path: str) -> tuple[int, int, int] | None:
    """The cheap part of a signature, one call: inode, bytes and time of the top entry; None when gone."""
    try:
        about = os.lstat(root / path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns


def is_whole_archive(path: Path) -> bool | None:
    """Whether a zip archive (what `torch.save` and Keras write) has its directory, which is written last.

    None for a file of another format, and for an archive where that can not be told. Raises OSError.
    """
    with open(open_plain(path), "rb") as stream:
        if stream.read(4) != b"PK\3\4":
            return None
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 22))
        tail = stream.read()
        if len(tail) == 22 and tail[:4] == b"PK\5\6" and tail[20:] == b"\0\0":
            return True
        import zipfile  # only here: PID 1 starts without it

        return None if zipfile.is_zipfile(stream) else False


def put_files(source: Path, target: Path, found: Signature) -> bool:
    """Give the files and directories of a signature the same paths below another directory, which exists.

    True when all are links. Raises FileNotFoundError when one is gone, and OSError.
    """
    linked = True
    for path, kind, *_ in found:  # sorted: a directory comes before what is in it
        _make_parents(target, path)
        if kind == stat.S_IFDIR:
            _mkdir(target / path)
        else:
            linked = _put(source / path, target / path) and linked
    return linked


def _put(source: Path, target: Path) -> bool:
    try:
        os.link(source, target, follow_symlinks=False)
        return True
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
    shutil.copy2(source, target, follow_symlinks=False)
    return False


def _make_parents(root: Path, path: str) -> None:
    """Never the root itself: that would bring a fenced directory back."""
    for parent in list(reversed(Path(path).parents))[1:]:
        _mkdir(root / parent)


def _mkdir(folder: Path) -> None:
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise


def check_same(folder: Path, sealed: Path, manifest: Manifest, path: str, seen: dict[str, int]) -> None:
    """Compare what the program has at `folder/path` with the sealed step. Raises Unverified, and OSError.

    seen: modification times in ns when it was sealed. A file that is the sealed one itself (a link) with that
    time is the same; others are read.
    """
    try:
        here = plain_files(found := signature(folder, path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Unverified(f"{path} is missing") from error
    if odd := odd_one(found):
        raise Unverified(f"{odd} is no plain file")
    told = {entry.path for entry in manifest.files}
    if more := sorted(set(here) - told):
        raise Unverified(f"{more[0]} was added after the step was sealed")
    manifests.check_sizes(folder, manifest)
    if all(
        here[name][1] == seen.get(name) and os.path.samestat(os.lstat(folder / name), os.lstat(sealed / name))
        for name in told
    ):
        return
    manifests.verify(folder, manifest)
