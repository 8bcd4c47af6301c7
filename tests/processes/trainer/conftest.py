"""A run's directory, and a small program that trains nothing but keeps to the recovery library's rules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainer.recovery import Attempt, open_attempt
from trainer.recovery.child import WATCHED
from trainer.recovery.supervisor import main

CHECKOUT = Path(__file__).resolve().parents[3]
HOLDFAST_RUN = CHECKOUT / "trainer" / "bin" / "holdfast-run"

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

received = []
signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
from trainer.recovery import ExitCode, Superseded, open_attempt

folder, steps, log = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
hang_in_save_of = int(os.environ.get("HANG_IN_SAVE_OF", "0"))
pace = float(os.environ.get("PACE", "0"))
attempt = open_attempt(folder)
found = attempt.store.restore()
step = found.step if found else 0


def write(target):
    (target / "state").write_text(f"state {step}")
    if step == hang_in_save_of:
        log.with_suffix(".hangs").touch()
        time.sleep(60)


try:
    while step < steps:
        step += 1
        with log.open("a") as stream:
            stream.write(f"{step}\\n")
        time.sleep(pace)
        attempt.store.try_save(step, write, cursor={"position": step})
        if received:
            sys.exit(ExitCode.PREEMPTED)
    attempt.artifact_path("model.txt").write_text("weights")
    attempt.finish(step, {"accuracy": 1.0}, ["model.txt"])
except Superseded:
    sys.exit(ExitCode.SUPERSEDED)
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints" / "run-001"


@pytest.fixture
def claim(run_dir: Path) -> Callable[[], Attempt]:
    """Make a new attempt at the run, as a restarted Pod does."""
    return lambda: open_attempt(run_dir, environ={})


class Supervised:
    """A `holdfast-run` process with its program, and what they said."""

    def __init__(self, run_dir: Path, tmp_path: Path) -> None:
        self.run_dir, self.tmp_path = run_dir, tmp_path
        self.log = tmp_path / "trained-steps"
        self.script = tmp_path / "program.py"
        self.script.write_text(textwrap.dedent(PROGRAM))
        self.process: subprocess.Popen[str] | None = None
        self.command = [sys.executable, "-S", str(HOLDFAST_RUN)]

    def program(self, steps: int = 3) -> list[str]:
        return [sys.executable, "-S", str(self.script), str(self.run_dir), str(steps), str(self.log)]

    def start(
        self, program: list[str] | None = None, options: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[str]:
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(CHECKOUT),
            "HOLDFAST_CHECKPOINT_DIR": str(self.run_dir),
            "HOLDFAST_RUN_ID": "run-001",
            "HOLDFAST_TERMINATION_LOG": str(self.tmp_path / "last-words"),
            **variables,
        }
        program = self.program() if program is None else program
        command = [*self.command, *options, "--", *program]
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        return self.process

    def run(self, program: list[str] | None = None, options: Sequence[str] = (), **variables: str) -> int:
        """Run to the end; the exit code."""
        return self.end(self.start(program, options, **variables))

    def end(self, process: subprocess.Popen[str], seconds: float = 20) -> int:
        self.output, _ = process.communicate(timeout=seconds)
        return process.returncode

    def events(self, name: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]
        return [event for event in found if event["event"] == name]

    def last_words(self) -> dict[str, Any]:
        return json.loads((self.tmp_path / "last-words").read_text())

    def trained(self) -> list[int]:
        """Every step that any attempt trained, in order."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def wait_for(self, condition: Callable[[], Any], what: str, seconds: float = 10) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"waited {seconds:g} s for {what}"
            time.sleep(0.02)


@pytest.fixture
def supervised(run_dir: Path, tmp_path: Path) -> Iterator[Supervised]:
    found = Supervised(run_dir, tmp_path)
    yield found
    if found.process and found.process.poll() is None:
        found.process.send_signal(signal.SIGCONT)
        found.process.kill()
        found.process.wait()


class Here:
    """The supervisor in a fork of this process, which is quicker than a new interpreter and can be interposed.

    Not in this process itself: other tests leave threads here, and a SIGTERM for the process goes to any thread that
    does not block it.
    """

    def __init__(self, run_dir: Path, log: Path) -> None:
        self.log = log
        self.environ = {
            "HOLDFAST_CHECKPOINT_DIR": str(run_dir),
            "HOLDFAST_RUN_ID": "run-001",
            "HOLDFAST_TERMINATION_LOG": str(log),
            "HOLDFAST_GRACE_SECONDS": "5",
            "PATH": os.environ["PATH"],
        }

    def run(self, script: str, received: tuple[int, ...] = (), **environ: str) -> int:
        return self.start(["/bin/sh", "-c", script], received, **environ)

    def start(self, program: list[str], received: tuple[int, ...] = (), **environ: str) -> int:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
                code = main(["--", *program], received, {**self.environ, **environ})
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def last_words(self) -> dict[str, Any]:
        return json.loads(self.log.read_text())

    def message(self) -> str:
        return self.last_words()["message"]


@pytest.fixture
def here(run_dir: Path, tmp_path: Path) -> Here:
    return Here(run_dir, tmp_path / "last-words")
