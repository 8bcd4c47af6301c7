"""A training run as a JobSet: restarted at once after a preemption, however many came before.

A plain Job's controller delays the Pod after an ignored failure by 10 s, 20 s, 40 s … 600 s, and counts every
failed Pod since the last success: on nodes that go often, a run idles ten minutes each time. Here each
preemption ends the child Job, and JobSet makes the next one. Field names: the JobSet API v1alpha2
(kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go); the rules were tried on v0.11.1.
"""

from __future__ import annotations

from typing import Any

from components.planning.node_pools import NodePoolPlan
from components.planning.trainer_pod import (
    FINAL_FAILURES,
    PREEMPTED,
    on_disruption,
    on_exit_codes,
    pod_template,
    workload_labels,
    workload_metadata,
)
from components.settings.run import RunSettings
from components.settings.team import TeamSettings

API_VERSION = "jobset.x-k8s.io/v1alpha2"
KIND = "JobSet"
REPLICATED_JOB = "trainer"
PREEMPTION_PATTERN = r".*matching FailJob rule at index [01]$"
"""End of the Job controller's message where rule 0 or 1 of the child's podFailurePolicy matched
(k8s.io/kubernetes, pkg/controller/job/pod_failure_policy.go)."""


def child_job_name(job_set: str) -> str:
    """Name of the one child Job, which every restart makes anew."""
    return f"{job_set}-{REPLICATED_JOB}-0"


def job_set_manifest(
    run: RunSettings, team: TeamSettings, pool: NodePoolPlan, environment: str
) -> dict[str, Any]:
    """The complete JobSet of one run: one child Job of one Pod."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": workload_metadata(run, team, environment),
        "spec": {
            "replicatedJobs": [
                {
                    "name": REPLICATED_JOB,
                    "replicas": 1,
                    "template": {
                        "metadata": {
                            "labels": workload_labels(run, team, environment),
                            "annotations": dict(run.annotations),
                        },
                        "spec": _child_job(run, team, pool, environment),
                    },
                }
            ],
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [REPLICATED_JOB]},
            "failurePolicy": {"maxRestarts": run.backoff_limit, "rules": _rules()},
            # One Pod talks to no other: no headless Service.
            "network": {"enableDNSHostnames": False},
            "ttlSecondsAfterFinished": run.keep_finished_seconds,
        },
    }


def _child_job(
    run: RunSettings, team: TeamSettings, pool: NodePoolPlan, environment: str
) -> dict[str, Any]:
    deadline = run.deadline_seconds
    return {
        "completionMode": "Indexed",
        "completions": 1,
        "parallelism": 1,
        # Every failure is JobSet's to judge: a Pod's end is the child Job's end.
        "backoffLimit": 0,
        # Starts anew with every child Job, so it bounds the waiting for a node and a supervisor that hangs.
        # The run's whole deadline is kept by the supervisor, which reads when the first attempt began.
        "activeDeadlineSeconds": deadline,
        # No second writer while the old Pod is still terminating (kubernetes#115844).
        "podReplacementPolicy": "Failed",
        # JobSet sees the index of the rule that matched, and its own rules go by it.
        "podFailurePolicy": {
            "rules": [
                on_disruption("FailJob"),
                on_exit_codes("FailJob", PREEMPTED),
                on_exit_codes("FailJob", *FINAL_FAILURES),
            ]
        },
        "template": pod_template(
            run, team, pool, environment, {"HOLDFAST_DEADLINE_SECONDS": str(deadline)}
        ),
    }


def _rules() -> list[dict[str, Any]]:
    """The first rule that fits decides; where none fits, JobSet restarts and counts by `maxRestarts`."""
    return [
        {
            "name": "preempted",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [PREEMPTION_PATTERN],
        },
        {"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        # A child Job that began later than the run has used the run's whole deadline too.
        {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
    ]
