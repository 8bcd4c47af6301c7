"""A training run, decided: the Kubernetes Job or JobSet that it is, as the training contract has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from components.planning.job_set import job_set_manifest
from components.planning.node_pools import NodePoolPlan
from components.planning.trainer_pod import (
    FINAL_FAILURES,
    PREEMPTED,
    on_disruption,
    on_exit_codes,
    pod_template,
    workload_metadata,
)
from components.settings.run import RunSettings
from components.settings.team import TeamSettings


@dataclass(frozen=True)
class RunPlan:
    """One run, decided."""

    id: str
    team: str
    pool: str
    namespace: str
    controller: str
    """`job` or `jobset`."""
    job_name: str
    """Name of the Job or JobSet."""
    attempt: int
    cancelled: bool
    """True: there is to be neither Job nor JobSet."""
    image: str
    gpus: int
    checkpoint_dir: str
    claim: str
    runtime_class: str | None
    """The run must wait until this RuntimeClass exists."""
    grace_seconds: int
    """What its Pod may take from SIGTERM to its end."""
    workload: dict[str, Any]
    """The complete manifest of the Job or JobSet, camelCase."""


def plan_run(run: RunSettings, team: TeamSettings, pool: NodePoolPlan, environment: str) -> RunPlan:
    """The plan of one run. It has been checked to fit its pool and its team's quota."""
    return RunPlan(
        id=run.id,
        team=team.name,
        pool=pool.name,
        namespace=team.namespace_name,
        controller=run.controller,
        job_name=run.job_name,
        attempt=run.attempt,
        cancelled=run.cancelled,
        image=run.image,
        gpus=run.gpus,
        checkpoint_dir=run.checkpoint_dir,
        claim=team.checkpoint_storage.claim_name,
        runtime_class=pool.runtime_class,
        grace_seconds=run.grace_seconds,
        workload=workload_manifest(run, team, pool, environment),
    )


def workload_manifest(
    run: RunSettings, team: TeamSettings, pool: NodePoolPlan, environment: str
) -> dict[str, Any]:
    """The complete manifest of one run: a batch/v1 Job, or a JobSet where its controller is `jobset`."""
    make = job_set_manifest if run.controller == "jobset" else job_manifest
    return make(run, team, pool, environment)


def job_manifest(
    run: RunSettings, team: TeamSettings, pool: NodePoolPlan, environment: str
) -> dict[str, Any]:
    """The complete Job of one run.

    Preemption does not count, what no retry can help fails at once, all else counts by `backoffLimit`. 137 is
    not ignored: an out-of-memory kill has it too.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": workload_metadata(run, team, environment),
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": run.backoff_limit,
            "activeDeadlineSeconds": run.deadline_seconds,
            "ttlSecondsAfterFinished": run.keep_finished_seconds,
            # No second writer while the old Pod is still terminating (kubernetes#115844).
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    on_disruption("Ignore"),
                    on_exit_codes("Ignore", PREEMPTED),
                    on_exit_codes("FailJob", *FINAL_FAILURES),
                ]
            },
            "template": pod_template(run, team, pool, environment),
        },
    }
