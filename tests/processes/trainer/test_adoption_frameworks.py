"""Real frameworks' own training loops under `holdfast-run --steps`, unchanged, preempted and killed.

Their packages are pinned by hash and installed once, into an environment of their own in the cache folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ops.verbs.test import python_with_frameworks
from trainer.recovery import ExitCode
from trainer.recovery import result as results

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Supervised

FRAMEWORKS = Path(__file__).parent / "frameworks"

# The first of these tests installs the packages: 15 s with a fast network, some minutes with a slow one.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of an environment with the frameworks."""
    return python_with_frameworks()


@dataclass(frozen=True)
class Framework:
    """options: holdfast-run's. words: the program's. final: its last file. first, last: the newest step is at
    least this when it is first interrupted, and at the end.
    """

    script: str
    options: tuple[str, ...]
    words: tuple[str, ...]
    slowly: tuple[str, ...]
    final: str
    first: int
    last: int


KERAS = Framework(
    "keras_fit.py",
    ("--steps", "model_{step}.keras", "--resume-with", "--resume {checkpoint} --initial-epoch {step}"),
    ("--output", "{dir}", "--epochs", "12"),
    ("--epoch-seconds", "0.4"),
    "final.npz",
    first=2,
    last=12,
)
XGBOOST = Framework(
    "xgboost_train.py",
    ("--steps", "model_{step}.ubj", "--resume-with", "--resume {checkpoint}"),
    ("--output", "{dir}", "--rounds", "41"),
    ("--round-seconds", "0.1"),
    "final.ubj",
    first=5,
    last=35,
)


class Training:
    """Attempts at one run of a framework's script, with the real `holdfast-run` at its real pace."""

    def __init__(self, supervised: Supervised, python: Path, framework: Framework) -> None:
        self.supervised, self.python, self.framework = supervised, python, framework

    def start(self, *more: str) -> subprocess.Popen[str]:
        words = [str(FRAMEWORKS / self.framework.script), *self.framework.words, *more]
        options = [*self.framework.options, "--artifact", self.framework.final]
        variables = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "HOME": str(self.supervised.tmp_path)}
        return self.supervised.start([str(self.python), *words], options, **variables)

    def sealed(self) -> int:
        found = self.supervised.run_dir.glob("generation-*/step-*")
        return max((int(path.name[5:]) for path in found), default=0)

    def wait_for_step(self, step: int) -> None:
        self.supervised.wait_for(lambda: self.sealed() >= step, f"step {step} to be sealed", seconds=120)

    def begun_at(self) -> int:
        [line] = [line for line in self.supervised.output.splitlines() if line.startswith("begins at")]
        return int(line.split()[-1])

    def final(self) -> Path:
        result = results.find(self.supervised.run_dir)
        assert result is not None
        results.verify(self.supervised.run_dir, result)
        [artifact] = result.artifacts
        assert artifact.name == self.framework.final and result.step >= self.framework.last
        return self.supervised.run_dir / artifact.path


@pytest.fixture(params=[KERAS, XGBOOST], ids=["keras", "xgboost"])
def training(request: pytest.FixtureRequest, supervised: Supervised, python: Path) -> Training:
    return Training(supervised, python, request.param)


def uninterrupted(training: Training, folder: Path) -> Path:
    """The final file of the same script, run by itself without any of ours."""
    framework = training.framework
    folder.mkdir()
    words = [word.replace("{dir}", str(folder)) for word in framework.words]
    environ = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [str(training.python), str(FRAMEWORKS / framework.script), *words]
    subprocess.run(command, env=environ, check=True, timeout=300, stdout=subprocess.DEVNULL)
    return folder / framework.final


def test_preempted_and_killed_it_ends_with_one_result_and_the_weights_of_an_uninterrupted_run(
    training: Training, tmp_path: Path
) -> None:
    supervised, framework = training.supervised, training.framework
    process = training.start(*framework.slowly)
    training.wait_for_step(framework.first)
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process, seconds=60) == ExitCode.PREEMPTED
    preempted_at = supervised.last_words()["step"]
    assert training.begun_at() == 0 and preempted_at >= framework.first

    process = training.start(*framework.slowly)
    training.wait_for_step(preempted_at + 1)
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    os.kill(int(child), signal.SIGKILL)
    supervised.end(process)
    killed_at = training.sealed()
    assert preempted_at <= training.begun_at() <= preempted_at + 1, "a step may be counted from 0"

    process = training.start()
    assert supervised.end(process, seconds=120) == ExitCode.DONE
    assert killed_at <= training.begun_at() <= killed_at + 1
    [restored] = supervised.events("restore")
    assert restored["step"] == killed_at
    same_weights(training, training.final(), uninterrupted(training, tmp_path / "uninterrupted"))

    assert supervised.end(training.start(), seconds=60) == ExitCode.DONE
    assert "begins at" not in supervised.output, "a finished run is not trained again"


def same_weights(training: Training, found: Path, expected: Path) -> None:
    """Every array, bit for bit: weights and the state of the optimiser, or the whole model's file."""
    if found.suffix != ".npz":
        assert found.read_bytes() == expected.read_bytes()
        return
    compare = (
        "import sys, numpy as np; a, b = map(np.load, sys.argv[1:]); "
        "assert sorted(a) == sorted(b) and len(a.files) > 4; "
        "sys.exit(any(a[name].tobytes() != b[name].tobytes() for name in a))"
    )
    command = [str(training.python), "-c", compare, str(found), str(expected)]
    assert subprocess.run(command, timeout=60).returncode == 0
