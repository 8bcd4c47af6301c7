"""Whether the stack installs the JobSet controller, from where, and what a Spot pool means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from components.planning.job_set_controller import JobSetPlan
from components.planning.outputs import stack_outputs
from components.planning.stack import StackPlan

Plan = Callable[..., StackPlan]
JOBSET = {"controller": "jobset"}


def _controller(plan: Plan, **changes: Any) -> JobSetPlan:
    made = plan(run=JOBSET, **changes).job_set
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("install", "controller", "expected"),
    [
        ("auto", "job", None),
        ("auto", "jobset", True),
        ("always", "job", True),
        ("existing", "job", None),
        ("existing", "jobset", False),
        ("never", "job", None),
    ],
)
def test_it_is_installed_where_a_run_needs_it_and_nobody_else_did(
    plan: Plan, install: str, controller: str, expected: bool | None
) -> None:
    made = plan(run={"controller": controller}, job_set={"install": install}).job_set
    assert (made.install if made else None) is expected


def test_a_cancelled_run_does_not_take_the_controller_away(plan: Plan) -> None:
    assert plan(run={**JOBSET, "cancelled": True}).job_set is not None


def test_the_default_is_the_projects_own_chart_and_image_in_one_version(plan: Plan) -> None:
    made = _controller(plan)
    assert (made.chart, made.version) == ("oci://registry.k8s.io/jobset/charts/jobset", "0.11.1")
    assert made.repository_url is None
    assert made.values["image"] == {
        "repository": "registry.k8s.io/jobset/jobset",
        "tag": "v0.11.1",
        "pullPolicy": "IfNotPresent",
    }
    assert (made.namespace, made.release_name, made.timeout_seconds) == ("jobset-system", "jobset", 600)


def test_another_version_of_the_chart_brings_its_own_image(plan: Plan) -> None:
    made = _controller(plan, job_set={"chart": {"version": "0.12.0"}})
    assert (made.version, made.values["image"]["tag"]) == ("0.12.0", "v0.12.0")
    assert made.chart == "oci://registry.k8s.io/jobset/charts/jobset"


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        ({"path": "/opt/charts/jobset"}, ("/opt/charts/jobset", None)),
        ({"path": "./charts/jobset"}, ("./charts/jobset", None)),
        ({"oci": "oci://r.example.com/jobset"}, ("oci://r.example.com/jobset", None)),
        ({"repository": "https://r.example.com"}, ("jobset", "https://r.example.com")),
    ],
)
def test_the_chart_may_come_from_elsewhere(plan: Plan, chart: dict[str, str], expected: Any) -> None:
    made = _controller(plan, job_set={"chart": {**chart, "version": "0.11.1"}})
    assert (made.chart, made.repository_url) == expected


def test_extra_values_come_last(plan: Plan) -> None:
    extra = {"image": {"repository": "mirror.example.com/jobset@sha256", "tag": "ab" * 32}}
    values = _controller(plan, job_set={"extraValues": extra}).values
    assert values["image"] == {**extra["image"], "pullPolicy": "IfNotPresent"}
    assert values["certManager"] == {"enable": False}


@pytest.mark.parametrize(("host_network", "standard"), [(False, "restricted"), (True, "privileged")])
def test_its_namespace_allows_what_its_pods_need_and_no_more(
    plan: Plan, host_network: bool, standard: str
) -> None:
    made = _controller(plan, job_set={"extraValues": {"controller": {"hostNetwork": host_network}}})
    assert made.namespace_labels["pod-security.kubernetes.io/enforce"] == standard
    assert made.namespace_labels["app.kubernetes.io/part-of"] == "holdfast"


def test_a_plain_job_on_nodes_that_go_is_warned_of_with_the_delay_and_the_way_out(plan: Plan) -> None:
    assert plan(pool={"spot": True}).warnings == (
        'runs "run-001": pool "gpu" has nodes that may be taken away at any time, and a plain Job\'s'
        " controller waits longer after each preemption: 10, 20, 40 … 600 s, for the whole run, until a new"
        " Job. Write controller: jobset, which makes the next Pod at once.",
    )
    assert plan(pool={"spot": True}, run=JOBSET).warnings == ()
    assert plan(pool={"spot": True}, run={"cancelled": True}).warnings == ()


def test_nodes_that_go_carry_a_label_that_their_runs_select(plan: Plan) -> None:
    planned = plan(pool={"spot": True}, run=JOBSET)
    assert planned.pools[0].labels == {"pool": "gpu", "holdfast.dev/spot": "true"}
    child = planned.runs[0].workload["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert child["template"]["spec"]["nodeSelector"] == planned.pools[0].labels
    assert plan().pools[0].labels == {"pool": "gpu"}


def test_the_outputs_tell_the_controller_and_the_job_whose_log_to_follow(plan: Plan) -> None:
    run = stack_outputs(plan(run=JOBSET))["runs"]["run-001"]
    assert (run["controller"], run["job"]) == ("jobset", "training-run-001")
    assert run["follow"].endswith("logs --follow job/training-run-001-trainer-0")


def test_a_quota_on_job_sets_counts_the_run(plan: Plan) -> None:
    quota = {"quota": {"count/jobsets.jobset.x-k8s.io": "1"}}
    two = ({"id": "run-002", "controller": "jobset"},)
    (warning,) = plan(team=quota, run=JOBSET, more_runs=two).warnings
    assert "need 2 of count/jobsets.jobset.x-k8s.io" in warning
