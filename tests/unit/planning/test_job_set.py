"""The JobSet of a run, field by field against the training contract."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from components.planning.job_set import child_job_name
from components.planning.run import workload_manifest
from components.planning.stack import StackPlan

Plan = Callable[..., StackPlan]


def _job_set(plan: Plan, **run: Any) -> dict[str, Any]:
    return plan(run={"controller": "jobset", **run}).runs[0].workload


def _child(plan: Plan, **run: Any) -> dict[str, Any]:
    (replicated,) = _job_set(plan, **run)["spec"]["replicatedJobs"]
    return replicated["template"]


def test_a_run_is_a_plain_job_unless_it_says_jobset(plan: Plan) -> None:
    assert plan().runs[0].workload["kind"] == "Job"
    made = _job_set(plan)
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")


def test_the_job_set_has_the_name_labels_and_annotations_that_the_job_would_have(plan: Plan) -> None:
    job, job_set = plan().runs[0], plan(run={"controller": "jobset"}).runs[0]
    assert job_set.workload["metadata"] == job.workload["metadata"]
    assert (job_set.job_name, job_set.controller, job.controller) == ("training-run-001", "jobset", "job")


def test_its_one_child_job_has_one_pod_and_a_name_that_is_known(plan: Plan) -> None:
    (replicated,) = _job_set(plan)["spec"]["replicatedJobs"]
    assert (replicated["name"], replicated["replicas"]) == ("trainer", 1)
    child = replicated["template"]["spec"]
    assert (child["completions"], child["parallelism"]) == (1, 1)
    assert child_job_name("training-run-001") == "training-run-001-trainer-0"


def test_the_runs_labels_are_on_job_set_child_job_and_pod(plan: Plan) -> None:
    made = _job_set(plan, labels={"project": "digits"}, annotations={"acme.com/owner": "ada"})
    child = made["spec"]["replicatedJobs"][0]["template"]
    pod = child["spec"]["template"]["metadata"]
    assert made["metadata"]["labels"] == child["metadata"]["labels"] == pod["labels"]
    assert pod["labels"].items() >= {"project": "digits", "holdfast.dev/run": "run-001"}.items()
    assert child["metadata"]["annotations"] == {"acme.com/owner": "ada"}


def test_the_pod_is_the_plain_jobs_but_for_the_deadline_that_the_supervisor_keeps(plan: Plan) -> None:
    run = {"deadlineSeconds": 600}
    job = plan(run=run).runs[0].workload["spec"]["template"]
    child = _child(plan, **run)["spec"]["template"]
    env = child["spec"]["containers"][0]["env"]
    assert {"name": "HOLDFAST_DEADLINE_SECONDS", "value": "600"} in env
    env.remove({"name": "HOLDFAST_DEADLINE_SECONDS", "value": "600"})
    assert child == job


def test_any_end_of_the_pod_ends_the_child_job_and_the_rule_that_matched_tells_how(plan: Plan) -> None:
    child = _child(plan)["spec"]
    assert (child["backoffLimit"], child["podReplacementPolicy"]) == (0, "Failed")

    def by_code(*codes: int) -> dict[str, Any]:
        return {"containerName": "trainer", "operator": "In", "values": list(codes)}

    assert child["podFailurePolicy"]["rules"] == [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": by_code(75)},
        {"action": "FailJob", "onExitCodes": by_code(76, 77, 78)},
    ]


def test_the_job_set_restarts_uncounted_after_a_preemption_and_fails_on_what_is_final(plan: Plan) -> None:
    policy = _job_set(plan, backoffLimit=5)["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 5
    assert [
        (rule["action"], rule["onJobFailureReasons"], "onJobFailureMessagePatterns" in rule)
        for rule in policy["rules"]
    ] == [
        ("RestartJobSetAndIgnoreMaxRestarts", ["PodFailurePolicy"], True),
        ("FailJobSet", ["PodFailurePolicy"], False),
        ("FailJobSet", ["DeadlineExceeded"], False),
    ]
    names = [rule["name"] for rule in policy["rules"]]
    allowed = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
    assert len(set(names)) == 3 and all(allowed.fullmatch(name) for name in names)


# The Job controller's own words (k8s.io/kubernetes, pkg/controller/job/pod_failure_policy.go).
BY_CODE = "Container trainer for pod ml/p failed with exit code {code} matching FailJob rule at index {index}"
BY_CONDITION = "Pod ml/p has condition DisruptionTarget matching FailJob rule at index 0"


@pytest.mark.parametrize(
    ("message", "preempted"),
    [
        (BY_CONDITION, True),
        (BY_CODE.format(code=75, index=1), True),
        (BY_CODE.format(code=76, index=2), False),
        (BY_CODE.format(code=75, index=10), False),
        ("Job has reached the specified backoff limit", False),
    ],
)
def test_only_the_messages_of_a_preemption_match_the_pattern(
    plan: Plan, message: str, preempted: bool
) -> None:
    (pattern,) = _job_set(plan)["spec"]["failurePolicy"]["rules"][0]["onJobFailureMessagePatterns"]
    assert (re.search(pattern, message) is not None) is preempted


def test_the_limits_in_time_are_on_the_object_that_lives_that_long(plan: Plan) -> None:
    made = _job_set(plan, deadlineSeconds=600, keepFinishedSeconds=120)
    child = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert made["spec"]["ttlSecondsAfterFinished"] == 120
    assert "ttlSecondsAfterFinished" not in child, "JobSet would make a child Job anew that is gone"
    assert child["activeDeadlineSeconds"] == 600


def test_one_pod_needs_no_headless_service_and_its_success_is_the_runs(plan: Plan) -> None:
    spec = _job_set(plan)["spec"]
    assert spec["network"] == {"enableDNSHostnames": False}
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["trainer"]}
    assert "suspend" not in spec


def test_one_function_makes_the_manifest_of_either_kind(stack: Callable[..., Any], plan: Plan) -> None:
    for controller in ("job", "jobset"):
        settings = stack(run={"controller": controller})
        planned = plan(run={"controller": controller})
        made = workload_manifest(settings.runs[0], settings.teams[0], planned.pools[0], "dev")
        assert made == planned.runs[0].workload
