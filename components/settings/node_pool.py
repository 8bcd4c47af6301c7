"""GPU node pools: which nodes, what they are, and the one label set and taint that mark them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.settings.base import Flag, Settings, Whole, refusal
from components.settings.choices import PoolKind
from components.settings.formats import DnsLabel, DnsSubdomain, LabelKey, LabelMap, LabelValue

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(Settings):
    """One taint of a node, identified by key and effect."""

    key: LabelKey
    value: LabelValue = ""
    effect: TaintEffect

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeSelection(Settings):
    """The nodes of a self-managed pool: by labels that they already have, or by name."""

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


class NodePoolSettings(Settings):
    """One pool of equal GPU nodes."""

    name: DnsLabel
    kind: PoolKind = "self-managed"
    """Only `self-managed` in this release: the nodes exist, the stack adds labels and taint."""
    profile: str
    """What the nodes already have: a row of policies/ownership.json."""
    select_nodes: NodeSelection
    gpus_per_node: Annotated[Whole, Field(ge=1, le=64)]
    """`nvidia.com/gpu` that one node must have as allocatable once the pool is ready."""
    spot: Flag = False
    """True: the nodes may be taken away at any time (Spot, preemptible, borrowed)."""
    labels: Annotated[LabelMap, Field(min_length=1)] = Field(default_factory=lambda: {"pool": "gpu"})
    """Labels that the stack puts on the nodes; they are the node selector of the pool's Jobs."""
    taint: Taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    """The taint that the stack puts on the nodes; Jobs and operands get their toleration from it."""
