"""The stand-in makes from a ClusterPolicy what NVIDIA's controller v26.7.0 makes from it."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.gpu_operator.desired import Desired, Node, desired_state, judge, status
from rehearsal.gpu_operator.operands import HASH_ANNOTATION, Site

Json = dict[str, Any]
SITE = Site("gpu-operator", "docker.io/holdfast/x@sha256:" + "0" * 64, owner=("cluster-policy", "uid-1"))
NFD = {"feature.node.kubernetes.io/pci-10de.present": "true"}
GPU_NODES = [Node("gpu-0", NFD), Node("gpu-1", NFD)]
OFF = {"enabled": False}

DRIVER = "nvidia-driver-daemonset"
TOOLKIT = "nvidia-container-toolkit-daemonset"
PLUGIN = "nvidia-device-plugin-daemonset"
MPS = "nvidia-device-plugin-mps-control-daemon"
MIG = "nvidia-mig-manager"
ALWAYS = {"nvidia-dcgm-exporter", "gpu-feature-discovery", "nvidia-operator-validator"}
CDI = ["nvidia", "nvidia-cdi", "nvidia-legacy"]


def wish(spec: Json, nodes: list[Node] | None = None) -> Desired:
    return desired_state(spec, GPU_NODES if nodes is None else nodes, SITE)


def named(desired: Desired, name: str) -> Json:
    return next(one for one in desired.daemon_sets if one["metadata"]["name"] == name)


def pod(desired: Desired, name: str) -> Json:
    return named(desired, name)["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("spec", "daemon_sets", "classes"),
    [
        pytest.param({}, {DRIVER, TOOLKIT, PLUGIN, MPS, MIG}, CDI, id="chart defaults"),
        pytest.param({"driver": OFF, "toolkit": OFF}, {PLUGIN, MPS, MIG}, CDI, id="driver and toolkit off"),
        pytest.param(
            {"driver": OFF, "toolkit": OFF, "cdi": OFF},
            {PLUGIN, MPS, MIG},
            ["nvidia"],
            id="driver, toolkit and CDI off",
        ),
        pytest.param({"driver": OFF, "devicePlugin": OFF}, {TOOLKIT, MIG}, CDI, id="GKE managed"),
        pytest.param(
            {"driver": OFF, "toolkit": OFF, "devicePlugin": OFF, "migManager": OFF},
            set(),
            CDI,
            id="Bottlerocket",
        ),
        pytest.param(
            {"driver": OFF, "toolkit": OFF, "operator": {"runtimeClass": "nvidia-container-runtime"}},
            {PLUGIN, MPS, MIG},
            ["nvidia-container-runtime", "nvidia-cdi", "nvidia-legacy"],
            id="AKS",
        ),
    ],
)
def test_the_values_give_the_objects_of_the_table(
    spec: Json, daemon_sets: set[str], classes: list[str]
) -> None:
    desired = wish(spec)
    made = {one["metadata"]["name"] for one in desired.daemon_sets}
    assert made == daemon_sets | ALWAYS
    assert set(desired.retired) == {DRIVER, TOOLKIT, PLUGIN, MPS, MIG} - daemon_sets
    assert [(one["metadata"]["name"], one["handler"]) for one in desired.runtime_classes] == [
        (name, name) for name in classes
    ]


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        (DRIVER, "driver"),
        (TOOLKIT, "container-toolkit"),
        (PLUGIN, "device-plugin"),
        ("gpu-feature-discovery", "gpu-feature-discovery"),
        ("nvidia-dcgm-exporter", "dcgm-exporter"),
        ("nvidia-operator-validator", "operator-validator"),
        (MIG, "mig-manager"),
    ],
)
def test_an_operand_goes_only_to_nodes_with_its_deploy_label(name: str, selector: str) -> None:
    assert pod(wish({}), name)["nodeSelector"] == {f"nvidia.com/gpu.deploy.{selector}": "true"}


def test_mig_manager_and_mps_daemon_fit_no_node_until_one_is_labelled_for_them() -> None:
    desired = wish({})
    after = {**NFD, **{label: value or "" for label, value in desired.node_labels["gpu-0"].items()}}
    for name in (MIG, MPS):
        assert not pod(desired, name)["nodeSelector"].items() <= after.items()
    assert pod(desired, PLUGIN)["nodeSelector"].items() <= after.items()


def test_tolerations_reach_every_operand_and_replace_the_defaults() -> None:
    toleration = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    desired = wish({"daemonsets": {"tolerations": [toleration]}})
    assert len(desired.daemon_sets) == 8
    for one in desired.daemon_sets:
        assert one["spec"]["template"]["spec"]["tolerations"] == [toleration]


def test_only_driver_and_toolkit_run_without_the_runtime_class() -> None:
    desired = wish({"operator": {"runtimeClass": "special"}})
    classes = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"].get("runtimeClassName")
        for one in desired.daemon_sets
    }
    assert classes.pop(DRIVER) is None
    assert classes.pop(TOOLKIT) is None
    assert set(classes.values()) == {"special"}


def test_the_validator_has_the_four_steps_in_their_order() -> None:
    steps = [one["name"] for one in pod(wish({}), "nvidia-operator-validator")["initContainers"]]
    assert steps == ["driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"]


def test_the_validator_does_not_judge_a_device_plugin_that_is_not_the_operators() -> None:
    validator = pod(wish({"devicePlugin": OFF}), "nvidia-operator-validator")
    steps = [one["name"] for one in validator["initContainers"]]
    assert steps == ["driver-validation", "toolkit-validation", "cuda-validation"]


def test_the_device_plugin_waits_for_the_toolkit_and_reaches_the_kubelets_folder() -> None:
    plugin = pod(wish({}), PLUGIN)
    assert [one["name"] for one in plugin["initContainers"]] == ["toolkit-validation"]
    paths = {one["name"]: one["hostPath"]["path"] for one in plugin["volumes"]}
    assert paths["device-plugin"] == "/var/lib/kubelet/device-plugins"
    mounts = {one["name"]: one["mountPath"] for one in plugin["containers"][0]["volumeMounts"]}
    assert mounts["device-plugin"] == "/var/lib/kubelet/device-plugins"
    assert plugin["automountServiceAccountToken"] is False


def test_every_mount_of_every_operand_has_its_volume() -> None:
    for one in wish({}).daemon_sets:
        spec = one["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in [*spec["containers"], *spec["initContainers"]]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, container["name"]
            assert container["image"] == SITE.image


def test_the_plugin_validations_environment_comes_from_the_values() -> None:
    env = [{"name": "WITH_WORKLOAD", "value": "false"}]
    validator = pod(wish({"validator": {"plugin": {"env": env}}}), "nvidia-operator-validator")
    by_name = {one["name"]: one["env"] for one in validator["initContainers"]}
    assert env[0] in by_name["plugin-validation"]
    assert env[0] not in by_name["cuda-validation"]


def test_the_specs_labels_and_annotations_reach_the_pods_and_never_their_selector() -> None:
    spec = {"daemonsets": {"labels": {"app": "mine", "team": "ml"}, "annotations": {"note": "x"}}}
    made = named(wish(spec), PLUGIN)
    template = made["spec"]["template"]["metadata"]
    assert template["labels"]["team"] == "ml"
    assert template["annotations"] == {"note": "x"}
    assert made["spec"]["selector"]["matchLabels"].items() <= template["labels"].items()
    assert template["labels"]["app"] == PLUGIN


@pytest.mark.parametrize(("written", "meant"), [("1", 1), ("25%", "25%"), (2, 2)])
def test_the_charts_quoted_number_becomes_one_that_the_api_takes(
    written: str | int, meant: str | int
) -> None:
    made = named(wish({"daemonsets": {"rollingUpdate": {"maxUnavailable": written}}}), PLUGIN)
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == meant


def test_everything_belongs_to_the_cluster_policy_so_that_it_goes_with_it() -> None:
    desired = wish({})
    for one in [*desired.daemon_sets, *desired.runtime_classes]:
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("ClusterPolicy", "cluster-policy", "uid-1")
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "holdfast-rehearsal"


def test_the_hash_changes_with_the_content_and_only_with_it() -> None:
    hashes = [
        named(wish(spec), PLUGIN)["metadata"]["annotations"][HASH_ANNOTATION]
        for spec in ({}, {}, {"daemonsets": {"priorityClassName": "high"}})
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_without_a_gpu_node_no_daemon_set_is_made_but_the_runtime_classes_are() -> None:
    desired = wish({}, [Node("system-0", {"kubernetes.io/os": "linux"})])
    assert desired.daemon_sets == ()
    assert desired.retired == ()
    assert len(desired.runtime_classes) == 3


# --- labels ---


def test_a_gpu_node_gets_the_deploy_labels_of_switched_off_operands_too() -> None:
    labels = wish({"driver": OFF, "toolkit": OFF}).node_labels["gpu-0"]
    assert labels["nvidia.com/gpu.present"] == "true"
    assert labels["nvidia.com/gpu.deploy.driver"] == "true"
    assert labels["nvidia.com/gpu.deploy.container-toolkit"] == "true"


def test_a_node_that_is_labelled_already_is_left_alone() -> None:
    first = wish({}).node_labels["gpu-0"]
    done = Node("gpu-0", {**NFD, **{label: value or "" for label, value in first.items()}})
    assert wish({}, [done]).node_labels == {}


def test_a_deploy_label_that_a_person_set_to_false_stays_false() -> None:
    node = Node("gpu-0", {**NFD, "nvidia.com/gpu.deploy.device-plugin": "false"})
    assert "nvidia.com/gpu.deploy.device-plugin" not in wish({}, [node]).node_labels["gpu-0"]


def test_a_node_that_lost_its_gpus_loses_the_deploy_labels() -> None:
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true", "mine": "x"}
    node = Node("gpu-0", labels)
    assert wish({}, [node]).node_labels["gpu-0"] == {
        "nvidia.com/gpu.present": "false",
        "nvidia.com/gpu.deploy.driver": None,
    }


def test_a_node_with_operands_switched_off_keeps_no_deploy_label() -> None:
    labels = {"nvidia.com/gpu.deploy.operands": "false", "nvidia.com/gpu.deploy.driver": "true"}
    node = Node("gpu-0", {**NFD, **labels})
    assert wish({}, [node]).node_labels["gpu-0"] == {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.driver": None,
    }


# --- status ---


def live(desired: Desired, count: int, ready: int, seen: int = 1) -> dict[str, Json]:
    return {
        one["metadata"]["name"]: {
            "metadata": {"generation": 1},
            "status": {
                "observedGeneration": seen,
                "desiredNumberScheduled": count,
                "updatedNumberScheduled": count,
                "numberReady": ready,
            },
        }
        for one in desired.daemon_sets
    }


def test_zero_pods_on_zero_fitting_nodes_are_called_ready_as_the_real_controller_does() -> None:
    desired = wish({})
    verdict = judge(desired, live(desired, count=0, ready=0))
    assert (verdict.ready, verdict.reason) == (True, "Reconciled")
    assert "all resources have been successfully reconciled" in verdict.message


def test_a_daemon_set_with_fewer_ready_pods_than_desired_is_not_ready_and_named() -> None:
    desired = wish({"driver": OFF, "toolkit": OFF})
    there = live(desired, count=2, ready=2)
    there[PLUGIN]["status"]["numberReady"] = 1
    verdict = judge(desired, there)
    assert (verdict.ready, verdict.reason) == (False, "OperandNotReady")
    assert verdict.message == "ClusterPolicy is not ready, states not ready: [state-device-plugin]"


def test_a_daemon_set_that_nobody_looked_at_yet_is_not_ready() -> None:
    desired = wish({})
    assert not judge(desired, live(desired, count=0, ready=0, seen=0)).ready
    assert not judge(desired, {}).ready


def test_no_nfd_label_anywhere_is_ready_with_its_own_reason() -> None:
    assert judge(wish({}, [Node("a")]), {}).reason == "NFDLabelsMissing"


def test_nfd_labels_but_no_gpu_is_ready_with_its_own_reason() -> None:
    node = Node("a", {"feature.node.kubernetes.io/kernel-version.full": "6.1"})
    verdict = judge(wish({}, [node]), {})
    assert (verdict.ready, verdict.reason) == (True, "NoGPUNodes")


def test_a_conditions_time_moves_only_when_its_status_changes() -> None:
    desired = wish({})
    ready = judge(desired, live(desired, count=2, ready=2))
    waiting = judge(desired, live(desired, count=2, ready=1))
    first = status(ready, {}, "gpu-operator", "t1")
    again = status(ready, first, "gpu-operator", "t2")
    worse = status(waiting, again, "gpu-operator", "t3")
    assert again == first
    assert worse["state"] == "notReady"
    assert {one["type"]: (one["status"], one["lastTransitionTime"]) for one in worse["conditions"]} == {
        "Ready": ("False", "t3"),
        "Error": ("True", "t3"),
    }
