"""Driver, toolkit, device plugin and NFD have one owner each."""

import pytest
from rules.charts import base_name
from rules.daemonsets import repository

RULE = "single-gpu-stack-owner"
RELEASE = "kubernetes:helm.sh/v3:Release"
CHART4 = "kubernetes:helm.sh/v4:Chart"
DAEMONSET = "kubernetes:apps/v1:DaemonSet"
POLICY = "kubernetes:nvidia.com/v1:ClusterPolicy"
PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
HOST_HAS_ALL = {"driver": {"enabled": False}, "toolkit": {"enabled": False}}


def operator(example, values=None, name="gpu-operator", chart="gpu-operator", **more):
    props = {"chart": chart, "namespace": "gpu-operator"}
    if values is not None:
        props["values"] = values
    return example(RELEASE, props, name, **more)


def test_one_operator_alone_passes(judge, example):
    assert judge.stack(operator(example)).violations == []
    assert judge.stack(operator(example, HOST_HAS_ALL)).violations == []


@pytest.mark.parametrize(
    "chart",
    [
        "gpu-operator",
        "nvidia/gpu-operator",
        "oci://registry.example/charts/gpu-operator",
        "oci://registry.example:5000/charts/gpu-operator:v26.7.0",
        "./rehearsal/charts/gpu-operator-rehearsal",
        "/srv/charts/gpu-operator-v26.7.0.tgz",
        "https://helm.ngc.nvidia.com/nvidia/charts/gpu-operator-v26.7.0.tgz",
    ],
)
def test_two_operators_are_refused_wherever_the_chart_comes_from(judge, example, chart):
    verdict = judge.stack(operator(example), operator(example, name="renamed", chart=chart))
    (message,) = [m for m in verdict.of(RULE) if "GPU Operators" in m]
    assert (
        "2 GPU Operators are installed on one cluster: Release 'gpu-operator' and Release 'renamed'"
        in message
    )


def test_a_vendored_copy_is_known_by_its_values(judge, example):
    copy = example(RELEASE, {"chart": "./vendor/nv", "values": {"driver": {}, "toolkit": {}}}, "copy")
    assert "2 GPU Operators" in judge.stack(operator(example), copy).of(RULE)[0]


def test_an_umbrella_chart_with_the_operator_inside_counts(judge, example):
    umbrella = example(
        RELEASE, {"chart": "platform", "values": {"gpu-operator": {"driver": {"enabled": True}}}}, "all"
    )
    assert "2 GPU Operators" in judge.stack(operator(example), umbrella).of(RULE)[0]
    off = example(RELEASE, {"chart": "platform", "values": {"gpu-operator": {"enabled": False}}}, "all")
    assert judge.stack(operator(example), off).of(RULE) == []


def test_the_operator_of_another_vendor_is_no_second_one(judge, example):
    amd = example(RELEASE, {"chart": "rocm/gpu-operator-charts"}, "amd")
    assert judge.stack(operator(example, {"nfd": {"enabled": False}}), amd).of(RULE) == []


def test_operators_of_two_clusters_are_no_clash(judge, example):
    one, two = operator(example, provider="east"), operator(example, name="b", provider="west")
    assert judge.stack(one, two).of(RULE) == []


def test_a_chart_component_belongs_to_the_cluster_of_its_children(judge, example):
    # The engine gives components no provider of their own.
    chart = example(CHART4, {"chart": "gpu-operator"}, "by-chart")
    child = example("kubernetes:apps/v1:Deployment", {}, "child", parent="by-chart", provider="east")
    assert judge.stack(chart, child, operator(example, provider="west")).of(RULE) == []
    assert "2 GPU Operators" in judge.stack(chart, child, operator(example, provider="east")).of(RULE)[0]


