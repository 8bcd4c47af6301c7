"""What a run is doing, told from the API's objects alone."""

from __future__ import annotations

from typing import Any

import pytest

from ops.pod_events import summarise
from ops.runs import Phase, RunSnapshot, RunView, judge_run

JOB: dict[str, Any] = {
    "metadata": {"name": "training-run-001", "labels": {"holdfast.dev/attempt": "2"}},
    "spec": {"activeDeadlineSeconds": 14400},
    "status": {"startTime": "2026-01-02T03:04:05Z"},
}


def job(*conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        **JOB,
        "spec": {**JOB["spec"], **spec},
        "status": {**JOB["status"], "conditions": list(conditions)},
    }


def condition(kind: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def pod(
    name: str = "p-1", phase: str = "Running", node: str = "gpu-0", born: str = "03:05:00", **more: Any
) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": f"2026-01-02T{born}Z", **more.pop("metadata", {})}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **more},
    }


def ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "trainer", "state": state}]}


def event(reason: str, message: str, at: str = "03:06:00", name: str = "training-run-001") -> dict[str, Any]:
    return {
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-01-02T{at}Z",
        "involvedObject": {"name": name},
    }


def judge(
    the_job: dict[str, Any] | None = JOB, *pods: Any, events: tuple[Any, ...] = (), log: tuple[str, ...] = ()
) -> RunView:
    return judge_run(
        RunSnapshot("run-001", "ml-batch", "training-run-001", the_job, pods, events, summarise(log))
    )


def test_a_run_without_its_job_is_absent() -> None:
    view = judge(None)
    assert (view.phase, view.sentence) == (Phase.ABSENT, "There is no Job ml-batch/training-run-001.")


def test_a_job_over_its_quota_names_the_quota_from_the_event() -> None:
    said = 'pods "training-run-001-x" is forbidden: exceeded quota: gpu-budget, requested: pods=1'
    view = judge(JOB, events=(event("FailedCreate", said), event("SuccessfulCreate", "older", at="03:00:00")))
    assert (view.phase, view.sentence) == (Phase.WAITING, f"No Pod can be made: {said}")


def test_a_refusal_from_before_the_last_pod_is_not_told_again() -> None:
    view = judge(
        JOB,
        pod(phase="Failed", born="03:10:00", **ended(75)),
        events=(event("FailedCreate", "over quota", at="03:06:00"),),
    )
    assert view.sentence == (
        "Pod p-1 was preempted; its state is safe on the volume; "
        "the Job controller's delay runs before the next one."
    )


def test_a_pod_that_has_finished_before_its_job_says_so_waits_for_no_other() -> None:
    view = judge(JOB, pod(phase="Succeeded", **ended(0)))
    assert view.sentence == "Pod p-1 has finished; the Job is about to say so."


def test_a_suspended_job_waits_for_admission() -> None:
    assert judge(job(suspend=True)).phase is Phase.SUSPENDED


def test_an_unschedulable_pod_repeats_the_schedulers_reason() -> None:
    told = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/3 nodes are available: 1 Insufficient nvidia.com/gpu.",
    }
    view = judge(JOB, pod(phase="Pending", node="", conditions=[told]))
    assert (view.phase, view.sentence) == (
        Phase.PENDING,
        "Pod p-1 has no node: 0/3 nodes are available: 1 Insufficient nvidia.com/gpu.",
    )


def test_an_image_that_can_not_be_pulled_is_told_with_its_reason() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    view = judge(JOB, pod(phase="Pending", containerStatuses=[{"name": "trainer", "state": waiting}]))
    assert (view.phase, view.sentence) == (Phase.STARTING, "Pod p-1: ImagePullBackOff: not found")


def test_a_volume_that_can_not_be_mounted_is_told_from_the_pods_event() -> None:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    view = judge(
        JOB,
        pod(phase="Pending", containerStatuses=[{"name": "trainer", "state": waiting}]),
        events=(event("FailedMount", "no such export", name="p-1"),),
    )
    assert view.sentence == "Pod p-1: FailedMount: no such export"


def test_a_working_run_shows_step_checkpoint_and_where_it_resumed() -> None:
    log = (
        '{"event": "restore", "step": 200}',
        "WARNING: something of a framework",
        '{"event": "step", "step": 250, "steps": 600}',
        '{"event": "checkpoint", "step": 300}',
        '{"event": "step", "step": 320, "steps": 600}',
    )
    view = judge(JOB, pod(), log=log)
    assert (view.phase, view.step, view.checkpoint) == (Phase.RUNNING, 320, 300)
    assert view.sentence == "step 320 of 600, last checkpoint at 300, resumed from 200"
    assert (view.attempt, view.node, view.pod) == ("2", "gpu-0", "p-1")


def test_a_pod_that_was_told_to_stop_is_stopping_although_it_runs() -> None:
    view = judge(JOB, pod(metadata={"deletionTimestamp": "2026-01-02T03:07:00Z"}))
    assert view.phase is Phase.STOPPING


def test_the_youngest_pod_is_the_one_that_counts() -> None:
    first = pod("p-1", "Failed", born="03:05:00", **ended(75))
    assert judge(JOB, first, pod("p-2", born="03:08:00")).pod == "p-2"
    assert judge(JOB, pod("p-2", born="03:08:00"), first).pod == "p-2"


