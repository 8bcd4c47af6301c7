"""However a Pod ends: a signal in any phase, broken surroundings, and last words that always arrive."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainer.recovery import Attempt, ExitCode
from trainer.recovery import generation as generations
from trainer.recovery import result as results
from trainer.recovery import supervisor
from trainer.recovery.child import WATCHED, Child
from trainer.recovery.supervisor import Ending

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Here, Supervised

Claim = Callable[[], Attempt]
SH = "/bin/sh"
CHECKOUT = Path(__file__).resolve().parents[3]
HOLDFAST_RUN = CHECKOUT / "trainer" / "bin" / "holdfast-run"


def and_sigterm(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, during which SIGTERM arrives."""

    def call(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return function(*arguments, **options)

    return call


def test_sigterm_before_anything_was_imported_claims_and_starts_nothing(here: Here, run_dir: Path) -> None:
    assert here.run("exit 1", received=(signal.SIGTERM,)) == ExitCode.PREEMPTED
    assert generations.claims(run_dir) == {}


@pytest.mark.parametrize(
    "phase", ["prepare_run_dir", "claim", "_take_over", "attempts_without_progress", "record_start"]
)
def test_sigterm_before_the_program_starts_is_a_preemption(
    here: Here, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    monkeypatch.setattr(generations, phase, and_sigterm(getattr(generations, phase)))
    assert here.run("sleep 20") == ExitCode.PREEMPTED


@pytest.mark.parametrize("phase", ["read_outcome", "commit", "verify"])
def test_sigterm_after_the_program_is_done_lets_the_commit_finish(
    here: Here, monkeypatch: pytest.MonkeyPatch, run_dir: Path, phase: str
) -> None:
    monkeypatch.setattr(results, phase, and_sigterm(getattr(results, phase)))
    outcome = '{\\"step\\": 7, \\"artifacts\\": {}}'
    script = f'echo "{outcome}" > "$HOLDFAST_CHECKPOINT_DIR/generation-$HOLDFAST_GENERATION/outcome.json"'
    assert here.run(script) == 0
    monkeypatch.undo()
    result = results.find(run_dir)
    assert result is not None and result.step == 7


def test_sigterm_twice_is_one_preemption(here: Here) -> None:
    assert here.run("kill -TERM $PPID; kill -TERM $PPID; sleep 20") == ExitCode.PREEMPTED


def test_sigterm_that_reached_the_program_first_is_a_preemption() -> None:
    child = Child(pid=0, grace_seconds=1)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        child._note_pending()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert child.sigterm_received


def test_a_fenced_program_gets_no_grace_period_because_sigterm_arrives_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Child, "_signal", lambda self, number: None)
    child = Child(pid=0, grace_seconds=100)
    child.stop("fenced", within_seconds=2)
    soon = child._kill_at
    child._begin_ending(signal.SIGTERM)
    assert child._kill_at == soon


def test_pid_1_ends_and_reaps_everything_that_the_program_left_before_it_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[tuple[int, int]] = []
    left = iter([(0, 0), (41, 9), (42, 9)])

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        try:
            return next(left)
        except StopIteration:
            raise ChildProcessError from None

    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
    monkeypatch.setattr(os, "waitpid", waitpid)
    child = Child(pid=7, grace_seconds=1)
    child._end_others()
    assert ended == [], "only PID 1 owns every process that it sees"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    child._end_others()
    assert set(ended) == {(-1, signal.SIGKILL)} and next(left, None) is None


def test_a_heartbeat_that_can_not_be_written_does_not_end_the_program(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    pulse = supervisor._Pulse(claim().generation, Child(pid=0, grace_seconds=1))
    for call in ("listdir", "open", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            assert pulse.tick() is None
    claim()
    assert pulse.tick() == "a newer generation has taken over"


@pytest.mark.parametrize(("preempted", "code"), [(True, ExitCode.PREEMPTED), (False, ExitCode.FAULT)])
def test_a_volume_that_fails_at_the_end_leaves_a_preemption_a_preemption(
    here: Here, monkeypatch: pytest.MonkeyPatch, preempted: bool, code: int
) -> None:
    def fails(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(results, "read_outcome", fails)
    assert here.run("kill -TERM $PPID; sleep 20" if preempted else "exit 3") == code
    assert "Input/output error" in here.message()


def test_an_outcome_that_can_not_be_used_is_a_fault_with_its_reason(here: Here) -> None:
    script = 'echo "{}" > "$HOLDFAST_CHECKPOINT_DIR/generation-$HOLDFAST_GENERATION/outcome.json"'
    assert here.run(script) == ExitCode.FAULT
    assert "handed over can not be used: outcome.json is not an outcome" in here.message()


def test_the_result_of_another_run_does_not_complete_this_one(here: Here) -> None:
    assert here.run("exit 0") == 0
    assert here.run("exit 0", HOLDFAST_RUN_ID="run-002") == ExitCode.BAD_INPUT
    assert "is the result of the run 'run-001', not of 'run-002'" in here.message()


def test_a_run_that_is_done_needs_no_volume_that_can_be_written(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here.run("exit 0") == 0

    def refuses(*arguments: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for call in ("mkdir", "rename", "link"):
        monkeypatch.setattr(os, call, refuses)
    assert here.run("exit 3") == 0


def test_a_read_only_volume_is_told_as_one(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mounted:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "access", lambda *arguments: False)
    monkeypatch.setattr(os, "statvfs", lambda path: Mounted)
    with pytest.raises(generations.BadInput, match="is mounted read-only: mount the checkpoint"):
        generations.prepare_run_dir(run_dir)


def test_a_bug_in_the_supervisor_leaves_last_words(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*arguments: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(supervisor, "read_settings", breaks)
    assert here.run("exit 0") == ExitCode.FAULT
    assert here.message() == "A bug in holdfast-run: ZeroDivisionError: by nothing."


@pytest.mark.parametrize("text", ["x", "é", "\U0001f9ea", '"', "\x01", "\udcff"])
def test_last_words_fit_into_the_termination_message_whatever_they_are_made_of(
    tmp_path: Path, text: str
) -> None:
    log = tmp_path / "log"
    supervisor._last_words(Ending(1, 2, 3, text * 5000), log)
    assert 1000 < len(log.read_bytes()) <= 4096
    words = json.loads(log.read_text())
    assert words["code"] == 1 and set(words["message"]) == {text}


@pytest.mark.parametrize("place", ["", "  ", "/nowhere/termination-log", "/", "/proc/version"])
def test_a_termination_log_that_can_not_be_written_changes_no_exit_code(here: Here, place: str) -> None:
    assert here.run("exit 3", HOLDFAST_TERMINATION_LOG=place) == 3


@pytest.mark.parametrize(
    "name",
    ["RUN_ID", "IMAGE", "ATTEMPT", "GRACE_SECONDS", "MAX_ATTEMPTS_WITHOUT_PROGRESS", "GENERATION"],
)
def test_a_blank_variable_counts_as_one_that_is_not_set(here: Here, name: str) -> None:
    assert here.run("exit 0", **{f"HOLDFAST_{name}": " "}) == 0


@pytest.mark.parametrize("value", ["9" * 5000, "1e999", "inf", "٣", "nan", "-5", "0x10"])
@pytest.mark.parametrize("name", ["ATTEMPT", "GRACE_SECONDS", "MAX_ATTEMPTS_WITHOUT_PROGRESS"])
def test_a_number_that_is_none_is_bad_input(here: Here, name: str, value: str) -> None:
    assert here.run("exit 0", **{f"HOLDFAST_{name}": value}) == ExitCode.BAD_INPUT
    assert f"HOLDFAST_{name} is" in here.message()


def test_the_program_starts_with_no_signal_ignored_or_blocked(here: Here, tmp_path: Path) -> None:
    assert here.run(f"grep -E 'Sig(Ign|Blk)' /proc/self/status > {tmp_path}/signals") == 0
    masks = [int(line.split()[1], 16) for line in (tmp_path / "signals").read_text().splitlines()]
    assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0], "32 and 33 are the C library's own"


def test_a_launcher_that_ignores_sigchld_does_not_hide_the_programs_code(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[str]:
        ignore = "trap '' CHLD; exec \"$@\""  # an ignored signal stays ignored in what is executed
        return start([SH, "-c", ignore, SH, *command], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert supervised.run([SH, "-c", "exit 3"]) == 3


@pytest.mark.parametrize("arguments", [[], ["--"]])
def test_the_file_itself_is_executable_and_names_what_it_lacks(arguments: list[str]) -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run([HOLDFAST_RUN, *arguments], env=environ, capture_output=True, text=True)
    assert done.returncode == ExitCode.BAD_INPUT and not done.stderr
    assert "write `holdfast-run -- PROGRAM" in json.loads(done.stdout)["message"]


def test_closed_standard_streams_are_not_taken_by_other_files(
    supervised: Supervised, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[str]:
        return start([SH, "-c", 'exec "$@" <&- >&- 2>&-', SH, *command], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert supervised.run([sys.executable, "-c", "import os; [os.fstat(n) for n in (0, 1, 2)]"]) == 0
    result = results.find(run_dir)
    assert result is not None
    assert not [path for path in run_dir.rglob("*.json") if '"event"' in path.read_text()]