def test_an_operator_by_chart_component_is_one_installation(judge, example, build):
    chart = example(CHART4, {}, "gpu-operator")
    policy = example(POLICY, {"spec": {"driver": {"enabled": True}}}, "cluster-policy", parent="gpu-operator")
    nfd = build.daemonset(
        "gpu-operator-node-feature-discovery-worker", "registry.k8s.io/nfd/node-feature-discovery:v1"
    )
    worker = example(DAEMONSET, nfd, "worker", parent="gpu-operator")
    assert judge.stack(chart, policy, worker).of(RULE) == []
    assert "2 GPU Operators" in judge.stack(chart, policy, operator(example, name="second")).of(RULE)[0]
    visible = example(CHART4, {"chart": "gpu-operator", "values": {}}, "gpu-operator")
    assert judge.stack(visible, policy, worker).of(RULE) == []


def test_a_cluster_policy_beside_a_release_is_a_second_one_unless_the_chart_leaves_it_out(judge, example):
    policy = example(POLICY, {"spec": {}}, "cluster-policy")
    assert "2 GPU Operators" in judge.stack(operator(example), policy).of(RULE)[0]
    left_out = operator(example, {"clusterPolicy": {"deployCR": False}})
    assert judge.stack(left_out, policy).of(RULE) == []


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("nvidia-driver-installer", "gcr.io/gke-release/pause:1"),
        ("x", "cos-nvidia-installer:fixed"),
        ("x", "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"),
        ("nvidia-driver-daemonset", "registry.example/mirror:1"),
    ],
)
def test_a_driver_installer_beside_the_operators_driver_is_refused(judge, example, build, name, image):
    installer = example(DAEMONSET, build.daemonset(name, image), "installer")
    (message,) = judge.stack(operator(example), installer).of(RULE)
    assert "the NVIDIA driver has 2 owners: Release 'gpu-operator' and DaemonSet 'installer'" in message
    assert "Set driver.enabled=false" in message
    assert judge.stack(operator(example, {"driver": {"enabled": False}}), installer).of(RULE) == []


@pytest.mark.parametrize(
    "plugin",
    [
        ("DaemonSet", "nvidia-device-plugin-daemonset", "registry.example/copy:1"),
        (
            "DaemonSet",
            "nvidia-gpu-device-plugin",
            "gke.gcr.io/nvidia-gpu-device-plugin@sha256:" + "ab" * 32,
        ),
        ("DaemonSet", "x", PLUGIN_IMAGE),
        ("Release", "nvidia-device-plugin", "nvdp/nvidia-device-plugin"),
        ("Release", "x", "oci://ghcr.io/charts/nvidia-device-plugin"),
        ("Release", "x", "hami-charts/hami"),
        ("Release", "x", "nvidia-dra-driver-gpu"),
    ],
)
def test_a_second_device_plugin_is_refused(judge, example, build, plugin):
    kind, name, source = plugin
    other = (
        example(DAEMONSET, build.daemonset(name, source), "plugin")
        if kind == "DaemonSet"
        else example(RELEASE, {"chart": source}, "plugin")
    )
    (message,) = judge.stack(operator(example), other).of(RULE)
    assert f"the device plugin has 2 owners: Release 'gpu-operator' and {kind} 'plugin'" in message
    assert judge.stack(operator(example, {"devicePlugin": {"enabled": False}}), other).of(RULE) == []
    assert judge.stack(other).of(RULE) == []


def test_a_plugin_is_known_by_the_folder_it_mounts(judge, example, build):
    volumes = [{"name": "p", "hostPath": {"path": "/var/lib/kubelet/device-plugins/"}}]
    other = build.daemonset("mine", "registry.example/nvidia/plugin-fork:1", volumes=volumes)
    assert (
        "device plugin has 2 owners"
        in judge.stack(operator(example), example(DAEMONSET, other, "x")).of(RULE)[0]
    )
    network = build.daemonset(
        "rdma", "nvcr.io/nvidia/cloud-native/k8s-rdma-shared-dev-plugin:1", volumes=volumes
    )
    assert judge.stack(operator(example), example(DAEMONSET, network, "x")).of(RULE) == []


@pytest.mark.parametrize("program", ["gpu-feature-discovery", "mps-control-daemon"])
def test_other_programs_of_the_plugins_image_own_nothing(judge, example, build, program):
    other = build.daemonset("gpu-extras", PLUGIN_IMAGE)
    other["spec"]["template"]["spec"]["containers"][0]["command"] = [program]
    assert judge.stack(operator(example), example(DAEMONSET, other, "x")).of(RULE) == []


