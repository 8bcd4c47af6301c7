"""What a ClusterPolicy and the nodes ask for, as plain values: runtime classes, DaemonSets, labels, status.

Pure: no clock, no server. The behaviour is that of NVIDIA's controller v26.7.0, also where its answers
mislead: zero pods on zero fitting nodes are `ready`, reason `Reconciled`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .operands import (
    DEPLOY_PREFIX,
    MANAGER,
    OPERANDS,
    PART_OF,
    Json,
    Site,
    daemon_set,
    enabled,
    owner_reference,
    runtime_class_name,
    switched_on,
    with_hash,
)

PRESENT = "nvidia.com/gpu.present"
_ALL_OPERANDS = DEPLOY_PREFIX + "operands"
_MIG_MANAGER = DEPLOY_PREFIX + "mig-manager"
_NFD_PREFIX = "feature.node.kubernetes.io/"
# Any of these, set to "true" by NFD, makes a node one with GPUs: PCI vendor 10de, alone or with its class.
_GPU_LABELS = tuple(f"{_NFD_PREFIX}pci-{id_}.present" for id_ in ("10de", "0302_10de", "0300_10de"))
# Set on every GPU node whether or not the operand is switched on, so they prove nothing (gpu-operator#982).
_DEPLOYED = (
    "driver",
    "gpu-feature-discovery",
    "container-toolkit",
    "device-plugin",
    "dcgm",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
)


@dataclass(frozen=True)
class Node:
    """A node's name and labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Desired:
    """What has to exist, what has to go, and which labels have to change (None: remove) on which node.

    `daemon_sets` is empty while no node has a GPU: the controller then makes none, and removes none either
    that is switched on. `retired` names those that the spec switches off.
    """

    runtime_classes: tuple[Json, ...]
    daemon_sets: tuple[Json, ...]
    retired: tuple[str, ...]
    node_labels: Mapping[str, Mapping[str, str | None]]
    has_nfd_labels: bool
    has_gpu_nodes: bool


def desired_state(spec: Mapping[str, Any], nodes: Sequence[Node], site: Site) -> Desired:
    """The whole wish for one ClusterPolicy spec and the nodes as they are labelled now."""
    has_gpu_nodes = any(_has_gpu(node) for node in nodes)
    wanted = [operand for operand in OPERANDS if enabled(spec, operand)]
    changes = {node.name: label_changes(node) for node in nodes}
    return Desired(
        runtime_classes=runtime_classes(spec, site),
        daemon_sets=tuple(daemon_set(spec, operand, site) for operand in wanted) if has_gpu_nodes else (),
        retired=tuple(operand.name for operand in OPERANDS if operand not in wanted),
        node_labels={name: changed for name, changed in changes.items() if changed},
        has_nfd_labels=any(label.startswith(_NFD_PREFIX) for node in nodes for label in node.labels),
        has_gpu_nodes=has_gpu_nodes,
    )


def runtime_classes(spec: Mapping[str, Any], site: Site) -> tuple[Json, ...]:
    """The RuntimeClasses, name and handler alike.

    With CDI on there are two more, also where the toolkit is off and no node has their handlers: the real
    controller does so, and a pod that uses one never starts there.
    """
    names = [runtime_class_name(spec)]
    if switched_on(spec, "cdi"):
        names += ["nvidia-cdi", "nvidia-legacy"]
    return tuple(
        with_hash(
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {
                    "name": name,
                    "labels": {"app.kubernetes.io/part-of": PART_OF, "app.kubernetes.io/managed-by": MANAGER},
                    "ownerReferences": [owner_reference(site)],
                },
                "handler": name,
            }
        )
        for name in names
    )


def label_changes(node: Node) -> Mapping[str, str | None]:
    """The labels to set or remove (None) on one node; empty when it is as it should be.

    A deploy label that exists is honoured, whatever its value: people switch one operand off on one node so.
    """
    present = node.labels.get(PRESENT) == "true"
    if not _has_gpu(node):
        return {**({PRESENT: "false"} if present else {}), **_removed(node)}
    changes: dict[str, str | None] = {} if present else {PRESENT: "true"}
    if node.labels.get(_ALL_OPERANDS) == "false":
        return {**changes, **_removed(node)}
    names = [DEPLOY_PREFIX + name for name in _DEPLOYED]
    if node.labels.get("nvidia.com/mig.capable") == "true":
        names.append(_MIG_MANAGER)
    return {**changes, **{name: "true" for name in names if name not in node.labels}}


def _has_gpu(node: Node) -> bool:
    return any(node.labels.get(label) == "true" for label in _GPU_LABELS)


def _removed(node: Node) -> dict[str, str | None]:
    ours = {DEPLOY_PREFIX + name for name in _DEPLOYED} | {_MIG_MANAGER}
    return {name: None for name in node.labels if name in ours}


@dataclass(frozen=True)
class Verdict:
    """The ClusterPolicy's state and the condition that explains it, in the real controller's words."""

    ready: bool
    reason: str
    message: str


def judge(desired: Desired, live: Mapping[str, Json]) -> Verdict:
    """Judge the DaemonSets as they are (`live`: name to object) as the real controller does.

    A DaemonSet without a fitting node has zero pods desired and counts as ready. One that the DaemonSet
    controller has not looked at yet does not: its zero means nothing.
    """
    waiting = [
        operand.state
        for operand in OPERANDS
        if any(made["metadata"]["name"] == operand.name for made in desired.daemon_sets)
        and not _is_ready(live.get(operand.name))
    ]
    if waiting:
        text = f"ClusterPolicy is not ready, states not ready: [{' '.join(waiting)}]"
        return Verdict(ready=False, reason="OperandNotReady", message=text)
    if not desired.has_nfd_labels:
        return Verdict(ready=True, reason="NFDLabelsMissing", message="No NFD labels found")
    if not desired.has_gpu_nodes:
        text = "No GPU node found, watching for new nodes to join the cluster."
        return Verdict(ready=True, reason="NoGPUNodes", message=text)
    text = "ClusterPolicy is ready as all resources have been successfully reconciled"
    return Verdict(ready=True, reason="Reconciled", message=text)


def _is_ready(made: Json | None) -> bool:
    if made is None:
        return False
    status = made.get("status", {})
    if status.get("observedGeneration", 0) < made["metadata"].get("generation", 0):
        return False
    count = status.get("desiredNumberScheduled", 0)
    return bool(status.get("numberReady", 0) >= count and status.get("updatedNumberScheduled", 0) >= count)


def status(verdict: Verdict, before: Mapping[str, Any], namespace: str, now: str) -> Json:
    """The status to write: state, namespace and the conditions Ready and Error.

    `now` (RFC 3339) becomes a condition's transition time only where its status changes.
    """
    ready = {"type": "Ready", "status": "True", "reason": verdict.reason, "message": verdict.message}
    error = {"type": "Error", "status": "False", "reason": "Ready", "message": ""}
    if not verdict.ready:
        ready = {"type": "Ready", "status": "False", "reason": "Error", "message": ""}
        error = {"type": "Error", "status": "True", "reason": verdict.reason, "message": verdict.message}
    old = before.get("conditions") or ()
    since = {(one["type"], one["status"]): one["lastTransitionTime"] for one in old}
    conditions = [
        {**condition, "lastTransitionTime": since.get((condition["type"], condition["status"]), now)}
        for condition in (ready, error)
    ]
    state = "ready" if verdict.ready else "notReady"
    return {"state": state, "namespace": namespace, "conditions": conditions}
