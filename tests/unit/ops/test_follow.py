"""Following runs over time, with a clock that moves only when the follower pauses."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from urllib3.exceptions import HTTPError

from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.follow import BLIND_SECONDS, Followed, exit_code, follow, milestones
from ops.observe import RunRef
from ops.runs import Phase, RunView
from rehearsal.progress import Progress

REF = RunRef("run-001", "ml-batch", "training-run-001")
START = RunView("run-001", "ml-batch", "training-run-001", Phase.WAITING, "waits", deadline_seconds=60)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def view(phase: Phase, **more: Any) -> RunView:
    return replace(START, phase=phase, **more)


def followed(
    looks: Sequence[RunView | Exception], timeout: float | None = None, faults: Sequence[str] = ()
) -> tuple[list[Followed], str]:
    clock, text = Clock(), io.StringIO()
    script: Iterator[RunView | Exception] = iter(looks)
    last: list[RunView | Exception] = [looks[-1]]

    def look(_ref: RunRef) -> RunView:
        one = next(script, last[0])
        if isinstance(one, Exception):
            raise one
        return one

    progress = Progress(Console(file=text, width=200))
    ended = follow(look, [REF], progress, timeout, faults=lambda: faults, clock=clock, pause=clock.pause)
    return ended, text.getvalue()


def test_a_run_is_followed_until_it_is_complete() -> None:
    ended, said = followed(
        [START, view(Phase.RUNNING, pod="p-1", node="gpu-0"), view(Phase.COMPLETE, pod="p-1")]
    )
    assert ended[0].view.phase is Phase.COMPLETE
    assert exit_code(ended) is ExitCode.OK
    assert "run-001: Running on gpu-0" in said


def test_a_failed_run_ends_the_following_with_its_exit_code() -> None:
    ended, _ = followed([view(Phase.RUNNING), view(Phase.FAILED, sentence="bad input")])
    assert exit_code(ended) is ExitCode.FAILED


def test_a_run_past_the_time_limit_is_given_up_with_what_it_waits_for() -> None:
    ended, _ = followed([START], timeout=10)
    assert ended[0].gave_up == "run-001 was not over after 10 s. Waiting: waits"
    assert exit_code(ended) is ExitCode.NOT_READY


def test_without_a_limit_the_runs_own_deadline_counts() -> None:
    ended, _ = followed([START])
    assert ended[0].gave_up.startswith("run-001 was not over after 180 s")  # 60 s and the controller's slack


def test_an_api_server_that_is_away_for_a_moment_does_not_end_the_following() -> None:
    ended, _ = followed([START, HTTPError("refused"), HTTPError("refused"), view(Phase.COMPLETE)])
    assert ended[0].view.phase is Phase.COMPLETE


def test_an_api_server_that_stays_away_ends_the_following() -> None:
    with pytest.raises(OpsError, match="did not answer") as caught:
        followed([START, HTTPError("refused")])
    assert caught.value.code is ExitCode.UNAVAILABLE


def test_a_known_fault_is_named_at_once_instead_of_the_symptom() -> None:
    with pytest.raises(OpsError, match="^etcd is not running") as caught:
        followed([START, HTTPError("refused")], faults=["etcd is not running."])
    assert "did not answer" not in str(caught.value)


def test_a_programming_error_is_not_taken_for_a_network_fault() -> None:
    with pytest.raises(KeyError):
        followed([START, KeyError("status")])


def test_steps_are_no_milestones_but_phases_pods_and_the_first_checkpoint_are() -> None:
    first = view(Phase.RUNNING, pod="p-1", node="gpu-0", step=10)
    assert milestones(None, first) == ["run-001: Running on gpu-0: waits"]
    assert milestones(first, replace(first, step=20)) == []
    assert milestones(first, replace(first, checkpoint=100)) == ["run-001: first checkpoint, at step 100"]
    again = replace(first, pod="p-2", phase=Phase.STARTING)
    assert milestones(first, again) == [
        "run-001: a new Pod, p-2, after p-1",
        "run-001: Starting on gpu-0: waits",
    ]


def test_a_restart_by_job_set_is_a_milestone_also_where_it_was_too_quick_to_be_seen() -> None:
    first = view(Phase.RUNNING, pod="p-1", node="gpu-0", controller="jobset")
    after = replace(first, pod="p-2", restarts=2, counted_restarts=1)
    assert milestones(first, after) == [
        "run-001: a new Pod, p-2, after p-1",
        "run-001: restart 2 by JobSet, 1 counted",
    ]


def test_a_new_reason_for_waiting_is_a_milestone() -> None:
    assert milestones(START, replace(START, sentence="over quota")) == ["run-001: Waiting: over quota"]


def test_the_patience_with_a_silent_api_server_is_a_minute() -> None:
    assert BLIND_SECONDS == 60
