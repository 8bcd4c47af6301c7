"""The training loop: resume from the newest verified checkpoint, train, save, hand the result over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import optax

from trainer.digits import data
from trainer.digits.model import TrainState, epoch_order, first_state, optimizer, predict, state_shapes, train_step
from trainer.digits.settings import DigitsSettings
from trainer.digits.state import FILE, RNG, HostMemory, read_state, write_tensors, write_weights
from trainer.recovery import Attempt, BadInput, Checkpoint, ExitCode, emit

ARTIFACT = "model.safetensors"
FRAMEWORKS = {"jax": jax.__version__, "optax": optax.__version__, "numpy": np.__version__}
# Equal within this on a GPU, where the order of sums is not fixed; bit for bit on a CPU.
GPU_TOLERANCE = 1e-4
# Settings that the weights depend on; steps, because the learning rate falls until the last one.
FIXED = ("seed", "batch", "steps", "learning_rate")


def train(settings: DigitsSettings, attempt: Attempt, stop: Callable[[], bool]) -> int:
    """Train to the last step; the exit code. `stop()` is asked after each step: if true, save and leave."""
    digits = data.load()
    tx = optimizer(settings.learning_rate, settings.steps)
    found = attempt.store.restore()
    if found:
        if not settings.resume:
            raise BadInput(
                f"{settings.checkpoint_dir} has a checkpoint of step {found.step}, but --resume is not "
                "given: give it, or use a new directory."
            )
        _check_unchanged(settings, found)
        state, first = read_state(found.path / FILE, state_shapes(tx)), found.step
    else:
        state, first = first_state(settings.seed, tx), 0
    order, epoch_now = None, -1
    per_epoch = len(digits.train_labels) // settings.batch
    saving = _Saving(settings, attempt, per_epoch)
    for step in range(first + 1, settings.steps + 1):
        if 0 < settings.fail_at_step <= step:
            raise RuntimeError(f"step {step} is reached, and the program was told --fail-at-step")
        attempt.store.check()
        began = time.monotonic()
        epoch, position = divmod(step - 1, per_epoch)
        if epoch != epoch_now:
            order, epoch_now = epoch_order(settings.seed, epoch, len(digits.train_labels)), epoch
        chosen = order[position * settings.batch : (position + 1) * settings.batch]
        state, loss = train_step(tx, state, digits.train_images[chosen], digits.train_labels[chosen])
        loss = float(loss)  # waits for the device
        _pace(settings.step_seconds, began, stop)
        emit("step", step=step, loss=round(loss, 6), seconds=round(time.monotonic() - began, 4))
        stopping = stop()
        if step % settings.checkpoint_every == 0 or step == settings.steps or stopping:
            saving.save(step, state, last=stopping or step == settings.steps)
        if stopping:
            emit("stopped", step=step, saved=attempt.store.newest_good_step())
            return ExitCode.PREEMPTED
    _finish(settings, attempt, state, digits)
    return ExitCode.DONE


@dataclass(frozen=True)
class _Saving:
    settings: DigitsSettings
    attempt: Attempt
    per_epoch: int
    memory: HostMemory = field(default_factory=HostMemory)

    def save(self, step: int, state: TrainState, last: bool) -> None:
        """Save one checkpoint while training goes on. The last one is there (or refused) on return."""
        epoch, position = divmod(step, self.per_epoch)
        cursor = {"epoch": epoch, "position": position}
        cursor |= {name: getattr(self.settings, name) for name in FIXED}
        manifest = {"cursor": cursor, "rng": RNG, "frameworks": FRAMEWORKS}
        store = self.attempt.store
        if last or not self.settings.background_saves:
            store.try_save(step, lambda folder: self._write(folder, self.memory.copy(state)), **manifest)
        else:
            store.save_in_background(step, lambda: self.memory.copy(state), self._write, **manifest)

    def _write(self, folder: Path, tensors: dict[str, np.ndarray]) -> None:
        write_tensors(tensors, folder / FILE, self.settings.save_seconds)


def _check_unchanged(settings: DigitsSettings, found: Checkpoint) -> None:
    """With another seed, batch or schedule the weights would be neither run's. Raises BadInput."""
    for name in FIXED:
        now, before = getattr(settings, name), found.manifest.cursor.get(name)
        if now != before:
            raise BadInput(
                f"--{name.replace('_', '-')} is {now}, but the checkpoint of step {found.step} was trained "
                f"with {before}: use that, or a new run id."
            )


def _finish(settings: DigitsSettings, attempt: Attempt, state: TrainState, digits: data.Digits) -> None:
    held_out = len(digits.held_out_labels)
    predicted = np.asarray(
        predict(state.params, np.concatenate([digits.held_out_images, digits.train_images]))
    )
    metrics = {
        "held_out_accuracy": float(np.mean(predicted[:held_out] == digits.held_out_labels)),
        "train_accuracy": float(np.mean(predicted[held_out:] == digits.train_labels)),
        "held_out_images": held_out,
    }
    device = jax.devices()[0]
    details = {
        "device": device.device_kind,
        "platform": device.platform,
        "tolerance": 0.0 if device.platform == "cpu" else GPU_TOLERANCE,
        "frameworks": FRAMEWORKS,
        **{name: getattr(settings, name) for name in FIXED},
    }
    write_weights(state.params, Path(attempt.artifact_path(ARTIFACT)))
    attempt.finish(settings.steps, metrics, [ARTIFACT], details)


def _pace(seconds: float, began: float, stop: Callable[[], bool]) -> None:
    """Let a step last, without letting a signal wait."""
    while (left := began + seconds - time.monotonic()) > 0 and not stop():
        time.sleep(min(left, 0.05))
