"""The GPUs of nodes on GKE: of the machine type, and what GKE's device plugin makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from components.settings.gke_pool import GkeSettings

GPUS = Path(__file__).resolve().parent / "data" / "gke-gpus.json"


@dataclass(frozen=True)
class Gpus:
    """The GPUs of one node."""

    type: str
    count: int
    """Physical GPUs."""
    per_gpu: int
    """What one GPU is offered as: 1, its partitions, its clients, or clients of every partition."""

    @property
    def allocatable(self) -> int:
        """`nvidia.com/gpu` that a node offers. GKE gives partitions and shares no name of their own."""
        return self.count * self.per_gpu


@lru_cache(maxsize=1)
def gpu_table() -> Mapping[str, Any]:
    """GPUs of the machine types, what N1 machines can have, and the partitions of each GPU."""
    table: Mapping[str, Any] = json.loads(GPUS.read_text(encoding="utf-8"))
    return table


def gpus_of(gke: GkeSettings) -> Gpus | None:
    """The GPUs of one node; None where the settings do not say (see gke_checks.py)."""
    accelerator = gke.accelerator
    own = gpu_table()["machines"].get(gke.machine_type, (None, None))
    kind, count = accelerator.type or own[0], accelerator.count or own[1]
    if kind is None or count is None:
        return None
    partitions = 1
    if accelerator.partition:
        partitions = gpu_table()["partitions"].get(kind, {}).get(accelerator.partition, 1)
    clients = accelerator.sharing.max_clients_per_gpu if accelerator.sharing else 1
    return Gpus(kind, count, partitions * clients)


def gpus_per_node(gke: GkeSettings) -> int | None:
    """`nvidia.com/gpu` that a node offers; None where the settings do not say."""
    gpus = gpus_of(gke)
    return gpus.allocatable if gpus else None
