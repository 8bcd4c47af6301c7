"""What the GPU Operator's installation looks like once everything about it is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.settings.node_pool import Taint


@dataclass(frozen=True)
class ExpectedPool:
    """A pool as the readiness check sees it."""

    name: str
    match_labels: Mapping[str, str]
    node_names: tuple[str, ...]
    min_nodes: int | None
    """Nodes that must be there at least; None: all that are selected, and at least one."""
    gpus_per_node: int
    taint: Taint


@dataclass(frozen=True)
class OperatorExpectation:
    """What must be true before the operator counts as ready. The Release's word proves nothing.

    Ready: every DaemonSet of `daemonsets` has desired = ready = number of the pools' nodes > 0 (one of
    `nfd_daemonsets` at least as many), every node has its pool's allocatable `nvidia.com/gpu`, and the
    RuntimeClasses exist.
    """

    namespace: str
    daemonsets: tuple[str, ...]
    """DaemonSets that run on every GPU node and on no other."""
    nfd_daemonsets: tuple[str, ...]
    """DaemonSets that run on the GPU nodes and may run on others too."""
    absent_daemonsets: tuple[str, ...]
    """DaemonSets that must not exist: their layer has another owner."""
    runtime_classes: tuple[str, ...]
    pools: tuple[ExpectedPool, ...]
    timeout_seconds: int


@dataclass(frozen=True)
class OperatorPlan:
    """The one GPU Operator of the cluster."""

    install: bool
    """False: somebody else has installed it; it is left alone and only waited for."""
    namespace: str
    namespace_labels: Mapping[str, str]
    release_name: str
    chart: str
    """Name in the repository, `oci://` reference, or folder."""
    repository_url: str | None
    version: str
    values: Mapping[str, Any]
    """Nested chart values, final: extraValues are merged."""
    timeout_seconds: int
    expectation: OperatorExpectation
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    critical_pods_quota: Mapping[str, Any] | None = None
    """The complete ResourceQuota for Pods of the system's priority classes; None where none is needed."""
