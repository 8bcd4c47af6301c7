"""A training run: one Job or JobSet, exactly as planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.cluster_resources.job_removal import JobRemoval
from components.manifests import SKIP_AWAIT, arguments
from components.planning.run import RunPlan
from components.provider import ClusterAccess


@dataclass(frozen=True)
class TrainingRunArgs:
    """One run, decided."""

    plan: RunPlan
    cluster: ClusterAccess
    needs: Sequence[pulumi.Resource]
    """What must be there first: the team (quota, claim), the pool, the ready operator (a Job before its
    RuntimeClass exists gets FailedCreate and backs off for minutes), for a JobSet its controller.
    """


class TrainingRun(pulumi.ComponentResource):
    """The Job or JobSet of one run, or none if the run is cancelled; its checkpoints stay either way."""

    job_name: pulumi.Output[str | None]
    """Name of the Job or JobSet; None if the run is cancelled."""
    namespace: str

    def __init__(self, name: str, args: TrainingRunArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(
            "holdfast:run:TrainingRun", name, None, pulumi.ResourceOptions.merge(args.cluster.options, opts)
        )
        plan = args.plan
        self.namespace = plan.namespace
        self.job_name = pulumi.Output.from_input(None)
        if not plan.cancelled:
            made = self._workload(name, args)
            self.job_name = made.metadata.apply(lambda metadata: str(metadata.get("name")))
        self.register_outputs(
            {"jobName": self.job_name, "namespace": self.namespace, "cancelled": plan.cancelled}
        )

    def _workload(
        self, name: str, args: TrainingRunArgs
    ) -> k8s.batch.v1.Job | k8s.apiextensions.CustomResource:
        plan = args.plan
        make = self._job_set if plan.controller == "jobset" else self._job
        workload = make(name, args)
        JobRemoval(
            name,
            kubeconfig=args.cluster.kubeconfig,
            context=args.cluster.context,
            namespace=plan.namespace,
            job=plan.job_name,
            uid=workload.metadata.apply(lambda metadata: metadata.get("uid")),
            grace_seconds=plan.grace_seconds,
            kind=plan.workload["kind"],
            # Its deletion is the workload's, and needs at most the grace period: a longer one is reported by
            # name.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[workload]),
        )
        return workload

    def _job(self, name: str, args: TrainingRunArgs) -> k8s.batch.v1.Job:
        return k8s.batch.v1.Job(
            name,
            # Waiting for completion would make `up` as long as the training, and fail it
            # (pulumi-kubernetes#842, #449).
            **arguments(args.plan.workload, SKIP_AWAIT),
            # A Job can not be changed (pulumi-kubernetes#2575): a new attempt or template is a new Job, after
            # the old one.
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.needs), delete_before_replace=True),
        )

    def _job_set(self, name: str, args: TrainingRunArgs) -> k8s.apiextensions.CustomResource:
        manifest = args.plan.workload
        return k8s.apiextensions.CustomResource(
            name,
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            # Of custom resources the provider waits only where PULUMI_K8S_AWAIT_ALL or an annotation says so
            # (pulumi-kubernetes, pkg/metadata/overrides.go, ReadyCondition): there it must not.
            **arguments(manifest, SKIP_AWAIT),
            # Immutable as a Job is (jobset_webhook.go, ValidateUpdate), which the provider can not know of a
            # custom resource: without this the update would be tried, and refused.
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.needs),
                delete_before_replace=True,
                replace_on_changes=["spec"],
            ),
        )
