"""Reads a run's objects from the cluster into the snapshot that ops.runs judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ops.kube import RUN_LABEL, Kube
from ops.pod_events import LogSummary, summarise
from ops.runs import RunSnapshot, RunView, judge_run, name_of, newest_pod
from ops.workloads import ATTEMPT_LABEL, JOB_SET_LABEL, Object, child_job, workload_of

LOG_TAIL = 400
"""Lines of log that hold the newest step, checkpoint and result; a heartbeat a second fits many minutes."""


@dataclass(frozen=True)
class RunRef:
    """Where a run's Job or JobSet is."""

    run: str
    namespace: str
    job: str
    """Name of the Job or JobSet."""
    controller: str = "job"
    """`job` or `jobset`."""


def observe(kube: Kube, ref: RunRef) -> RunView:
    """One look at one run: a few reads, and the tail of the newest Pod's log."""
    if ref.controller == "jobset":
        return _observe_job_set(kube, ref)
    job = kube.job(ref.namespace, ref.job)
    if job is None:
        return judge_run(RunSnapshot(ref.run, ref.namespace, ref.job, None))
    pods = kube.pods(ref.namespace, f"batch.kubernetes.io/job-name={ref.job}")
    return judge_run(_snapshot(kube, ref, job, pods, {ref.job}))


def _observe_job_set(kube: Kube, ref: RunRef) -> RunView:
    job_set = kube.job_set(ref.namespace, ref.job)
    if job_set is None:
        return judge_run(RunSnapshot(ref.run, ref.namespace, ref.job, None, kind="JobSet"))
    work, child = workload_of(job_set), child_job(job_set)
    # By our labels, which are on the Pods of every child Job, whichever restart made it.
    selector = f"{RUN_LABEL}={ref.run}" + (f",{ATTEMPT_LABEL}={work.attempt}" if work.attempt else "")
    pods = kube.pods(ref.namespace, selector)
    snapshot = _snapshot(kube, ref, job_set, pods, {ref.job, child})
    if work.failure:
        snapshot = replace(snapshot, child=kube.job(ref.namespace, child))
    return judge_run(snapshot)


def _snapshot(kube: Kube, ref: RunRef, item: Object, pods: Sequence[Object], names: set[str]) -> RunSnapshot:
    mine = {*names, *(name_of(pod) for pod in pods)}
    events = [e for e in kube.events(ref.namespace) if (e.get("involvedObject") or {}).get("name") in mine]
    newest = newest_pod(pods)
    log = LogSummary()
    if newest is not None and (newest.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed"):
        log = summarise(_tail(kube, ref.namespace, name_of(newest)).splitlines())
    return RunSnapshot(ref.run, ref.namespace, ref.job, item, pods, events, log)


def _tail(kube: Kube, namespace: str, pod: str) -> str:
    """The end of the Pod's log; empty where its node does not give it: a dead node is what a look is to show."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import ReadTimeoutError

    try:
        return kube.log(namespace, pod, tail=LOG_TAIL)
    except ReadTimeoutError:  # the API server itself waits for the node's kubelet
        return ""
    except ApiException as error:
        if error.status < 500:
            raise
        return ""


def declared(outputs: Mapping[str, Any]) -> list[RunRef]:
    """The runs in the stack's outputs that have a Job or JobSet (a cancelled run has none)."""
    runs = outputs.get("runs") or {}
    items: Sequence[tuple[str, Any]]
    items = (
        list(runs.items())
        if isinstance(runs, Mapping)
        else [(str(item.get("id", "")), item) for item in runs]
    )
    return [
        RunRef(run, str(item["namespace"]), str(item["job"]), str(item.get("controller") or "job"))
        for run, item in items
        if isinstance(item, Mapping) and item.get("job") and not item.get("cancelled")
    ]


def present(kube: Kube, environment: str = "") -> list[RunRef]:
    """The newest Job or JobSet of every run on the cluster, by label, with or without Pulumi's state."""
    selector = RUN_LABEL + (f",holdfast.dev/environment={environment}" if environment else "")
    newest: dict[tuple[str, str], tuple[tuple[int, str], RunRef]] = {}
    for item in [*kube.jobs(selector), *kube.job_sets(selector)]:
        meta = item["metadata"]
        if JOB_SET_LABEL in meta["labels"]:
            continue  # the child Job of a JobSet, which speaks for it
        run, attempt = meta["labels"][RUN_LABEL], _number(meta["labels"].get(ATTEMPT_LABEL))
        # A run that changed its controller has both for a moment: the younger one is meant.
        age = (attempt, str(meta.get("creationTimestamp") or ""))
        key = (meta["namespace"], run)
        if key not in newest or age > newest[key][0]:
            newest[key] = (age, RunRef(run, meta["namespace"], meta["name"], workload_of(item).controller))
    return [ref for _key, (_age, ref) in sorted(newest.items(), key=lambda found: found[0])]


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1
