"""Pools of each kind in the whole program, against the recording engine."""

from __future__ import annotations

from typing import Any

import pytest

GKE = {
    "cluster": "training",
    "location": "us-central1-a",
    "version": "1.33.5-gke.1201000",
    "machineType": "g2-standard-8",
    "serviceAccount": "gpu-nodes@acme-ml.iam.gserviceaccount.com",
    "maxNodes": 4,
}


def _on_gke(**changes: Any) -> Any:
    def change(config: dict[str, Any]) -> None:
        config["holdfast:nodePools"] = [
            {"name": "gpu", "kind": "gke", "gke": GKE | changes, "labels": {"pool": "gpu"}}
        ]
        # The stand-in chart is for the rehearsal's nodes.
        config["holdfast:gpuOperator"] = {}

    return change


@pytest.fixture(scope="module")
def gke(program: Any) -> Any:
    """One run of the program with a pool on GKE for all tests that only look."""
    return program(_on_gke())


def test_a_pool_on_gke_is_one_node_pool_of_the_provider_with_the_planned_arguments(gke: Any) -> None:
    pool = gke.one("NodePool")
    assert (pool.type, pool.parent) == ("gcp:container/nodePool:NodePool", "GkeGpuNodePool gpu")
    assert pool.inputs["nodeConfig"]["guestAccelerators"] == [
        {"type": "nvidia-l4", "count": 1, "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"}}
    ]
    assert pool.inputs["autoscaling"] == {
        "totalMinNodeCount": 0,
        "totalMaxNodeCount": 4,
        "locationPolicy": "BALANCED",
    }
    assert pool.delete_before_replace
    assert [r for r in gke.resources if r.kind == "NodePoolMembership"] == []


def test_its_nodes_are_found_by_their_labels_and_the_operator_comes_after_it(gke: Any) -> None:
    (pool,) = gke.one("GpuReadiness").inputs["expectation"]["pools"]
    assert (pool["matchLabels"], pool["minNodes"]) == ({"pool": "gpu"}, 0)
    assert "nodes" not in pool
    assert gke.reaches(gke.one("Release", "gpu-operator"), "NodePool", "gpu")


def test_the_operators_namespace_on_gke_has_a_quota_for_critical_pods_before_the_release(gke: Any) -> None:
    quota = gke.one("ResourceQuota", "gpu-operator-critical-pods")
    assert (quota.inputs["metadata"]["name"], quota.inputs["metadata"]["namespace"]) == (
        "critical-pods",
        "gpu-operator",
    )
    assert quota.inputs["spec"] == {
        "hard": {"pods": str(4 * 16 + 50)},
        "scopeSelector": {
            "matchExpressions": [
                {
                    "operator": "In",
                    "scopeName": "PriorityClass",
                    "values": ["system-node-critical", "system-cluster-critical"],
                }
            ]
        },
    }
    assert gke.reaches(gke.one("Release", "gpu-operator"), "ResourceQuota", "gpu-operator-critical-pods")


def test_a_verified_pool_writes_nothing_and_a_changed_kind_keeps_its_nodes(program: Any) -> None:
    run = program(lambda c: c["holdfast:nodePools"][0].update(kind="existing"))
    membership = run.one("NodePoolMembership")
    assert membership.parent == "ExistingGpuNodePool gpu"
    assert membership.inputs["verify"] == ["labels", "taint"]
    assert run.one("ExistingGpuNodePool").aliases == ("holdfast:nodepools:SelfManagedGpuNodePool",)


def test_the_reason_of_an_override_is_on_the_operators_namespace(program: Any) -> None:
    override = {"reason": "The rehearsal's image has another toolkit.", "layers": {"toolkit": "our image"}}
    run = program(lambda c: c["holdfast:nodePools"][0].update(override=override))
    metadata = run.one("Namespace", "gpu-operator").inputs["metadata"]
    assert metadata["annotations"] == {"holdfast.dev/ownership-override": override["reason"]}
    assert run.outputs["nodePools"]["gpu"]["override"] == override


def test_an_operator_that_is_there_already_is_left_alone_and_waited_for(program: Any) -> None:
    run = program(
        lambda c: c.update({"holdfast:gpuOperator": {"install": "existing", "namespace": "nvidia"}})
    )
    made = {(r.kind, r.name) for r in run.resources if r.parent == "GpuOperator gpu-operator"}
    assert made == {("GpuReadiness", "gpu-operator-ready")}
    readiness = run.one("GpuReadiness")
    assert (readiness.inputs["namespace"], readiness.inputs["triggers"]) == ("nvidia", {})
    expectation = readiness.inputs["expectation"]
    # What its owner may have turned off is not asked for; what the pools' row needs is.
    assert expectation["daemonSets"] == ["nvidia-device-plugin-daemonset", "nvidia-operator-validator"]
    assert "nvidia-driver-daemonset" in expectation["absentDaemonSets"]
    assert expectation["nfdDaemonSets"] == []
    assert run.reaches(readiness, "NodePoolMembership", "gpu")
    assert run.reaches(run.one("Job"), "GpuReadiness", "gpu-operator-ready")
