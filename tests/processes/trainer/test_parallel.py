"""Many bytes are hashed and flushed at once, each chunk has its own right hash, and no failure is lost."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.recovery import Attempt, SaveFailed
from trainer.recovery import manifest as manifests
from trainer.recovery import parallel
from trainer.recovery.parallel import FEW_BYTES, FEW_FILES, Workers

Claim = Callable[[], Attempt]
CHUNK = 1000


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK, 5 * CHUNK + 7])
@pytest.mark.parametrize("part", [1, 7, CHUNK, 10 * CHUNK])
@pytest.mark.parametrize("files", [1, FEW_FILES + 1], ids=["inline", "threads"])
def test_each_chunk_has_the_hash_of_its_own_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, part: int, files: int
) -> None:
    monkeypatch.setattr(parallel, "READ_BYTES", part)
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    with Workers(files, size) as workers:
        hashes = [future.result() for future in workers.hash_chunks(tmp_path / "file", size, CHUNK)]
    expected = [hashlib.sha256(content[start : start + CHUNK]).hexdigest() for start in range(0, size, CHUNK)]
    assert hashes == expected


def many(folder: Path, state: object = None) -> None:
    for number in range(FEW_FILES + 1):
        (folder / f"part-{number:02}").write_bytes(bytes([number]) * 1000)


@pytest.mark.timeout(20)
def test_files_are_hashed_while_others_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(tmp_path)
    hashed = threading.Event()
    real, fsync = parallel.hash_chunk, os.fsync

    def watched(path: Path, start: int, length: int) -> str:
        found = real(path, start, length)
        if path.name == f"part-{FEW_FILES:02}":
            hashed.set()  # the last one
        return found

    def slow(descriptor: int) -> None:
        assert hashed.wait(10)
        fsync(descriptor)

    monkeypatch.setattr(parallel, "hash_chunk", watched)
    monkeypatch.setattr(os, "fsync", slow)
    assert len(manifests.describe_files(tmp_path)) == FEW_FILES + 1


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_a_failure_in_any_thread_fails_the_save(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = getattr(os, call)
    seen = 0

    def fails(first: object, *rest: object, **options: object) -> object:
        nonlocal seen
        name = os.readlink(f"/proc/self/fd/{first}") if call == "fsync" else str(first)
        if name.endswith("part-11"):
            seen += 1
            raise OSError(errno.EIO, "Input/output error")
        return real(first, *rest, **options)

    attempt = claim()
    attempt.store.save(1, many)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(SaveFailed, match="EIO"):
            attempt.store.save(2, many)
    assert seen and os.listdir(attempt.store.work_dir) == ["step-1"]


@pytest.mark.timeout(20)
def test_after_a_failure_what_has_not_begun_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    done: list[int] = []
    gate = threading.Event()

    def slow(path: Path, start: int, length: int) -> str:
        assert gate.wait(10)
        done.append(start)
        return ""

    monkeypatch.setattr(parallel, "hash_chunk", slow)
    with pytest.raises(ZeroDivisionError), Workers(1, FEW_BYTES + 1) as workers:
        workers.hash_chunks(tmp_path / "file", 1000, 1)
        threading.Timer(0.1, gate.set).start()
        raise ZeroDivisionError
    assert len(done) <= parallel.MOST_THREADS


def test_small_checkpoints_are_written_in_one_order_by_one_thread(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        threads.add(threading.get_ident())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    claim().store.save(1, lambda folder: [(folder / str(n)).touch() for n in range(FEW_FILES)] and None)
    assert threads == {threading.get_ident()}
