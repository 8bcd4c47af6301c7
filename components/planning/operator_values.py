"""The chart values of the one GPU Operator: from the ownership table, the taints and what the site adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.planning.critical_pods import critical_pods_quota
from components.planning.labels import environment_labels
from components.planning.merge import at, deep_merge
from components.planning.node_pools import NodePoolPlan, taints_of_operands, toleration
from components.planning.operator_plan import ExpectedPool, OperatorExpectation, OperatorPlan
from components.planning.ownership import SWITCHED, Profile
from components.settings.gpu_operator import GpuOperatorSettings
from components.settings.node_pool import NodePoolSettings, Taint

DEPLOYMENT = "gpu-operator"
"""The controller's, whatever the release is called (chart v26.7.0, templates/operator.yaml)."""
OVERRIDE_NOTE = "holdfast.dev/ownership-override"
"""Annotation of the operator's namespace: why the owners are not the table's."""
# The chart's own tolerations, repeated because a list in the values replaces the chart's list.
OPERAND_TOLERATIONS = ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)
NFD_WORKER_TOLERATIONS = (
    {
        "key": "node-role.kubernetes.io/control-plane",
        "operator": "Equal",
        "value": "",
        "effect": "NoSchedule",
    },
    *OPERAND_TOLERATIONS,
)
TOLERATION_PATHS = (("daemonsets", "tolerations"), ("node-feature-discovery", "worker", "tolerations"))
# DaemonSets of the controller, by the value that turns each on; the chart's default is on for all of them.
_OPERANDS = {
    "driver": "nvidia-driver-daemonset",
    "toolkit": "nvidia-container-toolkit-daemonset",
    "devicePlugin": "nvidia-device-plugin-daemonset",
    "gfd": "gpu-feature-discovery",
    "dcgmExporter": "nvidia-dcgm-exporter",
}
_VALIDATOR = "nvidia-operator-validator"


def is_on(value: Any) -> bool:
    """What a chart value means as a switch: Helm renders text, so "true" in quotes turns on as true does.

    Null and absent are on: the controller takes an unset `enabled` of driver, toolkit and plugin as true
    (gpu-operator, api/nvidia/v1/clusterpolicy_types.go, IsEnabled).
    """
    if isinstance(value, str):
        return value.strip().lower() not in ("false", "no", "off", "0", "")
    return value is None or bool(value)


def own_values(
    profile: Profile, pools: Sequence[NodePoolSettings | NodePoolPlan], nfd: str
) -> dict[str, Any]:
    """The values that follow from profile, taints and NFD's owner, before anything that the site adds."""
    tolerations = _unique(toleration(taint) for taint in taints_of_operands(pools))
    values = {
        "daemonsets": {"tolerations": _unique([*OPERAND_TOLERATIONS, *tolerations])},
        "nfd": {"enabled": nfd == "operator"},
        "node-feature-discovery": {
            "worker": {"tolerations": _unique([*NFD_WORKER_TOLERATIONS, *tolerations])}
        },
        # On by default since v26.7.0, but it needs the Prometheus operator's CRDs, which a cluster may lack.
        "dcgmExporter": {"serviceMonitor": {"enabled": False}},
    }
    return deep_merge(values, profile.values)


def plan_operator(
    environment: str, settings: GpuOperatorSettings, pools: Sequence[NodePoolPlan], profile: Profile
) -> OperatorPlan:
    """The installation of the operator. The settings have been checked, see `checks.problems`."""
    values = deep_merge(own_values(profile, pools, settings.nfd), settings.extra_values)
    timeout = settings.timeout_minutes * 60
    install = settings.install == "always"
    return OperatorPlan(
        install=install,
        namespace=settings.namespace,
        # Operands run privileged; where Pod Security is enforced the namespace must say so.
        namespace_labels={
            **environment_labels(environment),
            **{f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")},
            # Tells the policy pack, which sees resources only, what the nodes are. With an override they are not
            # what the row says.
            **({} if profile.override else {"holdfast.dev/node-profile": profile.name}),
        },
        namespace_annotations={OVERRIDE_NOTE: profile.override.reason} if profile.override else {},
        critical_pods_quota=critical_pods_quota(
            profile.platform, pools, settings.namespace, environment_labels(environment)
        )
        if install
        else None,
        release_name=settings.release_name,
        chart=settings.chart.chart,
        repository_url=settings.chart.repository_url,
        version=settings.chart.pinned_version,
        values=values,
        timeout_seconds=timeout,
        expectation=_expectation(settings, values, pools, profile, timeout),
    )


def _expectation(
    settings: GpuOperatorSettings,
    values: Mapping[str, Any],
    pools: Sequence[NodePoolPlan],
    profile: Profile,
    timeout: int,
) -> OperatorExpectation:
    on = {operand: is_on(at(values, (operand, "enabled"))) for operand in _OPERANDS}
    # A driver per kernel or NVIDIADriver object has DaemonSets of other names; the validator stands for it.
    renamed = any(
        is_on(at(values, path, False))
        for path in (("driver", "usePrecompiled"), ("driver", "nvidiaDriverCRD", "enabled"))
    )
    # Of an operator that somebody else installed nothing is known but what the pools' row needs.
    theirs = settings.install == "existing"
    present = [
        name
        for operand, name in _OPERANDS.items()
        if on[operand] and not (operand == "driver" and renamed) and not (theirs and operand not in SWITCHED)
    ]
    nfd = is_on(at(values, ("nfd", "enabled"))) and not theirs
    return OperatorExpectation(
        namespace=settings.namespace,
        daemonsets=(*present, _VALIDATOR),
        nfd_daemonsets=(f"{_nfd_name(values, settings.release_name)}-worker",) if nfd else (),
        absent_daemonsets=tuple(name for operand, name in _OPERANDS.items() if not on[operand]),
        runtime_classes=profile.created_runtime_classes,
        pools=tuple(
            ExpectedPool(
                name=pool.name,
                match_labels=pool.match_labels,
                node_names=pool.node_names,
                min_nodes=pool.min_nodes,
                gpus_per_node=pool.gpus_per_node,
                taint=pool.taint,
            )
            for pool in pools
        ),
        timeout_seconds=timeout,
    )


def _nfd_name(values: Mapping[str, Any], release_name: str) -> str:
    """As the subchart's template `node-feature-discovery.fullname` makes it."""
    overrides = at(values, ("node-feature-discovery",), {})
    name = overrides.get("nameOverride") or "node-feature-discovery"
    return overrides.get("fullnameOverride") or (
        release_name if name in release_name else f"{release_name}-{name}"
    )


def tolerates(tolerations: Any, taint: Taint) -> bool:
    """Whether Kubernetes would let a Pod with these tolerations onto a node with this taint."""
    if taint.effect == "PreferNoSchedule":
        return True
    return any(isinstance(item, Mapping) and _tolerates(item, taint) for item in tolerations or ())


def _tolerates(item: Mapping[str, Any], taint: Taint) -> bool:
    # Source: k8s.io/api/core/v1, Toleration.ToleratesTaint: an empty effect or key matches every one.
    if item.get("effect") and item["effect"] != taint.effect:
        return False
    if item.get("key") and item["key"] != taint.key:
        return False
    if item.get("operator") == "Exists":
        return True
    return bool(item.get("key")) and (item.get("value") or "") == taint.value


def _unique(tolerations: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for item in tolerations:
        if item not in found:
            found.append(dict(item))
    return found
