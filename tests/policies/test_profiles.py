"""The operator's values agree with the node profile's row."""

import json
from pathlib import Path

import pytest
from rules.table import leaves, profiles

RULE = "node-profile-agreement"
RELEASE = "kubernetes:helm.sh/v3:Release"
NAMESPACE = "kubernetes:core/v1:Namespace"
DAEMONSET = "kubernetes:apps/v1:DaemonSet"
LABEL = "holdfast.dev/node-profile"
SUPPORTED = sorted(name for name, p in profiles().items() if p.status != "reject")
REJECTED = sorted(name for name, p in profiles().items() if p.status == "reject")


def release(example, values=None, **more):
    props = {"chart": "gpu-operator", "namespace": "gpu-operator"}
    if values is not None:
        props["values"] = values
    return example(RELEASE, props, "gpu-operator", **more)


def namespace(example, profile, name="gpu-operator", **more):
    return example(NAMESPACE, {"metadata": {"name": name, "labels": {LABEL: profile}}}, f"ns-{name}", **more)


def changed(values, path, value):
    copy = json.loads(json.dumps(values))
    target = copy
    *above, last = path.split(".")
    for key in above:
        target = target.setdefault(key, {})
    target[last] = value
    return copy


@pytest.mark.parametrize("profile", SUPPORTED)
def test_the_rows_own_values_pass(judge, example, profile):
    verdict = judge.stack(namespace(example, profile), release(example, dict(profiles()[profile].values)))
    assert verdict.of(RULE) == [] and verdict.undecided(RULE) == []


@pytest.mark.parametrize("profile", SUPPORTED)
@pytest.mark.parametrize("layer", ["driver", "toolkit", "devicePlugin"])
def test_every_switched_layer_is_refused_on_every_profile(judge, example, profile, layer):
    row = profiles()[profile]
    now = not row.values[layer]["enabled"]
    values = changed(row.values, f"{layer}.enabled", now)
    (message,) = judge.stack(namespace(example, profile), release(example, values)).of(RULE)
    assert f"{layer}.enabled is {'true' if now else 'false'}" in message
    assert f"Set {layer}.enabled={'false' if now else 'true'}." in message


@pytest.mark.parametrize("profile", REJECTED)
def test_a_profile_that_can_not_work_is_refused_in_full(judge, example, profile):
    (message,) = judge.stack(namespace(example, profile), release(example)).of(RULE)
    assert profiles()[profile].reject in message
    assert len(judge.stack(namespace(example, profile)).of(RULE)) == 1


def test_the_charts_defaults_turn_the_driver_on(judge, example):
    messages = judge.stack(namespace(example, "self-managed-driver-toolkit"), release(example)).of(RULE)
    driver = next(m for m in messages if "driver.enabled" in m)
    assert "driver.enabled is true (the chart's default)" in driver
    assert "the NVIDIA driver belongs to: host. The operator would be a second owner" in driver
    assert any("toolkit.enabled" in m for m in messages) and any("cdi.enabled" in m for m in messages)


def test_extra_values_that_turn_the_driver_on_are_refused(judge, example):
    values = changed(profiles()["rehearsal"].values, "driver.enabled", "true")
    assert (
        "Set driver.enabled=false"
        in judge.stack(namespace(example, "rehearsal"), release(example, values)).of(RULE)[0]
    )


def test_cdi_without_handlers_is_refused(judge, example):
    values = changed(profiles()["rehearsal"].values, "cdi.enabled", True)
    (message,) = judge.stack(namespace(example, "rehearsal"), release(example, values)).of(RULE)
    assert "nvidia-cdi and nvidia-legacy" in message


@pytest.mark.parametrize(
    ("profile", "path", "value", "needs"),
    [
        ("aks-image", "operator.runtimeClass", "nvidia", "'nvidia-container-runtime'"),
        ("gke-cos-managed", "hostPaths.driverInstallDir", None, "'/home/kubernetes/bin/nvidia'"),
        ("gke-cos-managed", "toolkit.installDir", "/opt", "'/home/kubernetes/bin/nvidia'"),
        ("gke-cos-installer", "toolkit.env", [], "RUNTIME_CONFIG_SOURCE=file"),
        ("aks-no-driver", "toolkit.env", None, "RUNTIME_CONFIG_SOURCE=file"),
    ],
)
def test_the_rows_paths_and_names_must_be_kept(judge, example, profile, path, value, needs):
    values = changed(profiles()[profile].values, path, value)
    (message,) = judge.stack(namespace(example, profile), release(example, values)).of(RULE)
    assert f"profile '{profile}' needs {needs}" in message


