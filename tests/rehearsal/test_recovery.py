"""A run that loses its Pod goes on from its last checkpoint, and ends with one result."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.api import core
from tests.rehearsal.helpers import NAMESPACE, events_of, is_complete, pods_of, steps, wait_for


def with_run(run_id: str):
    def change(config: dict[str, Any]) -> None:
        run = {**config["runs"][0], "id": run_id}
        run["env"] = {**run.get("env", {}), "HOLDFAST_DIGITS_STEP_SECONDS": "0.1"}
        config["runs"] = [*config["runs"], run]

    return change


def start_and_wait_for_a_checkpoint(project, run_id: str) -> str:
    """The name of the run's first Pod, once it has saved a checkpoint."""
    project.up(with_run(run_id))
    job = f"training-{run_id}"
    pod = wait_for("the run's Pod is there", lambda: pods_of(job))[0].metadata.name
    wait_for("the run has saved a checkpoint", lambda: steps(events_of(pod), "checkpoint"))
    return pod


def assert_it_went_on(run_id: str, first_pod: str, saved: int) -> None:
    job = f"training-{run_id}"
    wait_for("the run is complete", lambda: is_complete(job), seconds=150)
    last = pods_of(job)[-1].metadata.name
    assert last != first_pod
    said = events_of(last)
    restored = steps(said, "restore")[0]
    assert restored >= saved > 0
    assert min(steps(said, "step")) == restored + 1, "a step was lost or repeated"
    results = [event for event in said if event["event"] == "result"]
    assert len(results) == 1


@pytest.fixture(autouse=True)
def runs_removed(project):
    yield
    project.up()


def test_a_run_whose_pod_is_deleted_goes_on_from_its_last_checkpoint(project, kubectl):
    pod = start_and_wait_for_a_checkpoint(project, "deleted")
    saved = max(steps(events_of(pod), "checkpoint"))
    kubectl("delete", "pod", pod, f"--namespace={NAMESPACE}", "--wait=false")
    assert_it_went_on("deleted", pod, saved)


def test_a_run_whose_node_is_drained_goes_on_on_the_other_node(project, kubectl):
    pod = start_and_wait_for_a_checkpoint(project, "drained")
    saved = max(steps(events_of(pod), "checkpoint"))
    node = core().read_namespaced_pod(pod, NAMESPACE).spec.node_name
    try:
        kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
        assert_it_went_on("drained", pod, saved)
        assert pods_of("training-drained")[-1].spec.node_name != node
    finally:
        kubectl("uncordon", node)


def test_a_cancelled_run_ends_and_its_next_attempt_goes_on_from_its_checkpoint(project):
    pod = start_and_wait_for_a_checkpoint(project, "cancelled")
    saved = max(steps(events_of(pod), "checkpoint"))

    def cancelled(config: dict[str, Any]) -> None:
        with_run("cancelled")(config)
        config["runs"][-1]["cancelled"] = True

    project.up(cancelled)
    assert pods_of("training-cancelled") == []

    def second_attempt(config: dict[str, Any]) -> None:
        with_run("cancelled")(config)
        config["runs"][-1]["attempt"] = 2

    project.up(second_attempt)
    wait_for("the second attempt is complete", lambda: is_complete("training-cancelled-r2"), seconds=150)
    said = events_of(pods_of("training-cancelled-r2")[-1].metadata.name)
    assert steps(said, "restore")[0] >= saved
