"""The quota without which not one operand starts on GKE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.planning.node_pools import NodePoolPlan

CRITICAL = ("system-node-critical", "system-cluster-critical")
"""Priority classes of the GPU Operator's own Pods."""
# On every node: driver, toolkit, plugin, GFD, DCGM exporter, validator, MIG manager and their like, with room
# for the old and the new ones during an upgrade.
_PODS_PER_NODE = 16
_PODS_BESIDE = 50
_MANY_NODES = 1000


def critical_pods_quota(
    platform: str, pools: Sequence[NodePoolPlan], namespace: str, labels: Mapping[str, str]
) -> dict[str, Any] | None:
    """The ResourceQuota that lets the operator's Pods have the system's priority; None where none is needed.

    GKE admits such Pods only to namespaces that have a quota for them (gpu-operator#660; NVIDIA GPU Operator
    documentation, NVIDIA GPU Operator with Google GKE). It is for every node that may come.
    """
    if platform != "gke":
        return None
    nodes = sum(pool.max_nodes or _MANY_NODES for pool in pools)
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "critical-pods", "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "hard": {"pods": str(nodes * _PODS_PER_NODE + _PODS_BESIDE)},
            "scopeSelector": {
                "matchExpressions": [
                    {"operator": "In", "scopeName": "PriorityClass", "values": list(CRITICAL)}
                ]
            },
        },
    }
