"""What a node pool means for everything else: node selector, tolerations, owners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from components.planning.ownership import PoolOwnership
from components.settings.node_pool import NodePoolSettings, Taint

_CLOUD_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}


@dataclass(frozen=True)
class NodePoolPlan:
    """One pool, decided."""

    name: str
    kind: str
    """`self-managed`, `existing`, `eks` or `gke`."""
    match_labels: Mapping[str, str]
    """Nodes of the pool by labels that they have, whoever put them there; empty if they are named."""
    node_names: tuple[str, ...]
    """Nodes of the pool by name; empty if they are selected by labels."""
    labels: Mapping[str, str]
    """Labels of the pool's nodes."""
    taint: Taint
    """The taint of the pool's nodes."""
    gpus_per_node: int
    spot: bool
    """The nodes may be taken away at any time."""
    ownership: PoolOwnership
    min_nodes: int | None = None
    """Nodes that must be there at least; None where the stack does not create them."""
    max_nodes: int | None = None
    """Nodes at most; None where the stack does not create them."""
    startup_taints: tuple[Taint, ...] = ()
    """Taints that nodes start with until something in the cluster takes them away; Jobs wait for that."""
    verify: tuple[str, ...] = ()
    """Which of "labels" and "taint" the stack only verifies, because somebody else runs the nodes."""
    former_names: tuple[str, ...] = ()
    """Names that the pool had before, oldest first."""

    @property
    def first_name(self) -> str:
        """The name that the pool had first: what is known by it elsewhere keeps it when the pool is renamed."""
        return self.former_names[0] if self.former_names else self.name

    @property
    def node_selector(self) -> dict[str, str]:
        """Node selector of the pool's Jobs."""
        return dict(self.labels)

    @property
    def tolerations(self) -> list[dict[str, Any]]:
        """Tolerations of the pool's Jobs: exactly the pool's taint and those that the platform adds itself."""
        taints = dict.fromkeys((self.taint, *self.ownership.platform_taints))
        return [toleration(taint) for taint in taints]

    @property
    def runtime_class(self) -> str | None:
        """RuntimeClass of the pool's Jobs; None where the nodes' runtime needs none."""
        return self.ownership.runtime_class


def taints_of_operands(pools: Iterable[NodePoolPlan | NodePoolSettings]) -> list[Taint]:
    """Every taint that the operands meet on the pools' nodes, each once, besides those of the platform."""
    return list(dict.fromkeys(taint for pool in pools for taint in (pool.taint, *pool.startup_taints)))


def cloud_taints(plan: NodePoolPlan) -> list[dict[str, str]]:
    """The taints that a pool's new nodes start with, in the words that the APIs of EKS and GKE share."""
    return [
        {"key": taint.key, "value": taint.value, "effect": _CLOUD_EFFECTS[taint.effect]}
        for taint in (plan.taint, *plan.startup_taints)
    ]


def toleration(taint: Taint) -> dict[str, Any]:
    """The Kubernetes toleration of one taint, value included (k8s-device-plugin#1934)."""
    if not taint.value:
        return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
