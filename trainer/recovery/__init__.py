"""Recovery for training programs of any framework; standard library only.

    attempt = open_attempt(Path("/checkpoints/run-001"))
    found = attempt.store.restore()                      # newest verified checkpoint, or None
    attempt.store.try_save(step, write_files, cursor=…)  # atomic, hashed; a failure is reported, not raised
    attempt.store.save_in_background(step, copy_state, write_files)  # the same, while training goes on
    attempt.finish(step, metrics, ["model.safetensors"]) # the supervisor commits it as the one result

`holdfast-run -- PROGRAM…` (supervisor.py) runs the program in the Pod.
"""

from trainer.recovery.attempt import Attempt, open_attempt
from trainer.recovery.checkpoints import Checkpoint, CheckpointStore
from trainer.recovery.errors import BadInput, SaveFailed, Superseded, Unverified
from trainer.recovery.events import emit
from trainer.recovery.exit_codes import ExitCode

__all__ = [
    "Attempt",
    "BadInput",
    "Checkpoint",
    "CheckpointStore",
    "ExitCode",
    "SaveFailed",
    "Superseded",
    "Unverified",
    "emit",
    "open_attempt",
]
