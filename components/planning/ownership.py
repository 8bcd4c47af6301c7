"""Who owns each layer of the GPU stack on a pool, read from the one table: policies/ownership.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from components.planning.merge import at, deep_merge
from components.settings.consistency import Told, told
from components.settings.node_pool import NodePoolSettings, Taint
from components.settings.override import OwnershipOverride

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
SWITCHED = ("driver", "toolkit", "devicePlugin")
"""Layers that the chart's values switch on for the operator."""
_NO_COS_DRIVER = "gke-cos-operator-driver"
_INSTALLER = "driver installer DaemonSet"
_GKE_TAINT = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")


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
    nodes: Mapping[str, Any] = field(default_factory=dict)
    """What a cloud's pool must be for this row, see `row_of_nodes`; empty where a pool names its row."""
    override: OwnershipOverride | None = None
    """What a pool says against the row. `owners`, `values` and what follows from them are as it says."""

    @property
    def platform_taints(self) -> tuple[Taint, ...]:
        """Taints that the platform itself puts on nodes with GPUs: tolerated, never declared.

        GKE documentation, Run GPUs in GKE Standard node pools. Not in a cluster of GPU pools alone
        (terraform-google-kubernetes-engine#703): there the toleration has nothing to tolerate.
        """
        return (_GKE_TAINT,) if self.platform == "gke" else ()


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
    platform_taints: tuple[Taint, ...] = ()
    """Taints of the nodes that nobody declares, see `Profile.platform_taints`."""
    override: OwnershipOverride | None = None
    """Why some owners are not the table's; None where all are."""

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
            nodes=row.get("nodes") or {},
        )
        for name, row in rows.items()
    }


def row_of_nodes(platform: str, facts: Mapping[str, Any]) -> str | None:
    """The name of the row for a cloud's nodes: the first one that fits; None if the table has none.

    `facts`: what the nodes are, by the keys of the table's column `nodes`.
    """
    for row in profiles().values():
        if row.platform == platform and row.nodes:
            pairs = [(facts[key], wanted) for key, wanted in row.nodes.items()]
            if all(fact in wanted if isinstance(wanted, list) else fact == wanted for fact, wanted in pairs):
                return row.name
    return None


def profile_name(pool: NodePoolSettings) -> str | None:
    """The name of the pool's row: the one that it names, or the one that follows from what it creates.

    None: the table has no row for such nodes. A name that the pool gives may be none of the table's.
    """
    if pool.kind == "gke":
        return row_of_nodes("gke", pool.gke.node_facts)
    if pool.kind == "eks":
        return row_of_nodes("eks", pool.eks.node_facts)
    return pool.profile


def profile_of(pool: NodePoolSettings) -> Profile:
    """The pool's row, as its override changes it. KeyError if the table has no such row."""
    row = profiles()[profile_name(pool) or ""]
    return overridden(row, pool.override) if pool.override else row


def overridden(row: Profile, override: OwnershipOverride) -> Profile:
    """The row with the owners that a site gives, and what follows for the operator and the Jobs."""
    owners = {**row.owners, **override.layers}
    values = deep_merge(row.values, {layer: {"enabled": owners[layer] == OPERATOR} for layer in SWITCHED})
    if owners["toolkit"] != OPERATOR and override.layers.get("toolkit"):
        # Without the operator's toolkit nobody registers nvidia-cdi and nvidia-legacy on the nodes.
        values = deep_merge(values, {"cdi": {"enabled": False}})
    install = row.install_operator or OPERATOR in override.layers.values()
    if install and owners["nfd"] is None:
        owners["nfd"] = OPERATOR
    name = at(values, ("operator", "runtimeClass"))
    classes = (name, "nvidia-cdi", "nvidia-legacy") if at(values, ("cdi", "enabled")) else (name,)
    # The operator's plugin names devices in an environment variable, which only the toolkit's handler reads.
    needs_handler = owners["devicePlugin"] == OPERATOR and owners["toolkit"] == OPERATOR
    return replace(
        row,
        owners=owners,
        values=values,
        runtime_class=row.runtime_class or (name if needs_handler else None),
        created_runtime_classes=classes,
        install_operator=install,
        override=override,
    )


def override_problems(path: tuple[str | int, ...], pool: NodePoolSettings) -> Iterator[Told]:
    """Why a pool's override can not be, if its row is one that the table supports. `path`: the pool's."""
    name, override = profile_name(pool), pool.override
    if override is None or name not in profiles() or profiles()[name].reject:
        return
    row = profiles()[name]
    here = (*path, "override", "layers")
    for layer, owner in override.layers.items():
        held_by = row.owners[layer]
        if owner == held_by:
            yield told(
                (*here, layer),
                owner,
                f"the row {name} of the table says so already",
                "remove it" if len(override.layers) > 1 else "remove override",
            )
        elif layer == "driver" and owner == OPERATOR and "COS_CONTAINERD" in row.nodes.get("imageTypes", ()):
            reason, _, way_out = str(profiles()[_NO_COS_DRIVER].reject).partition(" Either ")
            yield told((*here, layer), owner, reason, f"either {way_out}")
        elif row.nodes and held_by not in (None, OPERATOR, _INSTALLER) and pool.kind in ("eks", "gke"):
            yield told(
                (*here, layer),
                owner,
                f"nodes that the stack makes like this come with it: {held_by} brings the"
                f" {LAYER_TITLES[layer]}, and it would have two owners",
                f"remove it, and let {pool.kind} describe nodes of another row",
            )
    if pool.kind in ("self-managed", "existing"):
        same = overridden(row, override).owners
        for other in profiles().values():
            if other.status == "supported" and other is not row and other.owners == same:
                yield told(
                    (*path, "override"),
                    None,
                    f"the row {other.name} of the table has exactly these owners",
                    f"write profile: {other.name} and remove override",
                )
                return


def override_warnings(pools: Sequence[NodePoolSettings]) -> Iterator[str]:
    """One sentence for each pool that sets the table aside."""
    for pool in pools:
        if pool.override:
            owners = ", ".join(
                f"{LAYER_TITLES[layer]}: {owner}" for layer, owner in pool.override.layers.items()
            )
            yield (
                f'nodePools "{pool.name}": its override sets the table\'s row {profile_name(pool)} aside'
                f" ({owners}). The reason given: {pool.override.reason}"
            )


def owners_of(pool: NodePoolSettings, nfd: str = OPERATOR) -> PoolOwnership:
    """Every layer's owner on `pool`, with the reason. `nfd` is `existing` where the cluster has its own."""
    profile = profile_of(pool)
    layers = []
    for layer in LAYERS:
        owner, reason = profile.owners[layer], profile.reason
        if layer == "nfd" and owner == OPERATOR and nfd == "existing":
            owner, reason = (
                "existing",
                "gpuOperator.nfd says that the cluster runs Node Feature Discovery already.",
            )
        elif pool.override and layer in pool.override.layers:
            reason = (
                f"The pool's override says so, where the table's row {profile.name} has"
                f" {owner_title(profiles()[profile.name].owners[layer])}: {pool.override.reason}"
            )
        layers.append(LayerOwner(layer, owner, reason))
    return PoolOwnership(
        pool.name,
        profile.name,
        tuple(layers),
        profile.runtime_class,
        profile.platform_taints,
        pool.override,
    )


def operator_profile(pools: Sequence[NodePoolSettings]) -> Profile | None:
    """The row that the one operator of the cluster follows; None if no pool wants an operator.

    The pools have been checked to agree, see `checks.mixed_owners`.
    """
    return next((profile for pool in pools if (profile := profile_of(pool)).install_operator), None)
