"""What a training program uses: its attempt, with a checkpoint store and a way to hand over its outcome."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.recovery import generation as generations
from trainer.recovery import result as results
from trainer.recovery.checkpoints import LEAST_KEPT, CheckpointStore
from trainer.recovery.errors import BadInput
from trainer.recovery.generation import Generation
from trainer.recovery.settings import Identity

GENERATION = "HOLDFAST_GENERATION"
DIRECTORY = "HOLDFAST_CHECKPOINT_DIR"


@dataclass(frozen=True)
class Attempt:
    """One attempt at the run. `store` saves and restores; `finish` ends it."""

    generation: Generation
    store: CheckpointStore

    def artifact_path(self, name: str) -> Path:
        """Where to write the final artifact of that name (no slash). Raises Superseded when fenced."""
        if "/" in name or name.startswith("."):
            raise ValueError(f"an artifact's name is a plain file name, not {name!r}")
        folder = self.generation.work_dir / "outcome"
        try:
            os.mkdir(folder)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self.generation.check_current()
            raise
        return folder / name

    def finish(
        self,
        step: int,
        metrics: Mapping[str, Any],
        artifacts: list[str],
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Hand over metrics and the artifacts at `artifact_path`; the supervisor commits them.

        A save in the background is waited for first, and what it ended with is raised. Raises ValueError for
        an artifact that is no plain file (a link, a directory, not there).
        """
        self.store.wait()
        for name in artifacts:
            path = self.artifact_path(name)
            if path.is_symlink() or not path.is_file():
                self.generation.check_current()
                raise ValueError(f"the artifact {name!r} is not a plain file at {path}: write it there first")
        paths = {name: f"outcome/{name}" for name in artifacts}
        results.hand_over(self.generation, results.Outcome(step, dict(metrics), paths, dict(details or {})))


def open_attempt(
    checkpoint_dir: Path, environ: Mapping[str, str] = os.environ, keep: int = LEAST_KEPT
) -> Attempt:
    """The attempt that the supervisor has claimed for this process; without a supervisor, a claim of its own.

    Raises BadInput when supervisor and program disagree about the directory, Superseded when already fenced.
    """
    checkpoint_dir = Path(checkpoint_dir)
    identity = Identity.from_environment(environ, checkpoint_dir).fields()
    claimed = environ.get(GENERATION, "").strip()
    if not claimed:
        generations.prepare_run_dir(checkpoint_dir)
        generation = generations.claim(checkpoint_dir, identity)
    else:
        guarded = environ.get(DIRECTORY, "")
        if guarded and Path(guarded) != checkpoint_dir:
            raise BadInput(
                f"The program was told to use --checkpoint-dir={checkpoint_dir}, but the supervisor guards "
                f"{DIRECTORY}={guarded}: give both the same directory."
            )
        if not re.fullmatch("[0-9]{1,9}", claimed):
            raise BadInput(f"{GENERATION} is {claimed!r}: leave it to holdfast-run, which sets it.")
        generation = Generation(int(claimed), checkpoint_dir)
        generation.check_current()
    return Attempt(generation, CheckpointStore(generation, identity, keep=keep))
