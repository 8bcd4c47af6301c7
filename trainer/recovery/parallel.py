"""Hashing and flushing of many bytes at once: the processor works while the volume does.

Hashing takes all cores, chunk by chunk, so that one big file is no bottleneck. Flushing waits for the volume
and takes none: it has threads of its own, and a volume commits many flushes that wait together as one.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from trainer.recovery.files import fsync_path, open_plain

# After each part a thread asks for the interpreter, and gets it from a busy training loop only after 5 ms:
# small parts would cost that more often. Larger ones would leave the processor's cache before hashing.
READ_BYTES = 8 * 1024 * 1024
# More than a small machine's cores, because reading waits; a container sees all cores of a large node.
LEAST_THREADS, MOST_THREADS = 4, 16
FLUSHES_AT_ONCE = 8
# Below these, starting threads takes longer than the work, and the order of calls is one.
FEW_FILES, FEW_BYTES = 16, 4 * 1024 * 1024


class Workers:
    """Threads for the files of one checkpoint. Leaving by an exception drops what has not begun."""

    def __init__(self, files: int, size: int) -> None:
        if files <= FEW_FILES and size <= FEW_BYTES:
            self._hashing: Executor = _Inline()
            self._flushing: Executor = self._hashing
        else:
            threads = min(MOST_THREADS, max(LEAST_THREADS, os.cpu_count() or 1))
            self._hashing = ThreadPoolExecutor(threads, "hash")
            self._flushing = ThreadPoolExecutor(min(FLUSHES_AT_ONCE, files or 1), "flush")

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in (self._flushing, self._hashing):
            pool.shutdown(wait=True, cancel_futures=kind is not None)

    def flush(self, path: Path) -> Future[None]:
        """Begin to flush a file's content to the volume."""
        return _submit(self._flushing, fsync_path, path)

    def hash_chunks(self, path: Path, size: int, chunk_bytes: int) -> list[Future[str]]:
        """Begin to hash a plain file; the hex SHA-256 of each chunk, in order."""
        return [
            _submit(self._hashing, hash_chunk, path, start, min(chunk_bytes, size - start))
            for start in range(0, size, chunk_bytes)
        ]


def hash_chunk(path: Path, start: int, length: int) -> str:
    """Hex SHA-256 of a part of a plain file, or of what there is of it. Raises ValueError, OSError."""
    # hashlib lets go of the interpreter lock for large buffers, so threads use all cores.
    content = hashlib.sha256()
    buffer = _buffer(min(READ_BYTES, length))
    with open(open_plain(path), "rb", buffering=0) as stream:
        stream.seek(start)
        while length > 0 and (count := stream.readinto(buffer[:length])):
            content.update(buffer[:count])
            length -= count
    return content.hexdigest()


_own = threading.local()


def _buffer(size: int) -> memoryview:
    """This thread's own, kept as long as the thread: fresh memory for each chunk costs half of its hash."""
    if len(getattr(_own, "buffer", b"")) < size:
        _own.buffer = bytearray(size)
    return memoryview(_own.buffer)[:size]


class _Inline(Executor):
    """Does the work where it is asked for."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **options))
        except Exception as error:  # raised by `result`, as with a pool
            done.set_exception(error)
        return done


_INLINE = _Inline()


def _submit(pool: Executor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    try:
        return pool.submit(function, *arguments)
    except RuntimeError:
        # No pool takes work once the main thread has ended, and a save in the background may still go on.
        return _INLINE.submit(function, *arguments)
