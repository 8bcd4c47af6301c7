"""The whole run's deadline, over all its Pods: HOLDFAST_DEADLINE_SECONDS."""

from __future__ import annotations

import json
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainer.recovery import ExitCode
from trainer.recovery import result as results
from trainer.recovery.deadline import of_run
from trainer.recovery.generation import Generation

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Here, Supervised


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def claimed(run_dir: Path, *records: dict[str, Any] | bytes) -> None:
    """Claims of generations 1, 2, … as earlier Pods left them."""
    (run_dir / "claims").mkdir(parents=True)
    for number, record in enumerate(records, start=1):
        content = (
            record if isinstance(record, bytes) else json.dumps({"run_id": "run-001", **record}).encode()
        )
        (run_dir / "claims" / f"{number:06d}.json").write_bytes(content)
    (run_dir / f"generation-{len(records)}").mkdir()


def test_a_run_whose_deadline_has_passed_is_not_started_again(
    here: Here, run_dir: Path, tmp_path: Path
) -> None:
    claimed(run_dir, {"attempt": 1, "claimed_at": ago(7300)}, {"attempt": 1, "claimed_at": ago(60)})
    code = here.run(f"touch {tmp_path}/started", HOLDFAST_DEADLINE_SECONDS="7200")
    assert code == ExitCode.BAD_INPUT
    assert not (tmp_path / "started").exists()
    assert "deadlineSeconds is 7200" in here.message()
    assert "raise deadlineSeconds and declare a retry (the run's attempt + 1)" in here.message()


def test_a_declared_retry_has_the_whole_time_again(here: Here, run_dir: Path) -> None:
    claimed(run_dir, {"attempt": 1, "claimed_at": ago(7300)})
    assert here.run("exit 0", HOLDFAST_DEADLINE_SECONDS="7200", HOLDFAST_ATTEMPT="2") == 0


def test_without_the_variable_a_run_may_take_any_time(here: Here, run_dir: Path) -> None:
    claimed(run_dir, {"attempt": 1, "claimed_at": ago(10**8)})
    assert here.run("exit 0") == 0


def test_a_finished_run_is_done_whatever_its_deadline(here: Here, run_dir: Path) -> None:
    assert here.run("exit 0") == 0
    claim = run_dir / "claims" / "000001.json"
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "claimed_at": ago(7300)}))
    assert here.run("exit 1", HOLDFAST_DEADLINE_SECONDS="7200") == 0
    assert "was there and verifies" in here.message()


@pytest.mark.parametrize(
    "record",
    [
        {"attempt": 1, "claimed_at": ago(-86400)},
        {"attempt": 1, "claimed_at": "yesterday"},
        {"attempt": 1, "claimed_at": 5},
        {"attempt": 1, "claimed_at": None},
        {"attempt": 1, "claimed_at": ["2026-01-01"]},
        {"attempt": 1, "claimed_at": "9999-12-31T23:59:59.999999-12:00"},
        {"attempt": 1},
        {"attempt": [1], "claimed_at": ago(7300)},
        b"\x00\xff torn",
        b"",
    ],
    ids=[
        "future",
        "words",
        "number",
        "null",
        "list",
        "beyond the calendar",
        "absent",
        "odd",
        "torn",
        "empty",
    ],
)
def test_a_claim_that_does_not_tell_its_time_never_ends_a_run_early(
    here: Here, run_dir: Path, record: dict[str, Any] | bytes
) -> None:
    claimed(run_dir, record, {"attempt": 1, "claimed_at": ago(60)})
    assert here.run("exit 0", HOLDFAST_DEADLINE_SECONDS="7200") == 0


