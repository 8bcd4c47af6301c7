"""One training run as the API server shows it, judged. Pure: plain objects in, a RunView out.

Objects are dicts as `kubectl get -o json` prints them, so that a saved folder is judged like a live cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from ops.pod_events import LogSummary, Result, as_result, parse_termination
from ops.workloads import Object, Workload, at, workload_of

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
    WAITING = "Waiting"  # the Job or JobSet exists, no Pod does
    PENDING = "Pending"  # a Pod exists and has no node
    STARTING = "Starting"  # it has a node, and its container does not run yet
    RUNNING = "Running"
    STOPPING = "Stopping"  # SIGTERM was sent; it saves
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True)
class RunSnapshot:
    """What was read of one run at one moment. `events` are of the Job or JobSet, its child Job and its Pods,
    in any order.
    """

    run: str
    namespace: str
    job_name: str
    """Name of the Job or JobSet."""
    job: Object | None
    """The Job or JobSet."""
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    log: LogSummary = field(default_factory=LogSummary)
    child: Object | None = None
    """The child Job of a JobSet that failed: only there stands why."""
    kind: str = "Job"
    """Kind of what is not there, where `job` is None."""


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
    controller: str = "job"
    restarts: int = 0
    """How often JobSet made the child Job anew; 0 with a plain Job."""
    counted_restarts: int = 0
    """Those of them that count against its limit: all but the ones after preemptions."""

    @property
    def over(self) -> bool:
        return self.phase in (Phase.COMPLETE, Phase.FAILED)


def judge_run(snapshot: RunSnapshot) -> RunView:
    """The run's phase and what it is doing or waiting for."""
    if snapshot.job is None:
        where = f"{snapshot.namespace}/{snapshot.job_name}"
        return _view(snapshot, None, Phase.ABSENT, f"There is no {snapshot.kind} {where}.")
    work = workload_of(snapshot.job)
    if work.complete:
        return _view(snapshot, work, Phase.COMPLETE, "The result is committed and verified.")
    if work.failure:
        return _view(snapshot, work, Phase.FAILED, _failure(snapshot, work, work.failure))
    if work.suspended:
        why = f"The {work.kind} is suspended: whoever admits it (a queue, a person) has not yet."
        return _view(snapshot, work, Phase.SUSPENDED, why)
    pod = newest_pod(snapshot.pods)
    if pod is None or at(pod, "status", "phase") in ("Succeeded", "Failed"):
        return _view(snapshot, work, Phase.WAITING, _waiting(snapshot, work, pod))
    if at(pod, "metadata", "deletionTimestamp"):
        told = f"Pod {name_of(pod)} was told to stop and saves its state."
        return _view(snapshot, work, Phase.STOPPING, told)
    if not at(pod, "spec", "nodeName"):
        return _view(snapshot, work, Phase.PENDING, _unscheduled(pod))
    if at(pod, "status", "phase") == "Running":
        return _view(snapshot, work, Phase.RUNNING, _progress(snapshot, work))
    return _view(snapshot, work, Phase.STARTING, _starting(snapshot, pod))


def newest_pod(pods: Sequence[Object]) -> Object | None:
    """The Pod that counts now: the youngest."""
    return max(pods, key=_born, default=None)


def oldest_first(pods: Sequence[Object]) -> list[Object]:
    return sorted(pods, key=_born)


def name_of(item: Object) -> str:
    return str(at(item, "metadata", "name") or "")


def terminated(pod: Object) -> Mapping[str, Any]:
    """The end of the Pod's trainer container (exitCode, reason, message), or an empty mapping."""
    for status in at(pod, "status", "containerStatuses") or []:
        ended = at(status, "state", "terminated")
        if ended and status.get("name") in ("trainer", None):
            return ended
    return {}


def _view(snapshot: RunSnapshot, work: Workload | None, phase: Phase, sentence: str) -> RunView:
    pod = newest_pod(snapshot.pods)
    log, words = snapshot.log, parse_termination(terminated(pod).get("message")) if pod else {}
    result = as_result(log.result) if log.result else None
    if result is None and phase is Phase.COMPLETE and (words.get("metrics") or words.get("result")):
        result = as_result(words)
    step = log.step if log.step is not None else words.get("step")
    if step is None and result is not None:
        step = result.step
    view = RunView(
        run=snapshot.run,
        namespace=snapshot.namespace,
        job=snapshot.job_name,
        phase=phase,
        sentence=sentence,
        pod=name_of(pod) if pod else "",
        node=str(at(pod, "spec", "nodeName") or "") if pod else "",
        pods_so_far=len(snapshot.pods),
        step=step if isinstance(step, int) else None,
        checkpoint=log.checkpoint,
        result=result,
    )
    if work is None:
        return view
    return replace(
        view,
        attempt=work.attempt,
        # JobSet deletes the Pods of the Jobs that it has replaced.
        pods_so_far=max(len(snapshot.pods), work.restarts + bool(snapshot.pods)),
        started=work.started,
        ended=work.ended,
        deadline_seconds=work.deadline_seconds,
        controller=work.controller,
        restarts=work.restarts,
        counted_restarts=work.counted_restarts,
    )


