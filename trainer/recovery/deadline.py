"""The deadline of a whole run, counted over all its Pods from the first claim of the declared attempt.

A Job has `activeDeadlineSeconds` for this. A JobSet makes a new Job for each restart, where that counts
anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainer.recovery import generation as generations
from trainer.recovery.generation import Generation


@dataclass(frozen=True)
class Deadline:
    """seconds: the whole run's allowance. began: its first claim (UTC). ends_at: on the monotonic clock."""

    seconds: float
    began: datetime
    ends_at: float

    def has_passed(self) -> bool:
        return time.monotonic() >= self.ends_at

    def sentence(self, step: int) -> str:
        """Why the run ends, and what to do. step: the newest checkpoint's."""
        began = self.began.isoformat(timespec="seconds").replace("+00:00", "Z")
        return (
            f"The run's deadline has passed: deadlineSeconds is {self.seconds:g}, its first attempt began at "
            f"{began}, and the newest checkpoint is step {step}. To go on from there, raise deadlineSeconds "
            "and declare a retry (the run's attempt + 1)."
        )


def of_run(generation: Generation, attempt: int, seconds: float | None) -> Deadline | None:
    """The deadline of the declared attempt that this generation belongs to; None without one.

    A claim whose time can not be read or lies in the future tells nothing: it never ends a run early.
    """
    if seconds is None:
        return None
    now = datetime.now(UTC)
    records = generations.claims(generation.run_dir).values()
    known = [
        at
        for record in records
        if record.get("attempt") == attempt and (at := _claimed_at(record)) is not None
    ]
    began = min((at for at in known if at <= now), default=now)
    return Deadline(seconds, began, time.monotonic() + seconds - (now - began).total_seconds())


def _claimed_at(record: Mapping[str, Any]) -> datetime | None:
    try:
        at = datetime.fromisoformat(record["claimed_at"])
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
