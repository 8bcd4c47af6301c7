"""What AWS' GPU instance types have: GPUs, architecture, and places for Elastic Fabric Adapters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent / "data" / "gpu-instances.json"


@dataclass(frozen=True)
class InstanceType:
    """One instance type with NVIDIA GPUs."""

    gpus: int
    gpu: str
    """Name of the GPU, such as `H100`."""
    architecture: str
    """`x86_64` or `arm64`."""
    efa_cards: tuple[int, ...]
    """Indexes of the network cards that can have an Elastic Fabric Adapter."""


@lru_cache(maxsize=1)
def _data() -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return data


@lru_cache(maxsize=1)
def instance_types() -> Mapping[str, InstanceType]:
    """Every instance type of the table by its name."""
    return {
        name: InstanceType(gpus, gpu, architecture, _cards(cards))
        for name, (gpus, gpu, architecture, cards) in _data()["instances"].items()
    }


def unusable(instance_type: str) -> str | None:
    """Why no image of the table of owners has a driver for this instance type; None if that is not known."""
    reason: str | None = _data()["unusable"].get(instance_type.split(".")[0])
    return reason


def as_of() -> str:
    """The day of the table, as YYYY-MM-DD."""
    return str(_data()["asOf"])


def _cards(text: str) -> tuple[int, ...]:
    """`0-3` is (0, 1, 2, 3)."""
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last or first) + 1)) if text else ()
