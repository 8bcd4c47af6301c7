"""A run that loses its Pod goes on from its last checkpoint, and ends with one result."""

from __future__ import annotations

import json
from typing import Any

from rehearsal.api import core
from tests.rehearsal.helpers import NAMESPACE, events_of, is_complete, pods_of, steps, wait_for


def with_run(run_id: str, steps: int = 160, **changes: Any):
    """The configuration with one more run, slow enough to be disturbed, and no longer than its disturbances."""

    def change(config: dict[str, Any]) -> None:
        run = {**config["runs"][0], "id": run_id, **changes}
        run["env"] = {"HOLDFAST_DIGITS_STEP_SECONDS": "0.1", "HOLDFAST_DIGITS_STEPS": str(steps)}
        config["runs"] = [*config["runs"], run]

    return change


def pod_with_a_checkpoint(job: str, number: int) -> tuple[str, int]:
    """The Job's Pod of that number (from 1), once it has saved a checkpoint, and that checkpoint's step."""
    wait_for(f"Pod {number} of {job} is there", lambda: len(pods_of(job)) >= number)
    pod = pods_of(job)[number - 1].metadata.name
    wait_for(f"{pod} has saved a checkpoint", lambda: steps(events_of(pod), "checkpoint"))
    return pod, max(steps(events_of(pod), "checkpoint"))


def names_of(job: str) -> list[str]:
    return [pod.metadata.name for pod in pods_of(job)]


def assert_it_went_on(pod: str, saved: int) -> None:
    """The Pod began at a checkpoint that was not older than the saved one, and lost and repeated no step after it."""
    said = events_of(pod)
    restored = steps(said, "restore")[0]
    assert restored >= saved > 0
    assert min(steps(said, "step")) == restored + 1


def test_a_run_whose_pod_is_deleted_and_whose_next_node_is_drained_goes_on_each_time(project, kubectl):
    project.up(with_run("preempted"))
    job = "training-preempted"
    first, saved = pod_with_a_checkpoint(job, 1)
    kubectl("delete", "pod", first, f"--namespace={NAMESPACE}", "--wait=false")
    wait_for("the deleted Pod is gone", lambda: first not in names_of(job))
    second, saved_again = pod_with_a_checkpoint(job, 1)
    assert_it_went_on(second, saved)
    node = core().read_namespaced_pod(second, NAMESPACE).spec.node_name
    try:
        kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
        wait_for("the run is complete", lambda: is_complete(job), seconds=150)
    finally:
        kubectl("uncordon", node)
    last = pods_of(job)[-1]
    assert last.spec.node_name != node
    assert_it_went_on(last.metadata.name, saved_again)
    said = events_of(last.metadata.name)
    assert len([event for event in said if event["event"] == "result"]) == 1


def test_a_run_by_jobset_goes_on_at_once_and_ends_with_its_one_result(project, kubectl):
    """The real controller, installed by the stack from its own chart."""
    project.up(with_run("by-jobset", controller="jobset"))
    job = "training-by-jobset-trainer-0"
    first, saved = pod_with_a_checkpoint(job, 1)
    kubectl("delete", "pod", first, f"--namespace={NAMESPACE}", "--wait=false")
    wait_for("the next round's Pod is there", lambda: first not in (names := names_of(job)) and names)
    second, _ = pod_with_a_checkpoint(job, 1)
    assert_it_went_on(second, saved)

    def status() -> dict[str, Any]:
        return json.loads(kubectl("get", "jobset", "training-by-jobset", f"--namespace={NAMESPACE}", "-o=json"))["status"]

    wait_for("the JobSet is complete", lambda: status().get("terminalState") == "Completed", seconds=150)
    assert status()["restarts"] == 1
    assert status().get("restartsCountTowardsMax", 0) == 0, "a preemption is no failure"
    assert len([event for event in events_of(second) if event["event"] == "result"]) == 1


def test_a_cancelled_run_ends_and_its_next_attempt_goes_on_from_its_checkpoint(project):
    project.up(with_run("cancelled", 300))
    _, saved = pod_with_a_checkpoint("training-cancelled", 1)
    project.up(with_run("cancelled", 300, cancelled=True))
    assert pods_of("training-cancelled") == []
    project.up(with_run("cancelled", 300, attempt=2))
    wait_for("the second attempt is complete", lambda: is_complete("training-cancelled-r2"), seconds=150)
    assert_it_went_on(pods_of("training-cancelled-r2")[-1].metadata.name, saved)
