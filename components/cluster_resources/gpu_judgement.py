"""Is the GPU stack ready? A pure judgement of a snapshot against an expectation.

Neither `ClusterPolicy.status.state=ready` nor its reason `Reconciled` proves anything: with a pool taint that
the operands do not tolerate every DaemonSet has 0 desired, and the policy still says ready (seen with the
chart v26.7.0). What proves it is a ready validator and device plugin on every GPU node and the node's
allocatable `nvidia.com/gpu`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from components.cluster_resources.gpu_snapshot import GPU, DaemonSet, Node, Pod, Snapshot, expectation_nodes
from components.cluster_resources.membership import taint_text
from components.cluster_resources.waiting import Verdict

VALIDATOR = "nvidia-operator-validator"
DEVICE_PLUGIN = "nvidia-device-plugin-daemonset"
OPERATOR = "gpu-operator"
NFD_WORKER = "gpu-operator-node-feature-discovery-worker"

OPERAND_TOLERATIONS = "daemonsets.tolerations"
NFD_TOLERATIONS = "node-feature-discovery.worker.tolerations"

DAEMONSET_CONTROLLER_TOLERATES = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    )
)
"""Added by Kubernetes to every DaemonSet's Pods:
https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/.
"""


@dataclass(frozen=True)
class PoolExpectation:
    """One GPU pool."""

    name: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    taint: Mapping[str, str]
    """`key`, `value`, `effect`."""
    match_labels: Mapping[str, str] = field(default_factory=dict)
    """In place of `nodes` where an autoscaler adds and removes them: the labels by which they are found."""
    min_nodes: int | None = None
    """Nodes that must be there at least; None: all of `nodes`, and at least one."""


@dataclass(frozen=True)
class Expectation:
    """What must be true before a Job may ask for a GPU."""

    pools: tuple[PoolExpectation, ...]
    runtime_classes: tuple[str, ...] = ()
    """Names that Jobs use; none where the platform has no such class."""
    daemonsets: tuple[str, ...] = (VALIDATOR, DEVICE_PLUGIN)
    """DaemonSets that need a ready Pod on every node of the pools."""
    deployments: tuple[str, ...] = (OPERATOR,)
    nfd_daemonsets: tuple[str, ...] = (NFD_WORKER,)
    """DaemonSets of Node Feature Discovery, on these nodes and maybe others; none where it is not the
    operator's.
    """
    absent_daemonsets: tuple[str, ...] = ()
    """DaemonSets that must not exist, because their layer has another owner."""

    @classmethod
    def from_props(cls, props: Mapping[str, Any]) -> Expectation:
        """From the resource's inputs, which are this dataclass with lists and camelCase keys."""
        return cls(
            pools=tuple(
                PoolExpectation(
                    pool["name"],
                    tuple(pool.get("nodes", ())),
                    int(pool["gpusPerNode"]),
                    dict(pool["taint"]),
                    dict(pool.get("matchLabels", {})),
                    int(pool["minNodes"]) if "minNodes" in pool else None,
                )
                for pool in props["pools"]
            ),
            runtime_classes=tuple(props["runtimeClasses"]),
            daemonsets=tuple(props["daemonSets"]),
            deployments=tuple(props["deployments"]),
            nfd_daemonsets=tuple(props["nfdDaemonSets"]),
            absent_daemonsets=tuple(props["absentDaemonSets"]),
        )


def judge(snapshot: Snapshot, expectation: Expectation) -> Verdict:
    """The verdict over one snapshot. A fault may be a moment old state: act on it when it stays for a
    while.
    """
    waiting: list[str] = []
    faults: list[str] = []
    notes: list[str] = []
    expectation = replace(expectation, pools=tuple(_found(snapshot, pool) for pool in expectation.pools))
    _operator(snapshot, expectation, waiting)
    for name in expectation.runtime_classes:
        if name not in snapshot.runtime_classes:
            waiting.append(f"RuntimeClass {name} does not exist yet.")
    for name in expectation.absent_daemonsets:
        if name in snapshot.daemonsets:
            faults.append(
                f"DaemonSet {name} exists, but the table of owners gives its layer to somebody else, and a "
                "layer with two owners breaks the GPUs. Remove what made it: a value in "
                "holdfast:gpuOperator.extraValues, or another release."
            )
    for pool in expectation.pools:
        if pool.nodes or pool.min_nodes is None:
            _pool(snapshot, expectation, pool, waiting, faults)
        elif pool.min_nodes == 0:
            notes.append(
                f"Pool {pool.name} has no node now and needs none at least, so its GPUs are proved when the first run"
                " brings one."
            )
        if pool.min_nodes and len(pool.nodes) < pool.min_nodes:
            labels = ", ".join(f"{key}={value}" for key, value in sorted(pool.match_labels.items()))
            waiting.append(
                f"Pool {pool.name} has {len(pool.nodes)} of at least {pool.min_nodes} nodes"
                f"{f' (labels {labels})' if labels else ''}."
            )
    return Verdict(tuple(waiting), tuple(faults), tuple(notes))


