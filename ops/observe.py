"""Reads a run's objects from the cluster into the snapshot that ops.runs judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ops.kube import RUN_LABEL, Kube
from ops.pod_events import LogSummary, summarise
from ops.runs import RunSnapshot, RunView, judge_run, name_of, newest_pod

LOG_TAIL = 400
"""Lines of log that hold the newest step, checkpoint and result; a heartbeat a second fits many minutes."""


@dataclass(frozen=True)
class RunRef:
    """Where a run's Job is."""

    run: str
    namespace: str
    job: str


def observe(kube: Kube, ref: RunRef) -> RunView:
    """One look at one run: four reads, and the tail of the newest Pod's log."""
    job = kube.job(ref.namespace, ref.job)
    if job is None:
        return judge_run(RunSnapshot(ref.run, ref.namespace, ref.job, None))
    pods = kube.pods(ref.namespace, f"batch.kubernetes.io/job-name={ref.job}")
    mine = {ref.job, *(name_of(pod) for pod in pods)}
    events = [e for e in kube.events(ref.namespace) if (e.get("involvedObject") or {}).get("name") in mine]
    newest = newest_pod(pods)
    log = LogSummary()
    if newest is not None and (newest.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed"):
        log = summarise(kube.log(ref.namespace, name_of(newest), tail=LOG_TAIL).splitlines())
    return judge_run(RunSnapshot(ref.run, ref.namespace, ref.job, job, pods, events, log))


def declared(outputs: Mapping[str, Any]) -> list[RunRef]:
    """The runs in the stack's outputs that have a Job (a cancelled run has none)."""
    runs = outputs.get("runs") or {}
    items: Sequence[tuple[str, Any]]
    items = (
        list(runs.items())
        if isinstance(runs, Mapping)
        else [(str(item.get("id", "")), item) for item in runs]
    )
    return [
        RunRef(run, str(item["namespace"]), str(item["job"]))
        for run, item in items
        if isinstance(item, Mapping) and item.get("job") and not item.get("cancelled")
    ]


def present(kube: Kube, environment: str = "") -> list[RunRef]:
    """The newest Job of every run on the cluster, by label, with or without Pulumi's state at hand."""
    selector = RUN_LABEL + (f",holdfast.dev/environment={environment}" if environment else "")
    newest: dict[tuple[str, str], tuple[int, RunRef]] = {}
    for job in kube.jobs(selector):
        meta = job["metadata"]
        run, attempt = meta["labels"][RUN_LABEL], _number(meta["labels"].get("holdfast.dev/attempt"))
        key = (meta["namespace"], run)
        if key not in newest or attempt > newest[key][0]:
            newest[key] = (attempt, RunRef(run, meta["namespace"], meta["name"]))
    return [ref for _key, (_attempt, ref) in sorted(newest.items())]


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1
