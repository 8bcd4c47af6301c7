"""The controller against an API server: what it makes, keeps, removes and reports."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.gpu_operator.controller import Controller
from rehearsal.gpu_operator.kube import ApiError

NFD = {"feature.node.kubernetes.io/pci-10de.present": "true"}
POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
DAEMON_SETS = "/apis/apps/v1/namespaces/gpu-operator/daemonsets"


def policy(name: str = "cluster-policy", made: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": made}, "spec": spec}


def controller(api_server: Any) -> Controller:
    return Controller(api_server.client(), "gpu-operator", "docker.io/holdfast/x@sha256:" + "0" * 64)


def below(api_server: Any, folder: str) -> set[str]:
    return {path.removeprefix(folder + "/") for path in api_server.objects if path.startswith(folder + "/")}


def all_pods_run(api_server: Any, count: int) -> None:
    for name in below(api_server, DAEMON_SETS):
        made = api_server.objects[f"{DAEMON_SETS}/{name}"]
        made["status"] = {
            "observedGeneration": made["metadata"]["generation"],
            "desiredNumberScheduled": count,
            "updatedNumberScheduled": count,
            "numberReady": count,
        }


def test_from_a_policy_to_ready_in_three_looks(api_server: Any) -> None:
    api_server.add_node("gpu-0", **NFD)
    api_server.add_node("system-0")
    api_server.objects[POLICY] = policy(driver={"enabled": False}, toolkit={"enabled": False})
    operator = controller(api_server)

    assert not operator.reconcile()
    assert api_server.labels("gpu-0")["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert api_server.labels("system-0") == {}
    assert "nvidia-device-plugin-daemonset" in below(api_server, DAEMON_SETS)
    assert "nvidia-driver-daemonset" not in below(api_server, DAEMON_SETS)
    assert api_server.objects[POLICY]["status"]["state"] == "notReady"

    all_pods_run(api_server, count=1)
    assert operator.reconcile()
    status = api_server.objects[POLICY]["status"]
    assert status["state"] == "ready"
    assert [one["reason"] for one in status["conditions"]] == ["Reconciled", "Ready"]

    api_server.requests.clear()
    assert operator.reconcile()
    assert {method for method, _ in api_server.requests} == {"GET"}, "a settled cluster is only read"


def test_an_operand_switched_off_later_is_removed_with_its_classes(api_server: Any) -> None:
    api_server.add_node("gpu-0", **NFD)
    api_server.objects[POLICY] = policy()
    operator = controller(api_server)
    operator.reconcile()
    assert below(api_server, CLASSES) == {"nvidia", "nvidia-cdi", "nvidia-legacy"}

    api_server.objects[POLICY]["spec"] = {"driver": {"enabled": False}, "cdi": {"enabled": False}}
    operator.reconcile()
    assert "nvidia-driver-daemonset" not in below(api_server, DAEMON_SETS)
    assert below(api_server, CLASSES) == {"nvidia"}


def test_a_changed_spec_is_applied_to_the_daemon_sets_that_it_changes(api_server: Any) -> None:
    api_server.add_node("gpu-0", **NFD)
    api_server.objects[POLICY] = policy()
    operator = controller(api_server)
    operator.reconcile()
    api_server.objects[POLICY]["spec"] = {"gfd": {"env": [{"name": "A", "value": "B"}]}}
    operator.reconcile()
    generations = {
        name: api_server.objects[f"{DAEMON_SETS}/{name}"]["metadata"]["generation"]
        for name in below(api_server, DAEMON_SETS)
    }
    assert {name for name, generation in generations.items() if generation == 2} == {"gpu-feature-discovery"}


def test_somebody_elses_runtime_class_is_neither_taken_over_nor_deleted(api_server: Any) -> None:
    foreign = {"metadata": {"name": "nvidia", "labels": {}}, "handler": "nvidia"}
    api_server.objects[f"{CLASSES}/nvidia"] = foreign
    api_server.objects[f"{CLASSES}/gvisor"] = {"metadata": {"name": "gvisor"}, "handler": "runsc"}
    api_server.objects[POLICY] = policy(cdi={"enabled": False})
    controller(api_server).reconcile()
    assert api_server.objects[f"{CLASSES}/nvidia"] == foreign
    assert below(api_server, CLASSES) == {"nvidia", "gvisor"}


def test_somebody_elses_daemon_set_in_the_namespace_is_not_touched(api_server: Any) -> None:
    foreign = {"metadata": {"name": "nvidia-driver-daemonset", "labels": {"app": "theirs"}}}
    api_server.objects[f"{DAEMON_SETS}/nvidia-driver-daemonset"] = foreign
    api_server.objects[POLICY] = policy(driver={"enabled": False})
    controller(api_server).reconcile()
    assert api_server.objects[f"{DAEMON_SETS}/nvidia-driver-daemonset"] == foreign


def test_a_second_policy_is_ignored(api_server: Any) -> None:
    api_server.objects[POLICY] = policy(made="2026-01-02T00:00:00Z")
    older = "/apis/nvidia.com/v1/clusterpolicies/older"
    api_server.objects[older] = policy(name="older", made="2026-01-01T00:00:00Z")
    controller(api_server).reconcile()
    assert api_server.objects[POLICY]["status"]["state"] == "ignored"
    assert api_server.objects[older]["status"]["state"] == "ready"


def test_nothing_is_made_for_a_policy_that_is_being_deleted_or_is_not_there(api_server: Any) -> None:
    api_server.add_node("gpu-0", **NFD)
    operator = controller(api_server)
    assert not operator.reconcile()
    api_server.objects[POLICY] = policy()
    api_server.objects[POLICY]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    assert not operator.reconcile()
    assert below(api_server, DAEMON_SETS) == below(api_server, CLASSES) == set()


def test_a_refusal_of_the_api_server_is_an_error_that_the_loop_survives(api_server: Any) -> None:
    api_server.objects[POLICY] = policy()
    operator = controller(api_server)
    api_server.refuse_next.append(503)
    with pytest.raises(ApiError, match=r"not now \(HTTP 503\)"):
        operator.reconcile()
    operator.reconcile()
    assert api_server.objects[POLICY]["status"]["state"] == "ready"


def test_a_connection_that_the_server_closed_is_opened_again(api_server: Any) -> None:
    kube = api_server.client()
    kube.get("/api/v1/nodes")
    assert kube._connection is not None and kube._connection.sock is not None
    kube._connection.sock.shutdown(2)
    assert kube.get("/api/v1/nodes") == {"items": []}
