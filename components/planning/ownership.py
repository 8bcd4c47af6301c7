"""Who owns each layer of the GPU stack on a pool, read from the one table: policies/ownership.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from components.settings.node_pool import NodePoolSettings

TABLE = Path(__file__).resolve().parents[2] / "policies" / "ownership.json"
OPERATOR = "operator"
"""The owner's name in the table where the GPU Operator owns the layer."""
LAYERS = ("driver", "toolkit", "devicePlugin", "nfd")
LAYER_TITLES = {
    "driver": "driver",
    "toolkit": "container toolkit",
    "devicePlugin": "device plugin",
    "nfd": "Node Feature Discovery",
}


@dataclass(frozen=True)
class Profile:
    """One row of the table: what nodes of this kind have, and what follows for the operator and the Jobs."""

    name: str
    title: str
    platform: str
    status: str
    """supported, experimental or reject."""
    owners: Mapping[str, str | None]
    """Layer -> owner; None where nobody owns it."""
    values: Mapping[str, Any]
    """Chart values that follow, nested."""
    runtime_class: str | None
    """RuntimeClass of the Jobs; None where the runtime needs none."""
    created_runtime_classes: tuple[str, ...]
    install_operator: bool
    reason: str
    reject: str | None


@dataclass(frozen=True)
class LayerOwner:
    """The owner of one layer on one pool."""

    layer: str
    owner: str | None
    reason: str


@dataclass(frozen=True)
class PoolOwnership:
    """Every layer's owner on one pool."""

    pool: str
    profile: str
    layers: tuple[LayerOwner, ...]
    runtime_class: str | None

    def owner(self, layer: str) -> str | None:
        """The owner of `layer`; KeyError if the table has no such layer."""
        return {item.layer: item.owner for item in self.layers}[layer]


def owner_title(owner: str | None) -> str:
    """An owner of the table in a sentence."""
    if owner is None:
        return "nobody"
    return {OPERATOR: "the GPU Operator", "host": "the host", "existing": "what the cluster already has"}.get(
        owner, owner
    )


@lru_cache(maxsize=1)
def profiles() -> Mapping[str, Profile]:
    """Every row of the table, by name."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["profiles"]
    return {
        name: Profile(
            name=name,
            title=row["title"],
            platform=row["platform"],
            status=row["status"],
            owners=row["owners"],
            values=row["values"],
            runtime_class=row["runtimeClass"],
            created_runtime_classes=tuple(row["createdRuntimeClasses"]),
            install_operator=row["installOperator"],
            reason=row["reason"],
            reject=row["reject"],
        )
        for name, row in rows.items()
    }


def owners_of(pool: NodePoolSettings, nfd: str = OPERATOR) -> PoolOwnership:
    """Every layer's owner on `pool`, with the reason. `nfd` is `existing` where the cluster has its own."""
    profile = profiles()[pool.profile]
    layers = []
    for layer in LAYERS:
        owner, reason = profile.owners[layer], profile.reason
        if layer == "nfd" and owner == OPERATOR and nfd == "existing":
            owner, reason = (
                "existing",
                "gpuOperator.nfd says that the cluster runs Node Feature Discovery already.",
            )
        layers.append(LayerOwner(layer, owner, reason))
    return PoolOwnership(pool.name, profile.name, tuple(layers), profile.runtime_class)


def operator_profile(pools: Sequence[NodePoolSettings]) -> Profile | None:
    """The row that the one operator of the cluster follows; None if no pool wants an operator.

    The pools have been checked to agree, see `checks.mixed_owners`.
    """
    for pool in pools:
        if profiles()[pool.profile].install_operator:
            return profiles()[pool.profile]
    return None