def _found(snapshot: Snapshot, pool: PoolExpectation) -> PoolExpectation:
    if not pool.match_labels:
        return pool
    return replace(pool, nodes=expectation_nodes(snapshot.nodes, {"matchLabels": pool.match_labels}))


def _operator(snapshot: Snapshot, expectation: Expectation, waiting: list[str]) -> None:
    for name in expectation.deployments:
        deployment = snapshot.deployments.get(name)
        if deployment is None:
            waiting.append(f"Deployment {name} does not exist yet.")
        elif deployment.available < deployment.wanted:
            pods = [p for p in snapshot.pods if p.controller.rsplit("-", 1)[0] == name]
            waiting.append(
                f"Deployment {name} has {deployment.available} of {deployment.wanted} Pods "
                f"available{_problems(pods)}."
            )
    policy = snapshot.cluster_policy
    if policy is None:
        waiting.append("The operator's ClusterPolicy does not exist yet.")
    elif policy.state != "ready" or policy.reason not in _enough(expectation):
        why = ": ".join(part for part in (policy.reason, policy.message) if part)
        waiting.append(f"ClusterPolicy is {policy.state}{f' ({why})' if why else ''}.")


def _enough(expectation: Expectation) -> tuple[str, ...]:
    """Reasons of a ClusterPolicy that is as ready as it can be.

    Without a GPU node the controller makes no DaemonSet, only RuntimeClasses, and says one of the last two
    (gpu-operator v26.7.0, controllers/object_controls.go, DaemonSet; clusterpolicy_controller.go, Reconcile).
    """
    empty = all(pool.min_nodes == 0 and not pool.nodes for pool in expectation.pools)
    return ("Reconciled", "NoGPUNodes", "NFDLabelsMissing") if empty else ("Reconciled",)


def _pool(
    snapshot: Snapshot, expectation: Expectation, pool: PoolExpectation, waiting: list[str], faults: list[str]
) -> None:
    if not pool.nodes:
        faults.append(
            f"Pool {pool.name} has no node, so it has no GPU. Correct its selectNodes in holdfast:nodePools."
        )
        return
    nodes = [snapshot.nodes[name] for name in pool.nodes if name in snapshot.nodes]
    for name in pool.nodes:
        if name not in snapshot.nodes:
            waiting.append(f"Node {name} of pool {pool.name} is not in the cluster.")
    waiting += [f"Node {node.name} is not Ready ({node.why_not_ready})." for node in nodes if not node.ready]
    _tolerations(snapshot, expectation, pool, faults)
    for name in (*expectation.nfd_daemonsets, *expectation.daemonsets):
        _daemonset(snapshot, pool, nodes, name, waiting)
    for node in nodes:
        _gpus(snapshot, expectation, pool, node, waiting, faults)


def _tolerations(
    snapshot: Snapshot, expectation: Expectation, pool: PoolExpectation, faults: list[str]
) -> None:
    if pool.taint["effect"] == "PreferNoSchedule":
        return
    for value, names in (
        (OPERAND_TOLERATIONS, expectation.daemonsets),
        (NFD_TOLERATIONS, expectation.nfd_daemonsets),
    ):
        found = [snapshot.daemonsets[name] for name in names if name in snapshot.daemonsets]
        # One list of tolerations serves them all, so they are one fault with one fix.
        refused = [daemonset.name for daemonset in found if not _tolerated(daemonset, pool.taint)]
        if refused:
            many = len(refused) > 1
            faults.append(
                f"DaemonSet{'s' if many else ''} {', '.join(refused)} {'do' if many else 'does'} not tolerate the "
                f"taint {taint_text(pool.taint)} of pool {pool.name}, so {'they have' if many else 'it has'} no Pod on "
                f"{', '.join(pool.nodes)} and their GPUs stay unusable, "
                f"whatever the ClusterPolicy says. Add {_toleration(pool.taint)} to the chart value "
                f"{value} (holdfast:gpuOperator.extraValues replaces the whole list), or remove that value "
                "from extraValues: the list then follows from the pool's taint."
            )


