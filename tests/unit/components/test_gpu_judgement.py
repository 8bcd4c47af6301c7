"""Ready or not: one healthy cluster as API objects, and what each departure from it is told as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from components.cluster_resources.gpu_judgement import (
    DEVICE_PLUGIN,
    NFD_WORKER,
    VALIDATOR,
    Expectation,
    PoolExpectation,
    judge,
    tolerates,
)
from components.cluster_resources.gpu_snapshot import snapshot_of

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
POOL = PoolExpectation("gpu", ("gpu-0", "gpu-1"), 1, TAINT)
EXPECTED = Expectation(
    pools=(POOL,),
    runtime_classes=("nvidia",),
    absent_daemonsets=("nvidia-driver-daemonset",),
)

World = dict[str, Any]


def a_node(name: str) -> World:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.deploy.device-plugin": "true"}},
        "spec": {"taints": [TAINT]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"nvidia.com/gpu": "1"},
            "allocatable": {"nvidia.com/gpu": "1"},
        },
    }


def a_daemonset(name: str, selector: dict[str, str] | None = None) -> World:
    return {
        "metadata": {"name": name, "generation": 2},
        "spec": {"template": {"spec": {"tolerations": [TOLERATION], "nodeSelector": selector or {}}}},
        "status": {"observedGeneration": 2, "desiredNumberScheduled": 2, "numberReady": 2},
    }


def a_pod(name: str, controller: str, node: str) -> World:
    return {
        "metadata": {"name": name, "ownerReferences": [{"name": controller, "controller": True}]},
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
def world() -> World:
    """The real controller's objects when all is well."""
    daemonsets = [
        a_daemonset(VALIDATOR),
        a_daemonset(NFD_WORKER),
        a_daemonset(DEVICE_PLUGIN, {"nvidia.com/gpu.deploy.device-plugin": "true"}),
    ]
    return {
        "nodes": [a_node("gpu-0"), a_node("gpu-1")],
        "daemonsets": daemonsets,
        "deployments": [
            {
                "metadata": {"name": "gpu-operator", "generation": 1},
                "spec": {"replicas": 1},
                "status": {
                    "observedGeneration": 1,
                    "replicas": 1,
                    "updatedReplicas": 1,
                    "availableReplicas": 1,
                },
            }
        ],
        "pods": [
            a_pod(f"{d['metadata']['name']}-{n}", d["metadata"]["name"], n)
            for d in daemonsets
            for n in POOL.nodes
        ],
        "runtime_classes": [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}],
        "cluster_policy": {
            "status": {
                "state": "ready",
                "conditions": [{"type": "Ready", "status": "True", "reason": "Reconciled"}],
            }
        },
    }


def told(world: World, expectation: Expectation = EXPECTED) -> str:
    verdict = judge(snapshot_of(**world), expectation)
    return "\n".join((*(f"FAULT {fault}" for fault in verdict.faults), *verdict.waiting))


def find(world: World, kind: str, name: str) -> World:
    return next(item for item in world[kind] if item["metadata"]["name"] == name)


def without_pods(world: World, controller: str) -> None:
    world["pods"] = [p for p in world["pods"] if p["metadata"]["ownerReferences"][0]["name"] != controller]


def test_a_healthy_stack_is_ready(world: World) -> None:
    assert told(world) == ""
    assert judge(snapshot_of(**world), EXPECTED).ready is True


