"""Recognising charts, whatever their Release is called and wherever the chart comes from."""

from __future__ import annotations

import re

from rules.engine import Resource
from rules.views import View

CHART_TYPES = frozenset(
    {"kubernetes:helm.sh/v3:Release", "kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v4:Chart"}
)
# AMD's operator has almost the same name and owns other GPUs.
_NOT_NVIDIA = frozenset({"gpu-operator-charts", "amd-gpu-operator"})
# Top-level values that together only the GPU Operator's chart has: a vendored copy may carry another name.
_OPERATOR_KEYS = frozenset(
    {"driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager", "validator"}
)

# Charts that bring a second owner, by layer. HAMi replaces NVIDIA's device plugin.
DEVICE_PLUGIN_CHARTS = frozenset(
    {"nvidia-device-plugin", "k8s-device-plugin", "nvidia-gpu-device-plugin", "hami"}
)
DRA_CHARTS = frozenset({"nvidia-dra-driver-gpu", "dra-driver-nvidia-gpu"})
DRIVER_CHARTS = frozenset({"nvidia-driver-installer", "nvidia-driver"})
NFD_CHARTS = frozenset({"node-feature-discovery"})
# The network operator deploys NFD by default, as the GPU Operator does.
NETWORK_OPERATOR_CHARTS = frozenset({"network-operator", "nvidia-network-operator"})


def base_name(chart: str) -> str:
    """The chart's own name: `gpu-operator` for `oci://host/gpu-operator:v1` or `./gpu-operator-v26.7.tgz`."""
    name = chart.split("?")[0].rstrip("/").replace("\\", "/").rsplit("/", 1)[-1]
    name = name.split("@")[0]
    name = name.split(":")[0]
    name = re.sub(r"\.(tgz|tar\.gz)$", "", name)
    return re.sub(r"-v?\d+(\.\d+)+.*$", "", name).lower()


def is_chart(resource: Resource) -> bool:
    return resource.type in CHART_TYPES


def chart_names(resource: Resource) -> set[str]:
    """The names a Release's chart goes by: its reference, and its own name once it is installed."""
    references = (resource.props["chart"].peek_text(), resource.props["status"]["chart"].peek_text())
    return {base_name(reference) for reference in references if reference}


def operator_values(resource: Resource) -> View | None:
    """The values that the GPU Operator gets from this chart, or None when the chart does not install it.

    An umbrella chart that has the operator as a dependency passes them below `gpu-operator`.
    """
    values = resource.props["values"]
    names = chart_names(resource)
    if any(_is_operator_name(name) for name in names):
        return values
    below = values["gpu-operator"]
    if below.is_mapping:
        return None if below["enabled"].peek() is False else below
    if len(_OPERATOR_KEYS.intersection(values.peek_keys())) >= 2 and not names & _NOT_NVIDIA:
        return values
    return None


def _is_operator_name(name: str) -> bool:
    return name not in _NOT_NVIDIA and (
        name.startswith("gpu-operator") or name.endswith("nvidia-gpu-operator")
    )
