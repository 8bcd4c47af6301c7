"""The operator's chart values against the real chart's own list of keys, and what readiness expects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.planning.extra_values import SECTIONS
from components.planning.merge import at, leaves
from components.planning.node_pool_plans import plan_node_pool
from components.planning.operator_plan import OperatorPlan
from components.planning.operator_values import (
    NFD_WORKER_TOLERATIONS,
    OPERAND_TOLERATIONS,
    is_on,
    own_values,
    plan_operator,
    tolerates,
)
from components.planning.ownership import owners_of, profiles
from components.planning.stack import StackPlan
from components.settings.gpu_operator import GpuOperatorSettings
from components.settings.node_pool import SelfManagedNodePoolSettings, Taint

Plan = Callable[..., StackPlan]
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
SUPPORTED = [name for name, row in profiles().items() if row.status != "reject"]


@pytest.fixture(scope="module")
def chart() -> dict[tuple[str, ...], Any]:
    """Every key of chart v26.7.0 with its default."""
    keys = {}
    text = (Path(__file__).parent / "data" / "gpu-operator-v26.7.0-values.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            key, _, default = line.partition("\t")
            keys[tuple(key.split("."))] = json.loads(default)
    return keys


def _pool(profile: str, **changes: Any) -> SelfManagedNodePoolSettings:
    base = {"name": "gpu", "profile": profile, "selectNodes": {"names": ["gpu-0"]}, "gpusPerNode": 1}
    return SelfManagedNodePoolSettings.model_validate(base | changes)


def _operator(profile: str, extra: dict[str, Any] | None = None) -> OperatorPlan:
    settings = GpuOperatorSettings.model_validate({"extraValues": extra or {}})
    pool = _pool(profile)
    return plan_operator("dev", settings, [plan_node_pool(pool, owners_of(pool))], profiles()[profile])


@pytest.mark.parametrize("profile", SUPPORTED)
def test_every_key_that_we_set_exists_in_the_real_chart(
    profile: str, chart: dict[tuple[str, ...], Any]
) -> None:
    set_keys = [path for path, _ in leaves(own_values(profiles()[profile], [_pool(profile)], "operator"))]
    assert [path for path in set_keys if path not in chart] == []


def test_the_sections_of_the_chart_are_the_ones_we_know(chart: dict[tuple[str, ...], Any]) -> None:
    assert set(SECTIONS) == {path[0] for path in chart}


def test_the_tolerations_that_a_list_would_replace_are_the_charts_own(
    chart: dict[tuple[str, ...], Any],
) -> None:
    assert list(OPERAND_TOLERATIONS) == chart[("daemonsets", "tolerations")]
    assert list(NFD_WORKER_TOLERATIONS) == chart[("node-feature-discovery", "worker", "tolerations")]


def test_operands_and_nfd_workers_tolerate_the_pools_taint_beside_the_charts_defaults() -> None:
    values = own_values(profiles()["rehearsal"], [_pool("rehearsal")], "operator")
    assert values["daemonsets"]["tolerations"] == [*OPERAND_TOLERATIONS, DEDICATED]
    assert values["node-feature-discovery"]["worker"]["tolerations"] == [*NFD_WORKER_TOLERATIONS, DEDICATED]


def test_pools_with_different_taints_are_all_tolerated_and_equal_ones_once() -> None:
    other = {"key": "gpu", "effect": "NoExecute"}
    pools = [_pool("rehearsal"), _pool("rehearsal", taint=other), _pool("rehearsal", taint=other)]
    values = own_values(profiles()["rehearsal"], pools, "operator")
    assert values["daemonsets"]["tolerations"] == [
        *OPERAND_TOLERATIONS,
        DEDICATED,
        {"key": "gpu", "operator": "Exists", "effect": "NoExecute"},
    ]


def test_a_taint_that_the_chart_tolerates_already_is_not_tolerated_twice() -> None:
    pool = _pool("rehearsal", taint={"key": "nvidia.com/gpu", "effect": "NoSchedule"})
    values = own_values(profiles()["rehearsal"], [pool], "operator")
    assert values["daemonsets"]["tolerations"] == list(OPERAND_TOLERATIONS)


def test_the_values_of_the_users_own_case_are_exactly_these(plan: Plan) -> None:
    operator = plan().operator
    assert operator is not None
    assert operator.values == {
        "driver": {"enabled": False},
        "toolkit": {"enabled": False},
        "devicePlugin": {"enabled": True},
        "cdi": {"enabled": False},
        "operator": {"runtimeClass": "nvidia"},
        "validator": {"plugin": {"env": [{"name": "WITH_WORKLOAD", "value": "false"}]}},
        "nfd": {"enabled": True},
        "daemonsets": {"tolerations": [*OPERAND_TOLERATIONS, DEDICATED]},
        "node-feature-discovery": {"worker": {"tolerations": [*NFD_WORKER_TOLERATIONS, DEDICATED]}},
        "dcgmExporter": {"serviceMonitor": {"enabled": False}},
    }


def test_the_release_is_pinned_named_and_waits_twenty_minutes(plan: Plan) -> None:
    operator = plan().operator
    assert operator is not None
    assert (operator.release_name, operator.namespace) == ("gpu-operator", "gpu-operator")
    assert (operator.chart, operator.repository_url, operator.version) == (
        "gpu-operator",
        "https://helm.ngc.nvidia.com/nvidia",
        "v26.7.0",
    )
    assert operator.timeout_seconds == 1200
    assert operator.namespace_labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert operator.namespace_labels["holdfast.dev/node-profile"] in profiles()


@pytest.mark.parametrize(
    ("chart_settings", "chart", "repository"),
    [
        ({"path": "./charts/gpu-operator", "version": "v26.7.0"}, "./charts/gpu-operator", None),
        (
            {"oci": "oci://r.example.com/nvidia/gpu-operator", "version": "v26.7.0"},
            "oci://r.example.com/nvidia/gpu-operator",
            None,
        ),
        (
            {"repository": "https://charts.example.com/", "version": "v26.7.0"},
            "gpu-operator",
            "https://charts.example.com",
        ),
    ],
    ids=["a folder", "an OCI registry", "another repository"],
)
def test_the_chart_may_come_from(
    chart_settings: dict[str, str], chart: str, repository: str | None, plan: Plan
) -> None:
    operator = plan(operator={"chart": chart_settings}).operator
    assert operator is not None
    assert (operator.chart, operator.repository_url, operator.version) == (chart, repository, "v26.7.0")


def test_an_existing_nfd_is_left_alone_and_not_expected(plan: Plan) -> None:
    operator = plan(operator={"nfd": "existing"}).operator
    assert operator is not None
    assert operator.values["nfd"] == {"enabled": False}
    assert operator.expectation.nfd_daemonsets == ()


def test_extra_values_are_merged_last_and_into_what_we_set(plan: Plan) -> None:
    extra = {"driver": {"version": "595.91.07"}, "dcgmExporter": {"serviceMonitor": {"enabled": True}}}
    operator = plan(operator={"extraValues": extra}).operator
    assert operator is not None
    assert operator.values["driver"] == {"enabled": False, "version": "595.91.07"}
    assert operator.values["dcgmExporter"] == {"serviceMonitor": {"enabled": True}}


# DaemonSets that the real controller v26.7.0 made for these values on two GPU nodes.
PLUGIN, DRIVER, TOOLKIT = (
    "nvidia-device-plugin-daemonset",
    "nvidia-driver-daemonset",
    "nvidia-container-toolkit-daemonset",
)
ALWAYS = {"gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-operator-validator"}


@pytest.mark.parametrize(
    ("profile", "present", "absent", "classes"),
    [
        ("self-managed-bare", {DRIVER, TOOLKIT, PLUGIN}, set(), ("nvidia", "nvidia-cdi", "nvidia-legacy")),
        ("self-managed-driver-toolkit", {PLUGIN}, {DRIVER, TOOLKIT}, ("nvidia",)),
        ("gke-cos-managed", {TOOLKIT}, {DRIVER, PLUGIN}, ("nvidia", "nvidia-cdi", "nvidia-legacy")),
        ("aks-image", {PLUGIN}, {DRIVER, TOOLKIT}, ("nvidia-container-runtime",)),
    ],
)
def test_readiness_expects_the_daemonsets_and_classes_that_the_real_controller_makes(
    profile: str, present: set[str], absent: set[str], classes: tuple[str, ...]
) -> None:
    expected = _operator(profile).expectation
    assert set(expected.daemonsets) == present | ALWAYS
    assert set(expected.absent_daemonsets) == absent
    assert expected.runtime_classes == classes
    assert expected.nfd_daemonsets == ("gpu-operator-node-feature-discovery-worker",)


def test_readiness_expects_no_operand_that_the_site_turned_off() -> None:
    expected = _operator(
        "rehearsal", {"dcgmExporter": {"enabled": False}, "gfd": {"enabled": "false"}}
    ).expectation
    assert expected.daemonsets == (PLUGIN, "nvidia-operator-validator")


def test_readiness_does_not_wait_for_a_driver_whose_daemonset_has_another_name() -> None:
    expected = _operator("self-managed-bare", {"driver": {"usePrecompiled": True}}).expectation
    assert DRIVER not in expected.daemonsets
    assert DRIVER not in expected.absent_daemonsets


def test_readiness_follows_a_renamed_nfd() -> None:
    by_full_name = _operator("rehearsal", {"node-feature-discovery": {"fullnameOverride": "nfd"}}).expectation
    by_name = _operator("rehearsal", {"node-feature-discovery": {"nameOverride": "nfd"}}).expectation
    assert by_full_name.nfd_daemonsets == ("nfd-worker",)
    assert by_name.nfd_daemonsets == ("gpu-operator-nfd-worker",)


def test_readiness_knows_every_pool_its_nodes_its_gpus_and_its_taint(plan: Plan) -> None:
    operator = plan().operator
    assert operator is not None
    (pool,) = operator.expectation.pools
    assert (pool.name, pool.match_labels, pool.node_names) == ("gpu", {"rack": "a"}, ())
    assert (pool.gpus_per_node, str(pool.taint)) == (2, "dedicated=gpu:NoSchedule")


def test_a_tolerations_override_that_misses_the_taint_is_a_warning_and_not_a_refusal(plan: Plan) -> None:
    planned = plan(operator={"extraValues": {"daemonsets": {"tolerations": list(OPERAND_TOLERATIONS)}}})
    assert planned.warnings == (
        (
            "gpuOperator.extraValues.daemonsets.tolerations does not tolerate the taint"
            ' dedicated=gpu:NoSchedule of pool "gpu": its nodes will never get these Pods and never become'
            " ready. Add a toleration of that taint to the list, or remove the list."
        ),
    )
    assert planned.operator is not None
    assert at(planned.operator.values, ("daemonsets", "tolerations")) == list(OPERAND_TOLERATIONS)


def test_tolerations_that_null_removes_are_a_warning_too(plan: Plan) -> None:
    extra = {"node-feature-discovery": {"worker": {"tolerations": None}}}
    (warning,) = plan(operator={"extraValues": extra}).warnings
    assert warning.startswith(
        "gpuOperator.extraValues.node-feature-discovery.worker.tolerations does not tolerate"
    )


def test_a_section_that_the_chart_does_not_have_is_a_warning(plan: Plan) -> None:
    assert plan(operator={"extraValues": {"sidecar": {"enabled": True}}}).warnings == (
        "gpuOperator.extraValues.sidecar: chart v26.7.0 of the GPU Operator has no such value.",
    )


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "gpu"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "cpu", "effect": "NoSchedule"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "gpu"}, False),
        ("dedicated=gpu:NoSchedule", False),
    ],
)
def test_a_toleration_is_judged_as_kubernetes_does(toleration: Any, tolerated: bool) -> None:
    taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    assert tolerates([toleration], taint) is tolerated


def test_a_taint_that_only_prefers_keeps_no_pod_away() -> None:
    assert tolerates([], Taint(key="dedicated", value="gpu", effect="PreferNoSchedule"))


@pytest.mark.parametrize(
    ("value", "on"),
    [
        (True, True),
        ("true", True),
        (None, True),
        (1, True),
        (False, False),
        ("False", False),
        ("off", False),
        (0, False),
    ],
)
def test_a_switch_means_what_helm_makes_of_it(value: Any, on: bool) -> None:
    assert is_on(value) is on


def test_a_chart_in_a_folder_of_the_site_s_own_may_have_values_of_its_own(plan: Plan) -> None:
    chart = {"path": "./charts/gpu-operator", "version": "26.7.0-site.1"}
    assert plan(operator={"chart": chart, "extraValues": {"sidecar": {"enabled": True}}}).warnings == ()
