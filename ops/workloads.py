"""What is common to a Job and a JobSet: whether it is over, since when, and how often it began anew.

Pure. Lists of the API server do not say the kind of their items, so it is told by what the object has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""On the child Jobs of a JobSet and on their Pods."""
ATTEMPT_LABEL = "holdfast.dev/attempt"


@dataclass(frozen=True)
class Workload:
    """A run's Job or JobSet. Times are ISO 8601 as the API server gave them; empty where there is none."""

    kind: str
    attempt: str
    complete: bool
    failure: Object | None
    """The condition `Failed`, if it is true."""
    suspended: bool
    started: str
    ended: str
    deadline_seconds: int | None
    restarts: int = 0
    """How often JobSet made the child Job anew; 0 for a Job."""
    counted_restarts: int = 0
    """Those that count by `max_restarts`: all but the ones after preemptions."""
    max_restarts: int | None = None

    @property
    def controller(self) -> str:
        return "jobset" if self.kind == "JobSet" else "job"


def workload_of(item: Object) -> Workload:
    """The Job or JobSet as the API server gives it."""
    conditions = {c["type"]: c for c in at(item, "status", "conditions") or [] if c["status"] == "True"}
    common: dict[str, Any] = {
        "attempt": str((at(item, "metadata", "labels") or {}).get(ATTEMPT_LABEL, "")),
        "failure": conditions.get("Failed"),
        "suspended": bool(at(item, "spec", "suspend")),
    }
    if not is_job_set(item):
        return Workload(
            kind="Job",
            complete="Complete" in conditions,
            started=str(at(item, "status", "startTime") or ""),
            ended=str(at(item, "status", "completionTime") or ""),
            deadline_seconds=at(item, "spec", "activeDeadlineSeconds"),
            **common,
        )
    over = conditions.get("Completed") or conditions.get("Failed") or {}
    (replicated, *_) = at(item, "spec", "replicatedJobs") or [{}]
    return Workload(
        kind="JobSet",
        complete="Completed" in conditions,
        # A JobSet has no time of its own for either.
        started=str(at(item, "metadata", "creationTimestamp") or ""),
        ended=str(over.get("lastTransitionTime") or ""),
        deadline_seconds=at(replicated, "template", "spec", "activeDeadlineSeconds"),
        restarts=at(item, "status", "restarts") or 0,
        counted_restarts=at(item, "status", "restartsCountTowardsMax") or 0,
        max_restarts=at(item, "spec", "failurePolicy", "maxRestarts") or 0,
        **common,
    )


def is_job_set(item: Object) -> bool:
    return at(item, "spec", "replicatedJobs") is not None


def child_job(job_set: Object) -> str:
    """Name of the one child Job of a run's JobSet."""
    (replicated, *_) = at(job_set, "spec", "replicatedJobs") or [{}]
    return f"{at(job_set, 'metadata', 'name')}-{replicated.get('name', '')}-0"


def at(item: Any, *path: str) -> Any:
    """What stands at a path of maps; None where it leads nowhere."""
    for key in path:
        if not isinstance(item, Mapping):
            return None
        item = item.get(key)
    return item