def test_a_second_toolkit_is_refused(judge, example, build):
    other = build.daemonset(
        "nvidia-container-toolkit-daemonset", "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0"
    )
    assert (
        "container toolkit has 2 owners"
        in judge.stack(operator(example), example(DAEMONSET, other, "x")).of(RULE)[0]
    )


@pytest.mark.parametrize(
    "chart", ["node-feature-discovery", "oci://x/charts/node-feature-discovery", "network-operator"]
)
def test_a_second_nfd_is_refused(judge, example, chart):
    other = example(RELEASE, {"chart": chart}, "second")
    (message,) = judge.stack(operator(example), other).of(RULE)
    assert "the NFD has 2 owners" in message and "nfd.enabled=false" in message
    assert judge.stack(operator(example, {"nfd": {"enabled": False}}), other).of(RULE) == []


def test_two_nfd_releases_are_refused_without_any_operator(judge, example):
    one = example(RELEASE, {"chart": "node-feature-discovery"}, "one")
    two = example(RELEASE, {"chart": "nfd/node-feature-discovery"}, "two")
    assert "the NFD has 2 owners: Release 'one' and Release 'two'" in judge.stack(one, two).of(RULE)[0]


def test_two_plugins_that_never_meet_on_a_node_are_no_clash(judge, example, build):
    def on(value, name):
        return example(DAEMONSET, build.daemonset(name, PLUGIN_IMAGE, nodeSelector={"os": value}), name)

    assert judge.stack(on("cos", "a"), on("ubuntu", "b")).of(RULE) == []
    assert len(judge.stack(on("cos", "a"), on("cos", "b")).of(RULE)) == 1


