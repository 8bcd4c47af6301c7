"""What AWS' GPU instance types have: GPUs, architecture, and places for Elastic Fabric Adapters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data" / "gpu-instances.json"


@dataclass(frozen=True)
class InstanceGpus:
    """One instance type with NVIDIA GPUs."""

    gpus: int
    gpu: str
    """Name of the GPU, such as `h100`."""
    architecture: str
    """`x86_64` or `arm64`."""
    efas: int
    """Elastic Fabric Adapters at most; 0 where it can not have one."""


@lru_cache(maxsize=1)
def instance_types() -> Mapping[str, InstanceGpus]:
    """Every instance type of the table by its name."""
    rows = json.loads(DATA.read_text(encoding="utf-8"))["instances"]
    return {name: InstanceGpus(*row) for name, row in rows.items()}


@lru_cache(maxsize=1)
def without_nvidia() -> Mapping[str, str]:
    """Families that have no NVIDIA GPU that the table's images could use -> why not, in a sentence."""
    found: Mapping[str, str] = json.loads(DATA.read_text(encoding="utf-8"))["unusable"]
    return found


@lru_cache(maxsize=1)
def as_of() -> str:
    """The day of the table, as YYYY-MM-DD."""
    return str(json.loads(DATA.read_text(encoding="utf-8"))["asOf"])
