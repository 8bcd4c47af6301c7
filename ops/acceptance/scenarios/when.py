"""The moments at which faults are made."""

from __future__ import annotations

from ops.acceptance.lab import Lab
from ops.acceptance.recorder import PodRecord


def after_a_checkpoint(lab: Lab, number: int = 1, count: int = 1) -> PodRecord:
    """The run's Pod of that number, once it has sealed so many checkpoints and trained on."""
    pod = lab.running(number)
    sealed = lab.event(pod, "checkpoint", count)
    lab.event(pod, "step", at_step=int(sealed["step"]) + 1)
    return pod
