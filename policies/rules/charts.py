"""Recognising charts, whatever their Release is called and wherever the chart comes from."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

from rules.engine import Resource
from rules.views import UNKNOWN, View

_RELEASE = "kubernetes:helm.sh/v3:Release"
# Components: what they render is in the stack as resources of its own.
_COMPONENTS = frozenset({"kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v4:Chart"})
# Objects that make a controller in the cluster install a chart: Flux, Argo CD, and K3s' and RKE2's own.
_BY_CONTROLLER = re.compile(
    r"kubernetes:(helm\.toolkit\.fluxcd\.io/\w+:HelmRelease|argoproj\.io/\w+:Application"
    r"|helm\.cattle\.io/\w+:HelmChart)"
)
# What Flux's chartRef names: the chart's address and version are written there.
_OCI_SOURCE = re.compile(r"kubernetes:source\.toolkit\.fluxcd\.io/\w+:OCIRepository")
_THIS_CLUSTER = frozenset({"https://kubernetes.default.svc", "in-cluster"})
# AMD's operator has almost the same name and owns other GPUs.
_NOT_NVIDIA = frozenset({"gpu-operator-charts", "amd-gpu-operator"})
# Top-level values that together only the GPU Operator's chart has: a vendored copy may carry another name.
_OPERATOR_KEYS = frozenset(
    {"driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager", "validator"}
)
_TYPED = {"true": True, "false": False, "null": None}
_FOLDER = re.compile(r"[./]|file:")
_ALIAS = re.compile(r"(nvidia[\-_]?)?gpu[\-_]?operator", re.IGNORECASE)

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


def may_be_chart(type_: str) -> bool:
    """Whether a resource of this type can install a chart, or is a ClusterPolicy, which speaks for one."""
    return (
        type_ == _RELEASE
        or type_ in _COMPONENTS
        or type_ == "kubernetes:nvidia.com/v1:ClusterPolicy"
        or _BY_CONTROLLER.fullmatch(type_) is not None
    )


def is_chart(resource: Resource) -> bool:
    """Whether the resource installs a chart on the stack's own cluster."""
    if resource.type == _RELEASE or is_component(resource):
        return True
    return _BY_CONTROLLER.fullmatch(resource.type) is not None and not _goes_elsewhere(resource.props["spec"])


def note_unnamed_charts(resources: Iterable[Resource], clusters: Container[str]) -> None:
    """A chart whose name is not known yet may be any: a rule about one of them can not decide."""
    for resource in resources:
        if resource.cluster in clusters and is_chart(resource) and chart_reference(resource).unknown:
            chart_reference(resource).note()


def note_unread_umbrella(resource: Resource) -> None:
    """A chart of the program's own may have the operator as a dependency, which its values alone show."""
    if is_chart(resource) and _FOLDER.match(chart_reference(resource).peek_text() or ""):
        values = chart_values(resource)
        for key in values.keys():
            if _ALIAS.fullmatch(key):
                values[key].value()


def is_component(resource: Resource) -> bool:
    return resource.type in _COMPONENTS


def is_source(type_: str) -> bool:
    return _OCI_SOURCE.fullmatch(type_) is not None


def by_source(resource: Resource) -> bool:
    """Whether a HelmRelease of Flux takes its chart from an object of its own (chartRef)."""
    spec = resource.props["spec"]
    return resource.kind == "HelmRelease" and spec["chartRef"].exists and not spec.unknown


def _goes_elsewhere(spec: View) -> bool:
    """Flux and Argo CD can deploy to other clusters than the one they run on."""
    destination = spec["destination"]
    names = [destination[key].peek_text() for key in ("server", "name")]
    kube_config = spec["kubeConfig"]
    return (kube_config.exists and not kube_config.unknown) or any(
        name and name not in _THIS_CLUSTER for name in names
    )


def chart_reference(resource: Resource) -> View:
    """Which chart is installed: a name, an address or a folder."""
    props = resource.props
    if resource.kind == "HelmRelease":
        # A source of its own goes by the chart's name as a rule.
        spec = props["spec"]
        return spec["chartRef"]["name"] if by_source(resource) else spec["chart"]["spec"]["chart"]
    if resource.kind == "Application":
        source = chart_source(resource)
        return source["chart"] if source["chart"].exists else source["path"]
    return props["spec"]["chart"] if resource.kind == "HelmChart" else props["chart"]


