"""A volume that fails, is full, takes little, or loses an answer; and clocks that jump."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processes.crash_model.disk import real_tree
from tests.processes.crash_model.exploring import Counted, Depth, check, folder, in_room, recover
from tests.processes.crash_model.faults import Kind, inject, takes_little
from tests.processes.crash_model.protocol import (
    LAST_STEP,
    RUN,
    SCENARIOS,
    Committed,
    Known,
    Saved,
    whole_attempt,
)
from tests.processes.crash_model.recorder import Recorder

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
ALL = pytest.mark.parametrize(
    ("kind", "error"),
    [
        (Kind.ONCE, errno.EIO),
        (Kind.ONCE, errno.ENOSPC),
        (Kind.FROM_HERE, errno.EIO),
        (Kind.FROM_HERE, errno.ENOSPC),
        (Kind.ANSWER, errno.EIO),
    ],
    ids=lambda value: value.value if isinstance(value, Kind) else errno.errorcode[value],
)


@ALL
def test_a_fault_at_any_single_call_ends_no_run_and_loses_nothing(
    kind: Kind, error: int, depth: Depth, counted: list[Counted]
) -> None:
    every = 1 if depth.nested else 3
    found = inject(BY_NAME["resumed attempt"], kind, error, depth, every)
    counted.append(found)
    assert found.points > 20 // every
    if error == errno.EIO and kind is not Kind.ANSWER:
        assert found.points == len(range(0, found.calls, every)), "at each of them"


@ALL
@pytest.mark.parametrize(
    "name", ["restore past bad ones", "save onto a good one of a former attempt", "commit without hard links"]
)
def test_a_fault_in_the_rarer_ways_loses_nothing_either(
    name: str, kind: Kind, error: int, depth: Depth, counted: list[Counted]
) -> None:
    every = 1 if kind is Kind.ANSWER else min(depth.every, 5)  # few calls have an answer to lose
    found = inject(BY_NAME[name], kind, error, depth, every, offset=depth.seed % every)
    counted.append(found)
    assert found.points > 0


@pytest.mark.parametrize("most", [1, 3, 64])
def test_a_volume_that_takes_and_gives_a_few_bytes_at_a_time_changes_nothing(most: int) -> None:
    with folder() as root:
        recorder = Recorder(root, takes_little(random.Random(most), most))
        with recorder.recording():
            whole_attempt(root / RUN, recorder.mark)
        facts = [fact for _, fact in recorder.marks]
        assert [fact.step for fact in facts if isinstance(fact, Saved)] == list(range(1, LAST_STEP + 1))
        assert isinstance(facts[-1], Committed)
        written = sum(call.name == "write" for call in recorder.calls)
        assert written > 1000 // most
        known = Known()
        for fact in facts:
            known = known.plus(fact)
        with in_room(root) as room:
            check({path: part for path, part in real_tree(root).items() if path.startswith(RUN)}, known, room)


JUMPS = st.lists(st.timedeltas(timedelta(days=-4000), timedelta(days=4000)), min_size=1, max_size=12)


@settings(max_examples=15, deadline=None)
@given(JUMPS, st.integers(0, 2**32))
def test_no_clock_decides_anything_whichever_way_it_jumps(jumps: list[timedelta], seed: int) -> None:
    choose = random.Random(seed)
    with folder() as root:
        known = Known()
        for process in "bcd":
            recorder = Recorder(root, clock=lambda: choose.choice(jumps))
            with recorder.recording(process):
                recover(root / RUN, known, recorder.mark)
                whole_attempt(root / RUN, recorder.mark)
            for _, fact in recorder.marks:
                known = known.plus(fact)
        assert known.least == LAST_STEP and known.result is not None


def test_the_depth_is_a_choice_of_the_environment() -> None:
    from tests.processes.crash_model.exploring import DEPTH, SEED, depth_of

    thorough = depth_of({DEPTH: "thorough", SEED: "7"})
    assert thorough.every == 1 and thorough.seed == 7 and depth_of({}) == replace(Depth(), seed=0)
