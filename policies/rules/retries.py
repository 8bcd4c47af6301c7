"""What a preemption costs: it is no failure, one Pod writes at a time, and the next one comes soon."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import EnforcementLevel, Severity

from rules.engine import Config, Resource, Violation, resource_policy
from rules.jobs import Job, is_on_disruption, jobs, matches_code, resumable_jobs, rules_of, training_jobs
from rules.pods import in_scope, is_ours, may_be_in_scope, may_have_pods
from rules.spot import note_hidden_reasons, spot_reason
from rules.views import View

PREEMPTED = 75
"""Exit code of our supervisor: SIGTERM came, and the state is safe. A Pod that somebody deletes has no
DisruptionTarget (karpenter#3218), so this code alone tells its end from a failure."""
_KILLED = 137
_ENDED = (143, _KILLED)
"""What a container ends with that SIGTERM, or SIGKILL after it, has ended."""
_UNCOUNTED = frozenset({"RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts"})
_BY_POLICY = "PodFailurePolicy"
_BY_BACKOFF = "BackoffLimitExceeded"


def check_preemption(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every Job that asks for GPUs or is ours and writes checkpoints, or says that it trains."""
    for job in training_jobs(resource):
        in_place = _restarts_in_place(job)
        if in_place:
            yield Violation(
                f"{job.title} has restartPolicy {in_place}: the container starts again in its Pod, so no"
                " policy sees how it ended, and a preempted run counts as a failed one. Set restartPolicy:"
                " Never."
            )
            continue
        if job.job_set is None and job.spec["backoffLimit"].peek() == 0 and not is_ours(job.workload):
            continue  # no retry is meant, or something above the Job makes it
        problem = _of_job_set(job, job.job_set) if job.job_set is not None else _of_job(job)
        if problem:
            yield Violation(f"{job.title}: {problem}")


def _restarts_in_place(job: Job) -> str | None:
    policy = job.workload.spec["restartPolicy"].text()
    if policy is None and job.job_set is not None and not job.workload.spec["restartPolicy"].unknown:
        return "OnFailure (JobSet's default)"
    return policy if policy not in (None, "Never") else None


def _of_job(job: Job) -> str | None:
    rules = rules_of(job)
    ignored = [rule for rule in rules if rule["action"].text() == "Ignore"]
    if job.spec["podFailurePolicy"]["rules"].unknown:
        return None
    if not any(is_on_disruption(rule) for rule in ignored):
        return (
            "a preempted Pod counts against backoffLimit, so nodes that go away end the run. Add the rule"
            " {action: Ignore, onPodConditions: [{type: DisruptionTarget}]} to podFailurePolicy."
        )
    first = next(rule for rule in ignored if is_on_disruption(rule))
    for rule in rules[: next(i for i, rule in enumerate(rules) if rule.path == first.path)]:
        code = next(
            (code for code in _ENDED if rule["action"].text() != "Ignore" and matches_code(rule, code)), None
        )
        if code is not None:
            return (
                f"the rule {rule['action'].peek_text()} on exit codes stands before the one that ignores"
                f" disruptions and matches {code}, with which a preempted container ends: the first rule"
                " that matches decides. Put the rule on DisruptionTarget first in podFailurePolicy."
            )
    if is_ours(job.workload) and not any(matches_code(rule, PREEMPTED) for rule in ignored):
        return (
            f"exit code {PREEMPTED} (preempted, the state is safe) counts against backoffLimit, and a Pod"
            f" that is deleted has nothing else to tell by. Add {{action: Ignore, onExitCodes: {{operator:"
            f" In, values: [{PREEMPTED}]}}}} to podFailurePolicy."
        )
    return None


def _of_job_set(job: Job, job_set: View) -> str | None:
    policy = job_set["failurePolicy"]
    if policy.unknown or policy["rules"].unknown or job.spec["podFailurePolicy"]["rules"].unknown:
        policy.note()
        return None
    own = rules_of(job)
    if any(rule["action"].text() == "Ignore" and is_on_disruption(rule) for rule in own):
        return None  # the child Job itself goes on, as a plain Job does
    if not policy.exists:
        return (
            "a preempted Pod fails the whole JobSet, which has no failurePolicy. Add one with maxRestarts"
            " and a rule RestartJobSetAndIgnoreMaxRestarts."
        )
    uncounted = [rule for rule in policy["rules"].elements() if rule["action"].text() in _UNCOUNTED]
    if not any(_reached(rule, own) for rule in uncounted):
        return (
            "a preempted Pod counts against maxRestarts, so nodes that go away end the run. Let the child"
            " Job fail by its podFailurePolicy on DisruptionTarget, and add a rule {action:"
            " RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [PodFailurePolicy]} to failurePolicy."
        )
    fails = [rule for rule in own if rule["action"].text() == "FailJob"]
    if is_ours(job.workload) and not any(matches_code(rule, PREEMPTED) for rule in fails):
        return (
            f"exit code {PREEMPTED} (preempted, the state is safe) counts against maxRestarts. Add"
            f" {{action: FailJob, onExitCodes: {{operator: In, values: [{PREEMPTED}]}}}} to the child Job's"
            " podFailurePolicy."
        )
    return None


def _reached(rule: View, own: list[View]) -> bool:
    """Whether a JobSet's rule sees the child Job that a preempted Pod ended."""
    reasons = [reason.text() for reason in rule["onJobFailureReasons"].elements()]
    if rule["onJobFailureReasons"].unknown or not reasons:
        return True
    by_policy = any(each["action"].text() == "FailJob" and is_on_disruption(each) for each in own)
    return (_BY_POLICY if by_policy else _BY_BACKOFF) in reasons


def check_one_writer(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every Job that asks for GPUs or is ours and writes checkpoints, if it makes a second Pod at all."""
    for job in resumable_jobs(resource):
        policy, failure = job.spec["podReplacementPolicy"], job.spec["podFailurePolicy"]
        # Source: Kubernetes documentation, Jobs, "Delayed creation of replacement pods": with a
        # podFailurePolicy the default is Failed, and nothing else is allowed.
        if job.spec["backoffLimit"].value() == 0 or (not policy.exists and failure.exists):
            continue
        if policy.unknown:
            policy.note()
        elif policy.text() != "Failed":
            yield Violation(
                f"{job.title}: the next Pod starts while the one before is still terminating"
                f" (podReplacementPolicy {policy.text() or 'TerminatingOrFailed, the default'}), so two of"
                " them write one checkpoint directory. Set podReplacementPolicy: Failed."
            )


def check_spot(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every plain Job that asks for GPUs or is ours."""
    for job in jobs(resource):
        if job.job_set is not None or not may_be_in_scope(job.workload):
            continue
        why = spot_reason(job.workload.spec)
        if why is None and in_scope(job.workload):
            note_hidden_reasons(job.workload.spec)
        if why and job.spec["backoffLimit"].peek() != 0 and in_scope(job.workload):
            yield Violation(
                f"{job.title} is a plain Job on nodes that may be taken away at any time ({why}). Its"
                " controller waits longer after each preempted Pod, ignored or not: 10 s, 20 s, 40 s … 600"
                " s, and only a new Job resets that. Use a JobSet, which makes the next Pod at once (in"
                " Holdfast: controller: jobset)."
            )


def check_kills_count(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every Job that asks for GPUs or is ours: what it ignores by its exit code."""
    for job in jobs(resource):
        if not may_be_in_scope(job.workload):
            continue
        for rule in rules_of(job):
            if rule["action"].text() == "Ignore" and matches_code(rule, _KILLED) and in_scope(job.workload):
                yield Violation(
                    f"{job.title} ignores exit code {_KILLED}: a container that ran out of memory ends with"
                    " it too, so the Job starts it again for ever and never fails. Ignore the condition"
                    " DisruptionTarget instead, and take 137 out of the exit codes."
                )


KILLS_COUNT = resource_policy(
    name="kills-count",
    description="A Job does not ignore that its program ran out of memory.",
    severity=Severity.MEDIUM,
    remediation=(
        "Tell preemptions by the condition DisruptionTarget, or by an exit code that the program alone"
        f" uses, never by {_KILLED}."
    ),
    check=check_kills_count,
    wants=may_have_pods,
)

PREEMPTION_NOT_COUNTED = resource_policy(
    name="preemption-not-counted",
    description="A preemption does not count as a failure of a Job or JobSet that trains.",
    severity=Severity.HIGH,
    remediation=(
        "Set restartPolicy: Never. In a Job's podFailurePolicy, ignore the DisruptionTarget condition (and"
        f" exit code {PREEMPTED} of our supervisor). In a JobSet, let the child Job fail on them by its"
        " podFailurePolicy, and restart on the reason PodFailurePolicy with"
        " RestartJobSetAndIgnoreMaxRestarts."
    ),
    check=check_preemption,
    wants=may_have_pods,
)

ONE_WRITER = resource_policy(
    name="one-writer",
    description="A Job that writes checkpoints starts its next Pod only after the one before has ended.",
    severity=Severity.CRITICAL,
    remediation="Set podReplacementPolicy: Failed, or use a podFailurePolicy, with which it is the default.",
    check=check_one_writer,
    wants=may_have_pods,
)

SPOT_NEEDS_JOBSET = resource_policy(
    name="spot-without-delay",
    description="A run on Spot nodes is a JobSet: a plain Job waits longer after every preemption.",
    severity=Severity.MEDIUM,
    remediation=(
        "Use a JobSet with RestartJobSetAndIgnoreMaxRestarts (in Holdfast: controller: jobset), or other"
        " nodes. A plain Job's delay doubles from 10 s to 600 s and never goes back while the Job lives."
    ),
    check=check_spot,
    wants=may_have_pods,
    level=EnforcementLevel.ADVISORY,
)
