"""Sees what happens to the runs of one acceptance and keeps it: watches of the API, and every Pod's log.

Watches and logs run in threads of their own; whoever waits is woken by each change. Pods and logs vanish, so
what is seen is kept at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, TypeVar

from ops.acceptance import convert
from ops.acceptance.facts import Attempt, Json, ObjectFact, Watched
from ops.errors import describe
from ops.pod_events import parse_line
from rehearsal.progress import Step

T = TypeVar("T")
ACCEPTANCE_LABEL = "holdfast.dev/acceptance"
RUN_LABEL = "holdfast.dev/run"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2"
RETRY_SECONDS = 0.5
WAKE_SECONDS = 0.5
END_SECONDS = 2.0
"""Time for the Pod's status to follow the end of its log."""


class Stopped(Exception):
    """The acceptance is being ended from outside: leave what you do, so that it can be undone."""


class NotInTime(Exception):
    """A wait reached its limit; the sentence says what was waited for and what was there instead."""


class Source(Protocol):
    """What is read of a cluster; ops.acting.ActingKube has it."""

    def get(self, path: str, **query: Any) -> dict[str, Any] | None: ...
    def watch(self, path: str, **query: Any) -> Iterator[tuple[str, dict[str, Any]]]: ...
    def log(self, namespace: str, pod: str) -> str: ...
    def follow_log(self, namespace: str, pod: str) -> Iterator[str]: ...


