"""A pool of nodes that exist already: the stack adds the pool's labels and taint, and takes them away
again.
"""

from __future__ import annotations

from typing import Any

import pulumi

from components.cluster_resources.node_pool_membership import NodePoolMembership
from components.node_pools import GpuNodePoolArgs, formerly

SELF_MANAGED = "holdfast:nodepools:SelfManagedGpuNodePool"
EXISTING = "holdfast:nodepools:ExistingGpuNodePool"


class SelfManagedGpuNodePool(pulumi.ComponentResource):
    """Labels and taint on every node that the pool selects; one that joins later gets them with the next
    `up`.
    """

    name: str
    nodes: pulumi.Output[list[str]]
    """The names of the pool's nodes, sorted."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        # A pool that was an existing one before keeps its nodes: the same membership, updated in place.
        former = formerly(args.plan, EXISTING)
        super().__init__(SELF_MANAGED, name, None, pulumi.ResourceOptions.merge(former, opts))
        self.name = args.plan.name
        self.nodes = membership(self, name, args).nodes
        self.register_outputs({"name": self.name, "nodes": self.nodes})


def membership(parent: pulumi.Resource, name: str, args: GpuNodePoolArgs) -> NodePoolMembership:
    """The labels and the taint on the nodes that a pool selects, as its plan says."""
    plan = args.plan
    selector: dict[str, Any]
    selector = (
        {"names": list(plan.node_names)} if plan.node_names else {"matchLabels": dict(plan.match_labels)}
    )
    # No NodePatch: a node's taints are one atomic list (pulumi-kubernetes#2750), see
    # cluster_resources/membership.py.
    return NodePoolMembership(
        name,
        kubeconfig=args.cluster.kubeconfig,
        context=args.cluster.context,
        cluster=args.cluster.identifier,
        # On every node of the pool stands whose it is, so a rename does not change it.
        owner=f"{pulumi.get_project()}/{pulumi.get_stack()}/{plan.first_name}",
        pool=plan.name,
        selector=selector,
        labels=plan.labels,
        taint={"key": plan.taint.key, "value": plan.taint.value, "effect": plan.taint.effect},
        verify=plan.verify,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def create(args: GpuNodePoolArgs) -> SelfManagedGpuNodePool:
    """The component of one pool."""
    return SelfManagedGpuNodePool(args.plan.name, args)
