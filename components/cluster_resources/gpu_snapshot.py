"""What the cluster says about its GPU stack, as plain frozen data. Made from the API's own objects, live
or from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.cluster_resources.access import Json, Reader, items

GPU = "nvidia.com/gpu"
MESSAGE_LENGTH = 240


@dataclass(frozen=True)
class Node:
    """One node."""

    name: str
    ready: bool
    why_not_ready: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    capacity: int
    """`nvidia.com/gpu` that the device plugin found; 0 without one."""
    allocatable: int
    """`nvidia.com/gpu` that are healthy and can be given to Pods."""


@dataclass(frozen=True)
class Pod:
    """One Pod of the operator's namespace."""

    name: str
    controller: str
    """Name of the DaemonSet or ReplicaSet that made it."""
    node: str
    ready: bool
    problem: str
    """Why it is not ready, with the reason that Kubernetes gives; empty if nothing is known."""


@dataclass(frozen=True)
class DaemonSet:
    """One DaemonSet of the operator's namespace."""

    name: str
    desired: int
    ready: int
    tolerations: tuple[Mapping[str, str], ...]
    node_selector: Mapping[str, str]
    problem: str
    """A Warning event of the DaemonSet itself, such as FailedCreate; empty without one."""


@dataclass(frozen=True)
class Deployment:
    """One Deployment of the operator's namespace."""

    name: str
    wanted: int
    available: int
    """Available replicas of the newest template; 0 while the controller has not seen the newest template."""


@dataclass(frozen=True)
class ClusterPolicy:
    """What the operator says of itself. Necessary, and never enough: it says ready with no GPU at all."""

    state: str
    reason: str
    message: str


