"""The way out of the table of owners: what a site knows better of its own nodes, with the reason."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.settings.base import Settings, refusal

OverriddenLayer = Literal["driver", "toolkit", "devicePlugin"]
"""Layers whose owner decides a switch of the chart. Node Feature Discovery has `gpuOperator.nfd`."""

_NOBODY = ("", "none", "nobody", "null", "no one", "-")
_SHORTEST_REASON = 15


def _owner(text: str) -> str:
    if text.strip().lower() in _NOBODY:
        raise refusal(
            "every layer needs exactly one owner",
            "write who brings it, such as host, AMI or the name of a DaemonSet, or operator",
        )
    owner = text.strip()
    if owner.lower().replace("-", " ").removeprefix("the ").removeprefix("nvidia ") == "gpu operator":
        raise refusal("the table calls the GPU Operator by one word", "write operator")
    return owner


def _reason(text: str) -> str:
    if len(text.strip()) < _SHORTEST_REASON:
        raise refusal(
            "who reads the stack's outputs later can not judge the exception by that",
            "write a sentence that says what is different on these nodes and who decided it",
        )
    return " ".join(text.split())


class OwnershipOverride(Settings):
    """Owners that differ from the pool's row of the table, for nodes that the table does not know."""

    reason: Annotated[str, AfterValidator(_reason)]
    """Why the table is wrong for these nodes: a sentence. It is in the stack's outputs and warnings."""
    layers: Annotated[dict[OverriddenLayer, Annotated[str, AfterValidator(_owner)]], Field(min_length=1)]
    """Layer (`driver`, `toolkit`, `devicePlugin`) -> who really owns it: `operator`, or anyone else's
    name."""
