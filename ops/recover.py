"""A run whose node is dead: what state it is in, and whether and how it may be freed. Pure: objects in,
decisions out.

A kubelet that is silent confirms nothing, so its Pod stays Terminating for ever and no controller replaces it
(`podReplacementPolicy: Failed`). Kubernetes' own way out is the taint `node.kubernetes.io/out-of-service`:
the Pod garbage collector then removes the node's terminating Pods. It is meant for a node that is known to be
off; a process that goes on there would be a second writer. Our runs are fenced by generation, so theirs can
not write; whatever else is on the node has no such fence, and is named before anything is done.
https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ops.runs import Object, name_of, newest_pod, seconds_between

TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
NOTE = "holdfast.dev/out-of-service"
"""Annotation on a node whose taint is ours: {"run": …, "at": …} as JSON. Without it the taint is not ours."""
UNREACHABLE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
SUPERVISOR = "holdfast-run"
RUN = "holdfast.dev/run"
ONLOOKER = "holdfast.dev/acceptance-inspector"
MIRROR = "kubernetes.io/config.mirror"


class State(StrEnum):
    """Where a run on a dead node is."""

    NO_POD = "NoPod"
    OVER = "Over"  # the newest Pod has ended, and its node said so
    NO_NODE = "NoNode"  # the Pod has no node yet
    HEALTHY = "Healthy"  # the Pod's node is Ready
    DYING = "NodeSilent"  # the node is not Ready, the Pod not told to go yet
    STUCK = "Stuck"  # Terminating on a node that does not answer
    FREEING = "OutOfService"  # the taint is there, the Pod not gone yet
    NODE_GONE = "NodeGone"  # the Node object was deleted: Kubernetes frees the Pod by itself


@dataclass(frozen=True)
class Situation:
    """What was read at one moment.

    pods: of the run, over all its attempts. node: of the newest one that is not over. on_node: all its Pods.
    """

    run: str
    pods: Sequence[Object]
    node: Object | None
    on_node: Sequence[Object]
    now: datetime


@dataclass(frozen=True)
class Verdict:
    """The state in one sentence, and what may be done.

    `may_taint`: the way out applies now. `unsafe`: Pods on the node, `namespace/name (owner)`, that nothing
    keeps from going on (the run's own too, where it has no supervisor). `fenced`: the run's own Pod is.
    """

    state: State
    sentence: str
    pod: str = ""
    namespace: str = ""
    node: str = ""
    since: str = ""
    """When the node's Ready condition changed, as the API has it."""
    deletion_reason: str = ""
    fenced: bool = False
    may_taint: bool = False
    unsafe: tuple[str, ...] = ()


def judge(situation: Situation) -> Verdict:
    """What became of the run's newest Pod and its node."""
    pod = stuck_pod(situation.pods)
    if pod is None:
        newest = newest_pod(situation.pods)
        if newest is None:
            return Verdict(State.NO_POD, f"Run {situation.run} has no Pod now.")
        return Verdict(
            State.OVER,
            f"Pod {name_of(newest)} of run {situation.run} has ended ({_phase(newest)}); nothing holds it.",
            name_of(newest),
            _namespace(newest),
        )
    where = {"pod": name_of(pod), "namespace": _namespace(pod), "node": node_name(pod)}
    if not node_name(pod):
        return Verdict(State.NO_NODE, f"Pod {name_of(pod)} has no node yet: no node holds it.", **where)
    if situation.node is None:
        return Verdict(
            State.NODE_GONE,
            f"Node {node_name(pod)} does not exist any more; Kubernetes removes its Pods by itself.",
            **where,
        )
    return _on_node(situation, pod, situation.node, where)


def _on_node(situation: Situation, pod: Object, node: Object, where: Mapping[str, str]) -> Verdict:
    status, since = readiness(node)
    if status == "True":
        return Verdict(
            State.HEALTHY,
            f"Node {where['node']} is Ready: its kubelet answers for Pod {where['pod']}; nothing is stuck.",
            since=since,
            **where,
        )
    silent = seconds_between(since, situation.now) or 0.0
    word = "silent (Ready is Unknown)" if status == "Unknown" else "not Ready"
    about = f"Node {where['node']} is {word} since {since or 'an unknown time'}, for {silent:.0f} s"
    fenced = is_fenced(pod)
    known = {
        "since": since,
        "deletion_reason": deletion_reason(pod),
        "fenced": fenced,
        "unsafe": tuple(unsafe_on(situation.on_node)),
        **where,
    }
    if has_taint(node):
        return Verdict(
            State.FREEING,
            f"{about}, and is marked out of service: Kubernetes is about to remove Pod {where['pod']}.",
            **known,
        )
    fence = (
        "Its process may go on; the generation fence keeps it from the checkpoints and the result."
        if fenced
        else f"Its process may go on, and it is not under {SUPERVISOR}: nothing would fence it."
    )
    if not _at(pod, "metadata", "deletionTimestamp"):
        left = tolerated_seconds(pod, node)
        soon = f" Kubernetes tells it to go after {left} s of that." if left is not None else ""
        return Verdict(
            State.DYING, f"{about}. Pod {where['pod']} is not told to go yet.{soon} {fence}", **known
        )
    reason = f" ({known['deletion_reason']})" if known["deletion_reason"] else ""
    return Verdict(
        State.STUCK,
        f"{about}. Pod {where['pod']} is Terminating{reason}, and nobody confirms that it ended, so no new "
        f"one is made. {fence}",
        may_taint=True,
        **known,
    )


def stuck_pod(pods: Sequence[Object]) -> Object | None:
    """The Pod that counts: the newest of those that have not ended."""
    return newest_pod([pod for pod in pods if _phase(pod) not in ("Succeeded", "Failed")])


def readiness(node: Object) -> tuple[str, str]:
    """Status of the Ready condition (True, False, Unknown) and since when."""
    for condition in _at(node, "status", "conditions") or []:
        if condition.get("type") == "Ready":
            return str(condition.get("status", "Unknown")), str(condition.get("lastTransitionTime") or "")
    return "Unknown", ""


def deletion_reason(pod: Object) -> str:
    """Why Kubernetes takes the Pod away (DeletionByTaintManager, …); empty where a person or nobody does."""
    for condition in _at(pod, "status", "conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"DisruptionTarget: {condition.get('reason', '')}"
    return ""


def tolerated_seconds(pod: Object, node: Object) -> int | None:
    """How long the Pod tolerates what the node is tainted with; None where that is for ever or not known."""
    tainted = {taint["key"] for taint in _taints(node) if taint["key"] in UNREACHABLE}
    times = [
        int(toleration["tolerationSeconds"])
        for toleration in _at(pod, "spec", "tolerations") or []
        if toleration.get("key") in (tainted or set(UNREACHABLE)) and "tolerationSeconds" in toleration
    ]
    return min(times, default=None)


def is_fenced(pod: Object) -> bool:
    """Whether the Pod's program runs under our supervisor, which claims a generation before it starts."""
    containers = _at(pod, "spec", "containers") or []
    return bool(containers) and all(
        str((container.get("command") or [""])[0]).rpartition("/")[2] == SUPERVISOR
        for container in containers
    )


def unsafe_on(pods: Sequence[Object]) -> list[str]:
    """Pods of the node, `namespace/name (owner)`, that would be removed and might go on without any fence.

    Safe are: runs under our supervisor, Pods of DaemonSets and static ones (they belong to this node and have
    no replacement elsewhere), Pods that have ended, and our own readers of the volume.
    """
    found = []
    for pod in pods:
        labels = _at(pod, "metadata", "labels") or {}
        if _phase(pod) in ("Succeeded", "Failed") or ONLOOKER in labels:
            continue
        if RUN in labels and is_fenced(pod):
            continue
        owners = {owner.get("kind") for owner in _at(pod, "metadata", "ownerReferences") or []}
        if owners & {"DaemonSet", "Node"} or MIRROR in (_at(pod, "metadata", "annotations") or {}):
            continue
        kind = next(iter(sorted(str(owner) for owner in owners)), "no owner")
        found.append(f"{_namespace(pod)}/{name_of(pod)} ({kind})")
    return sorted(found)


def has_taint(node: Object) -> bool:
    return any(_same(taint, TAINT) for taint in _taints(node))


def taint_is_ours(node: Object) -> bool:
    return has_taint(node) and NOTE in (_at(node, "metadata", "annotations") or {})


def taint_change(node: Object, run: str, now: datetime) -> dict[str, Any] | None:
    """The merge patch that adds the taint and notes that it is ours; None where a taint is there already.

    `spec.taints` is one atomic list: the patch carries the whole of it and the node's resourceVersion, so
    that whoever changed the node in between makes it fail, and it is decided again.
    """
    if has_taint(node):
        return None
    note = json.dumps({"run": run, "at": now.isoformat(timespec="seconds")}, sort_keys=True)
    return {
        "metadata": {"resourceVersion": _version(node), "annotations": {NOTE: note}},
        "spec": {"taints": [*_taints(node), dict(TAINT)]},
    }


def untaint_change(node: Object) -> dict[str, Any] | None:
    """The merge patch that takes our taint and note away; None where the taint is not ours."""
    if NOTE not in (_at(node, "metadata", "annotations") or {}):
        return None
    left = [taint for taint in _taints(node) if not _same(taint, TAINT)]
    return {
        "metadata": {"resourceVersion": _version(node), "annotations": {NOTE: None}},
        "spec": {"taints": left or None},
    }


def ours_to_remove(nodes: Sequence[Object], run: str = "") -> list[Object]:
    """Nodes that are back and still have our taint (of one run, if given)."""
    return [
        node
        for node in nodes
        if NOTE in (_at(node, "metadata", "annotations") or {})
        and readiness(node)[0] == "True"
        and (not run or noted_run(node) == run)
    ]


def still_out(nodes: Sequence[Object], run: str) -> list[Object]:
    """Nodes that we have marked for this run and that are not back yet."""
    return [node for node in nodes if noted_run(node) == run and readiness(node)[0] != "True"]


def noted_run(node: Object) -> str:
    """The run for which the node was marked; empty where it was not by us."""
    try:
        return str(json.loads((_at(node, "metadata", "annotations") or {}).get(NOTE, "{}")).get("run", ""))
    except (ValueError, AttributeError):
        return ""


def node_name(pod: Object) -> str:
    return str(_at(pod, "spec", "nodeName") or "")


def _namespace(pod: Object) -> str:
    return str(_at(pod, "metadata", "namespace") or "")


def _phase(pod: Object) -> str:
    return str(_at(pod, "status", "phase") or "")


def _taints(node: Object) -> list[dict[str, Any]]:
    return [dict(taint) for taint in _at(node, "spec", "taints") or []]


def _version(node: Object) -> str:
    return str(node["metadata"]["resourceVersion"])


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one.get("key"), one.get("effect")) == (other.get("key"), other.get("effect"))


def _at(item: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(item, Mapping):
            return None
        item = item.get(key)
    return item
