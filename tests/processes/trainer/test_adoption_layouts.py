"""Programs that write their own checkpoints, in each framework's layout, preempted and killed at any moment.

The stand-ins import nothing of ours. Each resumes as its framework does, and refuses half a checkpoint.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainer.recovery import ExitCode, open_attempt
from trainer.recovery import result as results

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Supervised

# Ten times as many looks as in a Pod, so that a test of seconds has as many saves as a training of minutes.
QUICK = (
    "import os, sys; from trainer.recovery import adoption_sealing; adoption_sealing.LOOK_SECONDS = 0.05; "
    "from trainer.recovery.supervisor import main; os._exit(main(sys.argv[1:]))"
)
STEPS, EVERY = 40, 5
NOT_BEGUN = -1  # killed while the interpreter started

PROGRAM = """
import glob, hashlib, os, re, shutil, signal, sys, time
from pathlib import Path

layout, out, steps, pace = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
resume = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else None
stop = []
if "--saves-on-sigterm" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
if "--leaves-on-sigterm" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def newest():
    found = [(int(re.findall("[0-9]+", name)[-1]), name) for name in PATTERNS]
    return max(found)[1] if found else None


def write(path, text):
    with open(path, "w") as stream:  # in place, in two halves
        stream.write(text[: len(text) // 2])
        stream.flush()
        time.sleep(pace / 2)
        stream.write(text[len(text) // 2 :])


def save_directory(folder, text):
    folder.mkdir(exist_ok=True)
    write(folder / "model.bin", text)
    (folder / "trainer_state.json").write_text(text[:8])


def read(path):
    path = Path(path)
    text = (path / "model.bin" if path.is_dir() else path).read_text()
    if len(text) != 72 or (path.is_dir() and (path / "trainer_state.json").read_text() != text[:8]):
        print("TORN", path, flush=True)
        sys.exit(78)
    return int(text[:8]), text[8:]


if layout == "directories":
    def save(step, text):
        save_directory(out / f"checkpoint-{step}", text)
        for old in sorted(out.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))[:-2]:
            shutil.rmtree(old)
elif layout == "renamed":
    def save(step, text):
        building = out / f"tmp-checkpoint-{step}"
        save_directory(building, text)
        shutil.rmtree(out / f"checkpoint-{step}", ignore_errors=True)
        building.rename(out / f"checkpoint-{step}")
    PATTERNS = glob.glob(f"{out}/checkpoint-*")
    resume = newest()
elif layout == "one file":
    folder = out / "lightning_logs" / f"version_{len(glob.glob(f'{out}/lightning_logs/*'))}" / "checkpoints"
    folder.mkdir(parents=True)
    def save(step, text):
        write(folder / f"epoch={step // 20}-step={step}.ckpt", text)
        for old in out.glob("lightning_logs/*/checkpoints/*.ckpt"):
            if not old.name.endswith(f"step={step}.ckpt"):
                old.unlink()
elif layout == "many files":
    def save(step, text):
        write(out / f"model_{step:06d}.bin", text)
    PATTERNS = glob.glob(f"{out}/model_*.bin")
    resume = newest()

step, weights = read(resume) if resume else (0, "0" * 64)
print("begins at", step, flush=True)
while step < steps:
    step += 1
    weights = hashlib.sha256(f"{weights} {step}".encode()).hexdigest()
    time.sleep(pace)
    if step % EVERY == 0 or stop:
        save(step, f"{step:08d}{weights}")
    if stop:
        sys.exit(75)
(out / "final.txt").write_text(weights)
"""


@dataclass(frozen=True)
class Layout:
    name: str
    options: tuple[str, ...]


RESUME = ("--resume-with", "--resume {checkpoint}")
LAYOUTS = [
    Layout("directories", ("--steps", "checkpoint-{step}", *RESUME)),
    Layout("renamed", ("--steps", "checkpoint-{step}")),
    Layout("one file", ("--steps", "lightning_logs/*/checkpoints/epoch=*-step={step}.ckpt", *RESUME)),
    Layout("many files", ("--steps", "model_{step}.bin")),
]


def uninterrupted(steps: int) -> str:
    weights = "0" * 64
    for step in range(1, steps + 1):
        weights = hashlib.sha256(f"{weights} {step}".encode()).hexdigest()
    return weights


class Adopting:
    """One run of a stand-in under `holdfast-run --steps`, attempt after attempt."""

    def __init__(self, supervised: Supervised, layout: Layout, pace: float = 0.02) -> None:
        self.supervised, self.layout = supervised, layout
        supervised.command = [sys.executable, "-S", "-c", QUICK]
        script = supervised.tmp_path / "stand_in.py"
        script.write_text(textwrap.dedent(PROGRAM).replace("EVERY", str(EVERY)))
        self.program = [sys.executable, "-S", str(script), layout.name, "{dir}", str(STEPS), str(pace)]

    def start(self, *words: str, options: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
        chosen = [*self.layout.options, *options]
        return self.supervised.start([*self.program, *words], options=chosen, **variables)

    def run(self, *words: str, options: tuple[str, ...] = (), **variables: str) -> int:
        return self.supervised.end(self.start(*words, options=options, **variables))

    def sealed(self) -> int:
        """The newest sealed step on the volume now."""
        found = self.supervised.run_dir.glob("generation-*/step-*")
        return max((int(path.name[5:]) for path in found), default=0)

    def wait_for_step(self, step: int) -> None:
        self.supervised.wait_for(lambda: self.sealed() >= step, f"step {step} to be sealed")

    def kill_everything(self, process: subprocess.Popen[str]) -> None:
        """As a node that goes away: program and supervisor at once."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        self.supervised.end(process)

    def begun_at(self) -> int:
        lines = [line for line in self.supervised.output.splitlines() if line.startswith("begins at")]
        assert "TORN" not in self.supervised.output
        return int(lines[0].split()[-1]) if lines else NOT_BEGUN

    def committed(self) -> results.Result:
        result = results.find(self.supervised.run_dir)
        assert result is not None
        results.verify(self.supervised.run_dir, result)
        return result

    def final(self) -> str:
        [artifact] = self.committed().artifacts
        return (self.supervised.run_dir / artifact.path).read_text()


@pytest.fixture(params=LAYOUTS, ids=lambda layout: layout.name.replace(" ", "-"))
def adopting(request: pytest.FixtureRequest, supervised: Supervised) -> Adopting:
    return Adopting(supervised, request.param)


def test_killed_at_random_moments_it_ends_with_the_weights_of_an_uninterrupted_run(
    adopting: Adopting,
) -> None:
    moments = random.Random(adopting.layout.name)
    begun = []
    for _ in range(3):
        before = adopting.sealed()
        process = adopting.start(options=("--artifact", "final.txt"))
        adopting.wait_for_step(min(before + EVERY, STEPS - 2 * EVERY))
        time.sleep(moments.uniform(0, 0.25))
        adopting.kill_everything(process)
        begun.append(adopting.begun_at())
        assert begun[-1] in (before, NOT_BEGUN), "it resumes from what was sealed, nothing newer or older"
    sealed = adopting.sealed()
    # The last kill may have come when the result was committed already.
    done = results.find(adopting.supervised.run_dir) is not None
    assert adopting.run(options=("--artifact", "final.txt")) == ExitCode.DONE
    assert adopting.begun_at() == (NOT_BEGUN if done else sealed)
    assert sealed >= EVERY
    assert adopting.committed().step == STEPS
    assert adopting.final() == uninterrupted(STEPS)


def test_preempted_it_saves_and_the_next_attempt_goes_on_from_that_step(adopting: Adopting) -> None:
    process = adopting.start("--saves-on-sigterm")
    adopting.wait_for_step(EVERY)
    process.send_signal(signal.SIGTERM)
    assert adopting.supervised.end(process) == ExitCode.PREEMPTED
    saved = adopting.supervised.last_words()["step"]
    assert saved == max(event["step"] for event in adopting.supervised.events("checkpoint"))
    assert adopting.run(options=("--artifact", "final.txt")) == ExitCode.DONE
    assert adopting.begun_at() == saved
    assert adopting.final() == uninterrupted(STEPS)
    [restored] = adopting.supervised.events("restore")
    assert restored["step"] == saved


def test_a_finished_run_is_not_trained_again(adopting: Adopting) -> None:
    assert adopting.run() == ExitCode.DONE
    committed = adopting.committed()
    assert adopting.run() == ExitCode.DONE
    assert adopting.begun_at() == NOT_BEGUN
    assert adopting.committed() == committed
    assert f"{STEPS:08d}{uninterrupted(STEPS)}" in [
        (adopting.supervised.run_dir / artifact.path).read_text() for artifact in committed.artifacts
    ], "without --artifact the newest step's files are the result"


def test_the_program_killed_alone_loses_only_what_was_not_sealed(adopting: Adopting) -> None:
    """As the kernel does when memory is short."""
    process = adopting.start()
    adopting.wait_for_step(EVERY)
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert adopting.supervised.end(process) == 128 + signal.SIGKILL
    newest = adopting.supervised.last_words()["step"]
    assert adopting.run() == ExitCode.DONE
    assert adopting.begun_at() == newest


@pytest.mark.parametrize("words", [(), ("--leaves-on-sigterm",)], ids=["dies", "ends with 0"])
def test_a_program_that_sigterm_ends_in_a_save_leaves_nothing_half_written_to_resume_from(
    supervised: Supervised, words: tuple[str, ...]
) -> None:
    adopting = Adopting(supervised, LAYOUTS[0], pace=0.4)
    adopting.program[-2] = "10"
    process = adopting.start(*words)
    half = supervised.run_dir / "generation-1" / "program" / "checkpoint-5" / "model.bin"
    supervised.wait_for(half.exists, "the save of step 5")
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    assert supervised.last_words()["step"] == 0
    adopting.program[-1] = "0.01"
    assert adopting.run() == ExitCode.DONE
    assert adopting.begun_at() == 0
    assert [event["step"] for event in supervised.events("checkpoint-set-aside")] == [5]


def test_a_paused_zombie_that_wakes_up_writes_nothing_that_counts(adopting: Adopting) -> None:
    supervised = adopting.supervised
    process = adopting.start()
    adopting.wait_for_step(EVERY)
    children = [
        int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]
    for pid in (process.pid, *children):
        os.kill(pid, signal.SIGSTOP)
    newer = open_attempt(supervised.run_dir, environ={"HOLDFAST_RUN_ID": "run-001"})
    before = newer.store.steps()
    for pid in (process.pid, *children):
        os.kill(pid, signal.SIGCONT)
    assert supervised.end(process) == ExitCode.SUPERSEDED
    assert newer.store.steps() == before
    assert adopting.run() == ExitCode.DONE
    assert adopting.begun_at() == before[0]
    assert adopting.committed().generation == 3


def test_attempts_that_seal_no_later_step_stop_with_77(supervised: Supervised) -> None:
    adopting = Adopting(supervised, LAYOUTS[0])
    adopting.program[-2:] = ["4", "0.01"]  # it ends before its first save
    crash = ["/bin/sh", "-c", "exit 3", "{dir}"]
    limit = {"HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS": "2"}
    options = list(LAYOUTS[0].options)
    assert [supervised.run(crash, options, **limit) for _ in range(3)] == [3, 3, ExitCode.NO_PROGRESS]


def test_at_the_deadline_the_last_save_is_sealed_and_the_run_ends_with_78(supervised: Supervised) -> None:
    adopting = Adopting(supervised, LAYOUTS[0], pace=0.1)
    assert adopting.run("--saves-on-sigterm", HOLDFAST_DEADLINE_SECONDS="1.5") == ExitCode.BAD_INPUT
    words = supervised.last_words()
    assert "deadlineSeconds is 1.5" in words["message"]
    assert words["step"] == max(event["step"] for event in supervised.events("checkpoint")) > 0


def test_a_last_step_that_can_not_be_hashed_in_time_does_not_cost_the_exit_code(
    supervised: Supervised,
) -> None:
    adopting = Adopting(supervised, LAYOUTS[0])
    slow = QUICK.replace(
        "from trainer.recovery.supervisor",
        "import time; from trainer.recovery import manifest; "
        "manifest.describe_files = lambda *_: time.sleep(30); from trainer.recovery.supervisor",
    )
    supervised.command = [sys.executable, "-S", "-c", slow]
    process = adopting.start("--saves-on-sigterm", HOLDFAST_GRACE_SECONDS="3")
    supervised.wait_for(
        lambda: list(supervised.run_dir.glob("generation-1/program/checkpoint-*")), "the first save"
    )
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    assert time.monotonic() - began < 6
    [told] = supervised.events("checkpoint-failed")
    assert told["reason"] == "the grace period ended before the last step was hashed: raise graceSeconds"


def test_sigterm_while_the_checkpoints_are_verified_ends_with_75_and_starts_nothing(
    supervised: Supervised, tmp_path: Path
) -> None:
    adopting = Adopting(supervised, LAYOUTS[0])
    adopting.program[-1] = "0.1"  # it is killed long before its end
    process = adopting.start()
    adopting.wait_for_step(EVERY)
    adopting.kill_everything(process)
    slow = QUICK.replace(
        "from trainer.recovery.supervisor",
        "import pathlib, time; from trainer.recovery import manifest; "
        f"begun = pathlib.Path({str(tmp_path / 'verifies')!r}); "
        "manifest.verify = lambda *_: (begun.touch(), time.sleep(2)); "
        "from trainer.recovery.supervisor",
    )
    supervised.command = [sys.executable, "-S", "-c", slow]
    process = adopting.start()
    supervised.wait_for((tmp_path / "verifies").exists, "the verification")
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    assert adopting.begun_at() == NOT_BEGUN and not supervised.events("start")
    assert supervised.last_words()["step"] >= EVERY


def test_an_artifact_that_is_not_there_ends_with_78_and_commits_nothing(supervised: Supervised) -> None:
    adopting = Adopting(supervised, LAYOUTS[0])
    adopting.program[-2] = "10"
    assert adopting.run(options=("--artifact", "model.onnx")) == ExitCode.BAD_INPUT
    assert "no file below {dir} fits --artifact 'model.onnx'" in supervised.last_words()["message"]
    assert results.find(supervised.run_dir) is None
    assert supervised.last_words()["step"] == 10
