"""Two and three attempts at once, paused at any call, dying at any moment: never two writers or results."""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.processes.crash_model.disk import Fate, materialise, real_tree
from tests.processes.crash_model.exploring import (
    DEPTHS,
    Counted,
    Depth,
    Violation,
    check,
    depth_of,
    folder,
    in_room,
    quiet,
)
from tests.processes.crash_model.protocol import (
    RUN,
    Claimed,
    Committed,
    Known,
    Note,
    claim,
    known_at,
    save,
    saved_before,
    whole_attempt,
)
from tests.processes.crash_model.recorder import SHARED, Recorder
from tests.processes.crash_model.stepping import Attempts
from trainer.recovery import Attempt, Superseded
from trainer.recovery import generation as generations
from trainer.recovery import result as results

# Without shrinking where only the answer counts.
SETTINGS = settings(
    max_examples=depth_of(os.environ).examples,
    deadline=None,
    phases=(Phase.explicit, Phase.generate) if depth_of(os.environ).nested == 0 else tuple(Phase),
)
# In runs of uneven length, so that one is now and then paused for long.
SCHEDULES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([1, 1, 2, 5, 20, 60])), min_size=1, max_size=40
)


def attempt_in(root: Path) -> Callable[[Note], None]:
    return lambda note: whole_attempt(root / RUN, note)


def results_of(recorder: Recorder) -> set[bytes]:
    return {fact.content for _, fact in recorder.marks if isinstance(fact, Committed)}


def check_fence(recorder: Recorder) -> None:
    """Nobody makes, renames or removes anything below a former generation's path once a newer one is claimed."""
    claimed = [(at, fact.number) for at, fact in recorder.marks if isinstance(fact, Claimed)]
    for place, call in enumerate(recorder.calls):
        below = re.match(rf"{RUN}/generation-([0-9]+)/", call.path)
        newest = max((number for at, number in claimed if at <= place), default=0)
        if below and call.effects and int(below[1]) < newest:
            raise Violation(f"generation {newest} is claimed, and {call.name} {call.path} still works")


def check_end(attempts: Attempts, root: Path) -> None:
    """Nobody failed, and a last attempt finds everything that was told, and completes."""
    assert attempts.failed == []
    check_fence(attempts.recorder)
    assert len(results_of(attempts.recorder)) <= 1, "two results"
    claimed = [fact.number for _, fact in attempts.recorder.marks if isinstance(fact, Claimed)]
    assert len(set(claimed)) == len(claimed), "two attempts have one generation"
    number, disk = list(attempts.recorder.disks())[-1]
    tree = disk.everything().tree()
    with in_room(root) as room:
        check(tree, known_at(attempts.recorder.marks, number), room)


@SETTINGS
@given(SCHEDULES, st.integers(2, 3))
def test_attempts_in_any_order_of_their_calls_end_with_one_result(
    schedule: list[tuple[int, int]], count: int
) -> None:
    with folder() as root:
        (root / "volume").mkdir()
        attempts = Attempts(root / "volume", [attempt_in(root / "volume")] * count)
        attempts.play(schedule, to_the_end=True)
        assert len(results_of(attempts.recorder)) == 1
        assert len(attempts.superseded) < count, "the newest one is never superseded"
        check_end(attempts, root)


@SETTINGS
@given(SCHEDULES, st.integers(2, 3), st.integers(0, 2**32))
def test_power_lost_while_attempts_overtake_each_other_loses_nothing_that_was_told(
    schedule: list[tuple[int, int]], count: int, seed: int
) -> None:
    choose = random.Random(seed)
    with folder() as root:
        (root / "volume").mkdir()
        attempts = Attempts(root / "volume", [attempt_in(root / "volume")] * count)
        attempts.play(schedule, to_the_end=False)
        assert attempts.failed == []
        check_fence(attempts.recorder)
        number, disk = list(attempts.recorder.disks())[-1]
        known = known_at(attempts.recorder.marks, number)
        lost = (Fate.LOST,) * len(disk.pending)
        for fates in (lost, disk.drawn(choose), disk.drawn(choose), disk.drawn(choose)):
            with in_room(root) as room:
                check(disk.after(fates).tree(), known, room)


def claims_and_saves(note: Note, run_dir: Path, step: int) -> None:
    """Without a restore, which would look at the fence once more."""
    save(claim(run_dir, note), step, note)


