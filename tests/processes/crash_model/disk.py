"""A model of what a volume holds after power was lost: what was flushed, and any part of the rest.

What is modelled, and on whose word:

- `fsync` of a file makes its content durable, but not its name; `fsync` of a directory makes its names
  durable, but not what they lead to (POSIX, fsync(2)). Nothing else makes anything durable, in whatever
  order it was done.
- Each operation since may have reached the disk by itself, in any order: file systems reorder a file's
  content and names in different directories, and even names in one directory, as ALICE found for six Linux
  file systems (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014). Content that was not
  flushed may be there, be missing, be cut short, or be zeros of the full length (delayed allocation).
  CrashMonkey's workloads are of this kind, too: short sequences of names, content and fsync (Mohan et al.,
  OSDI 2018).
- A rename happens or does not: nobody finds the new name leading to nothing. Across directories it is
  durable as a whole once the old name's directory is flushed (ext4, XFS and NFS servers on them keep both
  halves in one transaction). Flushed in the new name's directory alone, or not at all, a file may also be
  found under both names (ext2, older btrfs). A directory has one name.
- An `fsync` of a file that failed leaves content that no later fsync makes durable, although that one
  succeeds (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). A failed one
  of a directory can be repeated: its names are in the journal, and a journal that fails makes the volume
  read-only.
- A process that ends by itself loses nothing, but nothing of what it did becomes durable by that either.

Not modelled: damage to what was flushed, garbage of other files in unflushed content, a volume that lies
about fsync, and caches of NFS clients (see docs/recovery-proof.md).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = 0


@dataclass(frozen=True)
class Name:
    """A directory's name leads to an inode from now on, or to nothing (None)."""

    directory: int
    name: str
    inode: int | None


@dataclass(frozen=True)
class Move:
    """A rename of an inode from one directory's name to another's, over whatever that one led to."""

    source: int
    name: str
    target: int
    new_name: str
    inode: int


@dataclass(frozen=True)
class Write:
    """Bytes at an offset of a file."""

    inode: int
    offset: int
    content: bytes


@dataclass(frozen=True)
class Resize:
    """A file is cut or grown to a size in bytes."""

    inode: int
    size: int


@dataclass(frozen=True)
class Flush:
    """An fsync of a file or directory. `failed`: it reported an error."""

    inode: int
    failed: bool = False


Effect = Name | Move | Write | Resize | Flush


class Fate(Enum):
    """What became of a pending operation."""

    KEPT = "kept"
    LOST = "lost"
    HALF = "half of the bytes"
    ZEROS = "zeros in place of the bytes"
    BOTH = "under both names"


# A state of the disk, for people and for comparing: path to content, or to the first path of the same inode.
Tree = dict[str, bytes | str | None]


