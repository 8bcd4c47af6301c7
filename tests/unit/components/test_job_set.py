"""Runs by JobSet in the whole program, and the wait for a controller that really takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from components.cluster_resources.errors import ChangedMeanwhile, ClusterProblem, ClusterUnreachable
from components.cluster_resources.gpu_snapshot import Deployment, Pod
from components.cluster_resources.job_set_judgement import API, JobSetSnapshot, judge, observe
from components.cluster_resources.job_set_readiness import SUBJECT, JobSetReadinessProvider
from components.cluster_resources.waiting import wait

NAMESPACE = "jobset-system"
LISTED = {"resources": [{"name": "jobsets"}, {"name": "jobsets/status"}]}
DEPLOYMENT = {
    "metadata": {"name": "jobset-controller", "generation": 1},
    "spec": {"replicas": 1},
    "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
}
REFUSED = 'failed calling webhook "mjobset.kb.io": connect: connection refused'


def jobset(config: dict[str, Any]) -> None:
    config["holdfast:runs"][0]["controller"] = "jobset"
    config["holdfast:jobSet"] = {
        "chart": {"path": "${HOLDFAST_JOBSET_CHART}", "version": "0.11.1"},
        "extraValues": {"image": {"tag": "${HOLDFAST_JOBSET_DIGEST}"}},
    }


@pytest.fixture(scope="module")
def made() -> Any:
    from tests.unit.components.conftest import _run

    return _run(jobset)


def test_a_run_by_job_set_adds_the_controller_and_replaces_the_job(made: Any) -> None:
    tree = {f"{r.parent} > {r.kind} {r.name}" for r in made.resources}
    assert tree >= {
        "Stack holdfast-dev > JobSetController jobset",
        "JobSetController jobset > Namespace jobset",
        "JobSetController jobset > Release jobset",
        "JobSetController jobset > JobSetReadiness jobset-ready",
        "TrainingRun ml-batch-run-001 > JobSet ml-batch-run-001",
        "TrainingRun ml-batch-run-001 > JobRemoval ml-batch-run-001",
    }
    assert "Job" not in {r.kind for r in made.resources}


def test_the_controllers_release_is_pinned_and_leaves_the_waiting_to_the_readiness(made: Any) -> None:
    inputs = made.one("Release", "jobset").inputs
    assert (inputs["chart"], inputs["version"], inputs["namespace"]) == (
        "./tests/unit/components/data/jobset-chart",
        "0.11.1",
        NAMESPACE,
    )
    assert inputs["description"].startswith("chart files ") and inputs["skipAwait"] is True
    assert inputs["values"]["image"]["tag"] == "c" * 64


def test_the_job_set_waits_for_a_controller_that_takes_it(made: Any) -> None:
    workload, readiness = made.one("JobSet"), made.one("JobSetReadiness")
    assert made.reaches(workload, "JobSetReadiness", "jobset-ready")
    assert made.reaches(readiness, "Release", "jobset")
    assert readiness.inputs.items() >= {"namespace": NAMESPACE, "installed": True}.items()
    assert (readiness.inputs["triggers"], readiness.inputs["timeoutSeconds"]) == ({"revision": 1}, 600)
    for kind, name in (("ResourceQuota", "ml-batch-quota"), ("GpuReadiness", "gpu-operator-ready")):
        assert made.reaches(workload, kind, name)


def test_a_changed_job_set_is_another_one_and_comes_after_the_old(made: Any) -> None:
    workload = made.one("JobSet")
    assert workload.type == "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"
    assert workload.delete_before_replace is True
    assert workload.replace_on_changes == {"spec"}
    assert workload.inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert workload.inputs["spec"]["failurePolicy"]["maxRestarts"] == 2


def test_its_removal_knows_that_it_is_a_job_set(made: Any) -> None:
    inputs = made.one("JobRemoval").inputs
    assert (inputs["kind"], inputs["job"], inputs["uid"]) == (
        "JobSet",
        "training-run-001",
        "uid of ml-batch-run-001",
    )


def test_a_controller_of_somebody_else_is_waited_for_and_not_installed(program: Any) -> None:
    def existing(config: dict[str, Any]) -> None:
        jobset(config)
        config["holdfast:jobSet"] = {"install": "existing"}

    run = program(existing)
    assert "JobSetReadiness" in {r.kind for r in run.resources}
    assert [r.name for r in run.resources if r.kind == "Release"] == ["gpu-operator"]
    assert run.one("JobSetReadiness").inputs["installed"] is False
    assert run.reaches(run.one("JobSet"), "JobSetReadiness", "jobset-ready")


def test_a_first_preview_by_job_set_runs_through_with_nothing_known(program: Any) -> None:
    assert program(jobset, preview=True).one("JobSet").inputs["kind"] == "JobSet"


def test_a_plain_job_beside_a_job_set_does_not_wait_for_the_controller(program: Any) -> None:
    def both(config: dict[str, Any]) -> None:
        jobset(config)
        config["holdfast:runs"].append({**config["holdfast:runs"][0], "id": "run-002", "controller": "job"})

    run = program(both)
    assert not run.reaches(run.one("Job"), "JobSetReadiness", "jobset-ready")


def test_a_chart_of_another_version_names_the_section_that_it_is_in(program: Any) -> None:
    def other(config: dict[str, Any]) -> None:
        jobset(config)
        config["holdfast:jobSet"]["chart"]["version"] = "0.12.0"

    with pytest.raises(Exception, match="holdfast:jobSet.chart.version = 0.12.0: .* has version 0.11.1"):
        program(other)


def _taken(body: dict[str, Any]) -> dict[str, Any]:
    """As the webhook gives it back, with its defaults."""
    return {**body, "spec": {**body["spec"], "network": {"enableDNSHostnames": True}}}


def _raise(error: Exception) -> Callable[[Any], Any]:
    def answer(_body: Any) -> Any:
        raise error

    return answer


@pytest.fixture
def ready(cluster: Any) -> Any:
    cluster.objects[API] = LISTED
    cluster.lists[f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"] = [DEPLOYMENT]
    cluster.on_create = _taken
    return cluster


def _verdict(cluster: Any, installed: bool = True) -> tuple[tuple[str, ...], tuple[str, ...]]:
    verdict = judge(observe(cluster, NAMESPACE, installed), NAMESPACE, installed)
    return verdict.waiting, verdict.faults


def test_a_job_set_that_comes_back_with_the_webhooks_defaults_proves_it(ready: Any) -> None:
    assert _verdict(ready) == ((), ())
    ((path, body, query),) = ready.creates
    assert path == f"{API}/namespaces/{NAMESPACE}/jobsets"
    assert (query, body["kind"]) == ({"dryRun": "All"}, "JobSet")


@pytest.mark.parametrize(
    ("answer", "waiting", "faults"),
    [
        (_raise(ClusterUnreachable("…", REFUSED)), (f"JobSet's webhook does not answer: {REFUSED}.",), ()),
        (lambda body: body, ("JobSet's webhook does not answer: a JobSet was taken without it.",), ()),
        (
            _raise(ClusterProblem("…", 'User "ci" cannot create resource "jobsets"')),
            (),
            ('The cluster does not take a JobSet: User "ci" cannot create resource "jobsets".',),
        ),
        (
            lambda body: None,
            (),
            (
                "The cluster does not take a JobSet: namespace jobset-system does not exist; correct"
                " holdfast:jobSet.namespace.",
            ),
        ),
        (_raise(ChangedMeanwhile("it exists")), (), ()),
    ],
    ids=["no endpoint yet", "not registered yet", "no right", "no namespace", "stored by somebody"],
)
def test_what_the_api_server_answers_is_waited_for_or_told(
    ready: Any, answer: Any, waiting: tuple[str, ...], faults: tuple[str, ...]
) -> None:
    ready.on_create = answer
    assert _verdict(ready) == (waiting, faults)


def test_without_the_api_nothing_is_tried_and_only_our_own_installation_is_waited_for(ready: Any) -> None:
    del ready.objects[API]
    assert _verdict(ready) == (("The API server does not know JobSets yet.",), ())
    waiting, (fault,) = _verdict(ready, installed=False)
    assert waiting == () and "holdfast:jobSet.install = existing says so" in fault
    assert ready.creates == []


def test_a_controller_that_does_not_start_is_told_with_its_pods_reason() -> None:
    snapshot = JobSetSnapshot(
        True,
        (Deployment("jobset-controller", 1, 0),),
        (Pod("jobset-controller-x", "jobset-controller-abc", "", False, "Unschedulable: 0/3 nodes"),),
        REFUSED,
    )
    waiting = judge(snapshot, NAMESPACE, True).waiting
    assert waiting[0] == (
        "Deployment jobset-controller has 0 of 1 Pods available"
        " (jobset-controller-x Unschedulable: 0/3 nodes)."
    )
    assert judge(JobSetSnapshot(True), NAMESPACE, True).waiting == (
        "There is no Deployment in jobset-system yet.",
    )


def test_the_wait_goes_on_over_the_webhooks_first_refusals_and_names_its_setting(ready: Any) -> None:
    now, said = [0.0], []

    def until(seconds: float) -> None:
        ready.on_create = lambda body: _taken(body) if now[0] >= seconds else _raise(
            ClusterUnreachable("…", REFUSED)
        )(body)
        wait(
            lambda: judge(observe(ready, NAMESPACE, True), NAMESPACE, True),
            SUBJECT, 60, 4, said.append, lambda: now[0], lambda s: now.__setitem__(0, now[0] + s),
        )  # fmt: skip

    until(20)
    assert now[0] == 24
    assert said[0] == f"JobSet controller, 16 s: waiting. JobSet's webhook does not answer: {REFUSED}."
    now[0] = 0.0
    with pytest.raises(ClusterProblem, match=r"after 1 minutes \(holdfast:jobSet.timeoutMinutes\)") as error:
        until(10_000)
    assert f"  - JobSet's webhook does not answer: {REFUSED}." in str(error.value)


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ({}, False),
        ({"triggers": {"revision": 2.0}}, True),
        ({"installed": False}, True),
        ({"context": "d"}, False),
    ],
)
def test_it_waits_again_only_if_what_is_waited_for_changed(change: dict[str, Any], waits: bool) -> None:
    props = {"cluster": "c", "namespace": NAMESPACE, "installed": True, "triggers": {"revision": 1.0}}
    diff = JobSetReadinessProvider().diff("id", {**props, "ready": True}, {**props, **change})
    assert diff.changes is waits and diff.replaces == []