def utc_now() -> datetime:
    """UTC with milliseconds."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


@dataclass
class PodRecord:
    """One Pod: its last sight, when it was first in each state, and its log so far."""

    pod: Json
    seen: dict[str, datetime] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    source: Literal["", "api", "node"] = ""
    complete: bool = False
    reading: bool = False
    broke: str = ""
    """Why its log broke off last: told once, though it is tried again and again."""
    events: list[Json] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"].get("uid", ""))

    @property
    def node(self) -> str:
        return str(convert.at(self.pod, "spec", "nodeName") or "")

    @property
    def running(self) -> bool:
        return bool(convert.container_state(self.pod, "running"))

    @property
    def finished(self) -> bool:
        return convert.is_finished(self.pod)

    @property
    def gone(self) -> bool:
        return "gone" in self.seen

    def said(self, event: str) -> list[Json]:
        return [found for found in self.events if found.get("event") == event]

    def take(self, line: str) -> None:
        self.lines.append(line)
        if found := parse_line(line):
            self.events.append(found)

    def replace(self, text: str, source: Literal["api", "node"]) -> None:
        self.lines, self.events, self.source = [], [], source
        for line in text.splitlines():
            self.take(line)

    def fact(self) -> Attempt:
        text = "".join(f"{line}\n" for line in self.lines)
        return convert.attempt(self.pod, self.seen, text, self.source, self.complete)


class Recorder:
    """Everything seen of one acceptance. Thread-safe."""

    def __init__(self, source: Source, namespace: str, acceptance: str, job_sets: bool) -> None:
        self._source, self._namespace = source, namespace
        self._selector = f"{ACCEPTANCE_LABEL}={acceptance}"
        self._changed = threading.Condition(threading.RLock())
        self._stop = threading.Event()
        self._pods: dict[str, PodRecord] = {}
        self._workloads: dict[str, tuple[str, Json, datetime | None]] = {}
        self._nodes: dict[str, Json] = {}
        self._watched: list[tuple[str, Watched]] = []
        self._events_seen: set[str] = set()
        self._listed: set[str] = set()
        self._problems: dict[str, str] = {}
        base = f"/api/v1/namespaces/{namespace}"
        self._paths = {
            "Pod": f"{base}/pods",
            "Job": f"/apis/batch/v1/namespaces/{namespace}/jobs",
            "Event": f"{base}/events",
            "Node": "/api/v1/nodes",
        }
        if job_sets:
            self._paths["JobSet"] = f"{JOB_SETS}/namespaces/{namespace}/jobsets"

    def start(self) -> None:
        for kind, path in self._paths.items():
            threading.Thread(target=self._keep_watching, args=(kind, path), daemon=True).start()

    def stop(self) -> None:
        """End every wait with Stopped, and the threads soon after."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    # Waiting

    def wait(
        self,
        check: Callable[[], T | None],
        what: str,
        seconds: float,
        step: Step | None = None,
        instead: Callable[[], str] = lambda: "",
    ) -> T:
        """The first answer of `check` that is not None or False. `check` is called after each change.

        Raises NotInTime after `seconds`, with the words of `instead`; Stopped when the acceptance ends.
        """
        deadline = time.monotonic() + seconds
        while True:
            with self._changed:
                if self._stop.is_set():
                    raise Stopped
                found = check()
                if found is not None and found is not False:
                    return found
                if step:
                    step.note(f"waiting for {what}")
                if time.monotonic() >= deadline:
                    words = instead() or self._words()
                    raise NotInTime(
                        f"After {seconds:.0f} s this had not happened: {what}.{words and ' ' + words}"
                    )
                self._changed.wait(min(WAKE_SECONDS, max(0.01, deadline - time.monotonic())))

    def pause(self, seconds: float) -> None:
        """Sleep, and wake with Stopped."""
        if self._stop.wait(seconds):
            raise Stopped

    # What was seen

    def pods(self, run: str) -> list[PodRecord]:
        """The run's Pods in the order of their creation."""
        with self._changed:
            found = [record for record in self._pods.values() if _label(record.pod, RUN_LABEL) == run]
            return sorted(found, key=lambda record: (record.pod["metadata"].get("creationTimestamp", ""),
                                                     record.seen["created"]))  # fmt: skip

    def workloads(self, run: str, kind: str | None = None) -> list[tuple[str, Json, datetime | None]]:
        """(kind, object, when it was gone) of the run's Jobs and JobSets."""
        with self._changed:
            return [
                entry
                for entry in self._workloads.values()
                if _label(entry[1], RUN_LABEL) == run and kind in (None, entry[0])
            ]

    def node(self, name: str) -> Json:
        with self._changed:
            return self._nodes.get(name, {})

    def attempts(self, run: str) -> list[Attempt]:
        return [record.fact() for record in self.pods(run)]

    def objects(self, run: str) -> list[ObjectFact]:
        return [convert.workload(kind, item, gone) for kind, item, gone in self.workloads(run)]  # type: ignore[arg-type]

    def watched(self, run: str) -> list[Watched]:
        """The timeline of the run's objects, and of the nodes that had its Pods."""
        with self._changed:
            nodes = {record.node for record in self.pods(run)}
            return [
                seen for owner, seen in self._watched if owner == run or (owner == "" and seen.name in nodes)
            ]

    def problems(self) -> list[str]:
        with self._changed:
            return list(self._problems.values())

    def give_log(self, uid: str, text: str) -> None:
        """A log that was read from the node itself, because its kubelet is silent."""
        with self._changed:
            record = self._pods.get(uid)
            if record and len(text.splitlines()) > len(record.lines):
                record.replace(text, "node")
                record.complete = bool(record.said("end"))  # the supervisor's last words
                self._changed.notify_all()

    # Threads

    def _keep_watching(self, kind: str, path: str) -> None:
        query = {} if kind in ("Node", "Event") else {"labelSelector": self._selector}
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list(kind, path, query)
                for change, item in self._source.watch(path, resourceVersion=version, **query):
                    if self._stop.is_set():
                        return
                    if change == "ERROR":
                        version = ""  # too old a version, mostly: list again
                        break
                    version = str(convert.at(item, "metadata", "resourceVersion") or version)
                    if change != "BOOKMARK":
                        self.take(kind, change, item)
                with self._changed:
                    self._problems.pop(kind, None)
            except Exception as error:  # a watch is tried again whatever broke it, and what broke it is kept
                version = ""
                with self._changed:
                    self._problems[kind] = f"Watching {kind}s: {describe(error)[0].splitlines()[0]}"
                self._stop.wait(RETRY_SECONDS)

    def _list(self, kind: str, path: str, query: dict[str, str]) -> str:
        found = self._source.get(path, **query) or {}
        items = found.get("items") or []
        first, there = kind not in self._listed, {convert.at(item, "metadata", "uid") for item in items}
        self._listed.add(kind)
        for item in items:
            if kind == "Event" and first:
                self._events_seen.add(_event_key(item))  # from before us
            else:
                self.take(kind, "ADDED", item)
        with self._changed:
            lost = [r.pod for r in self._pods.values() if kind == "Pod" and not r.gone and r.uid not in there]
            lost += [o for k, o, gone in self._workloads.values()
                     if k == kind and not gone and o["metadata"]["uid"] not in there]  # fmt: skip
        for item in lost:
            self.take(kind, "DELETED", item)
        return str(convert.at(found, "metadata", "resourceVersion") or "")

    def take(self, kind: str, change: str, item: Json) -> None:
        """One sight of one object."""
        now = utc_now()
        with self._changed:
            if kind == "Event":
                self._take_event(now, item)
            elif kind == "Node":
                before = self._nodes.get(item["metadata"]["name"])
                self._nodes[item["metadata"]["name"]] = item
                self._tell(now, "", kind, item, convert.changes(kind, before, item))
            elif kind == "Pod":
                self._take_pod(now, change, item)
            else:
                self._take_workload(now, kind, change, item)
            self._changed.notify_all()

    def _take_pod(self, now: datetime, change: str, item: Json) -> None:
        if not (run := _label(item, RUN_LABEL)):
            return
        uid = item["metadata"]["uid"]
        record = self._pods.get(uid)
        before = record.pod if record else None
        if record is None:
            record = self._pods[uid] = PodRecord(item, {"created": now})
        record.pod = item
        states = {
            "scheduled": bool(record.node),
            "sandbox": convert.condition_at(item, "PodReadyToStartContainers") is not None,
            "started": convert.started_at(item) is not None,
            "deleting": bool(item["metadata"].get("deletionTimestamp")),
            "finished": record.finished,
            "gone": change == "DELETED",
        }
        for state, holds in states.items():
            if holds:
                record.seen.setdefault(state, now)
        words = convert.changes("Pod", before, item)
        self._tell(now, run, "Pod", item, words + (["gone"] if change == "DELETED" else []))
        if not record.reading and not record.complete and convert.started_at(item):
            record.reading = True
            threading.Thread(target=self._read_log, args=(record,), daemon=True).start()

    def _take_workload(self, now: datetime, kind: str, change: str, item: Json) -> None:
        if not (run := _label(item, RUN_LABEL)):
            return
        uid = item["metadata"]["uid"]
        before = self._workloads[uid][1] if uid in self._workloads else None
        gone = now if change == "DELETED" else None
        self._workloads[uid] = (kind, item, gone)
        self._tell(now, run, kind, item, convert.changes(kind, before, item) + (["gone"] if gone else []))

    def _take_event(self, now: datetime, item: Json) -> None:
        key = _event_key(item)
        if key in self._events_seen:
            return
        self._events_seen.add(key)
        about = convert.at(item, "involvedObject", "uid")
        owner = (
            convert.at(self._pods[about].pod, "metadata", "labels", RUN_LABEL)
            if about in self._pods
            else None
        )
        if owner is None and about in self._workloads:
            owner = _label(self._workloads[about][1], RUN_LABEL)
        if owner:
            name = str(convert.at(item, "involvedObject", "name") or "")
            self._watched.append(
                (owner, Watched(at=now, kind="Event", name=name, what=convert.event_words(item)))
            )

    def _tell(self, now: datetime, run: str, kind: str, item: Json, words: list[str]) -> None:
        name = item["metadata"]["name"]
        self._watched += [(run, Watched(at=now, kind=kind, name=name, what=what)) for what in words]

    def _read_log(self, record: PodRecord) -> None:
        """Stream the container's log to its end; after a break from its beginning, over what is known."""
        while not self._stop.is_set():
            ended, known, read = False, len(record.lines), 0
            try:
                for line in self._source.follow_log(self._namespace, record.name):
                    read += 1
                    if read > known:
                        with self._changed:
                            record.source = record.source or "api"
                            record.take(line)
                            self._changed.notify_all()
                ended = read >= known
            except Exception as error:  # what broke the stream is told, and a new one is tried
                words = f"log broke off: {describe(error)[0].splitlines()[0]}"[:300]
                with self._changed:
                    if words != record.broke:
                        record.broke = words
                        self._tell(utc_now(), _label(record.pod, RUN_LABEL), "Pod", record.pod, [words])
            with self._changed:
                if ended:  # which is the end of the log only if the container has ended too
                    self._changed.wait_for(
                        lambda: record.finished or record.gone or self._stop.is_set(), END_SECONDS
                    )
                record.complete = record.complete or (ended and record.finished)
                if record.complete or record.gone:
                    record.reading = False
                    self._changed.notify_all()
                    return
            self._stop.wait(RETRY_SECONDS)

    def _words(self) -> str:
        return "; ".join(self._problems.values())


def _label(item: Json, name: str) -> str:
    return str(convert.at(item, "metadata", "labels", name) or "")


def _event_key(item: Json) -> str:
    return f"{convert.at(item, 'metadata', 'uid')}/{item.get('count')}/{convert.at(item, 'series', 'count')}"
