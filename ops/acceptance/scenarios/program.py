"""Faults of the program: killed in a save, a damaged checkpoint, a crash, and ends that no retry can help."""

from __future__ import annotations

from ops.acceptance.lab import Lab
from ops.acceptance.scenarios.when import after_a_checkpoint


def undisturbed(lab: Lab) -> None:
    """The reference; also the runs that end by themselves (always crashing, bad input, no progress)."""
    lab.over()


def crash(lab: Lab) -> None:
    pod = after_a_checkpoint(lab)
    lab.snapshot("before-fault")
    lab.kill_program(pod)
    lab.running(2)
    lab.over()


def kill_during_save(lab: Lab) -> None:
    """SIGKILL while the save after a sealed one is written; a look at the volume shows the half save."""
    pod = lab.running(1)
    sealed = lab.event(pod, "checkpoint")
    lab.event(pod, "checkpoint-begins", at_step=int(sealed["step"]) + 1)
    lab.snapshot("during-save")
    lab.kill_program(pod)
    lab.running(2)
    lab.over()


def corrupted_checkpoint(lab: Lab) -> None:
    """With two sealed ones, so that there is one before the damaged one."""
    pod = after_a_checkpoint(lab, count=2)
    lab.snapshot("before-fault")
    lab.act(
        "corrupt-and-kill",
        pod.name,
        lambda: lab.faults.corrupt_and_kill(pod.name, lab.run_id),
        pod_uid=pod.uid,
    )
    lab.running(2)
    lab.over()
