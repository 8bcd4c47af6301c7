"""Attempts that are paused, overtaken or gone at any call to the file system: never two writers or results.

Every call that the protocol makes is a point where another attempt may run, or where this one ends.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.recovery import Superseded, open_attempt
from trainer.recovery import generation as generations
from trainer.recovery import result as results

# What others can see or change. Flushing is left out: no power is lost here, so it need not reach the disk.
CALLS = ("mkdir", "rename", "replace", "link", "unlink", "rmdir", "listdir", "open", "write")
STEPS = 3


class Gone(BaseException):
    """The process ends here: nothing that comes later runs, whatever would clean up."""


class Attempted:
    """What one attempt did, so far as it knows."""

    def __init__(self) -> None:
        self.saved: list[int] = []
        self.started_at: int | None = None
        self.committed = False
        self.superseded = False


def whole_attempt(run_dir: Path, done: Attempted, step_now: list[int]) -> None:
    """Claim, note the start, restore, save each step, commit: what supervisor and program do together."""
    try:
        attempt = open_attempt(run_dir, {"HOLDFAST_RUN_ID": "run-001"})
        identity = attempt.store.identity
        if (found_result := results.find(run_dir, patience=0)) is not None:
            results.verify(run_dir, found_result)
            return
        found = attempt.store.restore()
        done.started_at = found.step if found else 0
        if attempt.generation.is_current():
            assert done.started_at >= max(step_now), "what was saved before this attempt began is not lost"
        generations.record_start(attempt.generation, done.started_at, identity)
        for step in range(done.started_at + 1, STEPS + 1):
            attempt.store.save(step, lambda folder: (folder / "state").write_text("state") and None)
            done.saved.append(step)
            step_now.append(step)
        attempt.artifact_path("model").write_text("weights")
        attempt.finish(STEPS, {"n": 1}, ["model"])
        outcome = results.read_outcome(attempt.generation)
        attempt.generation.check_current()
        assert outcome is not None
        done.committed = results.commit(attempt.generation, outcome, identity)
    except Superseded:
        done.superseded = True


@contextmanager
def at_each_call(hook: Callable[[], None]) -> Iterator[None]:
    """Run `hook` before every call of this thread; calls of helper threads go through."""
    thread = threading.get_ident()
    real = {name: getattr(os, name) for name in CALLS}

    def interposed(name: str) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            if threading.get_ident() == thread and arguments[0] != 1:
                hook()
            return real[name](*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, interposed(name))
        yield


def at_call(number: int, action: Callable[[], None]) -> Callable[[], None]:
    """A hook that acts at the call of that number (from 0), once, and not while it acts."""
    seen = -1

    def hook() -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            action()

    return hook


def check_end(run_dir: Path, attempts: list[Attempted], saved: list[int]) -> None:
    """A last attempt finds the newest checkpoint or completes; there is one result, by one attempt."""
    last = Attempted()
    whole_attempt(run_dir, last, saved)
    result = results.find(run_dir, patience=0)
    assert result is not None and result.step == STEPS
    results.verify(run_dir, result)
    winners = sum(attempt.committed for attempt in [*attempts, last])
    assert winners <= 1
    folders = [name for name in os.listdir(run_dir) if name.startswith("generation-")]
    assert len(folders) == 1, "no working directory but the newest"
    assert not [name for name in os.listdir(run_dir / folders[0]) if name.startswith("tmp-removed")]


def count_calls(run_dir: Path) -> int:
    count = 0

    def hook() -> None:
        nonlocal count
        count += 1

    with at_each_call(hook):
        whole_attempt(run_dir, Attempted(), [0])
    return count


@pytest.fixture(autouse=True)
def no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name / "run-001"

    return make


def test_an_attempt_paused_at_any_call_while_another_completes_changes_nothing(
    folder: Callable[[str], Path],
) -> None:
    points = count_calls(folder("count"))
    assert points > 60
    for point in range(points):  # each of them
        run_dir, saved = folder(f"pause-{point}"), [0]
        zombie, other = Attempted(), Attempted()
        with at_each_call(at_call(point, lambda d=run_dir, o=other, s=saved: whole_attempt(d, o, s))):
            whole_attempt(run_dir, zombie, saved)
        assert not (zombie.committed and other.committed)
        check_end(run_dir, [zombie, other], saved)


def test_an_attempt_that_is_gone_at_every_third_call_is_resumed_by_the_next_one(
    folder: Callable[[str], Path],
) -> None:
    for point in range(0, count_calls(folder("count")), 3):
        run_dir, saved = folder(f"gone-{point}"), [0]
        dead = Attempted()
        gone = False

        def die() -> None:
            nonlocal gone
            gone = True

        die_at = at_call(point, die)

        def hook(die_at: Callable[[], None] = die_at) -> None:
            die_at()
            if gone:
                raise Gone

        with at_each_call(hook), pytest.raises(Gone):
            whole_attempt(run_dir, dead, saved)
        check_end(run_dir, [dead], saved)


@pytest.mark.parametrize("seed", range(8))
def test_three_attempts_in_any_order_of_their_calls_end_with_one_result(
    folder: Callable[[str], Path], seed: int
) -> None:
    run_dir, saved = folder("three"), [0]
    choose = random.Random(seed)
    attempts = [Attempted() for _ in range(3)]
    turns = [threading.Semaphore(0) for _ in attempts]
    back = threading.Semaphore(0)
    mine = threading.local()
    failed: list[BaseException] = []
    real = {name: getattr(os, name) for name in CALLS}

    def interposed(name: str) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            if (number := getattr(mine, "number", None)) is not None and arguments[0] != 1:
                back.release()
                turns[number].acquire()
            return real[name](*arguments, **options)

        return call

    def run(number: int) -> None:
        turns[number].acquire()
        mine.number = number
        try:
            # No check against `saved` here: the others save between this one's claim and its restore.
            whole_attempt(run_dir, attempts[number], _Forgetful(saved))
        except BaseException as error:
            failed.append(error)
        finally:
            mine.number = None
            living.remove(number)
            back.release()

    living = list(range(len(attempts)))
    threads = [threading.Thread(target=run, args=(number,)) for number in living]
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, interposed(name))
        for thread in threads:
            thread.start()
        while living:
            # In runs of uneven length, so that one is now and then paused for long.
            number = choose.choice(living)
            for _ in range(choose.choice((1, 2, 5, 30))):
                if number in living:
                    turns[number].release()
                    back.acquire()
        for thread in threads:
            thread.join()
    assert not failed, failed
    check_end(run_dir, attempts, saved)


class _Forgetful(list[int]):
    """Notes what was saved for the end, and remembers nothing for the attempt itself."""

    def __init__(self, notes: list[int]) -> None:
        super().__init__([0])
        self.notes = notes

    def append(self, step: int) -> None:
        self.notes.append(step)
