"""Real supervisors with real programs and signals: the exit code tells a preemption from an end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.recovery import ExitCode
from trainer.recovery import result as results

CHECKOUT = Path(__file__).resolve().parents[3]
HOLDFAST_RUN = CHECKOUT / "trainer" / "bin" / "holdfast-run"
HAND_OVER = (
    'cd "$HOLDFAST_CHECKPOINT_DIR/generation-$HOLDFAST_GENERATION"; '
    "mkdir -p outcome; echo weights > outcome/model; "
    'echo \'{"step": 9, "artifacts": {"model": "outcome/model"}}\' > outcome.json; '
)
PREEMPT = "trap 'exit %d' TERM; kill -TERM $PPID; while :; do sleep 0.02; done"


def pod(run_dir: Path, *program: str, **variables: str) -> int:
    """The exit code of a Pod's first process with that program."""
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(CHECKOUT),
        "HOLDFAST_CHECKPOINT_DIR": str(run_dir),
        "HOLDFAST_GRACE_SECONDS": "5",
        **variables,
    }
    command = [sys.executable, "-S", str(HOLDFAST_RUN), "--", *program]
    return subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, timeout=30).returncode


def shell(run_dir: Path, script: str, **variables: str) -> int:
    return pod(run_dir, "/bin/sh", "-c", script, **variables)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run-001"


@pytest.mark.parametrize("code", [0, 1, 3, 75])
def test_a_program_that_sigterm_ended_has_been_preempted_and_completes_nothing(
    run_dir: Path, code: int
) -> None:
    assert shell(run_dir, PREEMPT % code) == ExitCode.PREEMPTED
    assert results.find(run_dir) is None


@pytest.mark.parametrize("code", [76, 77, 78])
def test_an_end_that_no_retry_can_mend_stays_one_although_sigterm_came(run_dir: Path, code: int) -> None:
    assert shell(run_dir, PREEMPT % code) == code
    assert shell(run_dir, f"exit {code}") == code


def test_settings_that_no_retry_can_mend_are_bad_input(run_dir: Path) -> None:
    assert pod(run_dir, "/nowhere/program") == ExitCode.BAD_INPUT
    assert shell(run_dir, "exit 0", HOLDFAST_RUN_ID="-") == ExitCode.BAD_INPUT


def test_an_outcome_that_was_handed_over_is_committed_although_sigterm_came(run_dir: Path) -> None:
    assert shell(run_dir, HAND_OVER + PREEMPT % 0) == ExitCode.DONE
    found = results.find(run_dir)
    assert found is not None and found.step == 9


def test_the_outcome_of_a_dead_attempt_is_not_committed_by_the_next_one(run_dir: Path) -> None:
    assert shell(run_dir, HAND_OVER + "exit 3") == 3
    assert shell(run_dir, PREEMPT % 0) == ExitCode.PREEMPTED
    assert results.find(run_dir) is None
    assert shell(run_dir, "exit 0") == ExitCode.DONE
    found = results.find(run_dir)
    assert found is not None and (found.step, found.artifacts) == (0, ())
