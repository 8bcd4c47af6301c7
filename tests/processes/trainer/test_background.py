"""Saves in the background: training waits for the copy only, and nothing of the protocol is weaker."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainer.recovery import Attempt, ExitCode, Superseded
from trainer.recovery import background as backgrounds
from trainer.recovery import manifest as manifests

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Supervised

Claim = Callable[[], Attempt]
Said = Callable[[], list[dict[str, Any]]]
CHECKOUT = Path(__file__).resolve().parents[3]


class Gate:
    """A `write` that does not go on until it is let."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def write(self, folder: Path, state: Any) -> None:
        self.begun.set()
        assert self.open.wait(10)
        (folder / "state").write_text(str(state))


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    return lambda: [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def write(folder: Path, state: Any) -> None:
    (folder / "state").write_text(str(state))


def test_training_goes_on_while_the_snapshot_of_its_step_is_written(claim: Claim, said: Said) -> None:
    attempt, gate = claim(), Gate()
    state, cursor = [1, 2], {"position": 1}
    assert attempt.store.save_in_background(1, lambda: list(state), gate.write, cursor=cursor)
    assert gate.begun.wait(10)
    state.append(3)  # the next step
    cursor["position"] = 2
    assert attempt.store.steps() == []
    time.sleep(0.05)
    gate.open.set()
    saved = attempt.store.wait()
    assert saved is not None and saved.step == attempt.store.newest_good_step() == 1
    assert (saved.path / "state").read_text() == "[1, 2]" and saved.manifest.cursor == {"position": 1}
    events = said()
    assert [event["event"] for event in events] == ["checkpoint-begins", "checkpoint"]
    assert events[1]["seconds"] >= 0.05 > 0.04 > events[1]["blocked_seconds"]
    found = claim().store.restore()
    assert found is not None and found.manifest == saved.manifest


def test_a_second_save_waits_for_the_first_and_copies_only_after_it_has_ended(
    claim: Claim, said: Said
) -> None:
    attempt, gate = claim(), Gate()
    memory: list[str] = []

    def snapshot(text: str) -> list[str]:
        memory[:] = [text]  # the same memory each time
        return memory

    attempt.store.save_in_background(1, lambda: snapshot("first"), gate.write)
    assert gate.begun.wait(10)
    threading.Timer(0.1, gate.open.set).start()
    attempt.store.save_in_background(2, lambda: snapshot("second"), write)
    attempt.store.wait()
    folders = [attempt.store.work_dir / f"step-{step}" / "state" for step in (1, 2)]
    assert [path.read_text() for path in folders] == ["['first']", "['second']"]
    events = said()
    assert [(event["event"], event["step"]) for event in events if event["event"] == "checkpoint-waits"] == [
        ("checkpoint-waits", 2)
    ]
    second = next(event for event in events if event["event"] == "checkpoint" and event["step"] == 2)
    assert second["blocked_seconds"] >= 0.05, "waiting is time that the step was held up"


def test_a_second_save_is_left_out_and_said_so_when_asked_to(claim: Claim, said: Said) -> None:
    attempt, gate = claim(), Gate()
    attempt.store.save_in_background(1, lambda: 1, gate.write)
    assert gate.begun.wait(10)
    assert not attempt.store.save_in_background(2, lambda: pytest.fail("copied"), write, when_busy="skip")
    gate.open.set()
    attempt.store.wait()
    assert attempt.store.steps() == [1]
    [skipped] = [event for event in said() if event["event"] == "checkpoint-skipped"]
    assert (skipped["step"], skipped["saving"]) == (2, 1)
    with pytest.raises(ValueError, match="when_busy is 'later': write 'wait' or 'skip'"):
        attempt.store.save_in_background(3, lambda: 3, write, when_busy="later")  # type: ignore[arg-type]


def test_a_save_that_the_volume_refuses_is_reported_and_training_goes_on(claim: Claim, said: Said) -> None:
    def full(folder: Path, state: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    attempt = claim()
    attempt.store.save_in_background(1, lambda: 1, write)
    attempt.store.save_in_background(2, lambda: 2, full)
    assert attempt.store.wait() is None
    [failed] = [event for event in said() if event["event"] == "checkpoint-failed"]
    assert failed["step"] == 2 and "No space left on device (ENOSPC)" in failed["reason"]
    attempt.store.save_in_background(3, lambda: 3, write)
    assert attempt.store.wait() is not None and attempt.store.steps() == [3, 1]


ASKING: dict[str, Callable[[Attempt], object]] = {
    "wait": lambda attempt: attempt.store.wait(),
    "check": lambda attempt: attempt.store.check(),
    "the next save": lambda attempt: attempt.store.save_in_background(2, lambda: 2, write),
    "a save in the foreground": lambda attempt: attempt.store.save(2, lambda folder: None),
    "restore": lambda attempt: attempt.store.restore(),
    "finish": lambda attempt: attempt.finish(2, {}, []),
}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING.keys())
def test_an_exception_of_the_programs_own_writing_is_told_at_once_and_raised_once(
    claim: Claim, said: Said, ask: Callable[[Attempt], object]
) -> None:
    def broken(folder: Path, state: Any) -> None:
        raise ZeroDivisionError("by nothing")

    attempt = claim()
    attempt.store.save_in_background(1, lambda: 1, broken)
    while attempt.store._background.busy_with is not None:
        time.sleep(0.005)
    events = said()
    assert [event["event"] for event in events] == ["checkpoint-begins", "checkpoint-failed"]
    assert "own writing of step 1 ended with ZeroDivisionError: by nothing" in events[1]["reason"]
    with pytest.raises(ZeroDivisionError):
        ask(attempt)
    assert attempt.store.wait() is None
    assert [name for name in os.listdir(attempt.store.work_dir) if name.startswith("tmp-")] == []


def test_an_exception_of_the_snapshot_is_raised_where_it_was_asked_for(claim: Claim) -> None:
    store = claim().store
    with pytest.raises(ZeroDivisionError):
        store.save_in_background(1, lambda: 1 // 0, write)
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.save_in_background(1, lambda: 1, write, cursor={"position": object()})
    assert store.wait() is None and store.steps() == []


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING.keys())
def test_an_attempt_that_is_overtaken_while_it_saves_learns_it_from_its_next_call(
    claim: Claim, ask: Callable[[Attempt], object]
) -> None:
    zombie, gate = claim(), Gate()
    zombie.store.save_in_background(1, lambda: 1, gate.write)
    assert gate.begun.wait(10)
    after = claim()
    gate.open.set()
    while zombie.store._background.busy_with is not None:
        time.sleep(0.005)
    with pytest.raises(Superseded):
        ask(zombie)
    assert after.store.steps() == []


def test_finishing_restoring_and_saving_wait_for_the_save_in_flight(claim: Claim) -> None:
    for step, ask in enumerate((ASKING["finish"], ASKING["restore"], ASKING["a save in the foreground"]), 3):
        attempt, gate = claim(), Gate()
        attempt.store.save_in_background(step, lambda: 1, gate.write)
        assert gate.begun.wait(10)
        attempt.store.check()  # which waits for nothing
        threading.Timer(0.05, gate.open.set).start()
        ask(attempt)
        assert step in attempt.store.steps()


def test_retention_keeps_the_newest_two_of_many_saves(claim: Claim) -> None:
    attempt = claim()
    for step in range(1, 6):
        attempt.store.save_in_background(step, lambda: "x", write)
    attempt.store.wait()
    assert attempt.store.steps() == [5, 4]
    assert sorted(os.listdir(attempt.store.work_dir)) == ["step-4", "step-5"]


def test_the_copy_is_given_up_as_soon_as_it_is_written(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    class Copy:
        gone = threading.Event()

        def __del__(self) -> None:
            self.gone.set()

    describe = manifests.describe_files
    seen: list[bool] = []

    def watched(*arguments: Any) -> Any:
        seen.append(Copy.gone.is_set())
        return describe(*arguments)

    monkeypatch.setattr(manifests, "describe_files", watched)
    store = claim().store
    store.save_in_background(1, Copy, lambda folder, copy: (folder / "state").touch())
    store.wait()
    assert seen == [True]


def test_without_a_thread_to_be_had_the_save_is_made_in_the_foreground(
    claim: Claim, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(backgrounds, "Thread", NoThread)
    store = claim().store
    assert store.save_in_background(1, lambda: 1, write)
    assert store.steps() == [1]
    event = said()[-1]
    assert event["blocked_seconds"] == event["seconds"]
    assert store.wait() is not None


def test_files_manifest_directory_and_rename_are_flushed_in_the_same_order_as_in_the_foreground(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def watched_fsync(descriptor: int) -> None:
        done.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name.split('-')[0]}")
        fsync(descriptor)

    def watched_rename(source: Path, target: Path) -> None:
        done.append(f"rename {Path(target).name}")
        rename(source, target)

    def files(folder: Path, state: Any) -> None:
        for name in "abc":
            (folder / name).write_text(name)

    attempt = claim()
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "rename", watched_rename)
    attempt.store.save_in_background(1, lambda: None, files)
    attempt.store.wait()
    expected = ["a", "b", "c", "manifest.json", "tmp"]
    assert done == [*(f"fsync {name}" for name in expected), "rename step-1", "fsync generation"]


PROGRAM = """
import sys, time
from pathlib import Path

from trainer.recovery import open_attempt

folder = Path(sys.argv[1])
attempt = open_attempt(folder, {})


def write(target, state):
    time.sleep(0.3)
    for number in range(40):  # too many for one thread
        (target / f"part-{number}").write_bytes(bytes(200_000))


attempt.store.save_in_background(1, lambda: None, write)
%s
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [("sys.exit(0)", 0), ("raise ValueError('a bug')", 1), ("", 0)],
    ids=["exit", "bug", "end"],
)
def test_a_program_that_ends_while_it_saves_ends_after_the_save(
    run_dir: Path, claim: Claim, ending: str, code: int
) -> None:
    line = [sys.executable, "-S", "-c", textwrap.dedent(PROGRAM % ending), str(run_dir)]
    done = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True, timeout=30)
    assert done.returncode == code
    events = [json.loads(text)["event"] for text in done.stdout.splitlines()]
    assert events == ["checkpoint-begins", "checkpoint"]
    found = claim().store.restore()
    assert found is not None and len(found.manifest.files) == 40


STOPPING = """
import os, signal, sys, time
from pathlib import Path

received = []
signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
from trainer.recovery import ExitCode, emit, open_attempt

attempt = open_attempt(Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]))


def write(folder, state):
    (folder / "half").write_text("x")
    time.sleep(0.5)
    (folder / "state").write_text(str(state))


for step in range(1, 1000):
    time.sleep(0.05)
    emit("step", step=step)
    if step % 4 == 0 or received:
        attempt.store.save_in_background(step, lambda: step, write)
    if received:
        attempt.store.wait()
        sys.exit(ExitCode.PREEMPTED)
"""


def test_on_sigterm_the_save_in_flight_and_the_last_one_are_on_the_volume_before_the_exit(
    supervised: Supervised, claim: Claim
) -> None:
    supervised.script.write_text(STOPPING)
    process = supervised.start([sys.executable, "-S", str(supervised.script)])
    supervised.wait_for(lambda: list(supervised.run_dir.glob("*/tmp-step-4-*/half")), "the save to begin")
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    last = supervised.events("step")[-1]["step"]
    saved = [event["step"] for event in supervised.events("checkpoint")]
    assert saved == [4, last] and last > 4
    assert supervised.last_words()["step"] == last
    found = claim().store.restore()
    assert found is not None and (found.path / "state").read_text() == str(last)
