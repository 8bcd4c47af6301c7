"""Removing a Job: the right one, and only done when its Pods are gone."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from components.cluster_resources.errors import ClusterProblem
from components.cluster_resources.job_removal import KINDS, JobRemovalProvider, remove_job

JOB = "/apis/batch/v1/namespaces/ml/jobs/training-1"
PODS = "/api/v1/namespaces/ml/pods"
POD = {"metadata": {"name": "training-1-abc"}, "spec": {"nodeName": "gpu-0"}}


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, []

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self, cluster: Any, uid: str = "u1", grace: float = 120) -> None:
        remove_job(cluster, "ml", "training-1", uid, grace, self.said.append, lambda: self.now, self.sleep)


def test_the_job_is_deleted_with_its_pods_first_and_only_under_its_uid(cluster: Any) -> None:
    cluster.objects[JOB] = {"metadata": {"uid": "u1"}}
    Clock().run(cluster)
    ((path, options),) = cluster.deletes
    assert path == JOB
    assert options["propagationPolicy"] == "Foreground" and options["preconditions"] == {"uid": "u1"}


def test_a_newer_job_of_the_same_name_is_left_alone(cluster: Any) -> None:
    cluster.objects[JOB] = {"metadata": {"uid": "u2"}}
    Clock().run(cluster)
    assert cluster.deletes == [] and JOB in cluster.objects


def test_a_job_that_is_gone_is_no_error(cluster: Any) -> None:
    Clock().run(cluster)
    assert cluster.deletes == []


def test_it_waits_until_the_last_pod_is_gone_and_says_for_what(cluster: Any) -> None:
    cluster.objects[JOB] = {"metadata": {"uid": "u1"}}
    cluster.lists[PODS] = [POD]
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now >= 40:
            cluster.lists[PODS] = []

    remove_job(cluster, "ml", "training-1", "u1", 120, clock.said.append, lambda: clock.now, sleep)
    assert 40 <= clock.now < 45
    assert (
        clock.said[0] == "Job ml/training-1, 15 s: waiting for the end of Pod training-1-abc on node gpu-0."
    )


def test_a_pod_that_outlives_its_grace_period_is_named_and_never_forced(cluster: Any) -> None:
    cluster.lists[PODS] = [POD]
    clock = Clock()
    with pytest.raises(ClusterProblem, match="Pod training-1-abc on node gpu-0 still there") as error:
        clock.run(cluster, grace=30)
    assert 90 < clock.now < 95 and "Do not force-delete" in str(error.value)


def test_a_job_that_will_be_replaced_replaces_its_removal_first() -> None:
    olds = {
        "uid": "u1",
        "namespace": "ml",
        "job": "training-1",
        "kubeconfig": "/k",
        "context": "c",
        "graceSeconds": 120,
        "kind": "Job",
    }
    diff = JobRemovalProvider().diff("u1", olds, {**olds, "uid": pulumi.UNKNOWN})
    assert (diff.replaces, diff.delete_before_replace) == (["uid"], True)


def test_an_unchanged_job_changes_nothing() -> None:
    olds = {
        "uid": "u1",
        "namespace": "ml",
        "job": "training-1",
        "kubeconfig": "/k",
        "context": "c",
        "graceSeconds": 120,
        "kind": "Job",
    }
    assert JobRemovalProvider().diff("u1", olds, dict(olds)).changes is False


JOBSET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/training-1"
CHILDREN = "/apis/batch/v1/namespaces/ml/jobs"


def test_a_job_set_is_deleted_under_its_uid_and_waited_for_with_its_jobs_and_pods(cluster: Any) -> None:
    cluster.objects[JOBSET] = {"metadata": {"uid": "u1"}}
    cluster.lists[CHILDREN] = [{"metadata": {"name": "training-1-trainer-0"}}]
    cluster.lists[PODS] = [POD]
    asked: list[str] = []
    get = cluster.get
    cluster.get = lambda path, **query: asked.append(query.get("labelSelector", "")) or get(path, **query)
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now >= 20:
            cluster.lists[PODS] = []
        if clock.now >= 40:
            cluster.lists[CHILDREN] = []

    remove_job(
        cluster, "ml", "training-1", "u1", 120, clock.said.append, lambda: clock.now, sleep, KINDS["JobSet"]
    )
    ((path, options),) = cluster.deletes
    assert path == JOBSET and options["preconditions"] == {"uid": "u1"}
    assert set(asked) == {"", "jobset.sigs.k8s.io/jobset-uid=u1"}
    assert 40 <= clock.now < 45
    assert clock.said == [
        "JobSet ml/training-1, 15 s: waiting for the end of Pod training-1-abc on node gpu-0, "
        "Job training-1-trainer-0.",
        "JobSet ml/training-1, 30 s: waiting for the end of Job training-1-trainer-0.",
    ]


def test_a_run_that_changes_its_controller_has_its_removal_replaced_too() -> None:
    olds = {"uid": "u1", "namespace": "ml", "job": "training-1", "kind": "Job"}
    assert JobRemovalProvider().diff("u1", olds, {**olds, "kind": "JobSet"}).replaces == ["kind"]
