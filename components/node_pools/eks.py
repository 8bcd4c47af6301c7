"""A pool of GPU nodes that the stack creates on EKS. The only module that loads AWS' SDK."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from components.node_pools import PATIENCE, GpuNodePoolArgs, formerly
from components.planning.eks_pool import EksPoolPlan
from components.planning.provider_arguments import keyword_arguments


class EksGpuNodePool(pulumi.ComponentResource):
    """One `aws.eks.NodeGroup` and its launch template, with the arguments that the plan says."""

    name: str
    nodes: None = None
    """Not known: the cluster's autoscaler adds and removes them. They are found by their labels."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(
            "holdfast:nodepools:EksGpuNodePool",
            name,
            None,
            pulumi.ResourceOptions.merge(formerly(args.plan), opts),
        )
        plan = args.cloud
        assert isinstance(plan, EksPoolPlan)
        self._template = aws.ec2.LaunchTemplate(
            name, **keyword_arguments(plan.launch_template), opts=pulumi.ResourceOptions(parent=self)
        )
        self._group = aws.eks.NodeGroup(
            name,
            **keyword_arguments(plan.node_group),
            launch_template={
                "id": self._template.id,
                # A number, not $Latest: only a number that changes makes EKS renew the nodes.
                "version": self._template.latest_version.apply(str),
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                # The group's name is its own, and there are hardly ever GPUs for two groups at once.
                delete_before_replace=True,
                # How many nodes there are is the autoscaler's business from the first minute on.
                ignore_changes=["scalingConfig.desiredSize"],
                custom_timeouts=PATIENCE,
            ),
        )
        self.name = args.plan.name
        self.register_outputs({"name": self.name, "releaseVersion": self._group.release_version})


def create(args: GpuNodePoolArgs) -> EksGpuNodePool:
    """The component of one pool."""
    return EksGpuNodePool(args.plan.name, args)
