"""A GPU pool's taint is tolerated by all that must run there: operands, NFD, device plugin, and GPU work.

Untolerated, the operands have 0 desired Pods, the ClusterPolicy still says ready, and no GPU is to be had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pulumi_policy import Severity

from rules import charts, daemonsets
from rules.engine import Config, Resource, Violation, of_kubernetes, stack_policy
from rules.installs import GPU_TOLERATION, Install, installs
from rules.node_pools import NodePool, Taint, is_pool_type, node_pools, tolerates
from rules.placement import alternatives
from rules.pods import asks_for_gpu, gpu_names, may_have_pods, note_if_gpu_is_hidden, workloads
from rules.table import OPERATOR, eks_profile, profiles
from rules.tolerations import tolerated_gpu_taint
from rules.views import View

# The charts' own tolerations (GPU Operator v26.7.0, device plugin v0.17, NFD v0.17).
_CONTROL_PLANE = {
    "key": "node-role.kubernetes.io/control-plane",
    "operator": "Equal",
    "value": "",
    "effect": "NoSchedule",
}
_PLUGIN = [{"key": "CriticalAddonsOnly", "operator": "Exists"}, GPU_TOLERATION]
_OPERANDS_KEY = "daemonsets.tolerations"
_NFD_KEY = "node-feature-discovery.worker.tolerations"
# Taints of the control plane and of Kubernetes' own node conditions say nothing about GPU pools.
_NOT_OF_POOLS = ("node-role.kubernetes.io/", "node.kubernetes.io/", "CriticalAddonsOnly")
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class _Part:
    """Something that must run on every GPU node; `key` is where its tolerations are written."""

    title: str
    urn: str
    key: str
    what: str
    tolerations: View


def check_pool_taints(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """Operators, NFD and device plugins against the pools of their cluster, then Pods that ask for GPUs."""
    found, pools = installs(resources), node_pools(resources)
    shown = {pool.cluster for pool in pools}
    for install in found:
        if install.resource.cluster not in shown:
            yield from _check_operands_against_nfd(install)
    if not pools:
        return
    charts.note_unnamed_charts(resources, shown)
    by_cluster = {cluster: [pool for pool in pools if pool.cluster == cluster] for cluster in shown}
    # NFD's labels matter for the pools where an operator or a plugin's chart goes by them.
    by_labels = {install.resource.cluster for install in found}
    by_labels |= {r.cluster for r in resources if _is_plugin_chart(r)}
    parts = [
        (r.cluster, part)
        for r in resources
        if r.cluster in by_cluster
        for part in _parts_of(r, by_cluster[r.cluster], r.cluster in by_labels)
    ]
    parts += [(install.resource.cluster, part) for install in found for part in _parts_of_operator(install)]
    for pool in pools:
        for view in pool.hidden_taints:
            view.note()
        for cluster, part in parts:
            if cluster != pool.cluster or not _needs_operands(pool):
                continue
            if part.tolerations.unknown:
                part.tolerations.note()
                continue
            if pool.taints:
                _note_hidden(part.tolerations)
            for taint in pool.untolerated(part.tolerations):
                yield Violation(
                    f"{pool.title} has the taint {taint.text}, which {part.what} of {part.title} do not"
                    f" tolerate, so that they never run there and no GPU of the pool can be used. Add"
                    f" {_toleration(taint)} to {part.key}.",
                    part.urn,
                )
    yield from _check_pods(resources, pools)


def _note_hidden(tolerations: View) -> None:
    """An unknown toleration may be the one that is missing."""
    for each in tolerations.elements():
        for key in ("key", "operator", "value", "effect"):
            each[key].value()


def _toleration(taint: Taint) -> str:
    value = taint.value.peek_text()
    match = f"operator: Equal, value: {value}" if value else "operator: Exists"
    return f"{{key: {taint.key}, {match}, effect: {taint.effect}}}"


def _given(view: View, default: list[dict[str, str]]) -> View:
    return view if view.exists else view.over(default)


def _parts_of_operator(install: Install) -> Iterator[_Part]:
    urn, title = install.resource.urn, install.title
    yield _Part(title, urn, _OPERANDS_KEY, "the operands", install.operand_tolerations)
    with_nfd = install.by_chart and install.effective("nfd.enabled")
    if with_nfd is None:
        install.setting("nfd.enabled").note()
    if with_nfd is True:
        worker = _given(install.setting(_NFD_KEY), [_CONTROL_PLANE, GPU_TOLERATION])
        yield _Part(title, urn, _NFD_KEY, "the workers of Node Feature Discovery", worker)


def _is_plugin_chart(r: Resource) -> bool:
    return charts.is_chart(r) and bool(charts.chart_names(r) & charts.DEVICE_PLUGIN_CHARTS)


def _parts_of(r: Resource, pools: Sequence[NodePool], with_nfd: bool) -> Iterator[_Part]:
    if charts.is_chart(r) and charts.operator_values(r) is None:
        names, values = charts.chart_names(r), charts.chart_values(r)
        if with_nfd and names & charts.NFD_CHARTS:
            worker = _given(values["worker"]["tolerations"], [])
            yield _Part(r.title, r.urn, "worker.tolerations", "the workers", worker)
        if _is_plugin_chart(r) and "hami" not in names and _is_plugin_for(values, pools):
            yield _Part(r.title, r.urn, "tolerations", "the Pods", _given(values["tolerations"], _PLUGIN))
    elif r.kind == "DaemonSet":
        layers = {claim.layer for claim in daemonsets.claims(r) if claim.unknown is None}
        for workload in workloads(r) if layers else ():
            spec = workload.spec
            is_nfd = with_nfd and "nfd" in layers and _fits_all(spec, pools)
            if is_nfd or ("devicePlugin" in layers and _is_plugin_for(spec, pools)):
                told = _given(spec["tolerations"], [])
                yield _Part(r.title, r.urn, "spec.template.spec.tolerations", "the Pods", told)


def _fits_all(spec: View, pools: Sequence[NodePool]) -> bool:
    """Whether nothing but a taint keeps these Pods from the pools: what selects some is not meant for all."""
    nodes = alternatives(spec)
    return all(pool.may_run(nodes, None) for pool in pools)


def _is_plugin_for(spec: View, pools: Sequence[NodePool]) -> bool:
    return _fits_all(spec, pools) and all(_needs_a_plugin(pool) for pool in pools)


def _needs_operands(pool: NodePool) -> bool:
    """Bottlerocket brings all that an operand would: what keeps operands away there is right."""
    row = eks_profile(pool.image) if pool.platform == "eks" else None
    return pool.takes_operands and (row is None or profiles()[row].owners["nfd"] is not None)


def _needs_a_plugin(pool: NodePool) -> bool:
    if pool.platform == "gke":
        return not pool.default_device_plugin
    row = eks_profile(pool.image) if pool.platform == "eks" else "aks-image"
    return row is None or profiles()[row].owners["devicePlugin"] == OPERATOR


def _check_operands_against_nfd(install: Install) -> Iterator[Violation]:
    """Where no pool shows its taint: what one of the two is told to tolerate, the other must tolerate too."""
    if not install.by_chart or install.effective("nfd.enabled") is not True:
        return
    operands, worker = install.setting(_OPERANDS_KEY), install.setting(_NFD_KEY)
    if operands.unknown or worker.unknown:
        operands.value(), worker.value()
        return
    operands, worker = install.operand_tolerations, _given(worker, [_CONTROL_PLANE, GPU_TOLERATION])
    for one, other, where, what in (
        (operands, worker, _NFD_KEY, "the workers of Node Feature Discovery"),
        (worker, operands, _OPERANDS_KEY, "the operands"),
    ):
        for toleration in one.peek_elements():
            taint = _taint_of(toleration)
            if taint is None or (where == _OPERANDS_KEY and not _is_of_gpu_nodes(toleration)):
                continue
            if not any(tolerates(each, taint) for each in other.peek_elements()):
                yield Violation(
                    f"{install.title}: {_OPERANDS_KEY if where == _NFD_KEY else _NFD_KEY} has {taint.text},"
                    f" but {where} has not, so {what} never run on nodes with that taint and no GPU of"
                    f" theirs can be used. Add {_toleration(taint)} to {where}.",
                    install.resource.urn,
                )


def _is_of_gpu_nodes(toleration: View) -> bool:
    """NFD runs on other nodes too; and that it keeps the chart's own toleration of nvidia.com/gpu says
    little.
    """
    return (
        toleration["key"].peek_text() != GPU_TOLERATION["key"] and tolerated_gpu_taint(toleration) is not None
    )


def _taint_of(toleration: View) -> Taint | None:
    key, effect = toleration["key"].peek_text(), toleration["effect"].peek_text() or "NoSchedule"
    if not key or key.startswith(_NOT_OF_POOLS) or effect == "PreferNoSchedule":
        return None
    return Taint(key, toleration["value"], effect)


def _check_pods(resources: Sequence[Resource], pools: Sequence[NodePool]) -> Iterator[Violation]:
    """Pods that ask for GPUs and tolerate no pool that they could go to, as far as the stack shows pools."""
    for r in resources:
        if not of_kubernetes(r.type) or r.kind == "DaemonSet":
            continue
        here = [pool for pool in pools if pool.cluster == r.cluster]
        for workload in workloads(r) if here else ():
            if not workload.complete or asks_for_gpu(workload) is False:
                continue
            if any(labels[_QUEUE_LABEL].value() is not None for labels in workload.labels):
                continue  # Kueue adds the tolerations of the flavor that it takes
            nodes, tolerations = alternatives(workload.spec), workload.spec["tolerations"]
            fitting = [pool for pool in here if pool.may_run(nodes, None)]
            if tolerations.unknown:
                tolerations.note()
                continue
            missing = [_missing(pool, workload.spec) for pool in fitting]
            if not missing or not all(missing) or any(labels.unknown for labels in workload.labels):
                continue
            note_if_gpu_is_hidden(workload)
            if asks_for_gpu(workload):
                yield Violation(
                    f"{workload.title} asks for a GPU, but does not tolerate {missing[0][0].text} of"
                    f" {fitting[0].title}, so it stays Pending. Add {_toleration(missing[0][0])} to its"
                    " tolerations.",
                    r.urn,
                )


def _missing(pool: NodePool, spec: View) -> list[Taint]:
    """EKS and GKE add the toleration of a taint that is named as the resource
    (ExtendedResourceToleration).
    """
    asked: set[str] = set()
    for container in (*spec["containers"].peek_elements(), *spec["initContainers"].peek_elements()):
        asked |= gpu_names(container)[0]
    return [taint for taint in pool.untolerated(spec["tolerations"]) if taint.key not in asked]


POOL_TAINT_TOLERATED = stack_policy(
    name="pool-taint-tolerated",
    description="Operands, NFD, device plugin and GPU work tolerate the taints of the GPU pools.",
    severity=Severity.HIGH,
    remediation=(
        f"Add the pool's taint, with the same value, to {_OPERANDS_KEY} and {_NFD_KEY} of the GPU Operator's"
        " values (a list that is set replaces the chart's own), to worker.tolerations of a Node Feature"
        " Discovery of its own, and to the tolerations of Pods that use the GPUs."
    ),
    check=check_pool_taints,
    wants=lambda type_: is_pool_type(type_) or charts.may_be_chart(type_) or may_have_pods(type_),
)