def chart_values(resource: Resource) -> View:
    """The values given to the chart. Values in a text or in another object are not known to the rules."""
    spec = resource.props["spec"]
    if resource.kind == "HelmRelease":
        return _hidden(resource, "spec.valuesFrom") if spec["valuesFrom"].exists else spec["values"]
    if resource.kind == "Application":
        helm = chart_source(resource)["helm"]
        others = [key for key in ("values", "valueFiles") if helm[key].exists]
        given = helm["parameters"].peek_elements()
        if others or helm["parameters"].unknown or any(each["name"].unknown for each in given):
            return _hidden(resource, f"{helm.path}.{others[0] if others else 'parameters'}")
        return _with_set(
            helm["valuesObject"], [(each["name"].peek_text() or "", each["value"]) for each in given]
        )
    if resource.kind == "HelmChart":
        texts = [key for key in ("valuesContent", "set") if spec[key].exists]
        if texts and (texts[0] == "valuesContent" or spec["set"].unknown):
            return _hidden(resource, f"spec.{texts[0]}")
        return _with_set(spec["values"], [(key, spec["set"][key]) for key in spec["set"].peek_keys()])
    return resource.props["values"]


def _with_set(values: View, given: Sequence[tuple[str, View]]) -> View:
    """The values with those by dotted keys (`--set`) over them. A list that a key changes is not known."""
    merged = _copied(values) if values.exists else {}
    if not given or not isinstance(merged, dict):
        return values
    for dotted, value in given:
        name, bracket, _ = dotted.partition("[")
        *above, last = (key.replace("\\.", ".") for key in re.split(r"(?<!\\)\.", name))
        target = merged
        for key in above:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                break
        if isinstance(target, dict):
            text = value.peek_text()
            target[last] = UNKNOWN if bracket else _TYPED.get(text or "", _copied(value))
    return values.over(merged)


def _copied(view: View) -> Any:
    """What is there as plain mappings, to be changed; lists stay what they are."""
    if view.unknown:
        return UNKNOWN
    return {key: _copied(view[key]) for key in view.peek_keys()} if view.is_mapping else view.peek()


def has_value_files(resource: Resource) -> bool:
    """Whether values come from files too. Of a Release the provider has merged them into `values` when it has
    checked the inputs (pulumi-kubernetes, helmReleaseProvider.Check); of a Chart component nobody has.
    """
    return bool(resource.props["valueYamlFiles"].peek_elements()) or resource.props["valueYamlFiles"].unknown


def chart_namespace(resource: Resource) -> View:
    """Where the chart's objects go."""
    props = resource.props
    if resource.kind == "Application":
        return props["spec"]["destination"]["namespace"]
    if resource.kind in ("HelmRelease", "HelmChart"):
        target = props["spec"]["targetNamespace"]
        return target if target.exists else props["metadata"]["namespace"]
    return props["namespace"]


def chart_source(resource: Resource) -> View:
    """Argo CD's source of a chart; of several sources the one that has a chart."""
    spec = resource.props["spec"]
    several = spec["sources"].peek_elements()
    return next((source for source in several if source["chart"].exists), spec["source"])


def _hidden(resource: Resource, path: str) -> View:
    return View(UNKNOWN, resource.unknowns, path)


def chart_names(resource: Resource) -> set[str]:
    """The names a Release's chart goes by: its reference, and its own name once it is installed."""
    references = (
        chart_reference(resource).peek_text(),
        resource.props["status"]["chart"].peek_text() if resource.type == _RELEASE else None,
    )
    return {base_name(reference) for reference in references if reference}


def operator_values(resource: Resource) -> View | None:
    """The values that the GPU Operator gets from this chart, or None when the chart does not install it.

    An umbrella chart that has the operator as a dependency passes them below its name, or an alias of it.
    """
    values = chart_values(resource)
    names = chart_names(resource)
    if any(is_operator_name(name) for name in names):
        return values
    for key in values.peek_keys():
        if _ALIAS.fullmatch(key) and values[key].is_mapping:
            return None if values[key]["enabled"].peek() is False else values[key]
    if len(_OPERATOR_KEYS.intersection(values.peek_keys())) >= 2 and not names & _NOT_NVIDIA:
        return values
    return None


def is_operator_name(name: str) -> bool:
    return name not in _NOT_NVIDIA and (
        name.startswith("gpu-operator") or name.endswith("nvidia-gpu-operator")
    )
