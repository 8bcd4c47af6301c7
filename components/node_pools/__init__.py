"""GPU node pools by kind. Each kind is a module of its own, imported only when it is used, so that only
the SDK of the cloud in use is loaded. A new kind is one line in `KINDS` and one module with `create`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import pulumi

from components.planning.node_pools import NodePoolPlan
from components.provider import ClusterAccess

KINDS: Mapping[str, str] = MappingProxyType({"self-managed": "components.node_pools.self_managed"})
"""Kind of the configuration -> module with `create(args) -> GpuNodePool`."""


@dataclass(frozen=True)
class GpuNodePoolArgs:
    """One pool, decided."""

    plan: NodePoolPlan
    cluster: ClusterAccess


class GpuNodePool(Protocol):
    """What every kind of pool offers to the rest of the stack. It is a resource: others depend on it."""

    name: str
    nodes: pulumi.Output[list[str]]
    """The names of the pool's nodes, sorted."""


def create_node_pool(kind: str, args: GpuNodePoolArgs) -> GpuNodePool:
    """The component of the pool's kind."""
    return importlib.import_module(KINDS[kind]).create(args)
