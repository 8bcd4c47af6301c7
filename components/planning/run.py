"""A training run as a Kubernetes Job, field by field as the training contract has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunPlan:
    """One run, decided."""

    id: str
    team: str
    pool: str
    namespace: str
    job_name: str
    attempt: int
    cancelled: bool
    """True: there is to be no Job."""
    image: str
    gpus: int
    checkpoint_dir: str
    claim: str
    runtime_class: str | None
    """The Job must wait until this RuntimeClass exists."""
    job: dict[str, Any]
    """The complete Job manifest, camelCase."""
