"""Faults of the Pod: deletion, eviction, drain, and more preemptions than the run may fail."""

from __future__ import annotations

from ops.acceptance.lab import Lab
from ops.acceptance.scenarios.when import after_a_checkpoint


def pod_deletion(lab: Lab) -> None:
    pod = after_a_checkpoint(lab)
    lab.snapshot("before-fault")
    lab.delete(pod)
    lab.running(2)
    lab.over()


def eviction(lab: Lab) -> None:
    pod = after_a_checkpoint(lab)
    lab.snapshot("before-fault")
    lab.evict(pod)
    lab.running(2)
    lab.over()


def drain(lab: Lab) -> None:
    """As `kubectl drain` does, for the run's Pod alone: cordon, evict. Uncordoned once the next one runs."""
    pod = after_a_checkpoint(lab)
    lab.snapshot("before-fault")
    node = pod.node
    # Registered first: between the deed and its note nothing may come.
    uncordon = lab.undo.later(
        f"the cordon of node {node}",
        lambda: void(lab.act("uncordon", node, lambda: {"ours": lab.faults.uncordon(node)})),
    )
    lab.act("cordon", node, lambda: {"ours": lab.faults.cordon(node)})
    lab.evict(pod)
    lab.running(2)
    uncordon()
    lab.over()


def many_preemptions(lab: Lab) -> None:
    """Three, where one failure is allowed; each after a checkpoint of its own attempt."""
    for number in (1, 2, 3):
        pod = after_a_checkpoint(lab, number)
        (lab.evict if number == 2 else lab.delete)(pod)
    lab.running(4)
    lab.over()


def void(_answer: object) -> None:
    """For a registered undo, which answers nothing."""
