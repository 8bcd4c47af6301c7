"""Options of the reference program: command line, then HOLDFAST_DIGITS_… variables, then defaults."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.recovery.errors import BadInput

PREFIX = "HOLDFAST_DIGITS_"
TRAINING_IMAGES = 1437  # of the 1797, every fifth is held out


@dataclass(frozen=True)
class DigitsSettings:
    """step_seconds: the least time of a step, so that a toy run lasts long enough to be preempted.

    save_seconds: the least time of a save's writing, most of it spent with half of the bytes on the volume.
    fail_at_step: end with an exception before this step, whichever attempt comes so far; 0 for never.
    background_saves: 1 to train on while a checkpoint is written, 0 to wait for it.
    """

    checkpoint_dir: Path
    resume: bool
    steps: int = 300
    checkpoint_every: int = 25
    seed: int = 0
    step_seconds: float = 0.1
    batch: int = 64
    learning_rate: float = 2e-3
    save_seconds: float = 0.0
    fail_at_step: int = 0
    background_saves: int = 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise BadInput(f"The command line can not be used: {message}. `train --help` lists the options.")


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> DigitsSettings:
    """Raises BadInput naming the option or variable, its value and what to write instead."""
    parser = _Parser(prog="train", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--checkpoint-dir", required=True, help="the run's directory on the checkpoint volume"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the newest verified checkpoint")
    numbers = {
        "steps": (int, 1, 10**9, "training steps in all"),
        "checkpoint-every": (int, 1, 10**9, "steps between checkpoints"),
        "seed": (int, 0, 2**32 - 1, "seed of weights, data order and dropout"),
        "step-seconds": (float, 0, 3600, "least seconds of one step"),
        "batch": (int, 1, TRAINING_IMAGES, "images in a batch"),
        "learning-rate": (float, 0, 1000, "peak learning rate"),
        "save-seconds": (float, 0, 3600, "least seconds that a checkpoint is written"),
        "fail-at-step": (int, 0, 10**9, "crash when this step is reached, 0 for never"),
        "background-saves": (int, 0, 1, "1 to write checkpoints while training goes on"),
    }
    for name, (kind, _, _, text) in numbers.items():
        parser.add_argument(f"--{name}", help=f"{text} ({kind.__name__}; or {PREFIX}{_upper(name)})")
    given = vars(parser.parse_args(list(arguments)))
    values: dict[str, float] = {}
    for name, (kind, least, most, _) in numbers.items():
        field = name.replace("-", "_")
        source, text = f"--{name}", given[field]
        if text is None:
            source, text = PREFIX + _upper(name), environ.get(PREFIX + _upper(name), "").strip() or None
        if text is not None:
            values[field] = _number(source, text, kind, least, most)
    return DigitsSettings(Path(given["checkpoint_dir"]), given["resume"], **values)  # type: ignore[arg-type]


def _upper(name: str) -> str:
    return name.replace("-", "_").upper()


def _number(source: str, text: str, kind: type, least: float, most: float) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:  # which no NaN is
        noun = "a whole number" if kind is int else "a number"
        raise BadInput(f"{source} is {text!r}: write {noun} from {least} to {most}.")
    return value
