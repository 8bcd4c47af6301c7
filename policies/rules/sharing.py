"""Shared and sliced GPUs: under the name that is advertised, and never as the wall between tenants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pulumi_policy import Severity

from rules import charts
from rules.engine import Config, Resource, Violation, of_kubernetes, stack_policy
from rules.installs import installs
from rules.node_pools import is_pool_type, node_pools
from rules.outline import Line, outline
from rules.pods import Workload, gpu_names, may_have_pods, note_if_gpu_is_hidden, workloads
from rules.quantity import parse
from rules.quota_keys import QUOTA, gpu_quota

_CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
_OF_PLUGIN = re.compile(r"sharing|slic|device-plugin|nvidia|\bmps\b|\bgpu", re.IGNORECASE)
_SHARED = ".shared"
_GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
_KINDS = {"timeSlicing": "time-slicing", "mps": "MPS"}


@dataclass(frozen=True)
class _Sharing:
    """GPUs of a cluster that several Pods use at once: `renamed` if they are advertised as
    nvidia.com/gpu.shared.
    """

    cluster: str
    urn: str
    title: str
    kind: str
    renamed: bool


def check_sharing(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """The device plugin's configurations, GKE's sharing pools, quotas of several namespaces, and MIG
    requests.
    """
    found = []
    for r in resources:
        for text in _texts(r):
            lines = list(outline(text))
            if any(line.path[0] == "sharing" for line in lines):
                found.extend(_of_text(r, lines))
                yield from _misplaced(r, lines)
    for pool in node_pools(resources):
        if pool.sharing:
            kind = "MPS" if pool.sharing == "MPS" else "time-slicing"
            found.append(_Sharing(pool.cluster, pool.resource.urn, pool.title, kind, renamed=False))
    yield from _check_quotas(resources, found)
    yield from _check_slices(resources)


def _texts(r: Resource) -> Iterator[str]:
    """Where the device plugin gets its configuration from: ConfigMaps, and values that make them."""
    if r.type == _CONFIG_MAP:
        places = [r.props["data"]]
        # An unknown text is the plugin's only if something says so: many ConfigMaps have unknown texts.
        if _OF_PLUGIN.search(f"{r.name} {r.props['metadata']['name'].peek_text()}"):
            for key in places[0].keys():
                places[0][key].value()
    elif charts.is_chart(r):
        values = charts.chart_values(r)
        operator = charts.operator_values(r)
        places = [operator["devicePlugin"]["config"]["data"] if operator else values["config"]["map"]]
    else:
        return
    for place in places:
        for key in place.peek_keys():
            text = place[key].peek_text()
            if text and "sharing" in text:
                yield text


def _of_text(r: Resource, lines: Sequence[Line]) -> Iterator[_Sharing]:
    for key, kind in _KINDS.items():
        under = [line for line in lines if line.path[:2] == ("sharing", key)]
        if not under:
            continue
        renamed = any(
            line.path[2:] == ("renameByDefault",) and line.value.lower() == "true" for line in under
        )
        yield _Sharing(r.cluster, r.urn, r.title, kind, renamed)


def _misplaced(r: Resource, lines: Sequence[Line]) -> Iterator[Violation]:
    for line in lines:
        if line.path[-1] == "renameByDefault" and line.path[:-1] not in (
            ("sharing", "timeSlicing"),
            ("sharing", "mps"),
        ):
            yield Violation(
                f"{r.title}: renameByDefault stands below '{'.'.join(line.path[:-1]) or 'the top'}', where"
                " the device plugin does not read it, so the shared GPUs keep the name nvidia.com/gpu. Put"
                " it below sharing.timeSlicing.",
                r.urn,
            )


def _check_quotas(resources: Sequence[Resource], found: Sequence[_Sharing]) -> Iterator[Violation]:
    for sharing in found:
        quotas = [
            (r, capped)
            for r in resources
            if r.type == QUOTA
            and r.cluster == sharing.cluster
            and (capped := gpu_quota(r.props["spec"]["hard"]))
        ]
        for r in resources:
            if r.type == QUOTA and r.cluster == sharing.cluster:
                r.props["spec"]["hard"].value()
        if sharing.renamed:
            for r, capped in quotas:
                if not any(name.endswith(_SHARED) for name in capped):
                    name = next(iter(capped))
                    yield Violation(
                        f"{r.title} caps {name}, but {sharing.title} advertises the shared GPUs as"
                        f" nvidia.com/gpu.shared, which nothing caps. Add requests.nvidia.com/gpu.shared.",
                        r.urn,
                    )
        advertised = "nvidia.com/gpu.shared" if sharing.renamed else "nvidia.com/gpu"
        tenants = {
            r.props["metadata"]["namespace"].peek_text() or "default"
            for r, capped in quotas
            if advertised in capped and parse(capped[advertised].peek()) != 0
        }
        if len(tenants) > 1:
            names = sorted(tenants)
            yield Violation(
                f"{sharing.title} shares GPUs by {sharing.kind} between the tenants"
                f" {' and '.join(names[:2])}{' and others' if len(names) > 2 else ''}, which have quotas of"
                " their own: on a shared GPU one tenant's program can use up the memory or end the work of"
                " another. Give every tenant whole GPUs, and share only inside one namespace.",
                sharing.urn,
            )


def _asked(workload: Workload) -> dict[str, object]:
    """The GPU resources that a Pod's containers ask for, with an amount of each."""
    return {
        name: container["resources"]["limits"][name].peek()
        for container in workload.spec["containers"].peek_elements()
        for name in gpu_names(container)[0]
    }


