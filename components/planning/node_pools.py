"""What a node pool means for everything else: node selector, tolerations, owners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.planning.labels import SPOT_LABEL
from components.planning.ownership import PoolOwnership
from components.settings.node_pool import NodePoolSettings, Taint


@dataclass(frozen=True)
class NodePoolPlan:
    """One pool, decided."""

    name: str
    match_labels: Mapping[str, str]
    """Nodes of the pool by the labels they already have; empty if they are named."""
    node_names: tuple[str, ...]
    """Nodes of the pool by name; empty if they are selected by labels."""
    labels: Mapping[str, str]
    """Labels that the stack adds to the nodes."""
    taint: Taint
    """The taint that the stack adds to the nodes."""
    gpus_per_node: int
    spot: bool
    """The nodes may be taken away at any time."""
    ownership: PoolOwnership

    @property
    def node_selector(self) -> dict[str, str]:
        """Node selector of the pool's Jobs."""
        return dict(self.labels)

    @property
    def tolerations(self) -> list[dict[str, Any]]:
        """Tolerations of the pool's Jobs: exactly the pool's taint."""
        return [toleration(self.taint)]

    @property
    def runtime_class(self) -> str | None:
        """RuntimeClass of the pool's Jobs; None where the nodes' runtime needs none."""
        return self.ownership.runtime_class


def toleration(taint: Taint) -> dict[str, Any]:
    """The Kubernetes toleration of one taint, value included (k8s-device-plugin#1934)."""
    if not taint.value:
        return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}


def plan_node_pool(pool: NodePoolSettings, ownership: PoolOwnership) -> NodePoolPlan:
    """The plan of one pool."""
    return NodePoolPlan(
        name=pool.name,
        match_labels=dict(pool.select_nodes.match_labels),
        node_names=pool.select_nodes.names,
        labels={**pool.labels, **({SPOT_LABEL: "true"} if pool.spot else {})},
        taint=pool.taint,
        gpus_per_node=pool.gpus_per_node,
        spot=pool.spot,
        ownership=ownership,
    )