class Disk:
    """What is durable, and the operations since, in order."""

    def __init__(self) -> None:
        self.names: dict[int, dict[str, int]] = {ROOT: {}}
        self.content: dict[int, bytes] = {}
        self.pending: list[Name | Move | Write | Resize] = []
        self._beyond_flushing: set[int] = set()  # of `pending`, by identity: no fsync reaches them

    @classmethod
    def of(cls, root: Path, numbers: dict[tuple[int, int], int]) -> Disk:
        """All of a real directory, durable. Fills `numbers`: device and inode to the model's number."""
        disk = cls()

        def add(folder: Path, inode: int) -> None:
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                key = (status.st_dev, status.st_ino)
                known = key in numbers
                number = numbers.setdefault(key, len(numbers) + 1)
                disk.names[inode][entry.name] = number
                if entry.is_dir(follow_symlinks=False):
                    disk.names[number] = {}
                    add(Path(entry.path), number)
                elif not known:
                    disk.content[number] = Path(entry.path).read_bytes()

        add(root, ROOT)
        return disk

    def copy(self) -> Disk:
        other = Disk()
        other.names = {inode: dict(names) for inode, names in self.names.items()}
        other.content = dict(self.content)
        other.pending = list(self.pending)
        other._beyond_flushing = set(self._beyond_flushing)
        return other

    # What happens

    def new_inode(self, inode: int, directory: bool) -> None:
        if directory:
            self.names[inode] = {}
        else:
            self.content[inode] = b""

    def happens(self, effect: Effect) -> None:
        if not isinstance(effect, Flush):
            self.pending.append(effect)
        elif effect.inode in self.names:
            if not effect.failed:
                self._flush_names(effect.inode)
        elif effect.failed:
            self._beyond_flushing |= {id(one) for one in self._written(effect.inode)}
        else:
            self._flush_content(effect.inode)

    def _written(self, inode: int) -> list[Write | Resize]:
        return [one for one in self.pending if isinstance(one, Write | Resize) and one.inode == inode]

    def _flush_content(self, inode: int) -> None:
        reached = [one for one in self._written(inode) if id(one) not in self._beyond_flushing]
        for effect in reached:
            _apply(self, effect, Fate.KEPT)
        done = {id(one) for one in reached}
        self.pending = [one for one in self.pending if id(one) not in done]

    def _flush_names(self, directory: int) -> None:
        remaining: list[Name | Move | Write | Resize] = []
        for effect in self.pending:
            if isinstance(effect, Name) and effect.directory == directory:
                _apply(self, effect, Fate.KEPT)
            elif isinstance(effect, Move) and directory in (effect.source, effect.target):
                is_file = effect.inode not in self.names
                if is_file and directory == effect.target != effect.source:
                    self.names[directory][effect.new_name] = effect.inode
                    remaining.append(Name(effect.source, effect.name, None))
                else:
                    _apply(self, effect, Fate.KEPT)
                    places = {(effect.source, effect.name), (effect.target, effect.new_name)}
                    # What was done to these names before is over with: kept alone, it would undo the rename.
                    remaining = [
                        one
                        for one in remaining
                        if not isinstance(one, Name) or (one.directory, one.name) not in places
                    ]
            else:
                remaining.append(effect)
        self.pending = remaining

    # What is left of it

    def after(self, fates: Sequence[Fate]) -> Disk:
        """The disk when each pending operation had that fate; nothing is pending any more."""
        left = self.copy()
        left.pending = []
        for effect, fate in zip(self.pending, fates, strict=True):
            if fate is not Fate.LOST:
                _apply(left, effect, fate)
        return left

    def everything(self) -> Disk:
        """The disk as the processes see it now."""
        return self.after([Fate.KEPT] * len(self.pending))

    def fates(self, choose: random.Random, drawn: int) -> Iterator[tuple[Fate, ...]]:
        """The fates that are looked at.

        None kept, all kept, each alone lost, each alone kept, each prefix, each content torn, and `drawn`
        random ones.
        """
        count = len(self.pending)
        kept, lost = [Fate.KEPT] * count, [Fate.LOST] * count
        yield tuple(lost)
        if count == 0:
            return
        yield tuple(kept)
        for place, effect in enumerate(self.pending):
            yield (*kept[:place], Fate.LOST, *kept[place + 1 :])
            yield (*lost[:place], Fate.KEPT, *lost[place + 1 :])
            yield (*kept[: place + 1], *lost[place + 1 :])
            for other in _others(self, effect):
                yield (*kept[:place], other, *kept[place + 1 :])
        for _ in range(drawn):
            yield self.drawn(choose)

    def drawn(self, choose: random.Random) -> tuple[Fate, ...]:
        """One random fate for each pending operation."""
        return tuple(
            choose.choice((Fate.LOST, Fate.KEPT, Fate.KEPT, *_others(self, one))) for one in self.pending
        )

    def tree(self) -> Tree:
        """Every path that leads to something. Pending operations are not looked at."""
        found: Tree = {}
        first: dict[int, str] = {}

        def visit(directory: int, prefix: str) -> None:
            for name, inode in sorted(self.names[directory].items()):
                path = prefix + name
                if inode in self.names:
                    found[path] = None
                    visit(inode, path + "/")
                elif inode in first:
                    found[path] = first[inode]
                else:
                    first[inode] = path
                    found[path] = self.content[inode]

        visit(ROOT, "")
        return found


class Seen(Disk):
    """The disk as the processes see it: everything is there at once."""

    def happens(self, effect: Effect) -> None:
        if not isinstance(effect, Flush):
            _apply(self, effect, Fate.KEPT)


def materialise(tree: Tree, root: Path) -> None:
    """Make a state real below an empty directory."""
    for path, content in tree.items():
        place = f"{root}/{path}"
        if content is None:
            os.mkdir(place)
        elif isinstance(content, str):
            os.link(f"{root}/{content}", place)
        else:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(descriptor, content)
            os.close(descriptor)


def real_tree(root: Path) -> Tree:
    """What is really there, as a state."""
    return Disk.of(root, {}).tree()


def _others(disk: Disk, effect: Effect) -> tuple[Fate, ...]:
    if isinstance(effect, Write):
        return (Fate.HALF, Fate.ZEROS)
    if isinstance(effect, Move) and effect.source != effect.target and effect.inode not in disk.names:
        return (Fate.BOTH,)
    return ()


def _apply(disk: Disk, effect: Name | Move | Write | Resize, fate: Fate) -> None:
    _HOW[type(effect)](disk, effect, fate)


def _apply_name(disk: Disk, effect: Name, fate: Fate) -> None:
    names = disk.names[effect.directory]
    if effect.inode is None:
        names.pop(effect.name, None)
    else:
        names[effect.name] = effect.inode


def _apply_move(disk: Disk, effect: Move, fate: Fate) -> None:
    if effect.inode in disk.names:
        # It has one name, also when an earlier rename of it was lost and the name is still the one before.
        for names in disk.names.values():
            for name in [name for name, inode in names.items() if inode == effect.inode]:
                del names[name]
    elif fate is not Fate.BOTH and disk.names[effect.source].get(effect.name) == effect.inode:
        del disk.names[effect.source][effect.name]
    disk.names[effect.target][effect.new_name] = effect.inode


def _apply_write(disk: Disk, effect: Write, fate: Fate) -> None:
    content = effect.content
    if fate is Fate.HALF:
        content = content[: len(content) // 2]
    elif fate is Fate.ZEROS:
        content = bytes(len(content))
    before = disk.content[effect.inode].ljust(effect.offset, b"\0")
    disk.content[effect.inode] = before[: effect.offset] + content + before[effect.offset + len(content) :]


def _apply_resize(disk: Disk, effect: Resize, fate: Fate) -> None:
    disk.content[effect.inode] = disk.content[effect.inode][: effect.size].ljust(effect.size, b"\0")


_HOW: dict[type, Callable[..., None]] = {
    Name: _apply_name,
    Move: _apply_move,
    Write: _apply_write,
    Resize: _apply_resize,
}
