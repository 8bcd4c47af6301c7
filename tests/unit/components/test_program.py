"""The whole program against a recording engine: the graph and every value that reaches a resource."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks, settings

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "sha256:" + "a" * 64
NODES = ["gpu-0", "gpu-1"]
MEMBERSHIP = "pulumi-python:dynamic/holdfast:NodePoolMembership"
READINESS = "pulumi-python:dynamic/holdfast:GpuReadiness"
REMOVAL = "pulumi-python:dynamic/holdfast:JobRemoval"
RELEASE = "kubernetes:helm.sh/v3:Release"
NAMESPACE = "kubernetes:core/v1:Namespace"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
JOB = "kubernetes:batch/v1:Job"


@dataclass(frozen=True)
class Recorded:
    """One registration: inputs, and the options as the engine gets them."""

    type: str
    name: str
    inputs: dict[str, Any]
    parent: str
    provider: str
    depends_on: frozenset[str]
    retained: bool
    delete_before_replace: bool


@dataclass
class Run:
    """Everything that one run of the program registered."""

    resources: list[Recorded] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    def one(self, type_: str, name: str | None = None) -> Recorded:
        found = [r for r in self.resources if r.type == type_ and name in (None, r.name)]
        assert len(found) == 1, [r.name for r in found]
        return found[0]

    def reaches(self, resource: Recorded, type_: str, name: str) -> bool:
        """True if `resource` is made after the other one, directly or by way of others."""
        seen: set[str] = set()
        ahead = set(resource.depends_on)
        while ahead:
            urn = ahead.pop()
            if urn in seen:
                continue
            seen.add(urn)
            ahead |= {u for r in self.resources if urn_ends(urn, r.type, r.name) for u in r.depends_on}
        return any(urn_ends(urn, type_, name) for urn in seen)


def urn_ends(urn: str, type_: str, name: str) -> bool:
    qualified, own_name = urn.split("::")[2:]
    return (qualified.split("$")[-1], own_name) == (type_, name)


class Engine(mocks.Mocks):
    """Answers as the providers would; at a preview what only a real run knows stays unknown."""

    def __init__(self, preview: bool) -> None:
        self.preview = preview

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise AssertionError(f"the program asks {args.token}")

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        outputs = dict(args.inputs)
        if not self.preview:
            known = {RELEASE: {"status": {"revision": 1}}, MEMBERSHIP: {"nodes": NODES}, READINESS: {"ready": True}}
            outputs.update(known.get(args.typ, {}))
            if "metadata" in outputs:
                outputs["metadata"] = {**outputs["metadata"], "uid": f"uid of {args.name}"}
        return f"{args.name}-id", outputs


class Monitor(mocks.MockMonitor):
    """The mock engine, which also keeps the options."""

    def __init__(self, engine: Engine, run: Run) -> None:
        super().__init__(engine)
        self._run = run

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        response = super().RegisterResource(request)
        urn = response.urn
        if request.type != "pulumi:pulumi:Stack":
            inputs = pulumi.runtime.rpc.deserialize_properties(request.object, keep_unknowns=True)
            inputs.pop("__provider", None)
            self._run.resources.append(Recorded(
                request.type, request.name, inputs, request.parent, request.provider, frozenset(request.dependencies),
                request.retainOnDelete, request.deleteBeforeReplace,
            ))
        assert urn
        return response


Change = Callable[[dict[str, Any]], Any]


def no_change(config: dict[str, Any]) -> None:
    """The tracked dev environment as it is."""


def run_program(change: Change = no_change, *, preview: bool = False) -> Run:
    """Run `__main__.py` with the tracked dev configuration, changed, and record what it registers."""
    config = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
    change(config)
    run = Run()
    engine = Engine(preview)
    settings.set_root_resource(None)
    mocks.set_mocks(engine, project="holdfast", stack="dev", preview=preview, monitor=Monitor(engine, run))
    pulumi.runtime.set_all_config({k: v if isinstance(v, str) else json.dumps(v) for k, v in config.items()})

    @pulumi.runtime.test
    def program() -> None:
        runpy.run_path(str(ROOT / "__main__.py"))

    program()
    root = settings.get_root_resource()
    run.outputs = dict(root.outputs)
    return run


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HOLDFAST_KUBECONFIG", "/state/kubeconfig")
    monkeypatch.setenv("HOLDFAST_TRAINER_IMAGE", f"docker.io/holdfast/trainer@{DIGEST}")


@pytest.fixture(scope="module")
def dev() -> Run:
    """One run of the dev environment for all tests that only look."""
    with pytest.MonkeyPatch.context() as patch:
        _in_the_project.__wrapped__(patch)
        return run_program()


def test_the_graph_is_the_expected_one(dev: Run) -> None:
    tree = sorted(
        f"{(r.parent.split('::')[2].split('$')[-1] + ' ' + r.parent.split('::')[3]).strip()} > {r.type} {r.name}" for r in dev.resources
    )
    stack = "pulumi:pulumi:Stack holdfast-dev"
    team, operator, run = "holdfast:team:Team ml-batch", "holdfast:gpu:GpuOperator gpu-operator", "holdfast:run:TrainingRun ml-batch-run-001"
    assert tree == sorted([
        f"{stack} > pulumi:providers:kubernetes cluster",
        f"{stack} > holdfast:nodepools:SelfManagedGpuNodePool gpu",
        f"holdfast:nodepools:SelfManagedGpuNodePool gpu > {MEMBERSHIP} gpu",
        f"{stack} > {operator}",
        f"{operator} > {NAMESPACE} gpu-operator",
        f"{operator} > {RELEASE} gpu-operator",
        f"{operator} > {READINESS} gpu-operator-ready",
        f"{stack} > {team}",
        f"{team} > {NAMESPACE} ml-batch",
        f"{team} > kubernetes:core/v1:ResourceQuota ml-batch-quota",
        f"{team} > kubernetes:core/v1:LimitRange ml-batch-limits",
        f"{team} > kubernetes:networking.k8s.io/v1:NetworkPolicy ml-batch-default-deny",
        f"{team} > kubernetes:networking.k8s.io/v1:NetworkPolicy ml-batch-allow-dns",
        f"{team} > kubernetes:rbac.authorization.k8s.io/v1:Role ml-batch-role",
        f"{team} > kubernetes:rbac.authorization.k8s.io/v1:RoleBinding ml-batch-role",
        f"{team} > holdfast:team:CheckpointStorage ml-batch-checkpoints",
        f"holdfast:team:CheckpointStorage ml-batch-checkpoints > {CLAIM} ml-batch-checkpoints",
        f"{stack} > {run}",
        f"{run} > {JOB} ml-batch-run-001",
        f"{run} > {REMOVAL} ml-batch-run-001",
    ])


def test_every_kubernetes_object_uses_the_explicit_cluster(dev: Run) -> None:
    objects = [r for r in dev.resources if r.type.startswith("kubernetes:")]
    assert len(objects) == 11
    assert all("::pulumi:providers:kubernetes::cluster::" in r.provider.replace("Stack$", "Stack::") for r in objects)


def test_the_provider_has_file_context_and_a_stable_identity(dev: Run) -> None:
    assert dev.one("pulumi:providers:kubernetes").inputs == {
        "kubeconfig": "/state/kubeconfig", "context": "holdfast-rehearsal", "clusterIdentifier": "holdfast-rehearsal",
        "enableServerSideApply": "true", "deleteUnreachable": "false",
    }


def test_every_object_carries_the_labels_that_tell_whose_it_is(dev: Run) -> None:
    for resource in dev.resources:
        if "metadata" in resource.inputs:
            labels = resource.inputs["metadata"]["labels"]
            assert labels["app.kubernetes.io/managed-by"] == "pulumi"
            assert labels["app.kubernetes.io/part-of"] == "holdfast"
            assert labels["holdfast.dev/environment"] == "dev"


def test_the_pool_gets_its_label_and_taint(dev: Run) -> None:
    assert dev.one(MEMBERSHIP).inputs == {
        "kubeconfig": "/state/kubeconfig", "context": "holdfast-rehearsal", "cluster": "holdfast-rehearsal",
        "owner": "holdfast/dev/gpu", "pool": "gpu", "selector": {"matchLabels": {"holdfast.dev/rehearsal-pool": "gpu"}},
        "labels": {"pool": "gpu"}, "taint": {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    }


def test_named_nodes_reach_the_pool_as_names() -> None:
    run = run_program(lambda c: c["holdfast:nodePools"][0].update(selectNodes={"names": NODES}))
    assert run.one(MEMBERSHIP).inputs["selector"] == {"names": NODES}


def test_the_operator_namespace_lets_privileged_pods_in(dev: Run) -> None:
    labels = dev.one(NAMESPACE, "gpu-operator").inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_the_release_is_pinned_patient_and_leaves_the_waiting_to_the_readiness(dev: Run) -> None:
    inputs = dev.one(RELEASE).inputs
    assert {key: inputs[key] for key in ("name", "namespace", "chart", "version", "timeout")} == {
        "name": "gpu-operator", "namespace": "gpu-operator", "chart": "./rehearsal/charts/gpu-operator-rehearsal",
        "version": "26.7.0-rehearsal.1", "timeout": 1200,
    }
    assert (inputs["skipAwait"], inputs["atomic"], inputs["cleanupOnFail"]) == (True, False, True)
    assert "repositoryOpts" not in inputs


def test_the_release_has_the_planned_values(dev: Run) -> None:
    values = dev.one(RELEASE).inputs["values"]
    assert (values["driver"], values["toolkit"], values["devicePlugin"]) == (
        {"enabled": False}, {"enabled": False}, {"enabled": True}
    )
    assert {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"} in values["daemonsets"]["tolerations"]


def test_no_absolute_path_but_the_kubeconfigs_enters_the_state(dev: Run) -> None:
    text = json.dumps([r.inputs for r in dev.resources]).replace("/state/kubeconfig", "")
    assert str(ROOT) not in text


def test_the_default_chart_comes_from_its_repository_without_a_fingerprint() -> None:
    run = run_program(lambda c: c["holdfast:gpuOperator"].pop("chart"))
    inputs = run.one(RELEASE).inputs
    assert (inputs["chart"], inputs["version"]) == ("gpu-operator", "v26.7.0")
    assert inputs["repositoryOpts"] == {"repo": "https://helm.ngc.nvidia.com/nvidia"}
    assert "description" not in inputs


def test_a_chart_from_an_oci_registry_needs_no_repository() -> None:
    chart = {"oci": "oci://registry.example.com/charts/gpu-operator", "version": "v26.7.0"}
    inputs = run_program(lambda c: c["holdfast:gpuOperator"].update(chart=chart)).one(RELEASE).inputs
    assert inputs["chart"] == "oci://registry.example.com/charts/gpu-operator" and "repositoryOpts" not in inputs


def test_readiness_expects_what_the_plan_says_on_the_nodes_that_the_pool_found(dev: Run) -> None:
    inputs = dev.one(READINESS).inputs
    expectation = inputs["expectation"]
    assert expectation["pools"] == [{
        "name": "gpu", "nodes": NODES, "gpusPerNode": 1, "taint": {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    }]
    assert expectation["runtimeClasses"] == ["nvidia"] and expectation["deployments"] == ["gpu-operator"]
    assert {"nvidia-operator-validator", "nvidia-device-plugin-daemonset"} <= set(expectation["daemonSets"])
    assert "nvidia-driver-daemonset" in expectation["absentDaemonSets"]
    assert (inputs["triggers"], inputs["timeoutSeconds"]) == ({"revision": 1}, 1200)


def test_the_order_is_pool_then_release_then_readiness_then_job(dev: Run) -> None:
    job = dev.one(JOB)
    assert dev.reaches(dev.one(RELEASE), MEMBERSHIP, "gpu")
    assert dev.reaches(dev.one(READINESS), RELEASE, "gpu-operator")
    assert dev.reaches(job, READINESS, "gpu-operator-ready")
    assert dev.reaches(dev.one(REMOVAL), JOB, "ml-batch-run-001")


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        ("kubernetes:core/v1:ResourceQuota", "ml-batch-quota"),
        ("kubernetes:core/v1:LimitRange", "ml-batch-limits"),
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "ml-batch-default-deny"),
        (CLAIM, "ml-batch-checkpoints"),
        (NAMESPACE, "ml-batch"),
    ],
)
def test_the_job_comes_after_and_goes_before_what_it_uses(dev: Run, type_: str, name: str) -> None:
    assert dev.reaches(dev.one(JOB), type_, name)


def test_everything_of_the_team_comes_after_its_namespace(dev: Run) -> None:
    inside = [r for r in dev.resources if r.inputs.get("metadata", {}).get("namespace") == "ml-batch"]
    assert len(inside) == 8
    assert all(dev.reaches(r, NAMESPACE, "ml-batch") for r in inside)


def test_checkpoints_and_their_namespace_outlive_a_destroy(dev: Run) -> None:
    assert {r.name for r in dev.resources if r.retained} == {"ml-batch", "ml-batch-checkpoints"}
    assert dev.one(CLAIM).retained and dev.one(NAMESPACE, "ml-batch").retained


def test_what_outlives_a_destroy_is_written_under_one_name_so_that_it_can_be_taken_over(dev: Run) -> None:
    for resource in (dev.one(CLAIM), dev.one(NAMESPACE, "ml-batch")):
        assert resource.inputs["metadata"]["annotations"]["pulumi.com/patchFieldManager"] == "holdfast"


def test_disposable_checkpoints_go_with_their_team() -> None:
    run = run_program(lambda c: c["holdfast:teams"][0]["checkpointStorage"].update(disposable=True))
    assert [r.name for r in run.resources if r.retained] == []


def test_the_claim_is_not_waited_for(dev: Run) -> None:
    assert dev.one(CLAIM).inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"


def test_the_job_is_the_planned_one_and_is_not_waited_for(dev: Run) -> None:
    job = dev.one(JOB).inputs
    pod = job["spec"]["template"]["spec"]
    trainer = pod["containers"][0]
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == ("batch/v1", "Job", "training-run-001")
    assert job["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert job["spec"]["backoffLimit"] == 2 and job["spec"]["podReplacementPolicy"] == "Failed"
    assert job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [75]
    assert pod["runtimeClassName"] == "nvidia" and pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert trainer["image"] == f"docker.io/holdfast/trainer@{DIGEST}"
    assert trainer["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert trainer["env"][-1]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_a_replaced_job_goes_before_the_new_one_comes(dev: Run) -> None:
    assert dev.one(JOB).delete_before_replace is True


def test_the_removal_follows_the_job_that_really_exists(dev: Run) -> None:
    assert dev.one(REMOVAL).inputs == {
        "kubeconfig": "/state/kubeconfig", "context": "holdfast-rehearsal", "namespace": "ml-batch",
        "job": "training-run-001", "uid": "uid of ml-batch-run-001", "graceSeconds": 120,
    }


def test_a_cancelled_run_has_no_job_and_its_claim_stays() -> None:
    run = run_program(lambda c: c["holdfast:runs"][0].update(cancelled=True))
    types = [r.type for r in run.resources]
    assert JOB not in types and REMOVAL not in types and CLAIM in types


def test_a_declared_attempt_is_a_new_job_in_the_same_place() -> None:
    run = run_program(lambda c: c["holdfast:runs"][0].update(attempt=2))
    job = run.one(JOB)
    assert (job.name, job.inputs["metadata"]["name"]) == ("ml-batch-run-001", "training-run-001-r2")


def test_several_teams_and_runs_do_not_meet() -> None:
    def two(config: dict[str, Any]) -> None:
        team, first = config["holdfast:teams"][0], config["holdfast:runs"][0]
        config["holdfast:teams"].append({**team, "name": "vision", "group": "vision-engineers"})
        config["holdfast:runs"].append({**first, "team": "vision", "id": "run-002"})

    run = run_program(two)
    assert run.one(JOB, "vision-run-002").inputs["metadata"]["namespace"] == "vision"
    assert not run.reaches(run.one(JOB, "vision-run-002"), NAMESPACE, "ml-batch")


def test_a_preview_in_a_new_environment_runs_through_with_nothing_known() -> None:
    run = run_program(preview=True)
    assert len(run.resources) == 20
    assert pulumi.contains_unknowns(run.one(READINESS).inputs)


def test_the_outputs_say_what_a_person_needs_next(dev: Run) -> None:
    assert {"environment", "nodePools", "teams", "runs", "next"} <= set(dev.outputs)
    assert dev.outputs["runs"]["run-001"]["job"] == "training-run-001"


def test_a_broken_configuration_is_all_its_problems_and_no_resource() -> None:
    def break_it(config: dict[str, Any]) -> None:
        config["holdfast:runs"][0]["image"] = "docker.io/holdfast/trainer:latest"
        config["holdfast:runz"] = []
        config["holdfast:teams"] = "ml-batch"

    with pytest.raises(pulumi.RunError) as error:
        run_program(break_it)
    text = str(error.value)
    assert "holdfast:runs[0].image" in text and "holdfast:runz" in text and "holdfast:teams" in text
    assert error.value.__suppress_context__ is True


def test_the_program_fits_on_one_page() -> None:
    assert len((ROOT / "__main__.py").read_text().splitlines()) < 60


def test_a_missing_chart_folder_is_told_with_its_setting() -> None:
    chart = {"path": "./no-such-chart", "version": "1.0.0"}
    with pytest.raises(pulumi.RunError, match="holdfast:gpuOperator.chart.path = no-such-chart: there is no Helm chart"):
        run_program(lambda c: c["holdfast:gpuOperator"].update(chart=chart))
