"""A pool of GPU nodes that the stack creates on GKE. The only module that loads Google's SDK."""

from __future__ import annotations

import pulumi
import pulumi_gcp as gcp

from components.node_pools import PATIENCE, GpuNodePoolArgs, formerly
from components.planning.gke_pool import GkePoolPlan
from components.planning.provider_arguments import keyword_arguments


class GkeGpuNodePool(pulumi.ComponentResource):
    """One `gcp.container.NodePool` with the arguments that the plan says."""

    name: str
    nodes: None = None
    """Not known: the cluster's autoscaler adds and removes them. They are found by their labels."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(
            "holdfast:nodepools:GkeGpuNodePool",
            name,
            None,
            pulumi.ResourceOptions.merge(formerly(args.plan), opts),
        )
        plan = args.cloud
        assert isinstance(plan, GkePoolPlan)
        self._pool = gcp.container.NodePool(
            name,
            **keyword_arguments(plan.arguments),
            opts=pulumi.ResourceOptions(
                parent=self,
                # The pool's name is its own, and there are hardly ever GPUs for two pools at once.
                delete_before_replace=True,
                # How many nodes there are is the autoscaler's business from the first minute on.
                ignore_changes=["initialNodeCount", "nodeCount"],
                custom_timeouts=PATIENCE,
            ),
        )
        self.name = args.plan.name
        self.register_outputs({"name": self.name, "version": self._pool.version})


def create(args: GpuNodePoolArgs) -> GkeGpuNodePool:
    """The component of one pool."""
    return GkeGpuNodePool(args.plan.name, args)