def test_an_untolerated_pool_taint_is_a_fault_though_the_policy_says_ready(world: World) -> None:
    """Seen on a real controller: every DaemonSet has 0 desired, state ready, reason Reconciled."""
    plugin = find(world, "daemonsets", DEVICE_PLUGIN)
    plugin["spec"]["template"]["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    plugin["status"].update(desiredNumberScheduled=0, numberReady=0)
    without_pods(world, DEVICE_PLUGIN)
    text = told(world)
    assert (
        f"FAULT DaemonSet {DEVICE_PLUGIN} does not tolerate the taint dedicated=gpu:NoSchedule of pool gpu"
        in text
    )
    assert (
        "{key: dedicated, operator: Equal, value: gpu, effect: NoSchedule} to the chart value "
        "daemonsets.tolerations" in text
    )


def test_all_operands_that_lack_the_one_list_s_toleration_are_one_fault(world: World) -> None:
    for name in (DEVICE_PLUGIN, VALIDATOR):
        find(world, "daemonsets", name)["spec"]["template"]["spec"]["tolerations"] = []
    faults = judge(snapshot_of(**world), EXPECTED).faults
    assert len(faults) == 1
    assert faults[0].startswith("DaemonSets ") and DEVICE_PLUGIN in faults[0] and VALIDATOR in faults[0]


def test_an_untolerating_feature_discovery_names_its_own_chart_value(world: World) -> None:
    find(world, "daemonsets", NFD_WORKER)["spec"]["template"]["spec"]["tolerations"] = []
    assert "the chart value node-feature-discovery.worker.tolerations" in told(world)


def test_a_toleration_of_another_value_does_not_help(world: World) -> None:
    spec = find(world, "daemonsets", VALIDATOR)["spec"]["template"]["spec"]
    spec["tolerations"] = [{**TOLERATION, "value": "gpus"}]
    assert f"FAULT DaemonSet {VALIDATOR} does not tolerate" in told(world)


def test_a_pool_without_nodes_is_a_fault(world: World) -> None:
    empty = Expectation(pools=(PoolExpectation("gpu", (), 1, TAINT),))
    assert "FAULT Pool gpu has no node" in told(world, empty)


def test_a_second_owner_of_the_driver_is_a_fault(world: World) -> None:
    world["daemonsets"].append(a_daemonset("nvidia-driver-daemonset"))
    assert "FAULT DaemonSet nvidia-driver-daemonset exists, but the table of owners" in told(world)


def test_a_wrong_number_of_gpus_in_the_configuration_is_a_fault_that_names_the_right_one(
    world: World,
) -> None:
    find(world, "nodes", "gpu-0")["status"].update(
        capacity={"nvidia.com/gpu": "8"}, allocatable={"nvidia.com/gpu": "8"}
    )
    assert (
        "FAULT Node gpu-0 has 8 nvidia.com/gpu, and pool gpu says gpusPerNode: 1. Write gpusPerNode: 8"
        in told(world)
    )


def image_pull(world: World) -> None:
    pod = find(world, "pods", f"{VALIDATOR}-gpu-1")
    pod["status"] = {
        "containerStatuses": [
            {
                "name": "validator",
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling nvcr.io/x"}},
            }
        ]
    }


def no_handler(world: World) -> None:
    find(world, "pods", f"{DEVICE_PLUGIN}-gpu-0")["status"] = {}
    about = {"kind": "Pod", "name": f"{DEVICE_PLUGIN}-gpu-0"}
    world["events"] = [
        {
            "metadata": {},
            "involvedObject": about,
            "reason": "Older",
            "message": "x",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        },
        {
            "metadata": {},
            "involvedObject": about,
            "reason": "FailedCreatePodSandBox",
            "lastTimestamp": "2026-01-01T00:01:00Z",
            "message": 'failed to get sandbox runtime: no runtime for "nvidia" is configured',
        },
    ]


def unlabelled(world: World) -> None:
    find(world, "nodes", "gpu-0")["metadata"]["labels"] = {}
    world["pods"] = [p for p in world["pods"] if p["metadata"]["name"] != f"{DEVICE_PLUGIN}-gpu-0"]


def maintenance(world: World) -> None:
    find(world, "nodes", "gpu-0")["spec"]["taints"].append({"key": "maintenance", "effect": "NoSchedule"})
    world["pods"] = [p for p in world["pods"] if p["metadata"]["name"] != f"{VALIDATOR}-gpu-0"]


def refused_pods(world: World) -> None:
    without_pods(world, VALIDATOR)
    world["events"] = [
        {
            "metadata": {},
            "involvedObject": {"kind": "DaemonSet", "name": VALIDATOR},
            "reason": "FailedCreate",
            "message": "violates PodSecurity",
        }
    ]


def stale(world: World) -> None:
    find(world, "daemonsets", VALIDATOR)["metadata"]["generation"] = 3


def policy(state: str, status: str, reason: str, message: str = "") -> Callable[[World], None]:
    def change(world: World) -> None:
        condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
        world["cluster_policy"] = {"status": {"state": state, "conditions": [condition]}}

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (image_pull, "validator: ImagePullBackOff: Back-off pulling nvcr.io/x"),
        (
            no_handler,
            'FailedCreatePodSandBox: failed to get sandbox runtime: no runtime for "nvidia" is configured',
        ),
        (unlabelled, "gpu-0: not labelled nvidia.com/gpu.deploy.device-plugin=true by the operator"),
        (maintenance, "gpu-0: its taint maintenance:NoSchedule is not tolerated"),
        (refused_pods, "FailedCreate: violates PodSecurity"),
        (
            stale,
            f"DaemonSet {VALIDATOR} has a ready Pod on 2 of 2 nodes of pool gpu (its controller has not "
            "counted",
        ),
        (policy("ready", "True", "NoGPUNodes"), "ClusterPolicy is ready (NoGPUNodes)."),
        (policy("ready", "True", "NFDLabelsMissing"), "ClusterPolicy is ready (NFDLabelsMissing)."),
        (
            policy("notReady", "False", "OperandNotReady", "state-driver"),
            "ClusterPolicy is notReady (OperandNotReady: state-driver).",
        ),
        (lambda w: w.update(cluster_policy=None), "ClusterPolicy does not exist yet."),
        (lambda w: w.update(runtime_classes=[]), "RuntimeClass nvidia does not exist yet."),
        (lambda w: w.update(deployments=[]), "Deployment gpu-operator does not exist yet."),
        (
            lambda w: w["deployments"][0]["metadata"].update(generation=2),
            "Deployment gpu-operator has 0 of 1 Pods available",
        ),
        (
            lambda w: w["deployments"][0]["status"].update(replicas=2),
            "Deployment gpu-operator has 0 of 1 Pods available",
        ),
        (lambda w: w.update(daemonsets=[]), f"DaemonSet {DEVICE_PLUGIN} does not exist yet."),
        (lambda w: w["nodes"].pop(), "Node gpu-1 of pool gpu is not in the cluster."),
        (
            lambda w: w["nodes"][0]["status"].update(
                conditions=[
                    {
                        "type": "Ready",
                        "status": "Unknown",
                        "reason": "NodeStatusUnknown",
                        "message": "Kubelet stopped posting",
                    },
                ]
            ),
            "Node gpu-0 is not Ready (NodeStatusUnknown: Kubelet stopped posting).",
        ),
        (
            lambda w: w["nodes"][0]["status"].update(capacity={}, allocatable={}),
            "Node gpu-0 offers 0 nvidia.com/gpu, expected 1.",
        ),
        (
            lambda w: w["nodes"][0]["status"].update(allocatable={"nvidia.com/gpu": "0"}),
            "Node gpu-0 offers 0 of its 1",
        ),
    ],
)
def test_what_may_still_come_is_waited_for_and_told(
    world: World, change: Callable[[World], Any], sentence: str
) -> None:
    change(world)
    text = told(world)
    assert sentence in text and "FAULT" not in text


