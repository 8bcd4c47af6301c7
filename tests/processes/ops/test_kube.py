"""Reading a cluster: the context that was named, in pages, and its own words when it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from ops.errors import OpsError, describe
from ops.exit_codes import ExitCode
from ops.kube import Kube
from ops.observe import RunRef, declared, observe, present
from ops.runs import Phase
from ops.stacks import Target
from tests.processes.ops import api_server

Serve = Callable[..., tuple[Kube, list[str]]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(answers: dict[str, Any]) -> tuple[Kube, list[str]]:
            asked: list[str] = []
            url = stack.enter_context(api_server.serving(answers, asked))
            return Kube(Target(str(api_server.kubeconfig(tmp_path, url)), "here")), asked

        yield start


def test_the_named_context_is_read_and_not_the_current_one(serve: Serve) -> None:
    kube, asked = serve({"/version": {"gitVersion": "v1.37.2"}})
    assert kube.version() == "v1.37.2"
    assert asked == ["/version"]


def test_long_lists_are_read_in_pages(serve: Serve) -> None:
    kube, asked = serve({"/api/v1/nodes": [{"metadata": {"name": f"n-{i}"}} for i in range(1100)]})
    assert len(kube.nodes()) == 1100
    assert len(asked) == 3
    assert all("limit=500" in path for path in asked)


def test_a_missing_object_is_none_and_a_missing_log_is_empty(serve: Serve) -> None:
    kube, _ = serve({})
    assert kube.job("ml-batch", "gone") is None
    assert kube.log("ml-batch", "gone") == ""


def test_a_refused_read_is_told_in_the_servers_words(serve: Serve) -> None:
    kube, _ = serve(
        {"/api/v1/nodes": (403, {"message": 'nodes is forbidden: User "eve" cannot list resource "nodes"'})}
    )
    with pytest.raises(Exception) as caught:
        kube.nodes()
    sentence, code = describe(caught.value)
    assert code is ExitCode.UNAVAILABLE
    assert sentence.startswith('The API server refused (403): nodes is forbidden: User "eve" cannot list')


def test_a_server_that_is_down_is_told_in_a_sentence_and_asked_once(tmp_path: Path) -> None:
    kube = Kube(Target(str(api_server.kubeconfig(tmp_path, "http://127.0.0.1:9")), "here"))
    with pytest.raises(Exception) as caught:
        kube.version()
    sentence, code = describe(caught.value)
    assert (sentence.split(":")[0], code) == ("The cluster's API server did not answer", ExitCode.UNAVAILABLE)


def test_a_context_that_the_file_lacks_is_named(tmp_path: Path) -> None:
    path = api_server.kubeconfig(tmp_path, "http://127.0.0.1:9")
    with pytest.raises(OpsError, match="no usable context 'prod'") as caught:
        Kube(Target(str(path), "prod"))
    assert caught.value.code is ExitCode.USAGE


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OpsError, match=f"The kubeconfig {tmp_path}/none does not exist"):
        Kube(Target(f"{tmp_path}/none", "here"))


def test_a_log_is_streamed_line_by_line(serve: Serve) -> None:
    kube, asked = serve({"/api/v1/namespaces/ml-batch/pods/p-1/log": "one\ntwo\nthree"})
    assert list(kube.follow_log("ml-batch", "p-1")) == ["one", "two", "three"]
    assert "follow=true" in asked[0] and "container=trainer" in asked[0]


def test_a_run_is_observed_with_its_own_events_and_the_tail_of_its_newest_pod(serve: Serve) -> None:
    base = "/api/v1/namespaces/ml-batch"
    pod = {
        "metadata": {"name": "p-1", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"nodeName": "gpu-0"},
    }
    kube, asked = serve(
        {
            "/apis/batch/v1/namespaces/ml-batch/jobs/training-run-001": {
                "metadata": {"name": "x"},
                "spec": {},
                "status": {},
            },
            f"{base}/pods": [{**pod, "status": {"phase": "Running"}}],
            f"{base}/events": [{"involvedObject": {"name": "somebody-else"}, "reason": "FailedCreate"}],
            f"{base}/pods/p-1/log": '{"event": "step", "step": 7}\n',
        }
    )
    view = observe(kube, RunRef("run-001", "ml-batch", "training-run-001"))
    assert (view.phase, view.step) == (Phase.RUNNING, 7)
    assert any("job-name%3Dtraining-run-001" in path for path in asked)
    assert any("tailLines=400" in path for path in asked)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_run_is_observed_too_where_its_node_does_not_give_the_log(serve: Serve, status: int) -> None:
    base = "/api/v1/namespaces/ml-batch"
    pod = {"metadata": {"name": "p-1"}, "spec": {"nodeName": "gpu-0"}, "status": {"phase": "Running"}}
    kube, asked = serve(
        {
            "/apis/batch/v1/namespaces/ml-batch/jobs/training-run-001": {"metadata": {"name": "x"}},
            f"{base}/pods": [pod],
            f"{base}/events": [],
            f"{base}/pods/p-1/log": (status, {"message": "dial tcp 10.0.0.1:10250: connection refused"}),
        }
    )
    view = observe(kube, RunRef("run-001", "ml-batch", "training-run-001"))
    assert (view.phase, view.pod, view.step) == (Phase.RUNNING, "p-1", None)
    assert any("tailLines=400" in path for path in asked)


def test_a_log_that_may_not_be_read_is_told(serve: Serve) -> None:
    base = "/api/v1/namespaces/ml-batch"
    pod = {"metadata": {"name": "p-1"}, "spec": {"nodeName": "gpu-0"}, "status": {"phase": "Running"}}
    kube, _ = serve(
        {
            "/apis/batch/v1/namespaces/ml-batch/jobs/training-run-001": {"metadata": {"name": "x"}},
            f"{base}/pods": [pod],
            f"{base}/events": [],
            f"{base}/pods/p-1/log": (403, {"message": "pods/log is forbidden"}),
        }
    )
    with pytest.raises(Exception, match="pods/log is forbidden"):
        observe(kube, RunRef("run-001", "ml-batch", "training-run-001"))


def test_of_several_attempts_the_newest_job_stands_for_the_run(serve: Serve) -> None:
    def job(name: str, attempt: str) -> dict[str, Any]:
        labels = {"holdfast.dev/run": "run-001", "holdfast.dev/attempt": attempt}
        return {"metadata": {"name": name, "namespace": "ml-batch", "labels": labels}}

    kube, _ = serve(
        {"/apis/batch/v1/jobs": [job("training-run-001-r10", "10"), job("training-run-001-r9", "9")]}
    )
    assert present(kube) == [RunRef("run-001", "ml-batch", "training-run-001-r10")]


JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2"
LABELS = {"holdfast.dev/run": "run-001", "holdfast.dev/attempt": "2"}


def job_set(name: str = "training-run-001-r2", **status: Any) -> dict[str, Any]:
    child = {"name": "trainer", "template": {"spec": {"activeDeadlineSeconds": 600}}}
    return {
        "metadata": {"name": name, "namespace": "ml-batch", "labels": LABELS},
        "spec": {"replicatedJobs": [child], "failurePolicy": {"maxRestarts": 2}},
        "status": status,
    }


def test_where_job_set_is_not_installed_there_are_none(serve: Serve) -> None:
    kube, _ = serve({"/apis/batch/v1/jobs": []})
    assert kube.job_sets() == [] and kube.job_set("ml-batch", "x") is None
    assert present(kube) == []


def test_a_right_that_is_missing_for_job_sets_is_not_taken_for_none(serve: Serve) -> None:
    kube, _ = serve({f"{JOB_SETS}/jobsets": (403, {"message": "jobsets is forbidden"})})
    with pytest.raises(Exception) as caught:
        kube.job_sets()
    assert "jobsets is forbidden" in describe(caught.value)[0]


def test_a_job_set_stands_for_its_run_and_its_child_job_does_not(serve: Serve) -> None:
    child = {
        "metadata": {
            "name": "training-run-001-r2-trainer-0",
            "namespace": "ml-batch",
            "labels": {**LABELS, "jobset.sigs.k8s.io/jobset-name": "training-run-001-r2"},
        }
    }
    older = {"metadata": {**child["metadata"], "name": "training-run-001"}}
    older["metadata"]["labels"] = {**LABELS, "holdfast.dev/attempt": "1"}
    kube, asked = serve({"/apis/batch/v1/jobs": [child, older], f"{JOB_SETS}/jobsets": [job_set()]})
    assert present(kube, "dev") == [RunRef("run-001", "ml-batch", "training-run-001-r2", "jobset")]
    assert all("environment%3Ddev" in path for path in asked)


def test_a_run_by_job_set_is_observed_over_its_child_jobs_by_our_labels(serve: Serve) -> None:
    base = "/api/v1/namespaces/ml-batch"
    kube, asked = serve(
        {
            f"{JOB_SETS}/namespaces/ml-batch/jobsets/training-run-001-r2": job_set(restarts=3),
            f"{base}/pods": [],
            f"{base}/events": [
                {
                    "involvedObject": {"name": "training-run-001-r2-trainer-0"},
                    "reason": "FailedCreate",
                    "message": "exceeded quota",
                    "lastTimestamp": "2026-01-02T03:04:05Z",
                }
            ],
        }
    )
    view = observe(kube, RunRef("run-001", "ml-batch", "training-run-001-r2", "jobset"))
    assert (view.phase, view.sentence) == (Phase.WAITING, "No Pod can be made: exceeded quota")
    assert (view.controller, view.restarts, view.deadline_seconds) == ("jobset", 3, 600)
    wanted = "labelSelector=holdfast.dev/run=run-001,holdfast.dev/attempt=2"
    assert any(wanted in unquote(path) for path in asked)


def test_a_failed_job_set_is_asked_for_its_child_job_which_says_why(serve: Serve) -> None:
    failed = {"type": "Failed", "status": "True", "reason": "FailJobSetFailurePolicyAction", "message": "m"}
    why = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    kube, _ = serve(
        {
            f"{JOB_SETS}/namespaces/ml-batch/jobsets/training-run-001-r2": job_set(conditions=[failed]),
            "/apis/batch/v1/namespaces/ml-batch/jobs/training-run-001-r2-trainer-0": {
                "spec": {},
                "status": {"conditions": [why]},
            },
            "/api/v1/namespaces/ml-batch/pods": [],
            "/api/v1/namespaces/ml-batch/events": [],
        }
    )
    view = observe(kube, RunRef("run-001", "ml-batch", "training-run-001-r2", "jobset"))
    assert view.sentence == (
        "The JobSet failed (FailJobSetFailurePolicyAction): m. Its Job failed (DeadlineExceeded): too long. "
        "Its deadline counts waiting too, and no Pod of it is left."
    )


def test_a_job_set_that_is_gone_is_absent(serve: Serve) -> None:
    kube, _ = serve({})
    view = observe(kube, RunRef("a", "n", "training-a", "jobset"))
    assert (view.phase, view.sentence) == (Phase.ABSENT, "There is no JobSet n/training-a.")


def test_the_outputs_say_which_controller_a_run_has() -> None:
    runs = {"a": {"namespace": "n", "job": "training-a", "controller": "jobset"}}
    assert declared({"runs": runs}) == [RunRef("a", "n", "training-a", "jobset")]


def test_cancelled_runs_of_the_outputs_are_not_followed() -> None:
    runs = [
        {"id": "a", "namespace": "n", "job": "training-a"},
        {"id": "b", "namespace": "n", "job": "training-b", "cancelled": True},
        {"id": "c", "namespace": "n", "job": None},
    ]
    assert declared({"runs": runs}) == [RunRef("a", "n", "training-a")]
    assert declared({"runs": {"a": runs[0]}}) == [RunRef("a", "n", "training-a")]
    assert declared({}) == []
