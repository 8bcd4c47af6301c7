"""One module per kind of fault. A fault is a function that disturbs the run of its Lab and sees it end.

Imported late: the faults of the rehearsal's own machine need a machine that can have one.
"""

from __future__ import annotations

from collections.abc import Callable

from ops.acceptance.facts import REFERENCE
from ops.acceptance.lab import Lab


def fault(slug: str) -> Callable[[Lab], None]:
    """What is done for a fault of facts.FAULTS, or for the reference."""
    from ops.acceptance.scenarios import pods, program, two, volume

    return {
        REFERENCE: program.undisturbed,
        "pod-deletion": pods.pod_deletion,
        "eviction": pods.eviction,
        "drain": pods.drain,
        "kill-during-save": program.kill_during_save,
        "zombie": two.zombie,
        "corrupted-checkpoint": program.corrupted_checkpoint,
        "two-finishers": two.two_finishers,
        "volume-full": volume.volume_full,
        "many-preemptions": pods.many_preemptions,
        "crash": program.crash,
        "always-crashes": program.undisturbed,
        "bad-input": program.undisturbed,
        "no-progress": program.undisturbed,
    }[slug]
