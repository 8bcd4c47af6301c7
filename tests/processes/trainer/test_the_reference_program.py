"""The reference program: real data, and the same weights however often it is interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from trainer.digits.settings import DigitsSettings, parse
from trainer.recovery import BadInput, ExitCode, open_attempt
from trainer.recovery import result as results

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Supervised

TRAIN = Path(__file__).resolve().parents[3] / "trainer" / "bin" / "train"


class Killed(Exception):
    """Stands for a process that is gone from one moment to the next."""


@pytest.fixture(scope="module")
def train() -> Callable[..., int]:
    from trainer.digits.main import prepare_framework

    prepare_framework(os.environ)
    from trainer.digits.train import train

    return train


def settings(run_dir: Path, **changes: Any) -> DigitsSettings:
    values = {"steps": 40, "checkpoint_every": 6, "step_seconds": 0.0, **changes}
    return DigitsSettings(run_dir, resume=True, **values)


def after(steps: int) -> Callable[[], bool]:
    """A `stop` that says yes after that many steps; an unpaced run asks once per step."""
    asked = count(1)
    return lambda: next(asked) >= steps


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def weights(run_dir: Path) -> str:
    """The final weights' hash, from the newest attempt's outcome."""
    folder = max(run_dir.glob("generation-*"), key=lambda path: int(path.name.split("-")[1]))
    return hashlib.sha256((folder / "outcome" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.trainer
def test_a_run_interrupted_many_times_ends_with_the_same_weights_bit_for_bit(
    train: Callable[..., int], tmp_path: Path
) -> None:
    straight, interrupted = tmp_path / "straight", tmp_path / "interrupted"
    assert train(settings(straight), open_attempt(straight, {}), lambda: False) == ExitCode.DONE

    for steps in (2, 6, 10, 15):
        code = train(settings(interrupted), open_attempt(interrupted, {}), after(steps))
        assert code == ExitCode.PREEMPTED

    kill_next = after(3)

    def killed() -> bool:
        if kill_next():
            raise Killed
        return False

    with pytest.raises(Killed):
        train(settings(interrupted), open_attempt(interrupted, {}), killed)
    assert train(settings(interrupted), open_attempt(interrupted, {}), lambda: False) == ExitCode.DONE
    assert weights(interrupted) == weights(straight)

    foreground = tmp_path / "foreground"
    kept = settings(foreground, background_saves=0)
    assert train(kept, open_attempt(foreground, {}), lambda: False) == ExitCode.DONE
    assert weights(foreground) == weights(straight)
    files = [next(run.glob("*/step-36/state.safetensors")).read_bytes() for run in (straight, foreground)]
    assert files[0] == files[1], "the snapshot is of the step that it is named after"


@pytest.mark.trainer
def test_it_learns_to_read_digits_it_has_not_seen(train: Callable[..., int], run_dir: Path) -> None:
    attempt = open_attempt(run_dir, {})
    assert train(settings(run_dir, steps=150, checkpoint_every=75), attempt, lambda: False) == ExitCode.DONE
    outcome = results.read_outcome(attempt.generation)
    assert outcome is not None and outcome.metrics["held_out_accuracy"] > 0.93
    assert outcome.details["tolerance"] == 0.0


@pytest.mark.trainer
def test_a_checkpoint_of_another_seed_batch_or_schedule_is_refused(
    train: Callable[..., int], run_dir: Path
) -> None:
    train(settings(run_dir), open_attempt(run_dir, {}), after(12))
    with pytest.raises(BadInput, match="--seed is 1, but the checkpoint of step .* was trained with 0"):
        train(settings(run_dir, seed=1), open_attempt(run_dir, {}), lambda: False)
    for name, value in (("steps", 3), ("steps", 41), ("batch", 32), ("learning_rate", 0.1)):
        option = f"--{name.replace('_', '-')} is {value}, but the checkpoint of step"
        with pytest.raises(BadInput, match=option):
            train(settings(run_dir, **{name: value}), open_attempt(run_dir, {}), lambda: False)


@pytest.mark.trainer
def test_the_checkpoint_names_data_cursor_rng_and_framework_versions(
    train: Callable[..., int], run_dir: Path
) -> None:
    train(settings(run_dir), open_attempt(run_dir, {}), lambda: False)
    body = json.loads(next(run_dir.glob("generation-*/step-40/manifest.json")).read_text())
    fixed = {"seed": 0, "batch": 64, "steps": 40, "learning_rate": 2e-3}
    assert body["cursor"] == {"epoch": 1, "position": 18, **fixed}
    assert body["rng"] == {"file": "state.safetensors", "tensor": ".rng"}
    assert set(body["frameworks"]) == {"jax", "optax", "numpy"}


@pytest.mark.trainer
def test_a_save_that_the_volume_refuses_does_not_end_the_training(
    train: Callable[..., int], run_dir: Path
) -> None:
    attempt = open_attempt(run_dir, {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # less than the state
    try:
        assert train(settings(run_dir), attempt, after(8)) == ExitCode.PREEMPTED
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert attempt.store.steps() == []
    assert train(settings(run_dir), attempt, after(8)) == ExitCode.PREEMPTED
    assert attempt.store.steps() == [8, 6]


@pytest.mark.trainer
def test_the_supervised_program_saves_on_sigterm_and_the_next_attempt_completes(
    supervised: Supervised, run_dir: Path
) -> None:
    program = [sys.executable, str(TRAIN), "--resume", f"--checkpoint-dir={run_dir}", "--steps=60"]
    process = supervised.start([*program, "--checkpoint-every=20"], HOLDFAST_DIGITS_STEP_SECONDS="0.05")
    assert process.stdout is not None
    while '"step": 5,' not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    assert supervised.last_words()["step"] >= 5
    assert supervised.run(program, HOLDFAST_DIGITS_STEP_SECONDS="0") == 0
    assert supervised.events("restore")[0]["step"] >= 5
    result = results.find(run_dir)
    assert result is not None and [artifact.name for artifact in result.artifacts] == ["model.safetensors"]


@pytest.mark.trainer
def test_a_program_that_is_told_to_fail_at_a_step_does_so_in_each_attempt(
    train: Callable[..., int], run_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for started in (0, 6):
        attempt = open_attempt(run_dir, {})
        with pytest.raises(RuntimeError, match="step 8 is reached"):
            train(settings(run_dir, fail_at_step=8), attempt, lambda: False)
        attempt.store.wait()  # as the end of a process does
        steps = [event["step"] for event in events(capfd.readouterr().out) if event["event"] == "step"]
        assert steps == list(range(started + 1, 8))
    with pytest.raises(RuntimeError, match="step 7 is reached"):
        train(settings(run_dir, fail_at_step=5), open_attempt(run_dir, {}), lambda: False)


@pytest.mark.trainer
def test_a_slow_save_can_be_hit_with_half_of_its_bytes_on_the_volume(tmp_path: Path) -> None:
    from numpy import arange

    from trainer.digits import state

    tensors = {"w": arange(1000)}
    state.write_tensors(tensors, tmp_path / "quick")
    sizes: list[int] = []
    writing = Thread(target=state.write_tensors, args=(tensors, tmp_path / "slow", 0.5))
    began = time.monotonic()
    writing.start()
    while writing.is_alive():
        sizes += [(tmp_path / "slow").stat().st_size] if (tmp_path / "slow").exists() else []
        time.sleep(0.01)
    assert time.monotonic() - began >= 0.5
    assert (tmp_path / "slow").read_bytes() == (tmp_path / "quick").read_bytes()
    whole = (tmp_path / "quick").stat().st_size
    assert sizes.count(whole // 2) > 10


def test_options_come_from_the_command_line_before_the_environment(tmp_path: Path) -> None:
    environ = {"HOLDFAST_DIGITS_STEPS": "10", "HOLDFAST_DIGITS_STEP_SECONDS": "0.5"}
    found = parse([f"--checkpoint-dir={tmp_path}", "--steps=20"], environ)
    assert (found.steps, found.step_seconds, found.checkpoint_every, found.resume) == (20, 0.5, 25, False)


@pytest.mark.parametrize(
    ("arguments", "environ", "sentence"),
    [
        (["--steps=0"], {}, "--steps is '0': write a whole number from 1 to 1000000000."),
        (["--batch=1438"], {}, "--batch is '1438': write a whole number from 1 to 1437."),
        ([f"--seed={2**64}"], {}, "write a whole number from 0 to 4294967295."),
        (
            [],
            {"HOLDFAST_DIGITS_SEED": "x"},
            "HOLDFAST_DIGITS_SEED is 'x': write a whole number from 0",
        ),
        (
            [],
            {"HOLDFAST_DIGITS_STEP_SECONDS": "nan"},
            "HOLDFAST_DIGITS_STEP_SECONDS is 'nan': write a number",
        ),
        (["--epochs=3"], {}, "unrecognized arguments: --epochs=3"),
        (["--save-seconds=-1"], {}, "--save-seconds is '-1': write a number from 0 to 3600."),
        (
            [],
            {"HOLDFAST_DIGITS_BACKGROUND_SAVES": "yes"},
            "HOLDFAST_DIGITS_BACKGROUND_SAVES is 'yes': write a whole number from 0 to 1.",
        ),
        ([], {"HOLDFAST_DIGITS_FAIL_AT_STEP": "1.5"}, "HOLDFAST_DIGITS_FAIL_AT_STEP is '1.5': write a whole"),
    ],
)
def test_an_option_that_can_not_be_used_is_named(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadInput) as caught:
        parse([f"--checkpoint-dir={tmp_path}", *arguments], environ)
    assert sentence in str(caught.value)