def _check_slices(resources: Sequence[Resource]) -> Iterator[Violation]:
    """Pods that ask for MIG slices where the operator advertises them under the name of a whole GPU."""
    plugins = {
        r.cluster
        for r in resources
        if charts.is_chart(r) and charts.chart_names(r) & charts.DEVICE_PLUGIN_CHARTS
    }
    single = {}
    sliced = {
        r.cluster
        for r in resources
        if any(n.startswith("nvidia.com/mig-") for w in workloads(r) for n in _asked(w))
    }
    charts.note_unnamed_charts(resources, sliced)
    for install in installs(resources):
        strategy = install.setting("mig.strategy")
        if install.resource.cluster in plugins or install.effective("devicePlugin.enabled") is not True:
            continue
        if strategy.unknown:
            strategy.note()
        elif (strategy.peek_text() or "single") != "mixed" and not strategy.unknown:
            single[install.resource.cluster] = (
                install,
                strategy.peek_text() or "single, the chart's default",
            )
    for r in resources:
        if not of_kubernetes(r.type):
            continue
        for workload in workloads(r):
            asked = _asked(workload)
            if r.cluster in single:
                note_if_gpu_is_hidden(workload)
            slices = sorted(name for name in asked if name.startswith("nvidia.com/mig-"))
            if slices and r.cluster in single:
                install, strategy = single[r.cluster]
                yield Violation(
                    f"{workload.title} asks for {slices[0]}, which no node has: {install.title} has"
                    f" mig.strategy {strategy}, with which slices are advertised as nvidia.com/gpu. Set"
                    " mig.strategy=mixed, or ask for nvidia.com/gpu.",
                    r.urn,
                )
            amount = parse(asked.get("nvidia.com/gpu"))
            if workload.spec["nodeSelector"][_GKE_SHARING].peek_text() and amount is not None and amount > 1:
                yield Violation(
                    f"{workload.title} asks for {amount} GPUs on nodes that share GPUs ({_GKE_SHARING}):"
                    " GKE admits 1 there. Ask for 1, or for nodes that do not share.",
                    r.urn,
                )


def _wants(type_: str) -> bool:
    described = type_ in (_CONFIG_MAP, QUOTA) or is_pool_type(type_)
    return described or charts.may_be_chart(type_) or may_have_pods(type_)


SHARING_IS_NO_WALL = stack_policy(
    name="sharing-is-no-wall",
    description="Shared GPUs have the name that is advertised, and do not stand between tenants.",
    severity=Severity.HIGH,
    remediation=(
        "Share GPUs inside one namespace only; renameByDefault stands below sharing.timeSlicing, and quotas"
        " then name requests.nvidia.com/gpu.shared. MIG slices by their own names need mig.strategy=mixed."
    ),
    check=check_sharing,
    wants=_wants,
)
