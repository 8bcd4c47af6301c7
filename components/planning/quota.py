"""Whether a run can ever fit its team's quota.

A Job over quota shows only FailedCreate events, minutes apart (kubernetes#88718, #90124): it is told before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from components.settings.quantity import parse, spell
from components.settings.run import RunSettings

GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Shortage:
    """One quota key that is too small. The amounts are Kubernetes quantities."""

    key: str
    needed: str
    allowed: str
    missing: str


def run_demand(run: RunSettings) -> dict[str, Decimal]:
    """What one run takes of every quota key that can count it, in base units (cores, bytes, pieces)."""
    cpu, memory = parse(run.requests.cpu), parse(run.requests.memory)
    return {
        "requests.cpu": cpu,
        "cpu": cpu,
        "requests.memory": memory,
        "memory": memory,
        "limits.cpu": parse(run.limits.cpu),
        "limits.memory": parse(run.limits.memory),
        f"requests.{GPU}": Decimal(run.gpus),
        "pods": Decimal(1),
        "count/pods": Decimal(1),
        "count/jobs.batch": Decimal(1),
        "count/jobsets.jobset.x-k8s.io": Decimal(run.controller == "jobset"),
    }


def together(demands: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    """Several demands added up."""
    total: Counter[str] = Counter()
    for demand in demands:
        total.update(demand)  # type: ignore[arg-type]  # Counter adds Decimals as well as ints
    return dict(total)  # type: ignore[arg-type]


def quota_fit(demand: Mapping[str, Decimal], hard: Mapping[str, str]) -> tuple[Shortage, ...]:
    """Every key of the quota that the demand exceeds; empty if it fits."""
    short = []
    for key, allowed in hard.items():
        needed, limit = demand.get(key, Decimal(0)), parse(allowed)
        if needed > limit:
            binary = "memory" in key or "storage" in key
            short.append(
                Shortage(key, spell(needed, binary=binary), allowed, spell(needed - limit, binary=binary))
            )
    return tuple(short)