def _daemonset(
    snapshot: Snapshot, pool: PoolExpectation, nodes: list[Node], name: str, waiting: list[str]
) -> None:
    daemonset = snapshot.daemonsets.get(name)
    if daemonset is None:
        waiting.append(f"DaemonSet {name} does not exist yet.")
        return
    pods = [pod for pod in snapshot.pods if pod.controller == name]
    served = {pod.node for pod in pods if pod.ready}
    missing = [node for node in nodes if node.name not in served]
    if not missing and daemonset.desired >= len(pool.nodes):
        return
    reasons = []
    for node in missing:
        there = [pod for pod in pods if pod.node == node.name]
        reasons.append(f"{node.name}: {_why(there, daemonset, node, pool)}")
    told = "; ".join(reasons) or daemonset.problem or "its controller has not counted the nodes yet"
    waiting.append(
        f"DaemonSet {name} has a ready Pod on {len(nodes) - len(missing)} of {len(pool.nodes)} nodes of "
        f"pool {pool.name} ({told})."
    )


def _why(pods: list[Pod], daemonset: DaemonSet, node: Node, pool: PoolExpectation) -> str:
    if pods:
        return next(
            (f"{pod.name} {pod.problem}" for pod in pods if pod.problem), f"{pods[0].name} is starting"
        )
    for taint in node.taints:
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and taint["key"] not in DAEMONSET_CONTROLLER_TOLERATES and not _tolerated(daemonset, taint):
            return f"its taint {taint_text(taint)} is not tolerated"
    missing = [f"{k}={v}" for k, v in sorted(daemonset.node_selector.items()) if node.labels.get(k) != v]
    if missing:
        return (
            f"not labelled {', '.join(missing)} by the operator, which needs Node Feature Discovery's labels"
        )
    return daemonset.problem or "no Pod yet"


def _gpus(
    snapshot: Snapshot,
    expectation: Expectation,
    pool: PoolExpectation,
    node: Node,
    waiting: list[str],
    faults: list[str],
) -> None:
    if node.allocatable == pool.gpus_per_node == node.capacity:
        return
    plugin_runs = any(
        p.ready and p.controller == DEVICE_PLUGIN and p.node == node.name for p in snapshot.pods
    )
    if node.capacity not in (0, pool.gpus_per_node) and (
        plugin_runs or DEVICE_PLUGIN not in expectation.daemonsets
    ):
        faults.append(
            f"Node {node.name} has {node.capacity} {GPU}, and pool {pool.name} says gpusPerNode: "
            f"{pool.gpus_per_node}. Write gpusPerNode: {node.capacity} for the pool in holdfast:nodePools, "
            "or take the node out of it."
        )
    elif node.capacity == pool.gpus_per_node and node.allocatable < node.capacity:
        waiting.append(
            f"Node {node.name} offers {node.allocatable} of its {node.capacity} {GPU}: the others are "
            "unhealthy."
        )
    else:
        waiting.append(f"Node {node.name} offers {node.allocatable} {GPU}, expected {pool.gpus_per_node}.")


def _tolerated(daemonset: DaemonSet, taint: Mapping[str, str]) -> bool:
    return any(tolerates(toleration, taint) for toleration in daemonset.tolerations)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Kubernetes' own rule: no effect takes every effect, `Exists` without a key takes every taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _toleration(taint: Mapping[str, str]) -> str:
    if taint.get("value"):
        return f"{{key: {taint['key']}, operator: Equal, value: {taint['value']}, effect: {taint['effect']}}}"
    return f"{{key: {taint['key']}, operator: Exists, effect: {taint['effect']}}}"


def _problems(pods: list[Pod]) -> str:
    told = [f"{pod.name} {pod.problem}" for pod in pods if pod.problem]
    return f" ({'; '.join(told)})" if told else ""
