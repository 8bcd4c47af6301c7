"""A pool of nodes that exist already: the stack adds the pool's labels and taint, and takes them away
again.
"""

from __future__ import annotations

from typing import Any

import pulumi

from components.cluster_resources.node_pool_membership import NodePoolMembership
from components.node_pools import GpuNodePoolArgs


class SelfManagedGpuNodePool(pulumi.ComponentResource):
    """Labels and taint on every node that the pool selects; one that joins later gets them with the next
    `up`.
    """

    name: str
    nodes: pulumi.Output[list[str]]
    """The names of the pool's nodes, sorted."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("holdfast:nodepools:SelfManagedGpuNodePool", name, None, opts)
        plan = args.plan
        selector: dict[str, Any]
        selector = (
            {"names": list(plan.node_names)} if plan.node_names else {"matchLabels": dict(plan.match_labels)}
        )
        # No NodePatch: a node's taints are one atomic list (pulumi-kubernetes#2750), see
        # cluster_resources/membership.py.
        membership = NodePoolMembership(
            name,
            kubeconfig=args.cluster.kubeconfig,
            context=args.cluster.context,
            cluster=args.cluster.identifier,
            owner=f"{pulumi.get_project()}/{pulumi.get_stack()}/{plan.name}",
            pool=plan.name,
            selector=selector,
            labels=plan.labels,
            taint={"key": plan.taint.key, "value": plan.taint.value, "effect": plan.taint.effect},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = plan.name
        self.nodes = membership.nodes
        self.register_outputs({"name": self.name, "nodes": self.nodes})


def create(args: GpuNodePoolArgs) -> SelfManagedGpuNodePool:
    """The component of one pool."""
    return SelfManagedGpuNodePool(args.plan.name, args)
