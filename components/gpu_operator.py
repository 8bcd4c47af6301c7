"""The GPU Operator, of the stack or of somebody else: its one Helm release, and the proof that it works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.cluster_resources.gpu_readiness import GpuReadiness
from components.manifests import arguments
from components.node_pools import GpuNodePool
from components.pinned_release import pinned_release
from components.planning.operator_plan import ExpectedPool, OperatorPlan
from components.planning.operator_values import DEPLOYMENT
from components.provider import ClusterAccess


@dataclass(frozen=True)
class GpuOperatorArgs:
    """One operator for all pools of the cluster."""

    plan: OperatorPlan
    cluster: ClusterAccess
    pools: Sequence[GpuNodePool]
    """The pools, whose nodes carry labels and taint before the operands arrive."""


class GpuOperator(pulumi.ComponentResource):
    """The operator, installed and ready: every GPU of the pools can be given to a Pod."""

    namespace: str
    version: pulumi.Output[str] | None
    """Version of the chart; None where somebody else has installed it."""
    runtime_class: str | None
    """RuntimeClass that exists once `ready` is known; None where Jobs need none."""
    ready: pulumi.Output[bool]

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(
            "holdfast:gpu:GpuOperator", name, None, pulumi.ResourceOptions.merge(args.cluster.options, opts)
        )
        plan = args.plan
        self._release = self._install(name, args) if plan.install else None
        self._readiness = self._wait(name, args)
        self.namespace = plan.namespace
        self.version = self._release.version if self._release else None
        self.runtime_class = next(iter(plan.expectation.runtime_classes), None)
        self.ready = self._readiness.ready
        self.register_outputs(
            {
                "namespace": self.namespace,
                "version": self.version,
                "runtimeClass": self.runtime_class,
                "ready": self.ready,
            }
        )

    def _install(self, name: str, args: GpuOperatorArgs) -> k8s.helm.v3.Release:
        plan = args.plan
        namespace = k8s.core.v1.Namespace(
            name,
            metadata={
                "name": plan.namespace,
                "labels": dict(plan.namespace_labels),
                **({"annotations": dict(plan.namespace_annotations)} if plan.namespace_annotations else {}),
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        needs: list[Any] = [namespace, *args.pools]
        if plan.critical_pods_quota:
            needs.append(
                k8s.core.v1.ResourceQuota(
                    f"{name}-critical-pods",
                    **arguments(plan.critical_pods_quota),
                    opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
                )
            )
        # GpuReadiness waits for the Deployment and all operands, and says what is missing.
        return pinned_release(name, plan, "gpuOperator", self, needs)

    def _wait(self, name: str, args: GpuOperatorArgs) -> GpuReadiness:
        plan = args.plan
        expected = plan.expectation
        nodes = {pool.name: pool.nodes for pool in args.pools}
        triggers: dict[str, Any] = {}
        if self._release:
            # Helm counts a revision for every install, upgrade and rollback: one number for version, values
            # and chart files.
            triggers["revision"] = self._release.status.apply(lambda status: status.revision)
        return GpuReadiness(
            f"{name}-ready",
            kubeconfig=args.cluster.kubeconfig,
            context=args.cluster.context,
            cluster=args.cluster.identifier,
            namespace=plan.namespace,
            expectation={
                "pools": [_pool(pool, nodes[pool.name]) for pool in expected.pools],
                "runtimeClasses": list(expected.runtime_classes),
                "daemonSets": list(expected.daemonsets),
                "nfdDaemonSets": list(expected.nfd_daemonsets),
                "absentDaemonSets": list(expected.absent_daemonsets),
                "deployments": [DEPLOYMENT],
            },
            triggers=triggers,
            timeout_seconds=expected.timeout_seconds,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[self._release] if self._release else list(args.pools)
            ),
        )


def _pool(pool: ExpectedPool, nodes: pulumi.Output[list[str]] | None) -> dict[str, Any]:
    taint = pool.taint
    # Nodes that an autoscaler adds and removes are found at each look; their names would be a change each time.
    which: dict[str, Any] = {"nodes": nodes}
    if nodes is None:
        which = {"matchLabels": dict(pool.match_labels), "minNodes": pool.min_nodes}
    return {
        "name": pool.name,
        **which,
        "gpusPerNode": pool.gpus_per_node,
        "taint": {"key": taint.key, "value": taint.value, "effect": taint.effect},
    }
