"""Checks of pools on EKS: what EKS, EC2 or the owners of the nodes' layers would not have."""

from __future__ import annotations

from collections.abc import Iterator

from components.planning.eks_pool import gpus_per_node
from components.planning.instance_types import as_of, instance_types
from components.settings.consistency import Told, told
from components.settings.draft import Draft
from components.settings.node_pool import EksNodePoolSettings
from components.settings.stack import StackSettings
from components.settings.substitution import Path


def problems(draft: Draft) -> Iterator[Told]:
    """Every problem of the pools on EKS."""
    for index, pool in draft.node_pools.items():
        if isinstance(pool, EksNodePoolSettings):
            yield from _gpus(("nodePools", index), pool)


def warnings(settings: StackSettings) -> Iterator[str]:
    """What works, and what a person should know about it."""
    yield from ()


def _gpus(path: Path, pool: EksNodePoolSettings) -> Iterator[Told]:
    gpus = gpus_per_node(pool.eks)
    if gpus is None:
        yield told(
            (*path, "eks", "instanceTypes"),
            list(pool.eks.instance_types),
            f"how many GPUs each has is not known, or it is not the same number (table of {as_of()})",
            f"write instance types with equal GPUs, such as {next(iter(instance_types()))}",
        )
    elif pool.gpus_per_node not in (None, gpus):
        yield told(
            (*path, "gpusPerNode"),
            pool.gpus_per_node,
            f"an instance of this pool has {gpus}",
            f"write {gpus}, or remove it: it follows from eks.instanceTypes",
        )