def test_another_gpu_node_outside_the_pools_does_not_matter(world: World) -> None:
    """Ready is asked of the pools' nodes: a broken foreign node is somebody else's."""
    find(world, "daemonsets", DEVICE_PLUGIN)["status"].update(desiredNumberScheduled=3)
    assert told(world) == ""


def test_a_cordon_does_not_keep_a_daemonset_away(world: World) -> None:
    find(world, "nodes", "gpu-0")["spec"]["taints"].append(
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    )
    assert told(world) == ""


def test_a_platform_without_runtime_class_operator_plugin_or_nfd_asks_for_none(world: World) -> None:
    world.update(runtime_classes=[])
    world["daemonsets"] = [find(world, "daemonsets", VALIDATOR)]
    managed = Expectation(pools=(POOL,), daemonsets=(VALIDATOR,), nfd_daemonsets=())
    assert told(world, managed) == ""


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "value": "gpu"}, True),
        ({"key": "dedicated", "value": "other"}, False),
        ({"key": "dedicated"}, False),
        ({"value": "gpu"}, False),
    ],
)
def test_tolerations_match_as_kubernetes_matches_them(toleration: dict[str, str], expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def autoscaled(min_nodes: int, labels: dict[str, str] | None = None) -> Expectation:
    pool = PoolExpectation("gpu", (), 1, TAINT, labels or {"pool": "gpu"}, min_nodes)
    return Expectation(pools=(pool,), runtime_classes=("nvidia",))


@pytest.mark.parametrize("reason", ["NoGPUNodes", "NFDLabelsMissing"])
def test_a_pool_that_may_be_empty_is_ready_without_nodes_and_daemonsets_and_that_is_told(
    world: World, reason: str
) -> None:
    """Without a GPU node the controller makes RuntimeClasses only, and so says these reasons."""
    world.update(nodes=[], daemonsets=[], pods=[])
    world["cluster_policy"]["status"]["conditions"][0]["reason"] = reason
    verdict = judge(snapshot_of(**world), autoscaled(0))
    assert verdict.ready
    assert verdict.notes == (
        "Pool gpu has no node now and needs none at least, so its GPUs are proved when the first run brings one.",
    )


def test_an_empty_pool_still_needs_the_runtime_class_of_its_jobs(world: World) -> None:
    """A Pod whose class does not exist is never created, so no autoscaler would ever see it wait."""
    world.update(nodes=[], daemonsets=[], pods=[], runtime_classes=[])
    assert told(world, autoscaled(0)) == "RuntimeClass nvidia does not exist yet."


def test_a_pool_with_fewer_nodes_than_it_must_have_is_waited_for(world: World) -> None:
    world["nodes"][0]["metadata"]["labels"]["pool"] = "gpu"
    assert told(world, autoscaled(2)) == "Pool gpu has 1 of at least 2 nodes (labels pool=gpu)."
    world.update(nodes=[])
    assert told(world, autoscaled(2)) == "Pool gpu has 0 of at least 2 nodes (labels pool=gpu)."


def test_nodes_that_an_autoscaler_brought_are_judged_as_all_others(world: World) -> None:
    for node in world["nodes"]:
        node["metadata"]["labels"]["pool"] = "gpu"
    assert told(world, autoscaled(0)) == ""
    world["nodes"][1]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    assert "Node gpu-1 offers 0 of its 1 nvidia.com/gpu" in told(world, autoscaled(0))


def test_a_pool_with_nodes_is_never_ready_by_what_a_controller_without_gpus_says(world: World) -> None:
    world["nodes"][0]["metadata"]["labels"]["pool"] = "gpu"
    world["cluster_policy"]["status"]["conditions"][0]["reason"] = "NoGPUNodes"
    assert "ClusterPolicy is ready (NoGPUNodes)." in told(world, autoscaled(0))
