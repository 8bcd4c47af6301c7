"""The JobSet controller: its namespace, its one Helm release, and the proof that it takes JobSets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.cluster_resources.job_set_readiness import JobSetReadiness
from components.pinned_release import pinned_release
from components.planning.job_set_controller import JobSetPlan
from components.provider import ClusterAccess


@dataclass(frozen=True)
class JobSetControllerArgs:
    """One controller for all runs of the cluster."""

    plan: JobSetPlan
    cluster: ClusterAccess


class JobSetController(pulumi.ComponentResource):
    """The controller, installed by the stack or by somebody else, and ready to take a JobSet.

    Helm never removes a chart's CRDs: a destroy leaves `jobsets.jobset.x-k8s.io` and other people's JobSets.
    """

    ready: pulumi.Output[bool]

    def __init__(
        self, name: str, args: JobSetControllerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(
            "holdfast:jobset:JobSetController",
            name,
            None,
            pulumi.ResourceOptions.merge(args.cluster.options, opts),
        )
        release = self._install(name, args.plan) if args.plan.install else None
        triggers: dict[str, Any] = {}
        if release:
            # Helm counts a revision for every install, upgrade and rollback.
            triggers["revision"] = release.status.apply(lambda status: status.revision)
        self.ready = JobSetReadiness(
            f"{name}-ready",
            kubeconfig=args.cluster.kubeconfig,
            context=args.cluster.context,
            cluster=args.cluster.identifier,
            namespace=args.plan.namespace,
            installed=args.plan.install,
            triggers=triggers,
            timeout_seconds=args.plan.timeout_seconds,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[release] if release else []),
        ).ready
        self.register_outputs({"namespace": args.plan.namespace, "ready": self.ready})

    def _install(self, name: str, plan: JobSetPlan) -> k8s.helm.v3.Release:
        namespace = k8s.core.v1.Namespace(
            name,
            metadata={"name": plan.namespace, "labels": dict(plan.namespace_labels)},
            opts=pulumi.ResourceOptions(parent=self),
        )
        return pinned_release(name, plan, "jobSet", self, [namespace])
