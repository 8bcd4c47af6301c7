"""From the settings of a pool of any kind to its plans: the common one, and the cloud's own."""

from __future__ import annotations

from typing import TypeAlias

from components.planning import eks_pool, gke_gpus, gke_pool
from components.planning.eks_pool import EksPoolPlan
from components.planning.gke_pool import GkePoolPlan
from components.planning.labels import SPOT_LABEL
from components.planning.node_pools import NodePoolPlan
from components.planning.ownership import PoolOwnership
from components.settings.node_pool import (
    EksNodePoolSettings,
    ExistingNodePoolSettings,
    GkeNodePoolSettings,
    NodePoolSettings,
    selected,
)

CloudPoolPlan: TypeAlias = EksPoolPlan | GkePoolPlan


def gpus_per_node(pool: NodePoolSettings) -> int | None:
    """`nvidia.com/gpu` of one node; None where the settings do not say, which a check tells."""
    if isinstance(pool, EksNodePoolSettings):
        return eks_pool.gpus_per_node(pool.eks)
    if isinstance(pool, GkeNodePoolSettings):
        return gke_gpus.gpus_per_node(pool.gke)
    return pool.gpus_per_node


def plan_node_pool(pool: NodePoolSettings, ownership: PoolOwnership) -> NodePoolPlan:
    """The common plan of one pool whose settings have been checked."""
    nodes, gpus = selected(pool), gpus_per_node(pool)
    assert gpus is not None, "checked"
    labels = {**pool.labels, **({SPOT_LABEL: "true"} if pool.spot else {})}
    min_nodes = max_nodes = None
    if isinstance(pool, EksNodePoolSettings):
        min_nodes, max_nodes = pool.eks.min_size, pool.eks.max_size
    elif isinstance(pool, GkeNodePoolSettings):
        min_nodes, max_nodes = pool.gke.min_nodes, pool.gke.max_nodes
    return NodePoolPlan(
        name=pool.name,
        kind=pool.kind,
        # In a cloud: every node that the pool's Jobs may be sent to.
        match_labels=dict(nodes.match_labels) if nodes else labels,
        node_names=nodes.names if nodes else (),
        labels=labels,
        taint=pool.taint,
        gpus_per_node=gpus,
        spot=pool.spot,
        ownership=ownership,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        startup_taints=pool.startup_taints,
        verify=_verified(pool),
        former_names=pool.former_names,
    )


def plan_cloud_pool(pool: NodePoolSettings, common: NodePoolPlan, environment: str) -> CloudPoolPlan | None:
    """What the stack creates in a cloud for one pool; None for a pool of nodes that exist already."""
    if isinstance(pool, EksNodePoolSettings):
        return eks_pool.plan_eks_pool(pool, common, environment)
    if isinstance(pool, GkeNodePoolSettings):
        return gke_pool.plan_gke_pool(pool, common, environment)
    return None


def _verified(pool: NodePoolSettings) -> tuple[str, ...]:
    if not isinstance(pool, ExistingNodePoolSettings):
        return ()
    return (*([] if pool.change.labels else ["labels"]), *([] if pool.change.taint else ["taint"]))
