"""One training run as the API server shows it, judged. Pure: plain objects in, a RunView out.

Objects are dicts as `kubectl get -o json` prints them, so that a saved folder is judged like a live cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ops.pod_events import LogSummary, Result, as_result, parse_termination

Object = Mapping[str, Any]

EXIT_MEANING = {
    0: "finished with a verified result",
    75: "was preempted; its state is safe on the volume",
    76: "was superseded by a newer attempt",
    77: "made no progress over several attempts",
    78: "has bad input or configuration; a retry alone can not help",
    137: "was killed (out of memory, or the grace period was over)",
}


class Phase(StrEnum):
    """Where a run is. The words are those of the Job and Pod API where they have one."""

    ABSENT = "Absent"
    SUSPENDED = "Suspended"
    WAITING = "Waiting"  # the Job exists, no Pod does
    PENDING = "Pending"  # a Pod exists and has no node
    STARTING = "Starting"  # it has a node, and its container does not run yet
    RUNNING = "Running"
    STOPPING = "Stopping"  # SIGTERM was sent; it saves
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True)
class RunSnapshot:
    """What was read of one run at one moment. `events` are of the Job and its Pods, in any order."""

    run: str
    namespace: str
    job_name: str
    job: Object | None
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    log: LogSummary = field(default_factory=LogSummary)


@dataclass(frozen=True)
class RunView:
    """A run in one line and a sentence. Times are ISO 8601 as the API server gave them."""

    run: str
    namespace: str
    job: str
    phase: Phase
    sentence: str
    attempt: str = ""
    pod: str = ""
    node: str = ""
    pods_so_far: int = 0
    step: int | None = None
    checkpoint: int | None = None
    result: Result | None = None
    started: str = ""
    ended: str = ""
    deadline_seconds: int | None = None

    @property
    def over(self) -> bool:
        return self.phase in (Phase.COMPLETE, Phase.FAILED)


def judge_run(snapshot: RunSnapshot) -> RunView:
    """The run's phase and what it is doing or waiting for."""
    job = snapshot.job
    if job is None:
        return _view(snapshot, Phase.ABSENT, f"There is no Job {snapshot.namespace}/{snapshot.job_name}.")
    conditions = {
        item["type"]: item for item in _at(job, "status", "conditions") or [] if item["status"] == "True"
    }
    if "Complete" in conditions:
        return _view(snapshot, Phase.COMPLETE, "The result is committed and verified.")
    if "Failed" in conditions:
        return _view(snapshot, Phase.FAILED, _failure(snapshot, conditions["Failed"]))
    if _at(job, "spec", "suspend"):
        return _view(
            snapshot,
            Phase.SUSPENDED,
            "The Job is suspended: whoever admits it (a queue, a person) has not yet.",
        )
    pod = newest_pod(snapshot.pods)
    if pod is None or _at(pod, "status", "phase") in ("Succeeded", "Failed"):
        return _view(snapshot, Phase.WAITING, _waiting(snapshot, pod))
    if _at(pod, "metadata", "deletionTimestamp"):
        return _view(snapshot, Phase.STOPPING, f"Pod {name_of(pod)} was told to stop and saves its state.")
    if not _at(pod, "spec", "nodeName"):
        return _view(snapshot, Phase.PENDING, _unscheduled(pod))
    if _at(pod, "status", "phase") == "Running":
        return _view(snapshot, Phase.RUNNING, _progress(snapshot))
    return _view(snapshot, Phase.STARTING, _starting(snapshot, pod))


def newest_pod(pods: Sequence[Object]) -> Object | None:
    """The Pod that counts now: the youngest."""
    return max(pods, key=_born, default=None)


def oldest_first(pods: Sequence[Object]) -> list[Object]:
    return sorted(pods, key=_born)


def name_of(item: Object) -> str:
    return str(_at(item, "metadata", "name") or "")


def terminated(pod: Object) -> Mapping[str, Any]:
    """The end of the Pod's trainer container (exitCode, reason, message), or an empty mapping."""
    for status in _at(pod, "status", "containerStatuses") or []:
        ended = _at(status, "state", "terminated")
        if ended and status.get("name") in ("trainer", None):
            return ended
    return {}


def _view(snapshot: RunSnapshot, phase: Phase, sentence: str) -> RunView:
    job, pod = snapshot.job or {}, newest_pod(snapshot.pods)
    log, words = snapshot.log, parse_termination(terminated(pod).get("message")) if pod else {}
    result = as_result(log.result) if log.result else None
    if result is None and phase is Phase.COMPLETE and (words.get("metrics") or words.get("result")):
        result = as_result(words)
    step = log.step if log.step is not None else words.get("step")
    if step is None and result is not None:
        step = result.step
    return RunView(
        run=snapshot.run,
        namespace=snapshot.namespace,
        job=snapshot.job_name,
        phase=phase,
        sentence=sentence,
        attempt=str((_at(job, "metadata", "labels") or {}).get("holdfast.dev/attempt", "")),
        pod=name_of(pod) if pod else "",
        node=str(_at(pod, "spec", "nodeName") or "") if pod else "",
        pods_so_far=len(snapshot.pods),
        step=step if isinstance(step, int) else None,
        checkpoint=log.checkpoint,
        result=result,
        started=str(_at(job, "status", "startTime") or ""),
        ended=str(_at(job, "status", "completionTime") or ""),
        deadline_seconds=_at(job, "spec", "activeDeadlineSeconds"),
    )


