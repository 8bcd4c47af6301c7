"""One owner per layer: driver, toolkit, device plugin and NFD across all Releases, Charts and DaemonSets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pulumi_policy import Severity

from rules import charts, daemonsets
from rules.engine import Config, Resource, Violation, stack_policy
from rules.installs import installs, operator_charts
from rules.placement import Alternative, Requirement, alternatives, never_meet
from rules.pods import may_have_pods, workloads
from rules.views import View

LAYERS = {
    "driver": "NVIDIA driver",
    "toolkit": "NVIDIA container toolkit",
    "devicePlugin": "device plugin",
    "nfd": "NFD",
}
_ADVICE = {
    "driver": (
        "Set driver.enabled=false in the GPU Operator's values where the host, the node image or an"
        " installer brings the driver, else remove the installer"
    ),
    "toolkit": "Set toolkit.enabled=false in the GPU Operator's values, or remove the other toolkit",
    "devicePlugin": (
        "Two plugins register nvidia.com/gpu with the kubelet and break each other: set "
        "devicePlugin.enabled=false in the GPU Operator's values, or remove the other plugin"
    ),
    "nfd": (
        "Set nfd.enabled=false in the GPU Operator's (or network operator's) values where NFD is installed"
        " already"
    ),
}
# The operator's operands go to the nodes that carry these labels with the value "true".
_OPERAND_LABELS = {
    "driver": "nvidia.com/gpu.deploy.driver",
    "toolkit": "nvidia.com/gpu.deploy.container-toolkit",
    "devicePlugin": "nvidia.com/gpu.deploy.device-plugin",
}
# Asks an operator for NFD: that of OpenShift, or Kubernetes' own.
_NFD_OBJECT = re.compile(r"kubernetes:nfd\.(openshift|kubernetes|k8s-sigs)\.io/\w+:NodeFeatureDiscovery")
_ANYWHERE: tuple[Alternative, ...] = ((),)


@dataclass(frozen=True)
class Owner:
    """One owner of one layer; owners with the same `identity` are one installation.

    `unknown` is the value that must be known to be sure of it, or None; `tolerations` are those of its Pods,
    or None when they go wherever the nodes' labels let them.
    """

    layer: str
    cluster: str
    identity: str
    title: str
    urn: str
    nodes: tuple[Alternative, ...] = _ANYWHERE
    unknown: View | None = None
    tolerations: View | None = None


def owners(resources: Sequence[Resource]) -> list[Owner]:
    """Every owner that the stack declares, operators first."""
    found = [*_of_operators(resources), *_of_charts(resources), *_of_objects(resources)]
    unique: dict[tuple[str, str], Owner] = {}
    for owner in found:
        known = unique.get((owner.layer, owner.identity))
        if known is None or (known.unknown is not None and owner.unknown is None):
            unique[(owner.layer, owner.identity)] = owner
    return list(unique.values())


def _identity(resource: Resource, by_urn: dict[str, Resource]) -> str:
    """A Chart component and its children are one installation."""
    above = [by_urn[urn] for urn in resource.ancestors if urn in by_urn]
    return next((parent.urn for parent in reversed(above) if charts.is_chart(parent)), resource.urn)


def _of_operators(resources: Sequence[Resource]) -> Iterator[Owner]:
    by_urn = {r.urn: r for r in resources}
    for install in installs(resources):
        r = install.resource
        for layer, label in _OPERAND_LABELS.items():
            setting = install.setting(f"{layer}.enabled")
            if install.effective(f"{layer}.enabled") is False:
                continue
            yield Owner(
                layer=layer,
                cluster=r.cluster,
                # Two operators are refused as such; here they count once.
                identity=f"operator of {r.cluster}" if install.by_chart else _identity(r, by_urn),
                title=install.title,
                urn=r.urn,
                nodes=((Requirement(label, "In", frozenset({"true"})),),),
                unknown=setting if setting.unknown else None,
            )
    rendered = _rendered(resources)
    for chart in operator_charts(resources):
        if chart.resource.urn not in rendered and chart.effective("nfd.enabled") is not False:
            setting = chart.setting("nfd.enabled")
            yield _by_object("nfd", chart.resource, setting if setting.unknown else None)


def _rendered(resources: Sequence[Resource]) -> set[str]:
    """Chart components whose objects are in the stack: those tell more than the values do."""
    components = {r.urn for r in resources if charts.is_component(r)}
    return components.intersection(urn for r in resources for urn in r.ancestors)


def _of_charts(resources: Sequence[Resource]) -> Iterator[Owner]:
    rendered = _rendered(resources)
    for r in resources:
        if not charts.is_chart(r) or r.urn in rendered or charts.operator_values(r) is not None:
            continue
        names, values = charts.chart_names(r), charts.chart_values(r)
        if names & charts.DEVICE_PLUGIN_CHARTS:
            # The chart's nodeSelector, affinity and tolerations are named as a Pod's.
            told = values["tolerations"]
            for owner in _if_enabled("devicePlugin", r, values["devicePlugin"]["enabled"]):
                yield replace(owner, nodes=alternatives(values), tolerations=told if told.exists else None)
            # Its dependency on NFD has the condition nfd.enabled, else gfd.enabled, which is off by default.
            nfd = values["nfd"]["enabled"]
            condition = nfd if nfd.exists else values["gfd"]["enabled"]
            if condition.unknown or condition.peek() is True:
                yield _by_object("nfd", r, condition if condition.unknown else None)
        if names & charts.DRA_CHARTS:
            yield from _if_enabled("devicePlugin", r, values["resources"]["gpus"]["enabled"])
        if names & charts.DRIVER_CHARTS:
            yield _by_object("driver", r, None)
        if names & charts.NFD_CHARTS:
            yield _by_object("nfd", r, None)
        if names & charts.NETWORK_OPERATOR_CHARTS:
            yield from _if_enabled("nfd", r, values["nfd"]["enabled"])


def _if_enabled(layer: str, resource: Resource, enabled: View) -> Iterator[Owner]:
    if enabled.peek() not in (False, "false"):
        yield _by_object(layer, resource, enabled if enabled.unknown else None)


def _by_object(layer: str, r: Resource, unknown: View | None) -> Owner:
    return Owner(layer, r.cluster, r.urn, r.title, r.urn, _ANYWHERE, unknown)


def _of_objects(resources: Sequence[Resource]) -> Iterator[Owner]:
    by_urn = {r.urn: r for r in resources}
    for r in resources:
        if _NFD_OBJECT.fullmatch(r.type):
            yield _by_object("nfd", r, None)
        for claim in daemonsets.claims(r):
            pods = [w.spec for w in workloads(r)]
            nodes = tuple(a for spec in pods for a in alternatives(spec)) or _ANYWHERE
            told = pods[0]["tolerations"] if len(pods) == 1 and not pods[0]["tolerations"].unknown else None
            identity = _identity(r, by_urn)
            yield Owner(claim.layer, r.cluster, identity, r.title, r.urn, nodes, claim.unknown, told)


def check_single_owner(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Two GPU Operators on one cluster, and every layer with two owners that can meet on one node."""
    yield from _check_single_operator(resources)
    found = owners(resources)
    for r in resources:
        # A chart whose name is still open may be anything.
        if charts.is_chart(r) and charts.chart_reference(r).unknown:
            charts.chart_reference(r).note()
        charts.note_unread_umbrella(r)
    for cluster in sorted({owner.cluster for owner in found}):
        for layer, layer_title in LAYERS.items():
            here = [o for o in found if o.cluster == cluster and o.layer == layer]
            clashing = _clashing([o for o in here if o.unknown is None])
            if clashing:
                names = " and ".join(o.title for o in clashing)
                yield Violation(
                    f"the {layer_title} has {len(clashing)} owners: {names}. Exactly one may own it on a"
                    f" node. {_ADVICE[layer]}.",
                    clashing[-1].urn,
                )
            else:
                for owner in _clashing(here):
                    if owner.unknown is not None:
                        owner.unknown.note()