def test_a_plugin_on_nodes_without_the_operators_plugin_is_no_clash(judge, example, build):
    expression = {"key": "nvidia.com/gpu.deploy.device-plugin", "operator": "NotIn", "values": ["true"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    }
    other = build.daemonset("nvidia-device-plugin", PLUGIN_IMAGE, affinity=affinity)
    assert judge.stack(operator(example), example(DAEMONSET, other, "x")).of(RULE) == []


def test_the_operators_own_operand_is_no_second_owner(judge, example, build):
    operand = build.daemonset("nvidia-device-plugin-daemonset", PLUGIN_IMAGE)
    operand["metadata"]["ownerReferences"] = [{"kind": "ClusterPolicy", "name": "cluster-policy"}]
    assert judge.stack(operator(example), example(DAEMONSET, operand, "x")).of(RULE) == []


def test_an_unknown_switch_is_no_proof_of_one_owner(judge, example, build):
    installer = example(DAEMONSET, build.daemonset("nvidia-driver-installer", "pause:1"), "installer")
    verdict = judge.stack(operator(example, {"driver": {"enabled": judge.unknown}}), installer)
    assert verdict.of(RULE) == []
    assert "Release 'gpu-operator': values.driver.enabled" in verdict.undecided(RULE)[0]


def test_unknown_values_alone_need_no_advice(judge, example):
    verdict = judge.stack(operator(example, judge.unknown_object))
    assert verdict.of(RULE) == [] and verdict.undecided(RULE) == []


def test_an_unknown_image_of_a_powerful_daemonset_is_said(judge, example, build):
    volumes = [{"name": "p", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    plugin = example(DAEMONSET, build.daemonset("mine", judge.unknown, volumes=volumes), "x")
    verdict = judge.stack(operator(example), plugin)
    assert verdict.of(RULE) == [] and "containers[0].image" in verdict.undecided(RULE)[0]
    harmless = example(DAEMONSET, build.daemonset("logs", judge.unknown), "x")
    assert judge.stack(operator(example), harmless).undecided(RULE) == []


def test_an_unknown_chart_is_said(judge, example):
    verdict = judge.stack(operator(example), example(RELEASE, {"chart": judge.unknown}, "x"))
    assert verdict.of(RULE) == [] and "Release 'x': chart" in verdict.undecided(RULE)[0]


@pytest.mark.parametrize("values", [None, [], "driver: {}", {"driver": None}, {"driver": [1]}, {"nfd": "no"}])
def test_values_of_the_wrong_shape_break_nothing(judge, example, values):
    assert judge.stack(example(RELEASE, {"chart": "gpu-operator", "values": values}, "x")).of(RULE) == []


def test_chart_and_image_names_are_reduced():
    assert base_name("oci://host:5000/a/gpu-operator@sha256:" + "a" * 64) == "gpu-operator"
    assert base_name("./gpu-operator/") == "gpu-operator"
    assert base_name("nvidia-device-plugin-0.18.0.tgz") == "nvidia-device-plugin"
    assert repository("host:5000/nvidia/driver") == "host:5000/nvidia/driver"
    assert repository("host:5000/NVIDIA/driver:1@sha256:aa") == "host:5000/nvidia/driver"


ARGO = "kubernetes:argoproj.io/v1alpha1:Application"
FLUX = "kubernetes:helm.toolkit.fluxcd.io/v2:HelmRelease"
K3S = "kubernetes:helm.cattle.io/v1:HelmChart"


def by_argo(helm, **destination):
    source = {"chart": "gpu-operator", "helm": helm}
    return {"spec": {"source": source, "destination": {"namespace": "gpu-operator", **destination}}}


def by_flux(**spec):
    return {"spec": {"chart": {"spec": {"chart": "gpu-operator"}}, **spec}}


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        (ARGO, by_argo({"valuesObject": {"nfd": {"enabled": True}}})),
        (FLUX, by_flux(values={"nfd": {"enabled": True}})),
        (FLUX, by_flux()),
        (K3S, {"spec": {"chart": "gpu-operator", "repo": "https://helm.ngc.nvidia.com/nvidia"}}),
    ],
)
def test_an_operator_installed_by_a_controller_counts(judge, example, kind, props):
    nfd = example(RELEASE, {"chart": "node-feature-discovery"}, "nfd")
    (message,) = judge.stack(example(kind, props, "gpu"), nfd).of(RULE)
    assert "the NFD has 2 owners" in message


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        (ARGO, by_argo({}, server="https://other.example.com")),
        (ARGO, by_argo({}, name="other")),
        (FLUX, by_flux(kubeConfig={"secretRef": {"name": "other"}})),
    ],
)
def test_what_a_controller_installs_on_another_cluster_does_not(judge, example, kind, props):
    nfd = example(RELEASE, {"chart": "node-feature-discovery"}, "nfd")
    assert judge.stack(example(kind, props, "gpu"), nfd).violations == []


@pytest.mark.parametrize(
    ("kind", "props", "path"),
    [
        (ARGO, by_argo({"values": "nfd: {enabled: false}"}), "spec.source.helm.values"),
        (FLUX, by_flux(valuesFrom=[{"kind": "ConfigMap"}]), "spec.valuesFrom"),
        (K3S, {"spec": {"chart": "gpu-operator", "valuesContent": "nfd: {}"}}, "spec.valuesContent"),
        (RELEASE, {"chart": "gpu-operator", "valueYamlFiles": [{}]}, "valueYamlFiles"),
        (CHART4, {"chart": "gpu-operator", "valueYamlFiles": [{}]}, "valueYamlFiles"),
    ],
)
def test_values_in_a_text_or_a_file_are_no_proof_and_that_is_said(judge, example, kind, props, path):
    nfd = example(RELEASE, {"chart": "node-feature-discovery"}, "nfd")
    verdict = judge.stack(example(kind, props, "gpu"), nfd)
    assert verdict.violations == []
    assert path in verdict.undecided(RULE)[0]


def test_stated_values_win_over_files(judge, example):
    values = {"nfd": {"enabled": True}}
    props = {"chart": "gpu-operator", "valueYamlFiles": [{}], "values": values}
    nfd = example(RELEASE, {"chart": "node-feature-discovery"}, "nfd")
    assert len(judge.stack(example(CHART4, props, "gpu"), nfd).of(RULE)) == 1
