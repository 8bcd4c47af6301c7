"""Where the time went."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.acceptance.split import PARTS
from ops.acceptance.verdict import Recovery, Split
from tests.unit.ops.acceptance.stories import judged, scenario

Doc = dict[str, Any]


def only(story: Doc) -> Recovery:
    (found,) = judged(story).recoveries
    return found


def seconds(split: Split | None) -> dict[str, float | None]:
    assert split is not None
    return {part.name: part.seconds for part in split.parts}


def later(text: str, by: float) -> str:
    return (datetime.fromisoformat(text) + timedelta(seconds=by)).isoformat()


def test_a_recovery_is_told_part_by_part_from_the_fault_to_the_first_new_step() -> None:
    found = only(scenario("pod-deletion"))
    parts = seconds(found.split)
    assert list(parts) == list(PARTS)
    assert parts["terminate"] == pytest.approx(0.165, abs=0.1)  # 20 ms of asking, 80 of stopping, a save
    assert parts["retry delay"] == pytest.approx(10.16, abs=0.1)
    assert parts["import"] == pytest.approx(1.3, abs=0.01)
    assert parts["restore"] == pytest.approx(0.02, abs=0.001)
    assert parts["first step"] == pytest.approx(0.1, abs=0.001)
    assert found.split and found.split.seconds == pytest.approx(12.9, abs=0.01)
    assert found.split.resolution_seconds == 1.0
    assert (found.cause, found.ended, found.resumed, found.resume_step) == ("delete-pod", 0, 1, 25)


def test_steps_that_were_sealed_on_the_way_out_are_not_lost_and_others_are() -> None:
    assert only(scenario("pod-deletion")).lost_steps == 0
    killed = only(scenario("crash"))
    assert (killed.lost_steps, killed.lost_step_seconds) == (7, pytest.approx(0.7))
    assert killed.lost_gpu_seconds == pytest.approx((killed.idle_gpu_seconds or 0) + 0.7)


def test_lost_gpu_seconds_are_of_all_gpus() -> None:
    one, two = scenario("crash"), scenario("crash")
    two["run"]["gpus"] = 2
    assert only(two).lost_gpu_seconds == pytest.approx(2 * (only(one).lost_gpu_seconds or 0))


def test_a_zombies_time_runs_until_its_pod_is_removed_and_all_it_did_later_is_lost() -> None:
    found = only(scenario("zombie"))
    assert found.cause == "stop-kubelet"
    assert seconds(found.split)["terminate"] == pytest.approx(67.4, abs=0.1)
    assert (found.resume_step, found.lost_steps) == (20, 13)


def test_a_second_attempt_beside_the_first_is_no_recovery() -> None:
    assert judged(scenario("two-finishers")).recoveries == []


def test_an_attempt_that_gives_up_before_it_starts_is_no_recovery() -> None:
    assert [each.resumed for each in judged(scenario("no-progress")).recoveries] == [1, 2]


def test_a_crash_by_itself_begins_with_the_end_of_its_container() -> None:
    found = judged(scenario("always-crashes")).recoveries[0]
    assert found.cause == "it ended with code 1"
    assert seconds(found.split)["terminate"] == 0


def test_a_pod_that_the_scheduler_turned_down_was_in_the_queue() -> None:
    story = scenario("pod-deletion")
    pod = story["attempts"][1]
    story["watch"] = [
        {
            "at": pod["seen"]["created"],
            "kind": "Pod",
            "name": pod["pod"],
            "what": "condition PodScheduled=False",
        }
    ]
    parts = seconds(only(story).split)
    assert parts["queue"] == pytest.approx(0.03, abs=0.01)
    assert parts["schedule"] is None


def test_a_pod_that_the_quota_refused_was_in_the_queue_from_the_first_refusal() -> None:
    story = scenario("pod-deletion")
    refused = later(story["attempts"][1]["seen"]["created"], -4)
    story["watch"] = [
        {"at": refused, "kind": "Event", "name": "job", "what": "event FailedCreate (job): quota"}
    ]
    parts = seconds(only(story).split)
    assert parts["queue"] == pytest.approx(4, abs=0.01)
    assert parts["retry delay"] == pytest.approx(6.16, abs=0.1)


def test_a_moment_that_is_not_known_is_told_with_the_next_part() -> None:
    story = scenario("pod-deletion")
    pod = story["attempts"][1]
    pod["sandbox_at"] = None
    del pod["seen"]["sandbox"]
    split = only(story).split
    assert split is not None
    mount = next(part for part in split.parts if part.name == "mount")
    assert (mount.seconds, mount.note) == (None, "told with start")
    assert sum(part.seconds or 0 for part in split.parts) == pytest.approx(split.seconds, abs=0.005)


def test_a_program_that_does_not_say_when_it_has_imported_is_split_by_how_long_its_restore_took() -> None:
    story = scenario("pod-deletion")
    story["attempts"][1]["events"] = [e for e in story["attempts"][1]["events"] if e["event"] != "imported"]
    parts = seconds(only(story).split)
    assert parts["import"] == pytest.approx(1.3, abs=0.05)
    assert parts["restore"] == pytest.approx(0.02, abs=0.001)


def test_goodput_is_the_useful_part_of_the_wall_time() -> None:
    totals = judged(scenario("pod-deletion")).totals
    assert totals.useful_seconds == pytest.approx(6.0)  # 60 steps, each once
    assert totals.goodput == pytest.approx(6.0 / (totals.wall_seconds or 0), abs=1e-4)
    assert judged(scenario("always-crashes")).totals.goodput is None


def test_a_start_without_a_fault_has_no_end_and_no_delay_in_it() -> None:
    start = judged(scenario("pod-deletion")).start
    assert list(seconds(start)) == list(PARTS[2:])


TIMES = ("created_at", "scheduled_at", "sandbox_at", "started_at", "finished_at")


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(TIMES), st.integers(-40, 40)), max_size=4))
def test_parts_are_never_negative_and_sum_to_the_whole_whatever_the_clocks_say(
    changes: list[tuple[int, str, int]],
) -> None:
    story = scenario("pod-deletion")
    for attempt, name, by in changes:
        story["attempts"][attempt][name] = later(story["attempts"][attempt][name], by)
    verdict = judged(story)
    for split in [verdict.start, *(each.split for each in verdict.recoveries)]:
        if split is not None:
            known = [part.seconds for part in split.parts if part.seconds is not None]
            assert min(known) >= 0
            assert sum(known) == pytest.approx(split.seconds, abs=0.005)
    assert verdict.totals.goodput is None or 0 <= verdict.totals.goodput <= 1
