"""Power lost at every call of the protocol, whatever then survived: nothing that was acknowledged is lost."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.processes.crash_model.adopting import ADOPTED
from tests.processes.crash_model.exploring import Counted, Depth, Violation, depth_of, explore, killed
from tests.processes.crash_model.protocol import SCENARIOS, Scenario, saved_before, whole_attempt

# `fast` leaves the dearest ones to the others.
ALL = (*SCENARIOS, *(ADOPTED if depth_of(os.environ).nested else ADOPTED[2:]))
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize("scenario", ALL, ids=[scenario.name for scenario in ALL])
def test_whatever_survives_a_crash_at_any_call_nothing_acknowledged_is_lost(
    scenario: Scenario, depth: Depth, counted: list[Counted]
) -> None:
    if scenario in ADOPTED:  # the dearest ones, and most of their calls only look
        depth = replace(depth, drawn=depth.drawn // 3, nested=depth.nested // 2)
    found = explore(scenario, depth)
    counted.append(found)
    assert found.calls > 10 and found.points == found.calls + 1, "before each call, and after the last one"
    assert found.states >= found.points and found.distinct > 0
    assert found.nested > 0 or depth.nested == 0


def test_a_process_that_dies_at_any_call_and_power_lost_under_the_next_one_lose_nothing(
    depth: Depth, counted: list[Counted]
) -> None:
    found = killed(BY_NAME["whole attempt"], depth)
    counted.append(found)
    assert found.points == len(range(0, found.calls, depth.every)) and found.states > found.points


@pytest.mark.parametrize("name", ["first save", "commit"])
def test_whoever_relies_on_what_a_dead_process_did_last_makes_it_last(
    name: str, depth: Depth, counted: list[Counted]
) -> None:
    found = killed(BY_NAME[name], depth, last=30)
    counted.append(found)
    assert found.points == 30


def forgets_what_it_saved(run_dir, note) -> None:  # type: ignore[no-untyped-def]
    whole_attempt(run_dir, note)
    for path in run_dir.glob("artifacts/*/model"):
        path.unlink()


def test_a_loss_is_found_and_told_with_the_call_and_with_what_was_pending() -> None:
    broken = Scenario("broken", forgets_what_it_saved, saved_before(1))
    with pytest.raises(Violation, match=r"does not|missing") as caught:
        explore(broken, replace(Depth(), nested=0))
    assert (
        "in: broken, crash point" in str(caught.value)
        and "lost: " in str(caught.value)
        or "kept: " in str(caught.value)
    )