def test_a_complete_run_carries_its_result_from_the_log() -> None:
    log = ('{"event": "result", "step": 600, "metrics": {"accuracy": 0.97}, "artifacts": {"model": "ab12"}}',)
    view = judge(job(condition("Complete")), pod(phase="Succeeded"), log=log)
    assert view.result is not None
    assert (view.phase, view.step) == (Phase.COMPLETE, 600)
    assert (view.result.metrics, view.result.artifacts) == ({"accuracy": 0.97}, {"model": "ab12"})


def test_a_complete_run_without_a_log_takes_the_result_from_the_termination_message() -> None:
    message = '{"step": 600, "metrics": {"accuracy": 0.97}, "artifacts": [{"name": "model", "sha256": "ab"}]}'
    view = judge(job(condition("Complete")), pod(phase="Succeeded", **ended(0, message, "Completed")))
    assert view.result is not None
    assert (view.result.step, view.result.artifacts) == (600, {"model": "ab"})


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (78, "Error", "has bad input or configuration; a retry alone can not help (exit code 78)"),
        (77, "Error", "made no progress over several attempts (exit code 77)"),
        (137, "OOMKilled", "ran out of memory (exit code 137)"),
        (137, "Error", "was killed (out of memory, or the grace period was over) (exit code 137)"),
        (1, "Error", "failed (exit code 1)"),
    ],
)
def test_a_failed_run_says_what_its_exit_code_means(code: int, reason: str, words: str) -> None:
    failed = condition("Failed", "PodFailurePolicy", "the policy said so")
    view = judge(job(failed), pod(phase="Failed", **ended(code, '{"message": "no such data set"}', reason)))
    assert view.phase is Phase.FAILED
    assert view.sentence == (
        f"The Job failed (PodFailurePolicy): the policy said so. Pod p-1 {words}. "
        "Its last words: no such data set"
    )


def test_a_deadline_that_passed_in_waiting_says_that_waiting_counts() -> None:
    view = judge(
        job(condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
    )
    assert view.sentence.endswith("Its deadline counts waiting too, and no Pod of it is left.")


def job_set(*conditions: dict[str, str], restarts: int = 0, counted: int = 0, **spec: Any) -> dict[str, Any]:
    child = {"name": "trainer", "template": {"spec": {"activeDeadlineSeconds": 14400}}}
    return {
        "metadata": {**JOB["metadata"], "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"replicatedJobs": [child], "failurePolicy": {"maxRestarts": 2}, **spec},
        "status": {
            "conditions": list(conditions),
            "restarts": restarts,
            "restartsCountTowardsMax": counted,
        },
    }


def test_a_preempted_pod_of_a_job_set_waits_for_the_next_job_and_not_for_a_delay() -> None:
    view = judge(job_set(), pod(phase="Failed", **ended(75)))
    assert (view.phase, view.controller) == (Phase.WAITING, "jobset")
    assert view.sentence == (
        "Pod p-1 was preempted; its state is safe on the volume; JobSet makes the next Job."
    )


def test_restarts_are_counted_with_those_that_count_against_the_limit() -> None:
    view = judge(job_set(restarts=4, counted=1), pod(phase="Failed", **ended(1)))
    assert view.sentence == (
        "Pod p-1 failed with exit code 1; JobSet makes the next Job "
        "(it has restarted 4 times, 1 of 2 counted)."
    )
    assert (view.restarts, view.counted_restarts, view.pods_so_far) == (4, 1, 5)


def test_between_two_pods_of_a_job_set_the_restart_is_told_and_no_first_pod() -> None:
    assert judge(job_set()).sentence == "The JobSet waits for its first Pod."
    assert judge(job_set(restarts=1)).sentence == (
        "The JobSet has restarted once, 0 of 2 counted, and waits for its next Pod."
    )


def test_a_running_job_set_shows_its_progress_and_its_restarts() -> None:
    log = ('{"event": "step", "step": 7}',)
    assert judge(job_set(restarts=2), pod(), log=log).sentence == (
        "step 7, no checkpoint yet; JobSet has restarted 2 times, 0 of 2 counted"
    )


def test_a_pod_that_kubernetes_took_away_says_so_whatever_its_exit_code() -> None:
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    view = judge(job_set(), pod(phase="Failed", conditions=[taken], **ended(143)))
    assert view.sentence.startswith("Pod p-1 was taken away (EvictionByEvictionAPI); JobSet makes")


def test_the_terminal_conditions_of_a_job_set_have_names_of_their_own() -> None:
    done = {**condition("Completed", "AllJobsCompleted"), "lastTransitionTime": "2026-01-02T04:00:00Z"}
    view = judge(job_set(done, restarts=1), pod(phase="Succeeded"))
    assert (view.phase, view.started, view.ended) == (
        Phase.COMPLETE,
        "2026-01-02T03:04:05Z",
        "2026-01-02T04:00:00Z",
    )
    failed = condition("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
    view = judge(job_set(failed, restarts=2, counted=2), pod(phase="Failed", **ended(1)))
    assert view.phase is Phase.FAILED
    assert view.sentence == (
        "The JobSet failed (ReachedMaxRestarts): jobset failed due to reaching max number of restarts. "
        "Pod p-1 failed (exit code 1)."
    )


def test_a_condition_of_a_job_set_that_is_not_true_ends_nothing() -> None:
    resumed = {"type": "Suspended", "status": "False", "reason": "ResumeJobs", "message": ""}
    assert judge(job_set(resumed), pod()).phase is Phase.RUNNING
    assert judge(job_set(suspend=True)).sentence.startswith("The JobSet is suspended")
