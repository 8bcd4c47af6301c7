"""API objects, plain dicts, as facts. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ops.acceptance.facts import Attempt, Condition, Json, NodeFact, ObjectFact
from ops.pod_events import parse_line, parse_termination

GPU = "nvidia.com/gpu"
TRAINER = "trainer"
OTHER_LINES = 40
# Of a Job or JobSet: its limits. The Pod template is left out, because it is long and may name Secrets.
LIMITS = (
    "backoffLimit", "activeDeadlineSeconds", "podReplacementPolicy", "podFailurePolicy", "failurePolicy",
    "completions", "parallelism", "ttlSecondsAfterFinished",
)  # fmt: skip


def at(item: Any, *path: str) -> Any:
    """A value by its path; None where a part of the path is not there."""
    for key in path:
        if not isinstance(item, Mapping):
            return None
        item = item.get(key)
    return item


def moment(text: Any) -> datetime | None:
    """A time of the API; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def conditions(item: Any) -> list[Condition]:
    return [
        Condition(
            type=str(found.get("type", "")),
            status=str(found.get("status", "")),
            reason=str(found.get("reason") or ""),
            message=str(found.get("message") or ""),
            at=moment(found.get("lastTransitionTime")),
        )
        for found in at(item, "status", "conditions") or []
    ]


def condition_at(pod: Any, kind: str) -> datetime | None:
    """When a condition became true; None while it is not."""
    return next((c.at for c in conditions(pod) if c.type == kind and c.status == "True"), None)


def container_state(pod: Any, kind: str) -> Json:
    """`running` or `terminated` of the trainer's container; empty while it is in another state."""
    for status in at(pod, "status", "containerStatuses") or []:
        if status.get("name") == TRAINER:
            return dict(at(status, "state", kind) or {})
    return {}


def started_at(pod: Any) -> datetime | None:
    return moment(
        container_state(pod, "running").get("startedAt")
        or container_state(pod, "terminated").get("startedAt")
    )


def is_finished(pod: Any) -> bool:
    return bool(container_state(pod, "terminated")) or at(pod, "status", "phase") in ("Succeeded", "Failed")


def attempt(
    pod: Json,
    seen: Mapping[str, datetime],
    log: str,
    source: Literal["", "api", "node"],
    complete: bool,
) -> Attempt:
    """One Pod as it was last seen, with its log."""
    meta, ended = pod["metadata"], container_state(pod, "terminated")
    deletion, grace = moment(meta.get("deletionTimestamp")), meta.get("deletionGracePeriodSeconds")
    owner = next((o for o in meta.get("ownerReferences") or [] if o.get("kind") == "Job"), {})
    lines = log.splitlines()
    events = [event for line in lines if (event := parse_line(line))]
    others = [line for line in lines if line.strip() and parse_line(line) is None]
    return Attempt(
        pod=meta["name"],
        uid=meta.get("uid", ""),
        node=str(at(pod, "spec", "nodeName") or ""),
        job=str(owner.get("name") or ""),
        job_uid=str(owner.get("uid") or ""),
        created_at=moment(meta.get("creationTimestamp")),
        scheduled_at=condition_at(pod, "PodScheduled"),
        sandbox_at=condition_at(pod, "PodReadyToStartContainers"),
        started_at=started_at(pod),
        deletion_requested_at=deletion - timedelta(seconds=int(grace or 0)) if deletion else None,
        deletion_grace_seconds=int(grace) if deletion and grace is not None else None,
        finished_at=moment(ended.get("finishedAt")),
        exit_code=ended.get("exitCode"),
        signal=ended.get("signal"),
        reason=str(ended.get("reason") or ""),
        phase=str(at(pod, "status", "phase") or ""),
        conditions=conditions(pod),
        seen=dict(seen),
        termination=parse_termination(ended.get("message")),
        events=events,
        other_lines=others[-OTHER_LINES:],
        log_lines=len(lines),
        log_sha256=hashlib.sha256(log.encode()).hexdigest() if log else "",
        log_source=source,
        log_complete=complete,
    )


def workload(kind: Literal["Job", "JobSet"], item: Json, gone: datetime | None) -> ObjectFact:
    """A Job or JobSet as it was last seen."""
    meta = item["metadata"]
    return ObjectFact(
        kind=kind,
        name=meta["name"],
        uid=meta.get("uid", ""),
        created_at=moment(meta.get("creationTimestamp")),
        gone_at=gone,
        status=dict(item.get("status") or {}),
        spec={key: value for key, value in (item.get("spec") or {}).items() if key in LIMITS},
    )


def is_over(item: Json) -> bool:
    """A Job that is Complete or Failed, or a JobSet that is Completed or Failed."""
    return any(c.type in ("Complete", "Completed", "Failed") and c.status == "True" for c in conditions(item))


def node(item: Json) -> NodeFact:
    info = at(item, "status", "nodeInfo") or {}
    return NodeFact(
        name=item["metadata"]["name"],
        kubelet=str(info.get("kubeletVersion", "")),
        os_image=str(info.get("osImage", "")),
        container_runtime=str(info.get("containerRuntimeVersion", "")),
        gpus=int(at(item, "status", "allocatable", GPU) or 0),
    )


def changes(kind: str, before: Json | None, now: Json) -> list[str]:
    """What is worth a line between two sights of one object, each in a few words."""
    said = []
    if before is None:
        said.append("created" if kind != "Node" else "seen")
    for words, path in (
        ("phase", ("status", "phase")),
        ("node", ("spec", "nodeName")),
        ("deletion at", ("metadata", "deletionTimestamp")),
        ("failed", ("status", "failed")),
        ("restarts", ("status", "restarts")),
    ):
        if (value := at(now, *path)) is not None and value != at(before, *path):
            said.append(f"{words} {value}")
    if kind == "Node" and bool(at(now, "spec", "unschedulable")) != bool(at(before, "spec", "unschedulable")):
        said.append("cordoned" if at(now, "spec", "unschedulable") else "uncordoned")
    if kind == "Node" and _taints(now) != _taints(before):
        said.append(f"taints {', '.join(_taints(now)) or 'none'}")
    said += _condition_changes(kind, before, now)
    if kind == "Pod":
        for state in ("running", "terminated"):
            found = container_state(now, state)
            if found and not container_state(before, state):
                code = f" with exit code {found.get('exitCode')}" if state == "terminated" else ""
                said.append(f"container {state}{code}")
    return said


def event_words(event: Json) -> str:
    """An Event in one line."""
    source = at(event, "source", "component") or event.get("reportingComponent") or ""
    return f"event {event.get('reason', '')} ({source}): {str(event.get('message') or '').strip()}"


def _condition_changes(kind: str, before: Json | None, now: Json) -> list[str]:
    wanted = ("Ready",) if kind == "Node" else None
    old = {c.type: c.status for c in conditions(before)}
    return [
        f"condition {c.type}={c.status}" + (f" {c.reason}" if c.reason else "")
        for c in conditions(now)
        if old.get(c.type) != c.status and (wanted is None or c.type in wanted)
    ]


def _taints(item: Json | None) -> Sequence[str]:
    return sorted(
        f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}"
        for taint in at(item, "spec", "taints") or []
    )