def test_further_environment_of_the_toolkit_is_free(judge, example):
    env = [{"name": "CONTAINERD_SOCKET", "value": "/x"}, {"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]
    values = changed(profiles()["aks-no-driver"].values, "toolkit.env", env)
    assert judge.stack(namespace(example, "aks-no-driver"), release(example, values)).of(RULE) == []


def test_without_a_profile_there_is_nothing_to_say(judge, example):
    verdict = judge.stack(release(example))
    assert verdict.of(RULE) == [] and verdict.undecided(RULE) == []


def test_the_packs_configuration_names_the_profile(judge, example):
    judge.configure(RULE, nodeProfile="rehearsal")
    assert len(judge.stack(release(example)).of(RULE)) == 3
    assert judge.stack(release(example, dict(profiles()["rehearsal"].values))).of(RULE) == []
    assert judge.stack(example("kubernetes:core/v1:ConfigMap", {}, "x")).of(RULE) == []


def test_the_configuration_wins_over_the_label(judge, example):
    judge.configure(RULE, nodeProfile="self-managed-bare")
    verdict = judge.stack(namespace(example, "rehearsal"), release(example, {"toolkit": {"enabled": True}}))
    assert verdict.of(RULE) == []


def test_a_misspelled_profile_is_named_with_a_suggestion(judge, example):
    (message,) = judge.stack(namespace(example, "rehersal"), release(example)).of(RULE)
    assert "node profile 'rehersal' is not in the ownership table; did you mean 'rehearsal'?" in message


def test_the_label_of_the_operators_namespace_decides(judge, example):
    other = namespace(example, "self-managed-bare", name="team")
    values = dict(profiles()["rehearsal"].values)
    assert judge.stack(namespace(example, "rehearsal"), other, release(example, values)).of(RULE) == []
    assert len(judge.stack(other, release(example, values)).of(RULE)) == 2


def test_a_label_of_another_cluster_says_nothing_here(judge, example):
    label = namespace(example, "rehearsal", provider="east")
    assert judge.stack(label, release(example, provider="west")).of(RULE) == []


@pytest.mark.parametrize("profile", ["eks-bottlerocket", "gke-cos-managed"])
def test_a_device_plugin_where_the_platform_has_one_is_refused(judge, example, build, profile):
    plugin = build.daemonset("nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0")
    (message,) = judge.stack(namespace(example, profile), example(DAEMONSET, plugin, "plugin")).of(RULE)
    assert "DaemonSet 'plugin' brings a device plugin" in message


def test_a_driver_installer_belongs_to_its_profile_only(judge, example, build):
    installer = example(DAEMONSET, build.daemonset("nvidia-driver-installer", "pause:1"), "installer")

    def on(profile):
        values = dict(profiles()[profile].values)
        return judge.stack(namespace(example, profile), release(example, values), installer).of(RULE)

    assert on("gke-cos-installer") == []
    assert "DaemonSet 'installer' brings a NVIDIA driver" in on("gke-cos-managed")[0]


def test_a_plain_plugin_in_place_of_the_operator_is_one_owner(judge, example, build):
    plugin = build.daemonset("nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0")
    verdict = judge.stack(
        namespace(example, "self-managed-driver-toolkit"), example(DAEMONSET, plugin, "plugin")
    )
    assert verdict.of(RULE) == []


def test_a_cluster_policy_is_judged_as_the_values_are(judge, example):
    policy = example(
        "kubernetes:nvidia.com/v1:ClusterPolicy", {"spec": {"driver": {"enabled": True}}}, "cluster-policy"
    )
    messages = judge.stack(namespace(example, "rehearsal"), policy).of(RULE)
    assert any("ClusterPolicy 'cluster-policy': driver.enabled is true" in m for m in messages)


def test_an_unknown_switch_is_said_and_the_others_are_judged(judge, example):
    values = changed(profiles()["rehearsal"].values, "driver.enabled", judge.unknown)
    values = changed(values, "toolkit.enabled", True)
    verdict = judge.stack(namespace(example, "rehearsal"), release(example, values))
    assert len(verdict.of(RULE)) == 1
    assert "Release 'gpu-operator': values.driver.enabled" in verdict.undecided(RULE)[0]


def test_unknown_values_or_an_unknown_label_are_said(judge, example):
    verdict = judge.stack(namespace(example, "rehearsal"), release(example, judge.unknown_object))
    assert verdict.of(RULE) == [] and "values" in verdict.undecided(RULE)[0]
    verdict = judge.stack(namespace(example, judge.unknown), release(example))
    assert verdict.of(RULE) == [] and LABEL in verdict.undecided(RULE)[0]


def test_every_row_is_complete_and_consistent():
    rows = json.loads((Path(__file__).parents[2] / "policies" / "ownership.json").read_text())["profiles"]
    assert len(rows) == 16
    for name, row in rows.items():
        assert row["status"] in ("supported", "experimental", "reject"), name
        assert bool(row["reject"]) == (row["status"] == "reject"), name
        assert row["sources"] and row["reason"], name
        if row["status"] != "reject":
            for layer in ("driver", "toolkit", "devicePlugin"):
                assert row["values"][layer]["enabled"] == (row["owners"][layer] == "operator"), (
                    name,
                    layer,
                )
            if not row["values"]["toolkit"]["enabled"]:
                assert row["values"]["cdi"]["enabled"] is False, name
            assert row["runtimeClass"] is None or row["runtimeClass"] in row["createdRuntimeClasses"], name


def test_every_key_of_the_table_exists_in_the_chart():
    keys = {
        line.split("\t")[0]
        for line in (Path(__file__).parent / "gpu-operator-v26.7.0-values.tsv").read_text().splitlines()
        if line and not line.startswith("#")
    }
    for name, profile in profiles().items():
        assert [key for key, _ in leaves(profile.values) if key not in keys] == [], name


def test_a_pool_belongs_to_the_cluster_whose_provider_was_made_from_the_same_resource(judge, example):
    # At a first preview neither the kubeconfig nor the cluster's name is known.
    def provider(name, cluster):
        return example(
            "pulumi:providers:kubernetes", {"kubeconfig": judge.unknown}, name, depends_on=[cluster]
        )

    def pool(name, cluster, ami):
        props = {"clusterName": judge.unknown, "amiType": ami, "releaseVersion": "1"}
        return example("aws:eks/nodeGroup:NodeGroup", props, name, depends_on=[cluster])

    clusters = [example("aws:eks/cluster:Cluster", {}, name) for name in ("one", "two")]
    off = {"driver": {"enabled": False}, "toolkit": {"enabled": False}}
    stack = [
        *clusters,
        provider("k1", "one"),
        provider("k2", "two"),
        pool("images", "one", "AL2023_x86_64_NVIDIA"),
        pool("bottles", "two", "BOTTLEROCKET_x86_64_NVIDIA"),
        example(RELEASE, {"chart": "gpu-operator", "values": off}, "op1", provider="k1"),
        example(RELEASE, {"chart": "gpu-operator", "values": off}, "op2", provider="k2"),
    ]
    (message,) = judge.stack(*stack).of(RULE)
    assert "Release 'op2': devicePlugin.enabled is true" in message and "NodeGroup 'bottles'" in message


def test_the_annotation_of_the_operators_namespace_says_why_its_values_differ(judge, example):
    pool = example(
        "aws:eks/nodeGroup:NodeGroup", {"amiType": "AL2023_x86_64_NVIDIA", "releaseVersion": "1"}, "gpu"
    )
    annotated = {"holdfast.dev/ownership-override": "a driver of our own for the new cards"}
    ours = example(NAMESPACE, {"metadata": {"name": "gpu-operator", "annotations": annotated}}, "ns")
    blank = {"holdfast.dev/ownership-override": " "}
    nobodys = example(NAMESPACE, {"metadata": {"name": "gpu-operator", "annotations": blank}}, "ns")
    assert judge.stack(pool, ours, release(example)).of(RULE) == []
    assert judge.stack(pool, nobodys, release(example)).of(RULE) != []


@pytest.mark.parametrize("selector", [{"pool": "other"}, {"eks.amazonaws.com/nodegroup": "other"}])
def test_a_device_plugin_that_does_not_go_to_a_pool_is_no_second_owner_there(judge, example, build, selector):
    props = {
        "amiType": "BOTTLEROCKET_x86_64_NVIDIA",
        "nodeGroupName": "bottles",
        "labels": {"pool": "bottles"},
        "releaseVersion": "1",
    }
    pool = example("aws:eks/nodeGroup:NodeGroup", props, "bottles")
    plugin = build.daemonset(
        "nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0", nodeSelector=selector
    )
    assert judge.stack(pool, example(DAEMONSET, plugin, "plugin")).of(RULE) == []
    everywhere = build.daemonset("nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0")
    assert len(judge.stack(pool, example(DAEMONSET, everywhere, "plugin")).of(RULE)) == 1
