"""`holdfast-run` with real processes: exit codes, signals, result, last words."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainer.recovery import Attempt, ExitCode
from trainer.recovery import result as results
from trainer.recovery.exit_codes import verdict

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Here, Supervised

Claim = Callable[[], Attempt]


def test_a_run_that_ends_commits_its_result_and_exits_0(supervised: Supervised, run_dir: Path) -> None:
    assert supervised.run() == 0
    result = results.find(run_dir)
    assert result is not None and (result.step, result.metrics) == (3, {"accuracy": 1.0})
    results.verify(run_dir, result)
    assert supervised.last_words() == {
        "code": 0,
        "step": 3,
        "generation": 1,
        "message": "The result of step 3 was committed and verifies.",
    }


def test_a_result_that_is_there_ends_the_next_attempt_without_one_step(supervised: Supervised) -> None:
    supervised.run()
    assert supervised.run(supervised.program(steps=50)) == 0
    assert supervised.trained() == [1, 2, 3]
    assert not supervised.events("start"), "the program was not even started"
    assert "was there and verifies" in supervised.last_words()["message"]


def test_a_result_that_does_not_verify_is_not_trained_over(supervised: Supervised, run_dir: Path) -> None:
    supervised.run()
    next((run_dir / "artifacts").rglob("model.txt")).write_text("WEIGHTS")
    assert supervised.run() == ExitCode.BAD_INPUT
    assert supervised.trained() == [1, 2, 3]
    assert "differs from its hash" in supervised.last_words()["message"]


def test_sigterm_saves_and_exits_75_and_the_next_attempt_resumes(supervised: Supervised) -> None:
    process = supervised.start(supervised.program(steps=1000), PACE="0.02")
    supervised.wait_for(lambda: len(supervised.trained()) >= 3, "step 3")
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    last = supervised.trained()[-1]
    words = supervised.last_words()
    assert (words["step"], words["generation"]) == (last, 1), "the step of the signal was saved"
    assert supervised.run(supervised.program(steps=last + 2)) == 0
    assert supervised.trained() == list(range(1, last + 3)), "no step twice, none left out"


def test_sigterm_is_not_taken_for_completion_when_the_program_exits_0_on_it(supervised: Supervised) -> None:
    script = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); "
        "print('up', flush=True); time.sleep(30)"
    )
    process = supervised.start([sys.executable, "-c", script])
    assert process.stdout is not None
    while "up" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED


def test_a_program_that_ignores_sigterm_is_killed_before_the_grace_period_ends(
    supervised: Supervised,
) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(30)"
    process = supervised.start([sys.executable, "-c", script], HOLDFAST_GRACE_SECONDS="1")
    assert process.stdout is not None
    while "up" not in process.stdout.readline():
        pass
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    assert 0.5 < time.monotonic() - began < 5
    assert "ended by SIGKILL" in supervised.last_words()["message"]


def test_a_program_killed_in_the_middle_of_a_save_resumes_from_the_checkpoint_before(
    supervised: Supervised, run_dir: Path
) -> None:
    process = supervised.start(HANG_IN_SAVE_OF="2")
    supervised.wait_for(supervised.log.with_suffix(".hangs").exists, "the save of step 2")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    supervised.end(process)
    assert [path.name[:10] for path in (run_dir / "generation-1").glob("tmp-*")] == ["tmp-step-2"]
    assert supervised.run() == 0
    assert [event["step"] for event in supervised.events("restore")] == [1]
    assert supervised.trained() == [1, 2, 2, 3]
    assert list((run_dir / "generation-2").glob("tmp-*")) == []


def test_a_fenced_attempt_stops_with_76_and_changes_nothing(supervised: Supervised, claim: Claim) -> None:
    process = supervised.start(supervised.program(steps=1000), PACE="0.05")
    supervised.wait_for(lambda: len(supervised.trained()) >= 2, "step 2")
    newer = claim()
    before = newer.store.steps()
    assert supervised.end(process) == ExitCode.SUPERSEDED
    assert newer.store.steps() == before
    assert supervised.last_words()["code"] == ExitCode.SUPERSEDED


def test_a_paused_zombie_wakes_up_and_stops_with_76(supervised: Supervised, claim: Claim) -> None:
    process = supervised.start(supervised.program(steps=1000), PACE="0.05")
    supervised.wait_for(lambda: len(supervised.trained()) >= 2, "step 2")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, signal.SIGSTOP)
    newer = claim()
    assert newer.store.restore() is not None
    before = sorted(os.listdir(newer.store.work_dir))
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, signal.SIGCONT)
    assert supervised.end(process) == ExitCode.SUPERSEDED
    assert sorted(os.listdir(newer.store.work_dir)) == before


def test_attempts_without_progress_stop_with_77(supervised: Supervised) -> None:
    crash = [sys.executable, "-c", "import sys; sys.exit(3)"]
    limit = {"HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS": "2"}
    assert [supervised.run(crash, **limit) for _ in range(3)] == [3, 3, ExitCode.NO_PROGRESS]
    assert "2 attempts in a row started at step 0" in supervised.last_words()["message"]
    assert supervised.run(HOLDFAST_ATTEMPT="2", **limit) == 0, "a declared retry starts anew"


def test_attempts_that_each_save_a_step_go_on_for_ever(supervised: Supervised) -> None:
    limit = {"HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS": "1"}
    for step in (1, 2, 3):
        process = supervised.start(supervised.program(steps=9), HANG_IN_SAVE_OF=str(step + 1), **limit)
        supervised.wait_for(supervised.log.with_suffix(".hangs").exists, "a save that hangs")
        supervised.log.with_suffix(".hangs").unlink()
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        os.kill(child, signal.SIGKILL)
        assert supervised.end(process) == 128 + signal.SIGKILL
    assert supervised.run(supervised.program(steps=5), **limit) == 0


@pytest.mark.parametrize("code", [1, 2, 78, 76])
def test_the_programs_own_code_is_passed_on(here: Here, code: int) -> None:
    assert here.run(f"exit {code}") == code
    assert here.last_words()["code"] == code


def test_a_program_that_dies_of_a_signal_ends_with_128_plus_its_number(here: Here) -> None:
    assert here.run("kill -KILL $$") == 137
    assert "was ended by SIGKILL" in here.message()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("HOLDFAST_GRACE_SECONDS", "two minutes", "HOLDFAST_GRACE_SECONDS is 'two minutes': write seconds"),
        ("HOLDFAST_GRACE_SECONDS", "0", "HOLDFAST_GRACE_SECONDS is '0': write seconds as a positive number"),
        ("HOLDFAST_ATTEMPT", "0", "HOLDFAST_ATTEMPT is '0': write a whole number of at least 1"),
        ("HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS", "-1", "is '-1': write a whole number of at least 1"),
        ("HOLDFAST_CHECKPOINT_DIR", "checkpoints", "is 'checkpoints', which is not an absolute directory"),
        ("HOLDFAST_RUN_ID", "../run", "HOLDFAST_RUN_ID is '../run', which is no run id"),
        (
            "HOLDFAST_IMAGE",
            "trainer:latest",
            "HOLDFAST_IMAGE is 'trainer:latest', which does not end in a digest",
        ),
    ],
)
def test_a_malformed_variable_ends_with_78_and_names_itself_and_the_fix(
    here: Here, tmp_path: Path, name: str, value: str, sentence: str
) -> None:
    assert here.run(f"touch {tmp_path}/started", **{name: value}) == ExitCode.BAD_INPUT
    assert sentence in here.message()
    assert not (tmp_path / "started").exists()


def test_without_a_checkpoint_directory_the_variable_is_named(here: Here) -> None:
    assert here.run("exit 0", HOLDFAST_CHECKPOINT_DIR="") == ExitCode.BAD_INPUT
    assert "HOLDFAST_CHECKPOINT_DIR is not set" in here.message()


def test_the_programs_own_checkpoint_directory_serves_when_the_variable_is_not_set(
    here: Here, run_dir: Path
) -> None:
    program = ["/bin/sh", "-c", "exit 0", f"--checkpoint-dir={run_dir}"]
    assert here.start(program, HOLDFAST_CHECKPOINT_DIR="", HOLDFAST_RUN_ID="") == 0
    result = results.find(run_dir)
    assert result is not None and result.run_id == "run-001"


def test_a_program_that_does_not_exist_is_bad_input(here: Here) -> None:
    assert here.start(["/nowhere/train"]) == ExitCode.BAD_INPUT
    assert "The program '/nowhere/train' can not be started" in here.message()


def test_no_program_at_all_is_bad_input(here: Here) -> None:
    assert here.start([]) == ExitCode.BAD_INPUT
    assert "write `holdfast-run -- PROGRAM" in here.message()


def test_orphans_are_reaped_and_workers_that_outlive_the_program_are_ended(
    supervised: Supervised, tmp_path: Path
) -> None:
    place = tmp_path / "worker"
    script = (
        "import subprocess, sys, pathlib; "
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        f"pathlib.Path({str(place)!r}).write_text(str(worker.pid))"
    )
    assert supervised.run([sys.executable, "-c", script]) == 0
    worker = int(place.read_text())
    state = Path(f"/proc/{worker}/stat")
    supervised.wait_for(
        lambda: not state.exists() or state.read_text().split()[2] in "ZX", "the worker's end"
    )


def test_the_heartbeat_tells_generation_and_newest_step(supervised: Supervised, run_dir: Path) -> None:
    process = supervised.start(supervised.program(steps=1000), PACE="0.02")
    heartbeat = run_dir / "generation-1" / "heartbeat.json"
    supervised.wait_for(heartbeat.exists, "the heartbeat")
    assert '"generation": 1' in heartbeat.read_text()
    process.send_signal(signal.SIGTERM)
    supervised.end(process)


@pytest.mark.parametrize(
    ("child", "sigterm", "finished", "expected"),
    [
        (0, False, True, 0),
        (0, False, False, 0),
        (0, True, True, 0),
        (0, True, False, 75),
        (75, False, False, 75),
        (75, True, False, 75),
        (143, True, False, 75),
        (1, True, False, 75),
        (137, False, False, 137),
        (143, False, False, 143),
        (78, True, False, 78),
        (76, True, False, 76),
        (77, True, False, 77),
    ],
)
def test_the_verdict_on_an_exit_code(child: int, sigterm: bool, finished: bool, expected: int) -> None:
    assert verdict(child, sigterm, finished) == expected
