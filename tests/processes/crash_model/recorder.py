"""Every call to the file system below a folder: performed for real, recorded, noted in the model.

Interposed is the `os` module, because everything ends there: `shutil`, `pathlib` and `os.makedirs` call it,
and `open` is replaced by Python's own implementation of it, which calls it too. What can change a volume
and is not modelled is refused, so that nothing happens beside the model; `real_tree` tells afterwards
whether anything did.
"""

from __future__ import annotations

import _pyio
import builtins
import io
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.processes.crash_model.disk import ROOT, Disk, Effect, Flush, Move, Name, Resize, Seen, Write
from tests.processes.crash_model.repeatable import Clock, repeatable

PATH_CALLS = (
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "listdir",
    "scandir",
    "stat",
    "lstat",
    "access",
    "statvfs",
)
PAIR_CALLS = ("rename", "replace", "link")
DESCRIPTOR_CALLS = ("read", "write", "fsync", "fdatasync", "ftruncate", "fstat", "lseek")
REFUSED = (
    "symlink",
    "mkfifo",
    "mknod",
    "truncate",
    "pwrite",
    "pwritev",
    "writev",
    "sendfile",
    "copy_file_range",
    "renames",
)
REAL = {
    name: getattr(os, name)
    for name in (*PATH_CALLS, *PAIR_CALLS, *DESCRIPTOR_CALLS, *REFUSED, "open", "close")
}
# What other processes can see, or what shows them: where an attempt may be overtaken.
SHARED = frozenset({"mkdir", "rmdir", "unlink", "remove", *PAIR_CALLS, "write", "open", "create", "listdir"})


@dataclass(frozen=True)
class Call:
    """One call: the function, the path relative to the folder, and what it changed (nothing if it failed).

    The function is "create" for an `open` that may make a file.
    """

    name: str
    path: str
    effects: tuple[Effect, ...] = ()
    directory: tuple[int, ...] = ()  # inodes that are new, and directories
    file: tuple[int, ...] = ()  # inodes that are new, and files


