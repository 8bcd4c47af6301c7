"""How a training Job ends: with time to save, not by the clock, and for good once it has finished."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pulumi_policy import EnforcementLevel, Severity

from rules.engine import Config, Resource, Violation, resource_policy
from rules.jobs import JOBSET, Job, resumable_jobs
from rules.pods import is_ours, may_have_pods
from rules.quantity import is_number
from rules.spot import note_hidden_reasons, spot_reason
from rules.views import View

SHORTEST_NOTICE = 15
"""Seconds that the cloud with the shortest notice gives a Spot node's Pods (GKE documentation, Spot VMs)."""
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_SHELL = re.compile(r"(^|/)(ba|da|a|z|k)?sh$")
_RUN_SCRIPT = re.compile(r"-[a-z]*c[a-z]*")
# Programs that pass signals on to what they start.
_INITS = re.compile(r"(^|/)(tini|dumb-init|catatonit)$")


def check_finished_jobs(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Jobs and JobSets that write checkpoints; a CronJob's belong to it, and ours finds its own result."""
    if resource.kind == "CronJob":
        return
    for job in resumable_jobs(resource):
        above = job.job_set if job.job_set is not None else job.spec
        seconds = above["ttlSecondsAfterFinished"].value()
        if not is_number(seconds) or is_ours(job.workload):
            continue
        yield Violation(
            f"{job.title} has ttlSecondsAfterFinished {seconds:g}: Kubernetes then deletes the finished"
            f" {resource.kind}, the next refresh takes it out of the state, and the next `pulumi up` trains"
            " all over again. Leave ttlSecondsAfterFinished out, and remove the resource from the program"
            " when it is no longer needed."
        )
        return


def check_grace(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every Job that asks for GPUs or is ours and writes checkpoints."""
    for job in resumable_jobs(resource):
        seconds = job.workload.spec["terminationGracePeriodSeconds"].value()
        if is_number(seconds) and seconds < SHORTEST_NOTICE:
            yield Violation(
                f"{job.title} has terminationGracePeriodSeconds {seconds:g}: the program is killed before"
                " it can save, although every cloud gives more. Set at least 30, or as long as one save"
                " takes."
            )


def check_deadline(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every Job that asks for GPUs and writes checkpoints; in ours the deadline is a setting of the run."""
    for job in resumable_jobs(resource):
        if is_ours(job.workload):
            continue
        of_pod = job.workload.spec["activeDeadlineSeconds"].value()
        if is_number(of_pod):
            yield Violation(
                f"{job.title} has activeDeadlineSeconds {of_pod:g} in its Pod template: each attempt that"
                " takes longer fails as if the program had failed, however far it came. Leave it out there."
            )
        of_job = job.spec["activeDeadlineSeconds"].value()
        if not is_number(of_job) or job.job_set is not None:
            continue
        why = spot_reason(job.workload.spec)
        if why is None:
            note_hidden_reasons(job.workload.spec)
        else:
            yield Violation(
                f"{job.title} has activeDeadlineSeconds {of_job:g} on nodes that may be taken away at any"
                f" time ({why}): the clock runs on while no node is there, and at its end the Job fails for"
                " good. Leave it out, or count steps in the program."
            )


def check_signals(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every container that writes checkpoints below a shell that waits for it."""
    for job in resumable_jobs(resource):
        for container in job.workload.containers():
            if container.group == "containers" and _hides_signals(job, container.view):
                yield Violation(
                    f"{job.title}, container '{container.name}': a shell is the first process and does not"
                    " pass SIGTERM on, so the program never hears that it must save. Put `exec` before the"
                    " last command, or write command and args without a shell."
                )


def _hides_signals(job: Job, container: View) -> bool:
    words = [w.text() or "" for part in ("command", "args") for w in container[part].elements()]
    if job.workload.spec["shareProcessNamespace"].peek() is True or not words or _INITS.search(words[0]):
        return False
    shell = next((i for i, word in enumerate(words[:3]) if _SHELL.search(word)), None)
    if shell is None:
        return False
    for position in range(shell + 1, len(words) - 1):
        if _RUN_SCRIPT.fullmatch(words[position]):
            return _waits_for_a_child(words[position + 1])
    return False


def _waits_for_a_child(script: str) -> bool:
    """Whether a script's last command is a child of the shell. One command alone is taken over by most
    shells.
    """
    if re.search(r"\btrap\b|\bexec\b", script):
        return False
    joined = re.sub(r"\\\n", " ", script.strip())
    lines = [line for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]
    return len(lines) > 1 or re.search(r"&&|\|\||;|\|", joined) is not None


def check_suspend(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Jobs and JobSets that wait in a queue of Kueue's."""
    if resource.kind not in ("Job", JOBSET) or not resource.props["metadata"]["labels"][_QUEUE_LABEL].exists:
        return
    suspend = resource.props["spec"]["suspend"].value()
    if suspend is not None:
        yield Violation(
            f"{resource.title} waits in a queue and sets suspend {str(suspend).lower()}: Kueue sets it to"
            " stop and to start the run, and the next `pulumi up` that sets it back starts a run that has"
            " no place, or stops one that has. Leave suspend out."
        )


KUEUE_OWNS_SUSPEND = resource_policy(
    name="queue-owns-suspend",
    description="Whether a queued Job is suspended is Kueue's to say.",
    severity=Severity.MEDIUM,
    remediation="Leave spec.suspend out of Jobs and JobSets with the label kueue.x-k8s.io/queue-name.",
    check=check_suspend,
    level=EnforcementLevel.ADVISORY,
    wants=may_have_pods,
)

FINISHED_JOB_STAYS = resource_policy(
    name="finished-job-stays",
    description="A finished training Job is not deleted behind Pulumi's back, which would run it again.",
    severity=Severity.MEDIUM,
    remediation="Leave ttlSecondsAfterFinished out of Jobs and JobSets that a program declares.",
    check=check_finished_jobs,
    wants=may_have_pods,
)

TIME_TO_SAVE = resource_policy(
    name="time-to-save",
    description="A Job that writes checkpoints has time to save when its Pod is ended.",
    severity=Severity.HIGH,
    remediation="Set terminationGracePeriodSeconds to what one save takes, 30 or more.",
    check=check_grace,
    wants=may_have_pods,
)

NO_DEADLINE = resource_policy(
    name="no-deadline-for-attempts",
    description="No clock ends a run that makes progress: neither one per attempt nor one on Spot nodes.",
    severity=Severity.MEDIUM,
    remediation=(
        "Leave activeDeadlineSeconds out of the Pod template, and out of a Job on nodes that may be taken"
        " away. Limit the work in the program, by steps."
    ),
    check=check_deadline,
    level=EnforcementLevel.ADVISORY,
    wants=may_have_pods,
)

SIGNALS_ARRIVE = resource_policy(
    name="signals-arrive",
    description="SIGTERM reaches the program that has to save, with no shell between.",
    severity=Severity.MEDIUM,
    remediation="Write command and args without a shell, or put `exec` before the script's last command.",
    check=check_signals,
    level=EnforcementLevel.ADVISORY,
    wants=may_have_pods,
)