def calls_until(kind: type, root: Path, work: Callable[[Note], None]) -> int:
    """How many calls that others can see an attempt makes before it is told a fact of that kind."""
    recorder = Recorder(root)
    with recorder.recording():
        work(recorder.mark)
    told = next(at for at, fact in recorder.marks if isinstance(fact, kind))
    return sum(call.name in SHARED for call in recorder.calls[:told])


@pytest.mark.parametrize("before", [(), (1,)], ids=["first claims", "takeovers"])
def test_of_two_claims_each_paused_once_at_any_call_one_is_superseded_or_comes_later(
    before: tuple[int, ...], depth: Depth, counted: list[Counted]
) -> None:
    found = Counted("two claims, each paused once")
    with folder() as root:
        past = root / "past"
        past.mkdir()
        if before:
            with quiet("a"):
                saved_before(*before)(past / RUN, lambda fact: None)
        tree = real_tree(past)
        found.calls = calls_until(Claimed, past, lambda note: claims_and_saves(note, past / RUN, 3)) + 1
        others = range(0, found.calls, min(depth.every, 3))
        for first, second in itertools.product(range(found.calls), others):
            with in_room(root) as volume:
                materialise(tree, volume)
                attempts = Attempts(
                    volume,
                    [functools.partial(claims_and_saves, run_dir=volume / RUN, step=step) for step in (3, 2)],
                )
                attempts.play([(0, first), (1, second), (0, 10**6)], to_the_end=True)
                check_end(attempts, root)
                found.points += 1
                found.states += 1
                found.distinct += 1
    counted.append(found)
    assert found.points == found.calls * len(others) > 50


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_two_finishers_of_one_generation_make_one_result_whichever_is_paused(links: bool) -> None:
    """The fence keeps them apart, but an NFS client that caches names may not see it yet."""
    with folder() as root:
        for first, second in itertools.product(range(12), range(0, 12, 3)):
            with in_room(root) as volume:
                with quiet("a"):
                    attempt = claim(volume / RUN, lambda fact: None)
                won: list[bool] = []

                def finish(note: Note, step: int, attempt: Attempt = attempt, won: list[bool] = won) -> None:
                    run_dir = attempt.generation.run_dir
                    won.append(results.commit(attempt.generation, results.Outcome(step), {"run_id": RUN}))
                    note(Committed((run_dir / generations.RESULT).read_bytes()))

                attempts = Attempts(volume, [functools.partial(finish, step=step) for step in (1, 2)])
                attempts.play([(0, first), (1, second), (0, 10**6)], to_the_end=True, hard_links=links)
                assert attempts.failed == []
                assert len(results_of(attempts.recorder)) == 1, "two results"
                assert sorted(won) == [False, True], "each thinks that it was the one, or none does"


def test_an_attempt_paused_at_any_call_while_another_completes_changes_nothing(
    depth: Depth, counted: list[Counted]
) -> None:
    found = Counted("paused at a call while another one completes")
    with folder() as root:
        (root / "count").mkdir()
        recorder = Recorder(root / "count")
        with recorder.recording():
            whole_attempt(root / "count" / RUN, recorder.mark)
        found.calls = sum(call.name in SHARED for call in recorder.calls)
        for point in range(found.calls):
            with in_room(root) as volume:
                _pause(volume, point)
                found.points += 1
                found.states += 1
                found.distinct += 1
    counted.append(found)
    assert found.points > 10


def _pause(volume: Path, point: int) -> None:
    """One attempt waits before its shared call number `point`; another one comes and goes meanwhile."""
    seen, inside = -1, False

    def overtake(name: str, place: str) -> None:
        nonlocal seen, inside
        seen += name in SHARED and not inside
        if seen == point and name in SHARED and not inside:
            inside = True
            whole_attempt(volume / RUN, recorder.mark)

    recorder = Recorder(volume, overtake)
    with recorder.recording():
        try:
            whole_attempt(volume / RUN, recorder.mark)
        except Superseded:
            pass
    assert inside
    assert len(results_of(recorder)) == 1
    number, disk = list(recorder.disks())[-1]
    with folder() as room:
        check(disk.everything().tree(), known_at(recorder.marks, number), room)


def test_a_second_result_would_be_found() -> None:
    known = Known(result=b"the first one's")
    with folder() as room, pytest.raises(Violation, match="an acknowledged result is lost"):
        check({RUN: None}, known, room)


def test_every_depth_tries_schedules() -> None:
    assert all(depth.examples > 0 for depth in DEPTHS.values())
