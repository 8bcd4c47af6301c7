"""GPU node pools: which nodes, what they are, and the one label set and taint that mark them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from components.settings.base import Flag, Settings, Whole, refusal
from components.settings.eks_pool import EksSettings
from components.settings.formats import DnsLabel, DnsSubdomain, LabelKey, LabelMap, LabelValue
from components.settings.gke_pool import GkeSettings
from components.settings.override import OwnershipOverride

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
MOST_GPUS = 1024


class Taint(Settings):
    """One taint of a node, identified by key and effect."""

    key: LabelKey
    value: LabelValue = ""
    effect: TaintEffect

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeSelection(Settings):
    """The nodes of a pool that exist already: by labels that they already have, or by name."""

    match_labels: LabelMap = Field(default_factory=dict)
    names: tuple[DnsSubdomain, ...] = ()

    @model_validator(mode="after")
    def _exactly_one(self) -> NodeSelection:
        if self.match_labels and self.names:
            raise refusal(
                "it has matchLabels and names, and it is not clear whether a node must meet both",
                "keep matchLabels or keep names",
            )
        if not self.match_labels and not self.names:
            raise refusal(
                "it selects no node",
                "write matchLabels with labels that the pool's nodes already have, or names with the nodes'"
                " names",
            )
        return self


class _NodePool(Settings):
    """What every kind of pool has."""

    name: DnsLabel
    labels: Annotated[LabelMap, Field(min_length=1)] = Field(default_factory=lambda: {"pool": "gpu"})
    """Labels that the pool's nodes have; they are the node selector of the pool's Jobs."""
    taint: Taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    """The taint that the pool's nodes have; Jobs and operands get their toleration from it."""
    startup_taints: tuple[Taint, ...] = ()
    """Taints that nodes start with and that something in the cluster takes away, such as a network plugin or a
    health check. Operands tolerate them, Jobs wait. A pool that the stack creates starts its nodes with them."""
    former_names: tuple[DnsLabel, ...] = ()
    """Names that the pool had before, oldest first: a renamed pool keeps its nodes."""
    override: OwnershipOverride | None = None


class SelfManagedNodePoolSettings(_NodePool):
    """One pool of equal GPU nodes that exist already; the stack adds labels and taint."""

    kind: Literal["self-managed"] = "self-managed"
    profile: str
    """What the nodes already have: a row of policies/ownership.json."""
    select_nodes: NodeSelection
    gpus_per_node: Annotated[Whole, Field(ge=1, le=64)]
    """`nvidia.com/gpu` that one node must have as allocatable once the pool is ready."""
    spot: Flag = False
    """True: the nodes may be taken away at any time (Spot, preemptible, borrowed)."""


class NodeChanges(Settings):
    """What the stack may change on nodes that somebody else runs. What it may not must be there already."""

    labels: Flag = False
    """True: the stack adds the pool's labels, and takes them away again."""
    taint: Flag = False
    """True: the stack adds the pool's taint, and takes it away again."""


class ExistingNodePoolSettings(_NodePool):
    """One pool of equal GPU nodes that somebody else runs, on any platform: verified, and changed only as
    `change` says.
    """

    kind: Literal["existing"]
    profile: str
    """What the nodes already have: a row of policies/ownership.json."""
    select_nodes: NodeSelection
    change: NodeChanges = NodeChanges()
    gpus_per_node: Annotated[Whole, Field(ge=1, le=64)]
    """`nvidia.com/gpu` that one node must have as allocatable once the pool is ready."""
    spot: Flag = False
    """True: the nodes may be taken away at any time (Spot, preemptible, borrowed)."""


class _CloudNodePool(_NodePool):
    """What every pool has that the stack creates."""

    profile: str | None = None
    """The row of policies/ownership.json. It follows from the nodes; one that is given must agree."""
    gpus_per_node: Annotated[Whole, Field(ge=1, le=MOST_GPUS)] | None = None
    """`nvidia.com/gpu` of one node. It follows from the machine; one that is given must agree."""

    @property
    def cloud_name(self) -> str:
        """The pool's name in the cloud, which a rename does not change."""
        return self.former_names[0] if self.former_names else self.name


class EksNodePoolSettings(_CloudNodePool):
    """One pool of equal GPU nodes that the stack creates in an EKS cluster."""

    kind: Literal["eks"]
    eks: EksSettings

    @property
    def spot(self) -> bool:
        """The nodes may be taken away at any time."""
        return self.eks.capacity == "spot"


class GkeNodePoolSettings(_CloudNodePool):
    """One pool of equal GPU nodes that the stack creates in a GKE cluster."""

    kind: Literal["gke"]
    gke: GkeSettings

    @property
    def spot(self) -> bool:
        """The nodes may be taken away at any time."""
        return self.gke.spot


NodePoolSettings: TypeAlias = (
    SelfManagedNodePoolSettings | ExistingNodePoolSettings | EksNodePoolSettings | GkeNodePoolSettings
)
"""One pool of equal GPU nodes."""
DEFAULT_KIND = "self-managed"
KINDS: Mapping[str, type[NodePoolSettings]] = MappingProxyType(
    {
        DEFAULT_KIND: SelfManagedNodePoolSettings,
        "existing": ExistingNodePoolSettings,
        "eks": EksNodePoolSettings,
        "gke": GkeNodePoolSettings,
    }
)
"""`kind` in the configuration -> the model of such pools."""


def kind_of_pool(given: Any) -> Any:
    """The `kind` of one element of the configuration; the default where it says none."""
    return given.get("kind", DEFAULT_KIND) if isinstance(given, Mapping) else DEFAULT_KIND


def selected(pool: NodePoolSettings) -> NodeSelection | None:
    """Which existing nodes a pool names; None if it creates its own."""
    return (
        pool.select_nodes
        if isinstance(pool, SelfManagedNodePoolSettings | ExistingNodePoolSettings)
        else None
    )
