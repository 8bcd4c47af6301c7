"""A pool of nodes that somebody else runs, on any platform: verified, and changed only as the configuration
says.
"""

from __future__ import annotations

import pulumi

from components.node_pools import GpuNodePoolArgs, formerly
from components.node_pools.self_managed import EXISTING, SELF_MANAGED, membership


class ExistingGpuNodePool(pulumi.ComponentResource):
    """The nodes that the pool selects, with the pool's labels and taint: written by the stack where the
    pool's `change` says so, found there already otherwise.
    """

    name: str
    nodes: pulumi.Output[list[str]]
    """The names of the pool's nodes, sorted."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        # A pool that was self-managed before keeps its nodes: the same membership, updated in place.
        former = formerly(args.plan, SELF_MANAGED)
        super().__init__(EXISTING, name, None, pulumi.ResourceOptions.merge(former, opts))
        self.name = args.plan.name
        self.nodes = membership(self, name, args).nodes
        self.register_outputs({"name": self.name, "nodes": self.nodes})


def create(args: GpuNodePoolArgs) -> ExistingGpuNodePool:
    """The component of one pool."""
    return ExistingGpuNodePool(args.plan.name, args)
