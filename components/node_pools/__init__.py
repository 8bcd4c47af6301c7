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

from components.planning.node_pool_plans import CloudPoolPlan
from components.planning.node_pools import NodePoolPlan
from components.provider import ClusterAccess

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "self-managed": "components.node_pools.self_managed",
        "existing": "components.node_pools.existing",
        "eks": "components.node_pools.eks",
        "gke": "components.node_pools.gke",
    }
)
"""Kind of the configuration -> module with `create(args) -> GpuNodePool`."""
# GPUs are scarce: nodes may come late, and an upgrade or a removal lets Pods end first.
PATIENCE = pulumi.CustomTimeouts(create="60m", update="120m", delete="60m")


@dataclass(frozen=True)
class GpuNodePoolArgs:
    """One pool, decided."""

    plan: NodePoolPlan
    cluster: ClusterAccess
    cloud: CloudPoolPlan | None = None
    """What the stack creates in a cloud; None for nodes that exist already."""


class GpuNodePool(Protocol):
    """What every kind of pool offers to the rest of the stack. It is a resource: others depend on it."""

    name: str
    nodes: pulumi.Output[list[str]] | None
    """The names of the pool's nodes, sorted; None where an autoscaler adds and removes them, which are found
    by the plan's `match_labels`.
    """


def formerly(plan: NodePoolPlan, *types: str) -> pulumi.ResourceOptions:
    """For a pool's component: the pool under its former names, and as another kind of component, is the same."""
    aliases = [pulumi.Alias(name=name) for name in plan.former_names]
    for other in types:
        aliases.append(pulumi.Alias(type_=other))
        aliases += [pulumi.Alias(name=name, type_=other) for name in plan.former_names]
    return pulumi.ResourceOptions(aliases=aliases)


def create_node_pool(args: GpuNodePoolArgs) -> GpuNodePool:
    """The component of the pool's kind."""
    return importlib.import_module(KINDS[args.plan.kind]).create(args)