def _clashing(candidates: Sequence[Owner]) -> list[Owner]:
    return [
        one
        for one in candidates
        if any(one is not other and not never_meet(one.nodes, other.nodes) for other in candidates)
    ]


def _check_single_operator(resources: Sequence[Resource]) -> Iterator[Violation]:
    found = installs(resources)
    for cluster in sorted({install.resource.cluster for install in found}):
        here = [install for install in found if install.resource.cluster == cluster]
        if len(here) > 1:
            names = " and ".join(install.title for install in here)
            yield Violation(
                f"{len(here)} GPU Operators are installed on one cluster: {names}. They share CRDs and the"
                " one ClusterPolicy, and each would own every layer. Keep one, and set what differs by"
                " node pool there.",
                here[-1].resource.urn,
            )


SINGLE_OWNER = stack_policy(
    name="single-gpu-stack-owner",
    description=(
        "Driver, container toolkit, device plugin and NFD have exactly one owner on every GPU node."
    ),
    severity=Severity.CRITICAL,
    remediation=(
        "Decide who owns each layer (ownership.json has one row per node profile) and turn every other"
        " owner off: driver.enabled, toolkit.enabled, devicePlugin.enabled or nfd.enabled=false in the GPU"
        " Operator's values, or no second Release or DaemonSet. DaemonSets that can never meet on a node"
        " (by node selector) are no clash."
    ),
    check=check_single_owner,
    wants=lambda type_: charts.may_be_chart(type_) or may_have_pods(type_),
)
