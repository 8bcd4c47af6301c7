"""A training run: one Job, exactly as planned."""

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
    RuntimeClass exists gets FailedCreate and backs off for minutes).
    """


class TrainingRun(pulumi.ComponentResource):
    """The Job of one run, or none if the run is cancelled; its checkpoints stay either way."""

    job_name: pulumi.Output[str | None]
    """None if the run is cancelled."""
    namespace: str

    def __init__(self, name: str, args: TrainingRunArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(
            "holdfast:run:TrainingRun", name, None, pulumi.ResourceOptions.merge(args.cluster.options, opts)
        )
        plan = args.plan
        self.namespace = plan.namespace
        self.job_name = pulumi.Output.from_input(None)
        if not plan.cancelled:
            self.job_name = self._job(name, args).metadata.apply(lambda metadata: str(metadata.name))
        self.register_outputs(
            {"jobName": self.job_name, "namespace": self.namespace, "cancelled": plan.cancelled}
        )

    def _job(self, name: str, args: TrainingRunArgs) -> k8s.batch.v1.Job:
        plan = args.plan
        job = k8s.batch.v1.Job(
            name,
            # Waiting for completion would make `up` as long as the training, and fail it
            # (pulumi-kubernetes#842, #449).
            **arguments(plan.workload, SKIP_AWAIT),
            # A Job can not be changed (pulumi-kubernetes#2575): a new attempt or template is a new Job, after
            # the old one.
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.needs), delete_before_replace=True),
        )
        JobRemoval(
            name,
            kubeconfig=args.cluster.kubeconfig,
            context=args.cluster.context,
            namespace=plan.namespace,
            job=plan.job_name,
            uid=job.metadata.apply(lambda metadata: metadata.uid),
            grace_seconds=plan.grace_seconds,
            # Its deletion is the Job's, and needs at most the grace period: a longer one is reported by name.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[job]),
        )
        return job