@dataclass(frozen=True)
class Snapshot:
    """Everything that `judge` looks at."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    daemonsets: Mapping[str, DaemonSet] = field(default_factory=dict)
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()
    cluster_policy: ClusterPolicy | None = None
    runtime_classes: Mapping[str, str] = field(default_factory=dict)
    """Name to handler."""


def observe(cluster: Reader, namespace: str) -> Snapshot:
    """Read the GPU stack of a cluster. Raises `ClusterProblem` if the cluster can not be read."""
    policies = items(cluster, "/apis/nvidia.com/v1/clusterpolicies")
    return snapshot_of(
        nodes=items(cluster, "/api/v1/nodes"),
        daemonsets=items(cluster, f"/apis/apps/v1/namespaces/{namespace}/daemonsets"),
        deployments=items(cluster, f"/apis/apps/v1/namespaces/{namespace}/deployments"),
        pods=items(cluster, f"/api/v1/namespaces/{namespace}/pods"),
        events=items(cluster, f"/api/v1/namespaces/{namespace}/events", fieldSelector="type=Warning"),
        runtime_classes=items(cluster, "/apis/node.k8s.io/v1/runtimeclasses"),
        cluster_policy=policies[0] if policies else None,
    )


def snapshot_of(
    *,
    nodes: Iterable[Json] = (),
    daemonsets: Iterable[Json] = (),
    deployments: Iterable[Json] = (),
    pods: Iterable[Json] = (),
    events: Iterable[Json] = (),
    runtime_classes: Iterable[Json] = (),
    cluster_policy: Json | None = None,
) -> Snapshot:
    """The snapshot of API objects."""
    warnings = _latest_warnings(events)
    return Snapshot(
        nodes={node["metadata"]["name"]: _node(node) for node in nodes},
        daemonsets={item["metadata"]["name"]: _daemonset(item, warnings) for item in daemonsets},
        deployments={item["metadata"]["name"]: _deployment(item) for item in deployments},
        pods=tuple(_pod(pod, warnings) for pod in pods),
        cluster_policy=_policy(cluster_policy) if cluster_policy else None,
        runtime_classes={item["metadata"]["name"]: item.get("handler", "") for item in runtime_classes},
    )


def _condition(item: Json, kind: str) -> Json:
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _node(node: Json) -> Node:
    status, ready = node.get("status") or {}, _condition(node, "Ready")
    return Node(
        name=node["metadata"]["name"],
        ready=ready.get("status") == "True",
        why_not_ready=_clip(f"{ready.get('reason', 'Unknown')}: {ready.get('message', 'no condition yet')}"),
        labels=node["metadata"].get("labels") or {},
        taints=tuple((node.get("spec") or {}).get("taints") or ()),
        capacity=int((status.get("capacity") or {}).get(GPU, 0)),
        allocatable=int((status.get("allocatable") or {}).get(GPU, 0)),
    )


def _daemonset(item: Json, warnings: Mapping[tuple[str, str], str]) -> DaemonSet:
    status, pod = item.get("status") or {}, item["spec"]["template"]["spec"]
    # Counts of an older template say nothing of this one.
    seen = status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)
    name = item["metadata"]["name"]
    return DaemonSet(
        name=name,
        desired=status.get("desiredNumberScheduled", 0) if seen else 0,
        ready=status.get("numberReady", 0) if seen else 0,
        tolerations=tuple(pod.get("tolerations") or ()),
        node_selector=pod.get("nodeSelector") or {},
        problem=warnings.get(("DaemonSet", name), ""),
    )


def _deployment(item: Json) -> Deployment:
    status = item.get("status") or {}
    seen = status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)
    wanted = item["spec"].get("replicas", 1)
    settled = seen and status.get("updatedReplicas", 0) >= wanted and status.get("replicas", 0) <= wanted
    return Deployment(item["metadata"]["name"], wanted, status.get("availableReplicas", 0) if settled else 0)


def _policy(item: Json) -> ClusterPolicy:
    ready = _condition(item, "Ready")
    status = item.get("status") or {}
    error = _condition(item, "Error")
    told = error if error.get("status") == "True" else ready
    return ClusterPolicy(
        status.get("state", "unknown"),
        told.get("reason", "") if ready.get("status") == "True" or told is error else ready.get("reason", ""),
        _clip(told.get("message", "")),
    )


def _pod(pod: Json, warnings: Mapping[tuple[str, str], str]) -> Pod:
    name, owners = pod["metadata"]["name"], pod["metadata"].get("ownerReferences") or []
    controller = next((owner["name"] for owner in owners if owner.get("controller")), "")
    ready = _condition(pod, "Ready").get("status") == "True" and not pod["metadata"].get("deletionTimestamp")
    return Pod(
        name=name,
        controller=controller,
        node=(pod.get("spec") or {}).get("nodeName", ""),
        ready=ready,
        problem="" if ready else _pod_problem(pod) or warnings.get(("Pod", name), ""),
    )


def _pod_problem(pod: Json) -> str:
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in ("PodInitializing", "ContainerCreating"):
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("message", "")
            return _clip(f"{container['name']}: {reason}: {last or waiting.get('message', '')}".rstrip(": "))
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return _clip(f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}")
    return ""


def _latest_warnings(events: Iterable[Json]) -> dict[tuple[str, str], str]:
    """The newest Warning per object: its reason and message."""
    newest: dict[tuple[str, str], tuple[str, str]] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        key = (about.get("kind", ""), about.get("name", ""))
        at = (
            event.get("lastTimestamp")
            or event.get("eventTime")
            or event["metadata"].get("creationTimestamp")
            or ""
        )
        if key not in newest or at >= newest[key][0]:
            newest[key] = (at, _clip(f"{event.get('reason', '')}: {event.get('message', '')}"))
    return {key: text for key, (_, text) in newest.items()}


def _clip(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= MESSAGE_LENGTH else line[: MESSAGE_LENGTH - 1] + "…"


def expectation_nodes(nodes: Mapping[str, Node], selector: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the nodes that a pool's selector takes, sorted."""
    if selector.get("names"):
        return tuple(sorted(set(selector["names"])))
    wanted = selector["matchLabels"].items()
    return tuple(sorted(n.name for n in nodes.values() if all(n.labels.get(k) == v for k, v in wanted)))
