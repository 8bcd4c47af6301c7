"""The volume is full during a save, and has room again later. On a volume of its own."""

from __future__ import annotations

from ops.acceptance.lab import Lab, Unexpected
from ops.acceptance.plan import BOUNDED_CLASS, BOUNDED_SIZE
from ops.acceptance.recorder import ACCEPTANCE_LABEL, PodRecord
from ops.acceptance.scenarios.when import after_a_checkpoint

TRIES = 3
SAVE_SECONDS = 60.0


def claim_manifest(lab: Lab) -> dict[str, object]:
    """A claim on a volume that is really full at its size."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": lab.planned.claim,
            "namespace": lab.team.namespace_name,
            "labels": {ACCEPTANCE_LABEL: lab.faults.acceptance, "app.kubernetes.io/part-of": "holdfast"},
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": BOUNDED_CLASS,
            "resources": {"requests": {"storage": BOUNDED_SIZE}},
        },
    }


def volume_full(lab: Lab) -> None:
    """Filled to the last byte until a save has failed, freed, and then a save must succeed."""
    pod = after_a_checkpoint(lab)
    lab.snapshot("before-fault")
    free = lab.undo.later("the filler file", lambda: lab.faults.free_volume(pod.name) and None)
    for _ in range(TRIES):
        filled = lab.act("fill-volume", pod.name, lambda: lab.faults.fill_volume(pod.name), pod_uid=pod.uid)
        lab.observe("disk", size=filled.get("size"), free=filled.get("free"))
        sealed = len(pod.said("checkpoint"))
        lab.until(lambda sealed=sealed: _tried(pod, sealed), "a save on the full volume", SAVE_SECONDS)
        if pod.said("checkpoint-failed"):
            break
    else:
        raise Unexpected(f"{TRIES} times a save found room on the volume that had just been filled.")
    lab.snapshot("volume-full")
    lab.act("free-volume", pod.name, lambda: void_free(free), pod_uid=pod.uid)
    sealed = len(pod.said("checkpoint"))
    lab.event(pod, "checkpoint", sealed + 1)
    lab.over()


def _tried(pod: PodRecord, sealed: int) -> bool | None:
    return bool(pod.said("checkpoint-failed")) or len(pod.said("checkpoint")) > sealed or None


def void_free(free: object) -> dict[str, object]:
    free()  # type: ignore[operator]
    return {}
