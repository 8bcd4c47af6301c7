"""What an acceptance keeps of what it saw: Pods that vanish, logs that break off, waits that end."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ops.acceptance import convert, recorder
from ops.acceptance.host import cri_text
from ops.acceptance.recorder import NotInTime, Recorder, Stopped

LABELS = {"holdfast.dev/run": "r", "holdfast.dev/acceptance": "k3v9"}


class Source:
    """A log that is what the test says: lines, or an error to raise, one entry per stream."""

    def __init__(self, *streams: list[str | Exception]) -> None:
        self.streams = list(streams)
        self.opened = 0

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def watch(self, path: str, **query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        return iter(())

    def log(self, namespace: str, pod: str) -> str:
        return ""

    def follow_log(self, namespace: str, pod: str) -> Iterator[str]:
        self.opened += 1
        for line in self.streams.pop(0) if self.streams else []:
            if isinstance(line, Exception):
                raise line
            yield line


def event(kind: str, **fields: Any) -> str:
    return json.dumps({"event": kind, "at": "2026-01-02T03:00:00.000Z", **fields})


def pod(name: str = "p-1", state: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Pending"}
    if state:
        status = {"phase": "Running", "containerStatuses": [{"name": "trainer", "state": state}]}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": LABELS,
                     "creationTimestamp": "2026-01-02T03:00:00Z", **meta},
        "spec": {"nodeName": "gpu-0"} if state else {},
        "status": status,
    }  # fmt: skip


RUNNING = {"running": {"startedAt": "2026-01-02T03:00:03Z"}}
ENDED = {
    "terminated": {
        "startedAt": "2026-01-02T03:00:03Z", "finishedAt": "2026-01-02T03:00:09Z", "exitCode": 75,
        "reason": "Error", "message": '{"code": 75, "step": 40, "generation": 1, "message": "Preempted."}',
    }
}  # fmt: skip


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Recorder]]:
    monkeypatch.setattr(recorder, "RETRY_SECONDS", 0.005)
    made: list[Recorder] = []

    def build(*streams: list[str | Exception]) -> Recorder:
        made.append(Recorder(Source(*streams), "ml-batch", "k3v9", job_sets=True))
        return made[-1]

    yield build
    for one in made:
        one.stop()


def test_a_pod_that_vanished_is_kept_with_its_end_its_log_and_when_each_was_seen(make: Any) -> None:
    seen = make(["noise", event("start", step=0), event("checkpoint", step=20)])
    seen.take("Pod", "ADDED", pod())
    seen.take("Pod", "MODIFIED", pod(state=RUNNING))
    deleting = {"deletionTimestamp": "2026-01-02T03:02:08Z", "deletionGracePeriodSeconds": 120}
    seen.take("Pod", "MODIFIED", pod(state=RUNNING, **deleting))
    seen.take("Pod", "MODIFIED", pod(state=ENDED, **deleting))
    seen.wait(lambda: seen.pods("r")[0].complete, "the log", 5)
    seen.take("Pod", "DELETED", pod(state=ENDED, **deleting))
    (found,) = seen.attempts("r")
    assert (found.exit_code, found.reason, found.termination["step"]) == (75, "Error", 40)
    assert found.deletion_requested_at == datetime(2026, 1, 2, 3, 0, 8, tzinfo=UTC)
    assert found.started_at == datetime(2026, 1, 2, 3, 0, 3, tzinfo=UTC)
    assert set(found.seen) == {"created", "scheduled", "started", "deleting", "finished", "gone"}
    assert [e["event"] for e in found.events] == ["start", "checkpoint"]
    assert found.other_lines == ["noise"] and found.log_complete and found.log_source == "api"
    text = "\n".join(["noise", event("start", step=0), event("checkpoint", step=20)]) + "\n"
    assert found.log_sha256 == hashlib.sha256(text.encode()).hexdigest() and found.log_lines == 3


def test_a_stream_that_broke_is_taken_up_again_without_a_line_twice(make: Any) -> None:
    lines = [event("step", step=number) for number in (1, 2, 3)]
    seen = make([lines[0], OSError("the connection broke")], [*lines])
    seen.take("Pod", "ADDED", pod(state=RUNNING))
    seen.wait(lambda: len(seen.pods("r")[0].lines) == 3, "the whole log", 5)
    seen.take("Pod", "MODIFIED", pod(state=ENDED))
    seen.wait(lambda: seen.pods("r")[0].complete, "its end", 5)
    assert [e["step"] for e in seen.attempts("r")[0].events] == [1, 2, 3]
    assert any("log broke off" in entry.what for entry in seen.watched("r"))


def test_the_node_s_own_file_stands_in_for_a_kubelet_that_serves_no_log(make: Any) -> None:
    seen = make([event("step", step=1), OSError("no kubelet")], *[[OSError("no kubelet")]] * 500)
    seen.take("Pod", "ADDED", pod(state=RUNNING))
    seen.wait(lambda: len(seen.pods("r")[0].lines) == 1, "the first line", 5)
    text = "\n".join([event("step", step=1), event("superseded"), event("end", code=76)]) + "\n"
    seen.give_log("uid-p-1", text)
    (found,) = seen.attempts("r")
    assert (found.log_source, found.log_complete, found.log_lines) == ("node", True, 3)
    seen.give_log("uid-p-1", "")
    assert seen.attempts("r")[0].log_lines == 3, "a file that has gone takes nothing away"


def test_pods_come_in_the_order_of_their_creation_and_of_their_run_alone(make: Any) -> None:
    seen = make()
    seen.take("Pod", "ADDED", pod("p-2", creationTimestamp="2026-01-02T03:05:00Z"))
    seen.take("Pod", "ADDED", pod("p-1"))
    seen.take("Pod", "ADDED", pod("other", labels={**LABELS, "holdfast.dev/run": "other"}))
    seen.take("Pod", "ADDED", pod("inspector", labels={"holdfast.dev/acceptance": "k3v9"}))
    assert [record.name for record in seen.pods("r")] == ["p-1", "p-2"]


def test_the_timeline_has_the_run_s_objects_its_events_and_its_nodes_only(make: Any) -> None:
    seen = make()
    seen._listed.add("Event")
    seen.take("Node", "ADDED", node("gpu-0", "True"))
    seen.take("Node", "ADDED", node("gpu-1", "True"))
    seen.take("Pod", "ADDED", pod(state=RUNNING))
    seen.take("Node", "MODIFIED", node("gpu-0", "Unknown"))
    seen.take("Node", "MODIFIED", node("gpu-1", "False"))
    job = {"metadata": {"name": "j", "uid": "uid-j", "labels": LABELS}, "status": {}}
    seen.take("Job", "ADDED", job)
    said = {
        "metadata": {"uid": "e"},
        "involvedObject": {"uid": "uid-j", "name": "j"},
        "reason": "FailedCreate",
        "message": "exceeded quota",
        "source": {"component": "job-controller"},
    }
    seen.take("Event", "ADDED", said)
    seen.take("Event", "MODIFIED", said)
    seen.take(
        "Event", "ADDED", {**said, "metadata": {"uid": "f"}, "involvedObject": {"uid": "x", "name": "x"}}
    )
    over = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}
    seen.take("Job", "MODIFIED", {**job, "status": {"conditions": [over], "failed": 1}})
    told = [f"{entry.kind} {entry.name}: {entry.what}" for entry in seen.watched("r")]
    assert "Node gpu-0: condition Ready=Unknown" in told
    assert not any("gpu-1" in line for line in told)
    assert told.count("Event j: event FailedCreate (job-controller): exceeded quota") == 1
    assert told[-2:] == ["Job j: failed 1", "Job j: condition Failed=True PodFailurePolicy"]


def node(name: str, ready: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def test_a_child_job_that_a_jobset_removed_is_kept_with_when_it_was_gone(make: Any) -> None:
    seen = make()
    job = {
        "metadata": {"name": "c", "uid": "1", "labels": LABELS},
        "spec": {"backoffLimit": 0, "template": {}},
    }
    seen.take("Job", "ADDED", job)
    seen.take("Job", "DELETED", job)
    seen.take("JobSet", "ADDED", {"metadata": {"name": "s", "uid": "2", "labels": LABELS}})
    child, whole = seen.objects("r")
    assert (child.kind, child.gone_at is None, child.spec) == ("Job", False, {"backoffLimit": 0})
    assert (whole.kind, whole.gone_at) == ("JobSet", None)


def test_a_wait_ends_with_what_it_waited_for_and_what_was_there_instead(make: Any) -> None:
    seen = make()
    with pytest.raises(NotInTime, match="After 0 s this had not happened: the Pod to run. It has no node."):
        seen.wait(lambda: None, "the Pod to run", 0, instead=lambda: "It has no node.")


def test_a_wait_is_woken_by_a_change_and_by_the_end_of_the_acceptance(make: Any) -> None:
    seen = make()
    started = time.monotonic()
    threading.Timer(0.02, lambda: seen.take("Pod", "ADDED", pod())).start()
    assert seen.wait(lambda: seen.pods("r") or None, "a Pod", 10)[0].name == "p-1"
    threading.Timer(0.02, seen.stop).start()
    with pytest.raises(Stopped):
        seen.wait(lambda: None, "what never comes", 10)
    with pytest.raises(Stopped):
        seen.pause(10)
    assert time.monotonic() - started < 0.4, "woken, not polled"


def test_an_object_that_is_over_says_so_in_the_words_of_its_kind() -> None:
    def with_condition(kind: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": kind, "status": "True"}]}}

    assert all(convert.is_over(with_condition(kind)) for kind in ("Complete", "Completed", "Failed"))
    assert not convert.is_over(with_condition("FailureTarget"))


def test_the_runtime_s_log_format_is_undone_and_a_half_line_left_for_later() -> None:
    content = "T stdout F one\nT stdout P tw\nT stdout F o\nT stderr F \nT stdout F half"
    assert cri_text(content) == "one\ntwo\n\n"
