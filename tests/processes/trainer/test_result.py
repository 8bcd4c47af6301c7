"""The result: committed by exactly one, found and verified by everyone else."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.recovery import Attempt, Superseded, Unverified
from trainer.recovery import result as results
from trainer.recovery.files import create_exclusively
from trainer.recovery.result import Outcome

Claim = Callable[[], Attempt]


def finished(attempt: Attempt, text: str = "weights") -> Outcome:
    attempt.artifact_path("model.txt").write_text(text)
    attempt.finish(9, {"accuracy": 0.5}, ["model.txt"])
    outcome = results.read_outcome(attempt.generation)
    assert outcome is not None
    return outcome


def committed(attempt: Attempt, text: str = "weights") -> bool:
    return results.commit(attempt.generation, finished(attempt, text), attempt.store.identity)


def test_a_committed_result_is_found_and_verifies(claim: Claim, run_dir: Path) -> None:
    assert results.find(run_dir) is None or pytest.fail("there is no result yet")
    assert committed(claim())
    result = results.find(run_dir)
    assert result is not None
    results.verify(run_dir, result)
    assert (result.step, result.generation, result.metrics) == (9, 1, {"accuracy": 0.5})
    assert (run_dir / result.artifacts[0].path).read_text() == "weights"


def test_a_second_result_is_not_committed_and_the_first_one_stays(claim: Claim, run_dir: Path) -> None:
    assert committed(claim(), "first")
    assert not committed(claim(), "second")
    result = results.find(run_dir)
    assert result is not None and result.generation == 1
    results.verify(run_dir, result)


def test_of_many_finishers_at_once_exactly_one_commits(claim: Claim, run_dir: Path) -> None:
    attempt = claim()
    outcome = finished(attempt)
    won: list[bool] = []
    barrier = threading.Barrier(8)

    def finish() -> None:
        barrier.wait()
        won.append(results.commit(attempt.generation, outcome, attempt.store.identity))

    threads = [threading.Thread(target=finish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]
    result = results.find(run_dir)
    assert result is not None
    results.verify(run_dir, result)


def test_a_superseded_finisher_whose_artifacts_are_published_leaves_one_good_result(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = claim()
    create = results.create_exclusively

    def overtaken(path: Path, content: bytes, scratch: Path) -> bool:
        monkeypatch.setattr(results, "create_exclusively", create)
        assert committed(claim(), "of the newer attempt")
        return create(path, content, scratch)

    monkeypatch.setattr(results, "create_exclusively", overtaken)
    with pytest.raises(Superseded):
        committed(first, "of the older attempt")
    result = results.find(run_dir)
    assert result is not None and result.generation == 2
    results.verify(run_dir, result)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.write_text("WEIGHTS"), "differs from its hash"),
        (lambda path: path.write_text("w"), "has 1 bytes instead of 7"),
        (lambda path: path.unlink(), "is missing"),
    ],
)
def test_a_result_whose_artifact_is_damaged_does_not_verify(
    claim: Claim, run_dir: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    committed(claim())
    result = results.find(run_dir)
    assert result is not None
    damage(run_dir / result.artifacts[0].path)
    with pytest.raises(Unverified, match=sentence):
        results.verify(run_dir, result)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": "other/1"}', '{"format": "holdfast.result/1"}']
)
def test_a_file_that_is_no_result_is_not_taken_for_one(run_dir: Path, claim: Claim, content: str) -> None:
    claim()
    (run_dir / "result.json").write_text(content)
    with pytest.raises(Unverified):
        results.find(run_dir, patience=0)


def test_a_result_that_is_still_being_written_is_waited_for(claim: Claim, run_dir: Path) -> None:
    committed(claim())
    path = run_dir / "result.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    timer = threading.Timer(0.2, lambda: path.write_bytes(whole))
    timer.start()
    found = results.find(run_dir)
    timer.join()
    assert found is not None and found.step == 9


def test_an_artifact_outside_of_the_run_is_refused(claim: Claim, run_dir: Path) -> None:
    committed(claim())
    path = run_dir / "result.json"
    path.write_text(path.read_text().replace('"path": "artifacts', '"path": "../artifacts'))
    result = results.find(run_dir)
    assert result is not None
    with pytest.raises(Unverified, match="is outside of"):
        results.verify(run_dir, result)


def test_without_hard_links_the_first_one_wins_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", unsupported)
    (tmp_path / "scratch").mkdir()
    won = [
        create_exclusively(tmp_path / "result", text, tmp_path / "scratch") for text in (b"first", b"second")
    ]
    assert won == [True, False]
    assert (tmp_path / "result").read_bytes() == b"first"
    assert os.listdir(tmp_path / "scratch") == []


def test_a_link_that_succeeded_although_nfs_says_it_exists_counts_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def reply_was_lost(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)  # the client sends it again and hears EEXIST

    monkeypatch.setattr(os, "link", reply_was_lost)
    assert create_exclusively(tmp_path / "result", b"ours", tmp_path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_volume_that_fills_up_leaves_no_half_a_result(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    attempt = claim()
    outcome = finished(attempt)

    def unsupported(*arguments: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    real, writes = os.write, itertools.count()

    def fills_up(descriptor: int, content: bytes) -> int:
        if "/tmp-result.json" in os.readlink(f"/proc/self/fd/{descriptor}") and next(writes) == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", unsupported)
        patch.setattr(os, "write", fills_up)
        with pytest.raises(OSError, match="No space left"):
            results.commit(attempt.generation, outcome, attempt.store.identity)
    assert results.find(run_dir) is None
    assert committed(claim())


def test_an_artifacts_name_is_a_plain_file_name(claim: Claim) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        claim().artifact_path("../model")


def test_a_volume_that_can_not_tell_now_whether_there_is_a_result_is_not_one_without(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(claim())

    def fails(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", fails)
        with pytest.raises(OSError, match="Input/output error"):
            results.find(run_dir)
    assert results.find(run_dir) is not None