def test_the_first_claim_that_tells_its_time_counts(run_dir: Path) -> None:
    claimed(
        run_dir,
        {"attempt": 1, "claimed_at": ago(9000)},
        {"attempt": 2, "claimed_at": ago(-500)},
        {"attempt": 2, "claimed_at": ago(100).replace("Z", "")},
        {"attempt": 2, "claimed_at": ago(40)},
    )
    deadline = of_run(Generation(4, run_dir), attempt=2, seconds=120)
    assert deadline is not None
    assert 99 < (datetime.now(UTC) - deadline.began).total_seconds() < 110
    assert not deadline.has_passed()
    passed = of_run(Generation(4, run_dir), attempt=2, seconds=99)
    assert passed is not None and passed.has_passed()


def test_at_the_deadline_the_program_saves_in_its_grace_period_and_the_run_ends_with_78(
    supervised: Supervised,
) -> None:
    code = supervised.run(supervised.program(steps=1000), PACE="0.05", HOLDFAST_DEADLINE_SECONDS="1.5")
    assert code == ExitCode.BAD_INPUT
    last = supervised.trained()[-1]
    words = supervised.last_words()
    assert words["step"] == last, "the step of the signal was saved"
    assert f"deadlineSeconds is 1.5, its first attempt began at {datetime.now(UTC):%Y-}" in words["message"]
    [told] = supervised.events("signal")
    assert (told["signal"], told["reason"]) == ("SIGTERM", "the run's deadline has passed")
    assert (
        supervised.run(supervised.program(steps=1000), HOLDFAST_DEADLINE_SECONDS="1.5") == ExitCode.BAD_INPUT
    )
    assert supervised.trained()[-1] == last, "nothing was trained after the deadline"
    assert supervised.run(supervised.program(steps=last + 1), HOLDFAST_ATTEMPT="2") == 0
    assert supervised.trained()[-1] == last + 1, "the retry goes on from the saved step"


def test_a_program_that_finishes_in_the_grace_period_has_its_result_committed(
    supervised: Supervised, run_dir: Path
) -> None:
    script = (
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from trainer.recovery import open_attempt\n"
        "got = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: got.append(1))\n"
        "attempt = open_attempt(Path(os.environ['HOLDFAST_CHECKPOINT_DIR']))\n"
        "while not got: time.sleep(0.02)\n"
        "attempt.finish(7, {'accuracy': 1.0}, [])\n"
    )
    assert supervised.run([sys.executable, "-S", "-c", script], HOLDFAST_DEADLINE_SECONDS="1") == 0
    result = results.find(run_dir)
    assert result is not None and result.step == 7


def test_a_program_that_ignores_the_deadline_is_killed_and_the_run_ends_with_78(
    supervised: Supervised,
) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(30)"
    limits = {"HOLDFAST_DEADLINE_SECONDS": "0.5", "HOLDFAST_GRACE_SECONDS": "1"}
    assert supervised.run([sys.executable, "-c", script], **limits) == ExitCode.BAD_INPUT
    assert [event["signal"] for event in supervised.events("signal")] == ["SIGTERM", "SIGKILL"]


def test_a_program_that_ends_with_0_at_the_deadline_without_an_outcome_is_not_taken_for_done(
    supervised: Supervised, run_dir: Path
) -> None:
    script = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); time.sleep(30)"
    code = supervised.run([sys.executable, "-c", script], HOLDFAST_DEADLINE_SECONDS="1")
    assert code == ExitCode.BAD_INPUT
    assert results.find(run_dir) is None


def test_a_preemption_before_the_deadline_stays_one(supervised: Supervised) -> None:
    process = supervised.start(supervised.program(steps=1000), PACE="0.05", HOLDFAST_DEADLINE_SECONDS="3600")
    supervised.wait_for(lambda: len(supervised.trained()) >= 2, "step 2")
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED


@pytest.mark.parametrize("value", ["0", "-1", "4h", "inf", "1e3"])
def test_a_deadline_that_is_no_time_is_refused(here: Here, value: str) -> None:
    assert here.run("exit 0", HOLDFAST_DEADLINE_SECONDS=value) == ExitCode.BAD_INPUT
    sentence = (
        f"HOLDFAST_DEADLINE_SECONDS is '{value}': write seconds as a positive number, for example 14400"
    )
    assert sentence in here.message()