def _failure(snapshot: RunSnapshot, work: Workload, condition: Object) -> str:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    said = f"The {work.kind} failed ({reason}): {message}".rstrip(": .") + "."
    if snapshot.child is not None and (why := workload_of(snapshot.child).failure):
        reason = why.get("reason", "")
        said += f" Its Job failed ({reason}): {why.get('message', '')}".rstrip(": .") + "."
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


def _waiting(snapshot: RunSnapshot, work: Workload, pod: Object | None) -> str:
    after = at(pod, "metadata", "creationTimestamp") if pod else ""
    refusal = newest_event(snapshot.events, "FailedCreate", after=str(after or ""))
    if refusal:
        # A Job over its quota shows nothing in its conditions, only this event (kubernetes#88718, #90124).
        return f"No Pod can be made: {refusal.get('message', '').strip()}"
    if pod is None:
        if work.restarts:
            return f"The {work.kind} {_restarted(work)}, and waits for its next Pod."
        return f"The {work.kind} waits for its first Pod."
    ended = terminated(pod)
    if ended.get("exitCode") == 0:
        return f"Pod {name_of(pod)} has finished; the {work.kind} is about to say so."
    meaning = EXIT_MEANING.get(ended.get("exitCode"), f"failed with exit code {ended.get('exitCode', '?')}")
    if ended.get("exitCode") not in EXIT_MEANING and (why := _disruption(pod)):
        meaning = f"was taken away ({why})"
    return f"Pod {name_of(pod)} {meaning}; {_what_next(work)}."


def _what_next(work: Workload) -> str:
    if work.kind == "Job":
        return "the Job controller's delay runs before the next one"
    return "JobSet makes the next Job" + (f" (it {_restarted(work)})" if work.restarts else "")


def _restarted(work: Workload) -> str:
    times = "once" if work.restarts == 1 else f"{work.restarts} times"
    return f"has restarted {times}, {work.counted_restarts} of {work.max_restarts} counted"


def _disruption(pod: Object) -> str:
    """Why Kubernetes itself took the Pod away; empty where it did not."""
    for condition in at(pod, "status", "conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return str(condition.get("reason") or "DisruptionTarget")
    return ""


def _unscheduled(pod: Object) -> str:
    for condition in at(pod, "status", "conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"Pod {name_of(pod)} has no node: {condition.get('message') or condition.get('reason')}"
    return f"Pod {name_of(pod)} waits for the scheduler."


def _starting(snapshot: RunSnapshot, pod: Object) -> str:
    name = name_of(pod)
    mine = [event for event in snapshot.events if at(event, "involvedObject", "name") == name]
    waiting = [
        state
        for kind in ("initContainerStatuses", "containerStatuses")
        for status in at(pod, "status", kind) or []
        if (state := at(status, "state", "waiting"))
    ]
    for state in waiting:
        if state.get("reason") not in ("ContainerCreating", "PodInitializing", None):
            return f"Pod {name}: {state['reason']}: {state.get('message', '').strip()}".rstrip(": ")
    for reason in ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"):
        if event := newest_event(mine, reason):
            return f"Pod {name}: {reason}: {event.get('message', '').strip()}"
    last = newest_event(mine)
    return (
        f"Pod {name} starts on {at(pod, 'spec', 'nodeName')}"
        + (f": {last.get('message')}" if last else "")
        + "."
    )


def _progress(snapshot: RunSnapshot, work: Workload) -> str:
    log = snapshot.log
    if log.step is None:
        return "The trainer starts." + (f" It restored step {log.restored}." if log.restored else "")
    again = f"; {work.kind} {_restarted(work)}" if work.restarts else ""
    total = f" of {log.total_steps}" if log.total_steps else ""
    newest = log.checkpoint if log.checkpoint is not None else log.restored
    saved = f", last checkpoint at {newest}" if newest else ", no checkpoint yet"
    resumed = f", resumed from {log.restored}" if log.restored else ""
    failed = f"; the last save failed: {log.save_failed}" if log.save_failed else ""
    return f"step {log.step}{total}{saved}{resumed}{failed}{again}"


def newest_event(events: Sequence[Object], reason: str = "", after: str = "") -> Object | None:
    """The youngest event, of one reason if given, seen after an ISO time if given."""
    fitting = [e for e in events if (not reason or e.get("reason") == reason) and _seen(e) > after]
    return max(fitting, key=_seen, default=None)


def _seen(event: Object) -> str:
    series = at(event, "series", "lastObservedTime")
    return str(
        series
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or at(event, "metadata", "creationTimestamp")
        or ""
    )


def _born(pod: Object) -> tuple[str, str]:
    return str(at(pod, "metadata", "creationTimestamp") or ""), name_of(pod)


def seconds_between(earlier: str, later: str | datetime) -> float | None:
    """Seconds from one ISO time to another; None where either is missing."""
    if not earlier or not later:
        return None
    end = later if isinstance(later, datetime) else datetime.fromisoformat(later)
    return (end - datetime.fromisoformat(earlier)).total_seconds()