@dataclass
class Recorder:
    """Records while it is entered (`with`). One at a time in a process.

    before: called before each call with its name and its path. What it raises, the call raises, and is not
    performed; a number that it returns is the most bytes that a read or write may take.
    after: called when the call was performed; what it raises, the caller gets in place of the answer.
    clock: what the recorded ones see as the time.
    """

    root: Path
    before: Callable[[str, str], int | None] | None = None
    after: Callable[[str, str], None] | None = None
    clock: Clock | None = None
    calls: list[Call] = field(default_factory=list)
    marks: list[tuple[int, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self.base = Disk.of(self.root, self._numbers)
        self._seen = Seen.of(self.root, {})
        self._next = len(self._numbers) + 1
        self._open: dict[int, int] = {}
        self._prefix = f"{self.root}/"
        self._lock = threading.RLock()

    def mark(self, fact: Any) -> None:
        """Note something that holds from this point on, for example that a save has returned."""
        self.marks.append((len(self.calls), fact))

    def disks(self) -> Iterator[tuple[int, Disk]]:
        """The disk at each crash point: before call 0, before call 1, …, after the last call."""
        disk = self.base.copy()
        yield 0, disk
        for number, call in enumerate(self.calls, start=1):
            perform(disk, call)
            yield number, disk

    # Interposing

    @contextmanager
    def recording(self, names: str = "b") -> Iterator[Recorder]:
        """`names`: the hex digit that this process's random names begin with."""
        replaced = {
            **{name: self._path_call(name) for name in PATH_CALLS},
            **{name: self._pair_call(name) for name in PAIR_CALLS},
            **{name: self._descriptor_call(name) for name in DESCRIPTOR_CALLS},
            **{name: self._refused(name) for name in REFUSED},
            "open": self._open_call,
            "close": self._close,
        }
        opened = builtins.open
        io_opened = io.open
        try:
            for name, function in replaced.items():
                setattr(os, name, function)
            builtins.open = self._python_open(opened)  # type: ignore[assignment]
            io.open = builtins.open
            with one_thread(), repeatable(names, self.clock):
                yield self
        finally:
            for name in replaced:
                setattr(os, name, REAL[name])
            builtins.open, io.open = opened, io_opened

    def _path_call(self, name: str) -> Callable[..., Any]:
        real = REAL[name]

        def call(path: Any = ".", *rest: Any, dir_fd: int | None = None, **options: Any) -> Any:
            options = options if dir_fd is None else {**options, "dir_fd": dir_fd}
            place = self._place(path, dir_fd)
            if place is None:
                return real(path, *rest, **options)
            return self._perform(name, place, lambda: real(path, *rest, **options))

        return call

    def _pair_call(self, name: str) -> Callable[..., Any]:
        real = REAL[name]

        def call(source: Any, target: Any, **options: Any) -> Any:
            places = (
                self._place(source, options.get("src_dir_fd")),
                self._place(target, options.get("dst_dir_fd")),
            )
            if places == (None, None):
                return real(source, target, **options)
            if None in places:
                raise AssertionError(f"{name} from {source} to {target} leaves the folder: not modelled")
            return self._perform(name, f"{places[0]} -> {places[1]}", lambda: real(source, target, **options))

        return call

    def _descriptor_call(self, name: str) -> Callable[..., Any]:
        real = REAL[name]

        def call(descriptor: Any, *rest: Any) -> Any:
            if descriptor not in self._open:
                # What is told on standard output is nothing to the volume, and much to read.
                return len(rest[0]) if name == "write" and descriptor == 1 else real(descriptor, *rest)
            return self._perform(name, f"#{self._open[descriptor]}", None, descriptor, *rest)

        return call

    def _refused(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            paths = [one for one in arguments if isinstance(one, str | os.PathLike)]
            ours = [one for one in arguments if isinstance(one, int) and one in self._open]
            if ours or any(self._place(path, None) for path in paths):
                raise AssertionError(f"os.{name} is not modelled: write it in recorder.py")
            return REAL[name](*arguments, **options)

        return call

    def _open_call(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = self._place(path, dir_fd)
        if place is None:
            return REAL["open"](path, flags, mode, dir_fd=dir_fd)
        name = "create" if flags & os.O_CREAT else "open"
        return self._perform(name, place, lambda: REAL["open"](path, flags, mode, dir_fd=dir_fd), flags)

    def _close(self, descriptor: int) -> None:
        with self._lock:
            REAL["close"](descriptor)  # nothing is lost or made durable by it, and the dead close too
            self._open.pop(descriptor, None)

    def _python_open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *rest: Any, **options: Any) -> Any:
            ours = file in self._open if isinstance(file, int) else self._place(file, None) is not None
            return (_pyio.open if ours else real)(file, *rest, **options)

        return call

    def _place(self, path: Any, dir_fd: int | None) -> str | None:
        """Relative to the folder; None for what is not in it."""
        if isinstance(path, int):
            return f"#{self._open[path]}" if path in self._open else None
        text = os.fspath(path)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        if dir_fd is not None:
            return f"#{self._open[dir_fd]}/{text}" if dir_fd in self._open else None
        if text == str(self.root):
            return "."
        return text.removeprefix(self._prefix) if text.startswith(self._prefix) else None

    # Recording

    def _perform(self, name: str, place: str, real: Callable[[], Any] | None, *details: Any) -> Any:
        try:
            limit = self._ask(name, place)
        except OSError:
            if name == "access":
                return False  # it has no other way to tell
            raise
        with self._lock:
            number = len(self.calls)
            self.calls.append(Call(name, place))  # stands when the real call fails
            if real is None:
                descriptor, *rest = details
                if limit is not None and name in ("read", "write"):
                    rest = [rest[0][:limit] if name == "write" else min(rest[0], limit)]
                # What is durable is the model's business.
                answer = None if name in ("fsync", "fdatasync") else REAL[name](descriptor, *rest)
                details = (descriptor, *rest, answer)
            else:
                before = self._inode(place) if name in ("open", "create") else None
                answer = real()
                details = (*details, before, answer)
            call = self._call(name, place, details)
            self.calls[number] = call
            perform(self._seen, call)
        if self.after:
            try:
                self.after(name, place)
            except OSError:
                if name in ("open", "create"):
                    self._close(answer)  # nobody else knows of it
                raise
        return answer

    def _ask(self, name: str, place: str) -> int | None:
        if not self.before:
            return None
        try:
            return self.before(name, place)
        except OSError:
            flushes = name in ("fsync", "fdatasync")
            with self._lock:
                self.calls.append(Call(name, place, (Flush(int(place[1:]), failed=True),) if flushes else ()))
            raise

    def _call(self, name: str, place: str, details: tuple[Any, ...]) -> Call:
        match name:
            case "open" | "create":
                return self._opened(name, place, *details)
            case "mkdir":
                inode = self._new()
                return Call(name, place, (Name(*self._entry(place), inode),), directory=(inode,))
            case "rmdir" | "unlink" | "remove":
                return Call(name, place, (Name(*self._entry(place), None),))
            case "rename" | "replace":
                source, target = (self._entry(one) for one in place.split(" -> "))
                inode = self._names(source[0])[source[1]]
                same = self._names(target[0]).get(target[1]) == inode
                return Call(name, place, () if same else (Move(*source, *target, inode),))
            case "link":
                source, target = (self._entry(one) for one in place.split(" -> "))
                return Call(name, place, (Name(*target, self._names(source[0])[source[1]]),))
            case "write":
                descriptor, content, taken = details
                offset = REAL["lseek"](descriptor, 0, os.SEEK_CUR) - taken
                part = bytes(memoryview(content).cast("B")[:taken])
                return Call(name, place, (Write(self._open[descriptor], offset, part),) if part else ())
            case "ftruncate":
                return Call(name, place, (Resize(self._open[details[0]], details[1]),))
            case "fsync" | "fdatasync":
                return Call(name, place, (Flush(self._open[details[0]]),))
        return Call(name, place)

    def _opened(self, name: str, place: str, flags: int, before: int | None, descriptor: int) -> Call:
        if before is not None:
            self._open[descriptor] = before
            cut = flags & os.O_TRUNC and before not in self._seen.names
            return Call(name, place, (Resize(before, 0),) if cut else ())
        inode = self._new()
        self._open[descriptor] = inode
        return Call(name, place, (Name(*self._entry(place), inode),), file=(inode,))

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def _entry(self, place: str) -> tuple[int, str]:
        """The directory's inode and the name in it."""
        parent, _, name = place.rpartition("/")
        inode = self._inode(parent) if parent else ROOT
        if inode is None:
            raise AssertionError(f"the model has no directory for {place}")
        return inode, name

    def _inode(self, place: str) -> int | None:
        inode: int | None = ROOT
        for part in place.split("/"):
            if part.startswith("#"):
                inode = int(part[1:])
            elif part not in ("", "."):
                inode = self._names(inode).get(part) if inode in self._seen.names else None
        return inode

    def _names(self, directory: int | None) -> dict[str, int]:
        return self._seen.names[directory] if directory is not None else {}


def perform(disk: Disk, call: Call) -> None:
    """What a call does to the disk."""
    for inode in call.directory:
        disk.new_inode(inode, directory=True)
    for inode in call.file:
        disk.new_inode(inode, directory=False)
    for effect in call.effects:
        disk.happens(effect)


@contextmanager
def one_thread() -> Iterator[None]:
    """Pools work in the thread that asks, so that the calls have one order."""

    def submit(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **options: Any
    ) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **options))
        except Exception as error:  # as a pool does: raised by `result`
            done.set_exception(error)
        return done

    real = ThreadPoolExecutor.submit
    ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
    try:
        yield
    finally:
        ThreadPoolExecutor.submit = real  # type: ignore[method-assign]