def _failure(snapshot: RunSnapshot, condition: Object) -> str:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    said = f"The Job failed ({reason}): {message}".rstrip(": .") + "."
    pod = newest_pod(snapshot.pods)
    ended = terminated(pod) if pod else {}
    if not ended:
        if reason == "DeadlineExceeded" and not snapshot.pods:
            return f"{said} Its deadline counts waiting too, and no Pod of it is left."
        return said
    code = ended.get("exitCode")
    meaning = "ran out of memory" if ended.get("reason") == "OOMKilled" else EXIT_MEANING.get(code, "failed")
    words = parse_termination(ended.get("message")).get("message") or snapshot.log.last_text
    return f"{said} Pod {name_of(pod or {})} {meaning} (exit code {code})." + (
        f" Its last words: {words}" if words else ""
    )


def _waiting(snapshot: RunSnapshot, pod: Object | None) -> str:
    after = _at(pod, "metadata", "creationTimestamp") if pod else ""
    refusal = newest_event(snapshot.events, "FailedCreate", after=str(after or ""))
    if refusal:
        # A Job over its quota shows nothing in its conditions, only this event (kubernetes#88718, #90124).
        return f"No Pod can be made: {refusal.get('message', '').strip()}"
    if pod is None:
        return "The Job waits for its first Pod."
    ended = terminated(pod)
    if ended.get("exitCode") == 0:
        return f"Pod {name_of(pod)} has finished; the Job is about to say so."
    meaning = EXIT_MEANING.get(ended.get("exitCode"), f"failed with exit code {ended.get('exitCode', '?')}")
    return f"Pod {name_of(pod)} {meaning}; the Job controller's delay runs before the next one."


def _unscheduled(pod: Object) -> str:
    for condition in _at(pod, "status", "conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"Pod {name_of(pod)} has no node: {condition.get('message') or condition.get('reason')}"
    return f"Pod {name_of(pod)} waits for the scheduler."


def _starting(snapshot: RunSnapshot, pod: Object) -> str:
    name = name_of(pod)
    mine = [event for event in snapshot.events if _at(event, "involvedObject", "name") == name]
    waiting = [
        state
        for kind in ("initContainerStatuses", "containerStatuses")
        for status in _at(pod, "status", kind) or []
        if (state := _at(status, "state", "waiting"))
    ]
    for state in waiting:
        if state.get("reason") not in ("ContainerCreating", "PodInitializing", None):
            return f"Pod {name}: {state['reason']}: {state.get('message', '').strip()}".rstrip(": ")
    for reason in ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"):
        if event := newest_event(mine, reason):
            return f"Pod {name}: {reason}: {event.get('message', '').strip()}"
    last = newest_event(mine)
    return (
        f"Pod {name} starts on {_at(pod, 'spec', 'nodeName')}"
        + (f": {last.get('message')}" if last else "")
        + "."
    )


def _progress(snapshot: RunSnapshot) -> str:
    log = snapshot.log
    if log.step is None:
        return "The trainer starts." + (f" It restored step {log.restored}." if log.restored else "")
    total = f" of {log.total_steps}" if log.total_steps else ""
    saved = f", last checkpoint at {log.checkpoint}" if log.checkpoint is not None else ", no checkpoint yet"
    resumed = f", resumed from {log.restored}" if log.restored else ""
    failed = f"; the last save failed: {log.save_failed}" if log.save_failed else ""
    return f"step {log.step}{total}{saved}{resumed}{failed}"


def newest_event(events: Sequence[Object], reason: str = "", after: str = "") -> Object | None:
    """The youngest event, of one reason if given, seen after an ISO time if given."""
    fitting = [e for e in events if (not reason or e.get("reason") == reason) and _seen(e) > after]
    return max(fitting, key=_seen, default=None)


def _seen(event: Object) -> str:
    series = _at(event, "series", "lastObservedTime")
    return str(
        series
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or _at(event, "metadata", "creationTimestamp")
        or ""
    )


def _born(pod: Object) -> tuple[str, str]:
    return str(_at(pod, "metadata", "creationTimestamp") or ""), name_of(pod)


def _at(item: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(item, Mapping):
            return None
        item = item.get(key)
    return item


def seconds_between(earlier: str, later: str | datetime) -> float | None:
    """Seconds from one ISO time to another; None where either is missing."""
    if not earlier or not later:
        return None
    end = later if isinstance(later, datetime) else datetime.fromisoformat(later)
    return (end - datetime.fromisoformat(earlier)).total_seconds()
