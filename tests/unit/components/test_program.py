"""The whole program against a recording engine: the graph and every value that reaches a resource."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "sha256:" + "a" * 64
NODES = ["gpu-0", "gpu-1"]


def test_the_graph_is_the_expected_one(dev: Any) -> None:
    tree = sorted(f"{r.parent} > {r.kind} {r.name}" for r in dev.resources)
    stack = "Stack holdfast-dev"
    team, operator, job_set, run = (
        "Team ml-batch",
        "GpuOperator gpu-operator",
        "JobSetController jobset",
        "TrainingRun ml-batch-run-001",
    )
    assert tree == sorted(
        [
            f"{stack} > kubernetes cluster",
            f"{stack} > SelfManagedGpuNodePool gpu",
            "SelfManagedGpuNodePool gpu > NodePoolMembership gpu",
            f"{stack} > {operator}",
            f"{operator} > Namespace gpu-operator",
            f"{operator} > Release gpu-operator",
            f"{operator} > GpuReadiness gpu-operator-ready",
            f"{stack} > {job_set}",
            f"{job_set} > Namespace jobset",
            f"{job_set} > Release jobset",
            f"{job_set} > JobSetReadiness jobset-ready",
            f"{stack} > {team}",
            f"{team} > Namespace ml-batch",
            f"{team} > ResourceQuota ml-batch-quota",
            f"{team} > LimitRange ml-batch-limits",
            f"{team} > NetworkPolicy ml-batch-default-deny",
            f"{team} > NetworkPolicy ml-batch-allow-dns",
            f"{team} > Role ml-batch-role",
            f"{team} > RoleBinding ml-batch-role",
            f"{team} > CheckpointStorage ml-batch-checkpoints",
            "CheckpointStorage ml-batch-checkpoints > PersistentVolumeClaim ml-batch-checkpoints",
            f"{stack} > {run}",
            f"{run} > Job ml-batch-run-001",
            f"{run} > JobRemoval ml-batch-run-001",
        ]
    )


def test_every_kubernetes_object_uses_the_explicit_cluster(dev: Any) -> None:
    objects = [r for r in dev.resources if r.type.startswith("kubernetes:")]
    assert len(objects) == 13
    assert all(
        "::pulumi:providers:kubernetes::cluster::" in r.provider.replace("Stack$", "Stack::") for r in objects
    )


def test_the_provider_has_file_context_and_a_stable_identity(dev: Any) -> None:
    assert dev.one("kubernetes").inputs == {
        "kubeconfig": "/state/kubeconfig",
        "context": "holdfast-rehearsal",
        "clusterIdentifier": "holdfast-rehearsal",
        "enableServerSideApply": "true",
        "deleteUnreachable": "false",
    }


def test_every_object_carries_the_labels_that_tell_whose_it_is(dev: Any) -> None:
    for resource in dev.resources:
        if "metadata" in resource.inputs:
            labels = resource.inputs["metadata"]["labels"]
            assert labels["app.kubernetes.io/managed-by"] == "pulumi"
            assert labels["app.kubernetes.io/part-of"] == "holdfast"
            assert labels["holdfast.dev/environment"] == "dev"


def test_the_pool_gets_its_label_and_taint(dev: Any) -> None:
    assert dev.one("NodePoolMembership").inputs == {
        "kubeconfig": "/state/kubeconfig",
        "context": "holdfast-rehearsal",
        "cluster": "holdfast-rehearsal",
        "owner": "holdfast/dev/gpu",
        "pool": "gpu",
        "selector": {"matchLabels": {"holdfast.dev/rehearsal-pool": "gpu"}},
        "labels": {"pool": "gpu"},
        "taint": {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    }


def test_a_renamed_pool_keeps_its_nodes_whose_notes_name_it_as_before(program: Any) -> None:
    def rename(config: dict[str, Any]) -> None:
        config["holdfast:nodePools"][0].update(name="trainers", formerNames=["gpu"])
        config["holdfast:runs"][0]["pool"] = "trainers"

    run = program(rename)
    assert run.one("NodePoolMembership").inputs["owner"] == "holdfast/dev/gpu"
    existing = "holdfast:nodepools:ExistingGpuNodePool"
    assert run.one("SelfManagedGpuNodePool").aliases == ("gpu", existing, existing)


def test_named_nodes_reach_the_pool_as_names(program: Any) -> None:
    run = program(lambda c: c["holdfast:nodePools"][0].update(selectNodes={"names": NODES}))
    assert run.one("NodePoolMembership").inputs["selector"] == {"names": NODES}


def test_the_operator_namespace_lets_privileged_pods_in(dev: Any) -> None:
    labels = dev.one("Namespace", "gpu-operator").inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_the_release_is_pinned_patient_and_leaves_the_waiting_to_the_readiness(dev: Any) -> None:
    inputs = dev.one("Release", "gpu-operator").inputs
    assert {key: inputs[key] for key in ("name", "namespace", "chart", "version", "timeout")} == {
        "name": "gpu-operator",
        "namespace": "gpu-operator",
        "chart": "./rehearsal/charts/gpu-operator-rehearsal",
        "version": "26.7.0-rehearsal.1",
        "timeout": 1200,
    }
    assert (inputs["skipAwait"], inputs["atomic"], inputs["cleanupOnFail"]) == (True, False, True)
    assert "repositoryOpts" not in inputs


def test_the_release_has_the_planned_values(dev: Any) -> None:
    values = dev.one("Release", "gpu-operator").inputs["values"]
    assert (values["driver"], values["toolkit"], values["devicePlugin"]) == (
        {"enabled": False},
        {"enabled": False},
        {"enabled": True},
    )
    assert {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"} in values[
        "daemonsets"
    ]["tolerations"]


def test_no_absolute_path_but_the_kubeconfigs_enters_the_state(dev: Any) -> None:
    text = json.dumps([r.inputs for r in dev.resources]).replace("/state/kubeconfig", "")
    assert str(ROOT) not in text


def test_the_default_chart_comes_from_its_repository_without_a_fingerprint(program: Any) -> None:
    run = program(lambda c: c["holdfast:gpuOperator"].pop("chart"))
    inputs = run.one("Release", "gpu-operator").inputs
    assert (inputs["chart"], inputs["version"]) == ("gpu-operator", "v26.7.0")
    assert inputs["repositoryOpts"] == {"repo": "https://helm.ngc.nvidia.com/nvidia"}
    assert "description" not in inputs


def test_a_chart_from_an_oci_registry_needs_no_repository(program: Any) -> None:
    chart = {"oci": "oci://registry.example.com/charts/gpu-operator", "version": "v26.7.0"}
    inputs = program(lambda c: c["holdfast:gpuOperator"].update(chart=chart)).one("Release", "gpu-operator").inputs
    assert (
        inputs["chart"] == "oci://registry.example.com/charts/gpu-operator" and "repositoryOpts" not in inputs
    )


def test_readiness_expects_what_the_plan_says_on_the_nodes_that_the_pool_found(dev: Any) -> None:
    inputs = dev.one("GpuReadiness").inputs
    expectation = inputs["expectation"]
    assert expectation["pools"] == [
        {
            "name": "gpu",
            "nodes": NODES,
            "gpusPerNode": 1,
            "taint": {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        }
    ]
    assert expectation["runtimeClasses"] == ["nvidia"] and expectation["deployments"] == ["gpu-operator"]
    assert {"nvidia-operator-validator", "nvidia-device-plugin-daemonset"} <= set(expectation["daemonSets"])
    assert "nvidia-driver-daemonset" in expectation["absentDaemonSets"]
    assert (inputs["triggers"], inputs["timeoutSeconds"]) == ({"revision": 1}, 1200)


def test_the_order_is_pool_then_release_then_readiness_then_job(dev: Any) -> None:
    job = dev.one("Job")
    assert dev.reaches(dev.one("Release", "gpu-operator"), "NodePoolMembership", "gpu")
    assert dev.reaches(dev.one("GpuReadiness"), "Release", "gpu-operator")
    assert dev.reaches(job, "GpuReadiness", "gpu-operator-ready")
    assert dev.reaches(dev.one("JobRemoval"), "Job", "ml-batch-run-001")


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        ("ResourceQuota", "ml-batch-quota"),
        ("LimitRange", "ml-batch-limits"),
        ("NetworkPolicy", "ml-batch-default-deny"),
        ("PersistentVolumeClaim", "ml-batch-checkpoints"),
        ("Namespace", "ml-batch"),
    ],
)
def test_the_job_comes_after_and_goes_before_what_it_uses(dev: Any, type_: str, name: str) -> None:
    assert dev.reaches(dev.one("Job"), type_, name)


def test_everything_of_the_team_comes_after_its_namespace(dev: Any) -> None:
    inside = [r for r in dev.resources if r.inputs.get("metadata", {}).get("namespace") == "ml-batch"]
    assert len(inside) == 8
    assert all(dev.reaches(r, "Namespace", "ml-batch") for r in inside)


def test_checkpoints_and_their_namespace_outlive_a_destroy(dev: Any) -> None:
    assert {r.name for r in dev.resources if r.retained} == {"ml-batch", "ml-batch-checkpoints"}
    assert dev.one("PersistentVolumeClaim").retained and dev.one("Namespace", "ml-batch").retained


def test_what_outlives_a_destroy_is_written_under_one_name_so_that_it_can_be_taken_over(dev: Any) -> None:
    for resource in (dev.one("PersistentVolumeClaim"), dev.one("Namespace", "ml-batch")):
        assert resource.inputs["metadata"]["annotations"]["pulumi.com/patchFieldManager"] == "holdfast"


def test_disposable_checkpoints_go_with_their_team(program: Any) -> None:
    run = program(lambda c: c["holdfast:teams"][0]["checkpointStorage"].update(disposable=True))
    assert [r.name for r in run.resources if r.retained] == []


def test_the_claim_is_not_waited_for(dev: Any) -> None:
    assert (
        dev.one("PersistentVolumeClaim").inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    )


def test_the_job_is_the_planned_one_and_is_not_waited_for(dev: Any) -> None:
    job = dev.one("Job").inputs
    pod = job["spec"]["template"]["spec"]
    trainer = pod["containers"][0]
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == (
        "batch/v1",
        "Job",
        "training-run-001",
    )
    assert job["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert job["spec"]["backoffLimit"] == 2 and job["spec"]["podReplacementPolicy"] == "Failed"
    assert job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [75]
    assert pod["runtimeClassName"] == "nvidia" and pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert trainer["image"] == f"docker.io/holdfast/trainer@{DIGEST}"
    assert trainer["resources"]["limits"]["nvidia.com/gpu"] == "1"
    env = {item["name"]: item for item in trainer["env"]}
    assert env["HOLDFAST_NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_a_replaced_job_goes_before_the_new_one_comes(dev: Any) -> None:
    assert dev.one("Job").delete_before_replace is True


def test_the_removal_follows_the_job_that_really_exists(dev: Any) -> None:
    assert dev.one("JobRemoval").inputs == {
        "kubeconfig": "/state/kubeconfig",
        "context": "holdfast-rehearsal",
        "namespace": "ml-batch",
        "job": "training-run-001",
        "uid": "uid of ml-batch-run-001",
        "graceSeconds": 120,
        "kind": "Job",
    }


def test_a_cancelled_run_has_no_job_and_its_claim_stays(program: Any) -> None:
    run = program(lambda c: c["holdfast:runs"][0].update(cancelled=True))
    types = [r.kind for r in run.resources]
    assert "Job" not in types and "JobRemoval" not in types and "PersistentVolumeClaim" in types


def test_a_declared_attempt_is_a_new_job_in_the_same_place(program: Any) -> None:
    run = program(lambda c: c["holdfast:runs"][0].update(attempt=2))
    job = run.one("Job")
    assert (job.name, job.inputs["metadata"]["name"]) == ("ml-batch-run-001", "training-run-001-r2")


def test_several_teams_and_runs_do_not_meet(program: Any) -> None:
    def two(config: dict[str, Any]) -> None:
        team, first = config["holdfast:teams"][0], config["holdfast:runs"][0]
        config["holdfast:teams"].append({**team, "name": "vision", "group": "vision-engineers"})
        config["holdfast:runs"].append({**first, "team": "vision", "id": "run-002"})

    run = program(two)
    assert run.one("Job", "vision-run-002").inputs["metadata"]["namespace"] == "vision"
    assert not run.reaches(run.one("Job", "vision-run-002"), "Namespace", "ml-batch")


def test_a_preview_in_a_new_environment_runs_through_with_nothing_known(program: Any) -> None:
    run = program(preview=True)
    assert len(run.resources) == 24
    assert pulumi.contains_unknowns(run.one("GpuReadiness").inputs)


def test_the_outputs_say_what_a_person_needs_next(dev: Any) -> None:
    assert {"environment", "nodePools", "teams", "runs", "next"} <= set(dev.outputs)
    assert dev.outputs["runs"]["run-001"]["job"] == "training-run-001"


def test_a_broken_configuration_is_all_its_problems_and_no_resource(program: Any) -> None:
    def break_it(config: dict[str, Any]) -> None:
        config["holdfast:runs"][0]["image"] = "docker.io/holdfast/trainer:latest"
        config["holdfast:runz"] = []
        config["holdfast:teams"] = "ml-batch"

    with pytest.raises(pulumi.RunError) as error:
        program(break_it)
    text = str(error.value)
    assert "holdfast:runs[0].image" in text and "holdfast:runz" in text and "holdfast:teams" in text
    assert error.value.__suppress_context__ is True


def test_the_program_fits_on_one_page() -> None:
    assert len((ROOT / "__main__.py").read_text().splitlines()) < 60


def test_a_missing_chart_folder_is_told_with_its_setting(program: Any) -> None:
    chart = {"path": "./no-such-chart", "version": "1.0.0"}
    with pytest.raises(
        pulumi.RunError, match="holdfast:gpuOperator.chart.path = no-such-chart: there is no Helm chart"
    ):
        program(lambda c: c["holdfast:gpuOperator"].update(chart=chart))
