"""The Jobs of a resource with what decides over their retries: plain ones, CronJobs' and JobSets'."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rules.checkpoint_paths import checkpoint_places
from rules.engine import Resource
from rules.pods import Workload, in_scope, may_be_in_scope, workload_of
from rules.views import View

JOBSET = "JobSet"
_JOBSET_GROUP = "kubernetes:jobset.x-k8s.io/"
_BATCH_GROUP = "kubernetes:batch/"
_TRAINING_NAME = re.compile(r"(^|[\-_.])(pre)?train(ing)?([\-_.\d]|$)|fine-?tun", re.IGNORECASE)
_TRAINING_PROGRAM = re.compile(
    r"(^|/)(torchrun|deepspeed|(\w*_)?(pre)?train(er|ing)?(_\w*)?\.(py|sh)|\w*fine_?tun\w*\.(py|sh))$",
    re.IGNORECASE,
)
# What Kubernetes itself marks a Pod with that it takes away: drain, preemption, a node's end.
DISRUPTION = "DisruptionTarget"


@dataclass(frozen=True)
class Job:
    """One Job, or one child Job of a JobSet. `spec` is the Job's own spec, `job_set` that of its JobSet."""

    workload: Workload
    spec: View
    job_set: View | None

    @property
    def title(self) -> str:
        return self.workload.title


def jobs(resource: Resource) -> list[Job]:
    """Every Job that a resource makes; server-side apply of a part of an object says nothing whole."""
    kind = resource.kind
    if resource.type.startswith(_JOBSET_GROUP) and kind == JOBSET:
        spec = resource.props["spec"]
        found = []
        for index, replicated in enumerate(spec["replicatedJobs"].elements()):
            if replicated.unknown:
                replicated.note()
                continue
            title = f"{resource.title}, job '{replicated['name'].peek_text() or index}'"
            template = replicated["template"]
            found.append(_job(resource, title, [template["metadata"]], template["spec"], spec))
        return found
    if not resource.type.startswith(_BATCH_GROUP):
        return []
    if kind == "Job":
        return [_job(resource, resource.title, [], resource.props["spec"], None)]
    if kind == "CronJob":
        template = resource.props["spec"]["jobTemplate"]
        return [_job(resource, resource.title, [template["metadata"]], template["spec"], None)]
    return []


def _job(resource: Resource, title: str, templates: list[View], spec: View, job_set: View | None) -> Job:
    template = spec["template"]
    pod = template["spec"]
    return Job(
        workload_of(resource.kind, title, resource.props, [*templates, template["metadata"]], pod),
        spec,
        job_set,
    )


def resumable_jobs(resource: Resource) -> Iterator[Job]:
    """The Jobs in scope (they ask for GPUs or are ours) that write checkpoints, so that a retry goes on."""
    for job in jobs(resource):
        if not may_be_in_scope(job.workload):
            continue
        if any(checkpoint_places(job.workload, each.view) for each in job.workload.containers()):
            if in_scope(job.workload):
                yield job


def training_jobs(resource: Resource) -> Iterator[Job]:
    """The Jobs in scope that write checkpoints, or whose name or program says that they train."""
    for job in jobs(resource):
        if not may_be_in_scope(job.workload):
            continue
        writes = any(checkpoint_places(job.workload, each.view) for each in job.workload.containers())
        if (writes or _says_training(resource, job)) and in_scope(job.workload):
            yield job


def _says_training(resource: Resource, job: Job) -> bool:
    name = resource.props["metadata"]["name"].peek_text() or ""
    if _TRAINING_NAME.search(name):
        return True
    for container in job.workload.containers():
        for part in ("command", "args"):
            for argument in container.view[part].peek_elements():
                words = re.split(r"[\s;&|]+", argument.peek_text() or "")
                if any(_TRAINING_PROGRAM.search(word) for word in words if not word.startswith("-")):
                    return True
    return False


def rules_of(job: Job) -> list[View]:
    """The rules of the Job's podFailurePolicy; unknown ones are noted and left out."""
    found = []
    for rule in job.spec["podFailurePolicy"]["rules"].elements():
        if rule.unknown:
            rule.note()
        else:
            found.append(rule)
    return found


def is_on_disruption(rule: View) -> bool:
    """Whether a rule matches the Pods that Kubernetes takes away."""
    return any(
        condition["type"].text() == DISRUPTION and (condition["status"].text() or "True") == "True"
        for condition in rule["onPodConditions"].elements()
    )


def matches_code(rule: View, code: int) -> bool:
    """Whether a rule matches a container's exit code."""
    codes = rule["onExitCodes"]
    if not codes.exists:
        return False
    listed = [value.value() for value in codes["values"].elements()]
    return (code in listed) is (codes["operator"].text() != "NotIn")
