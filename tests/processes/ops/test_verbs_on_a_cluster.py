"""Whole verbs against an API server of fixed answers and a pulumi that only notes what it was told."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops import pulumi_cli, stacks
from ops.exit_codes import ExitCode
from ops.stacks import Stack
from ops.verbs.attempts import cancel, retry
from ops.verbs.logs import logs
from ops.verbs.status import status
from ops.verbs.up import up
from tests.processes.ops import api_server

BASE = "/api/v1/namespaces/ml-batch"
LABELS = {"holdfast.dev/run": "run-001", "holdfast.dev/attempt": "1"}
RESULT = {
    "event": "result",
    "step": 600,
    "metrics": {"accuracy": 0.9722222},
    "artifacts": {"model": "ab" * 32},
}
PULUMI = """\
#!/bin/sh
echo "$*" >> "$CALLS"
case "$1 $2" in
  "stack output") echo '{"runs": {"run-001": {"namespace": "ml-batch", "job": "training-run-001"}}}' ;;
  "up --yes") echo "Updating (lab)"; exit "${UP_CODE:-0}" ;;
esac
"""

Lab = Callable[..., Stack]


def job(*conditions: str, **state: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "training-run-001", "namespace": "ml-batch", "labels": LABELS},
        "spec": {"activeDeadlineSeconds": 14400},
        "status": {
            "startTime": "2026-01-02T03:04:05Z",
            "conditions": [
                {"type": kind, "status": "True", "reason": "R", "message": "m"} for kind in conditions
            ],
            **state,
        },
    }


def pod(name: str = "p-1", phase: str = "Succeeded", born: str = "03:05") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-01-02T{born}:00Z"},
        "spec": {"nodeName": "gpu-0"},
        "status": {"phase": phase},
    }


def answers(the_job: dict[str, Any] | None, *pods: dict[str, Any], log: str = "") -> dict[str, Any]:
    node = {
        "metadata": {"name": "gpu-0", "labels": {"holdfast.dev/rehearsal-pool": "gpu"}},
        "spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"nvidia.com/gpu": "1"},
            "allocatable": {"nvidia.com/gpu": "1"},
        },
    }
    quota = {
        "metadata": {"namespace": "ml-batch", "name": "gpu-budget"},
        "status": {"hard": {"pods": "10"}, "used": {"pods": "1"}},
    }
    found: dict[str, Any] = {
        "/version": {"gitVersion": "v1.37.2"},
        "/api/v1/nodes": [node],
        "/api/v1/resourcequotas": [quota],
        "/apis/batch/v1/jobs": [the_job] if the_job else [],
        f"{BASE}/pods": list(pods),
        f"{BASE}/events": [],
    }
    if the_job:
        found["/apis/batch/v1/namespaces/ml-batch/jobs/training-run-001"] = the_job
    for each in pods:
        name = each["metadata"]["name"]
        found[f"{BASE}/pods/{name}/log"] = log or f"log of {name}\n"
    return found


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A stack `lab`, which is not on the rehearsal, on an API server with the given answers."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "pulumi").write_text(PULUMI)
    (tools / "pulumi").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    for name, value in stacks.REHEARSAL_STAND_IN.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:

        def make(served: dict[str, Any], **of_the_run: Any) -> Stack:
            url = stack.enter_context(api_server.serving(served, []))
            document = yaml.safe_load((stacks.ROOT / "Pulumi.dev.yaml").read_text())
            kubeconfig = str(api_server.kubeconfig(tmp_path, url))
            document["config"]["holdfast:cluster"] = {"kubeconfig": kubeconfig, "context": "here"}
            document["config"]["holdfast:runs"][0].update(of_the_run)
            (tmp_path / "Pulumi.lab.yaml").write_text(yaml.safe_dump(document))
            return stacks.load_stack("lab", tmp_path)

        yield make


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_up_shows_metrics_hashes_and_what_to_do_next(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = job("Complete", completionTime="2099-01-02T03:04:45Z")
    code = up(lab(answers(done, pod(), log=json.dumps(RESULT) + "\n")), None, False, False, ["--refresh"])
    out = capsys.readouterr().out
    assert code is ExitCode.OK
    assert "Run run-001 is complete after" in out and "0.972222" in out and "ab" * 32 in out
    assert "./holdfast logs run-001 --stack lab" in out and "holdfast down" not in out
    assert calls(tmp_path)[0] == (
        f"up --yes --suppress-outputs --stack lab --policy-pack {stacks.ROOT}/policies --refresh"
    )


def test_a_second_up_says_that_nothing_was_repeated(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    done = job("Complete", completionTime="2026-01-02T03:04:45Z")
    up(lab(answers(done, pod(), log=json.dumps(RESULT))), None, False, False, [])
    assert (
        "was complete already (since 2026-01-02T03:04:45Z); nothing was repeated." in capsys.readouterr().out
    )


def test_up_for_programs_prints_one_document_with_the_result(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    done = job("Complete", completionTime="2026-01-02T03:04:45Z")
    up(lab(answers(done, pod(), log=json.dumps(RESULT))), None, True, False, [])
    run = json.loads(capfd.readouterr().out)["runs"][0]
    assert (run["phase"], run["result"]["metrics"]["accuracy"]) == ("Complete", 0.9722222)


def test_a_failed_run_ends_up_with_the_exit_code_of_a_failure(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    code = up(lab(answers(job("Failed"), pod(phase="Failed"))), None, False, False, [])
    out = capsys.readouterr().out
    assert code is ExitCode.FAILED
    assert "Run run-001: Failed. The Job failed (R): m." in out and "./holdfast retry run-001" in out


def test_a_failed_update_is_not_followed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UP_CODE", "255")
    with pytest.raises(pulumi_cli.OpsError, match="ended with exit code 255"):
        up(lab(answers(None)), None, False, False, [])


def test_a_malformed_configuration_stops_up_before_anything_is_done(lab: Lab, tmp_path: Path) -> None:
    from components.settings.problems import SettingsError

    stack = lab(answers(None))
    broken = Stack(stack.name, stack.file, {**stack.config, "holdfast:runs": "run-001"})
    with pytest.raises(SettingsError, match="holdfast:runs"):
        up(broken, None, False, False, [])
    assert not (tmp_path / "calls").exists()


def test_status_shows_nodes_quotas_runs_and_an_operator_that_is_not_there(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    log = '{"event": "step", "step": 7}\n'
    code = status(lab(answers(job(), pod(phase="Running"), log=log)), as_json=False)
    out = capsys.readouterr().out
    assert code is ExitCode.NOT_READY
    assert "gpu-0" in out and "dedicated=gpu:NoSchedule" in out and "1/1" in out
    assert "step 7, no checkpoint yet" in out
    assert "Not as it should be: DaemonSet nvidia-device-plugin-daemonset does not exist yet." in out


def test_status_for_programs_is_one_document(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    code = status(lab(answers(job("Failed"), pod(phase="Failed"))), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert code is ExitCode.FAILED
    assert (found["runs"][0]["phase"], found["quotas"][0]["used"]) == ("Failed", "1")


def test_status_names_a_declared_run_without_a_job(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    status(lab(answers(None)), as_json=False)
    assert "declared; no Job or JobSet" in capsys.readouterr().out


def test_a_cancelled_run_is_called_so_by_status_and_by_logs(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = lab(answers(None), cancelled=True)
    status(stack, as_json=False)
    assert re.search(r"run-001\s+Cancelled", capsys.readouterr().out)
    status(stack, as_json=True)
    assert json.loads(capsys.readouterr().out)["cancelled"] == ["run-001"]
    with pytest.raises(pulumi_cli.OpsError, match="is declared cancelled; another attempt"):
        logs(stack, "run-001", False, False, False)


def test_logs_of_all_pods_come_oldest_first(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stack = lab(answers(job(), pod("p-2", "Running", "03:09"), pod("p-1", "Failed")))
    assert logs(stack, "run-001", follow=False, previous=False, every=True) is ExitCode.OK
    captured = capsys.readouterr()
    assert captured.out == "log of p-1\nlog of p-2\n"
    assert "== p-1 on gpu-0" in captured.err


def test_logs_are_followed_until_the_run_is_over(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stack = lab(answers(job("Complete"), pod()))
    assert logs(stack, "run-001", follow=True, previous=False, every=False) is ExitCode.OK
    assert capsys.readouterr().out == "log of p-1\n"


def test_following_waits_where_there_is_no_pod_yet(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """After a preemption a Job has none for ten seconds, which is no reason to end."""
    stack = lab(answers(job("Complete")))
    assert logs(stack, "run-001", follow=True, previous=False, every=False) is ExitCode.OK
    assert capsys.readouterr().out == ""


def test_a_run_that_resumed_is_not_said_to_have_no_checkpoint(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    log = '{"event": "restore", "step": 270}\n{"event": "step", "step": 271}\n'
    status(lab(answers(job(), pod(phase="Running"), log=log)), as_json=True)
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["sentence"] == "step 271, last checkpoint at 270, resumed from 270"


JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2"


def by_job_set(*conditions: str, pods: tuple[dict[str, Any], ...] = (), log: str = "") -> dict[str, Any]:
    """The answers of a cluster whose run is a JobSet, which has been restarted once."""
    made = {
        "metadata": {**job()["metadata"], "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"replicatedJobs": [{"name": "trainer", "template": {"spec": {}}}]},
        "status": {**job(*conditions)["status"], "restarts": 1},
    }
    found = answers(None, *pods, log=log)
    found[f"{JOB_SETS}/jobsets"] = [made]
    found[f"{JOB_SETS}/namespaces/ml-batch/jobsets/training-run-001"] = made
    return found


def test_status_shows_a_run_by_job_set_with_its_restarts(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    status(lab(by_job_set(pods=(pod(phase="Running"),), log='{"event": "step", "step": 7}')), as_json=True)
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["phase"], run["controller"], run["restarts"]) == ("Running", "jobset", 1)


def test_logs_of_a_run_by_job_set_are_followed_until_it_is_over(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = lab(by_job_set("Completed", pods=(pod(),)))
    assert logs(stack, "run-001", follow=True, previous=False, every=False) is ExitCode.OK
    assert capsys.readouterr().out == "log of p-1\n"


def test_a_failed_run_by_job_set_can_be_retried_and_a_working_one_not(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(pulumi_cli.OpsError, match="is not over"):
        retry(lab(by_job_set(pods=(pod(phase="Running"),))), "run-001", force=False)
    failed = by_job_set("Failed", pods=(pod(phase="Failed"),))
    assert retry(lab(failed), "run-001", force=False) is ExitCode.OK
    assert calls(tmp_path) == ["config set --path holdfast:runs[0].attempt 2 --stack lab --non-interactive"]


def test_up_follows_a_run_by_job_set_to_its_result(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = lab(by_job_set("Completed", pods=(pod(),), log=json.dumps(RESULT)))
    tool = tmp_path / "tools" / "pulumi"
    tool.write_text(PULUMI.replace('"job": "training', '"controller": "jobset", "job": "training'))
    assert up(stack, None, False, False, []) is ExitCode.OK
    out = capsys.readouterr().out
    assert "Run run-001" in out and "ab" * 32 in out


def test_status_tells_a_job_set_controller_that_a_run_needs_and_nobody_has(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = lab(answers(None))
    runs = [{**stack.config["holdfast:runs"][0], "controller": "jobset"}]
    status(Stack(stack.name, stack.file, {**stack.config, "holdfast:runs": runs}), as_json=False)
    assert "The API server does not know JobSets yet." in " ".join(capsys.readouterr().out.split())


def test_logs_of_an_unknown_run_list_the_known_ones(lab: Lab) -> None:
    with pytest.raises(pulumi_cli.OpsError, match="has no run run-9.\nIts runs: run-001."):
        logs(lab(answers(None)), "run-9", follow=False, previous=False, every=False)


def test_a_retry_of_a_failed_run_declares_the_next_attempt(lab: Lab, tmp_path: Path) -> None:
    assert retry(lab(answers(job("Failed"), pod(phase="Failed"))), "run-001", force=False) is ExitCode.OK
    assert calls(tmp_path) == ["config set --path holdfast:runs[0].attempt 2 --stack lab --non-interactive"]


def test_a_retry_of_a_working_run_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(pulumi_cli.OpsError, match="is not over"):
        retry(lab(answers(job(), pod(phase="Running"))), "run-001", force=False)
    assert not (tmp_path / "calls").exists()


def test_a_cancel_declares_the_run_cancelled(lab: Lab, tmp_path: Path) -> None:
    assert cancel(lab(answers(job())), "run-001") is ExitCode.OK
    assert calls(tmp_path) == [
        "config set --path holdfast:runs[0].cancelled true --stack lab --non-interactive"
    ]
