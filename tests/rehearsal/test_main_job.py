"""The main job: one command, a completed run with a verified result, and nothing left to do the second time."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest
from kubernetes import client

from rehearsal.api import api_client
from rehearsal.provisioner import volumes_dir
from tests.rehearsal.helpers import NAMESPACE, ROOT, events_of, is_complete, job, pods_of, steps, wait_for

JOB = "training-run-001"


@pytest.fixture(scope="module")
def first_up(holdfast):
    return holdfast("up")


def test_up_ends_with_the_run_complete_and_its_result_shown(first_up):
    assert is_complete(JOB)
    assert "Run run-001 is complete" in first_up.stdout or "was complete already" in first_up.stdout
    assert "accuracy" in first_up.stdout
    assert "model.safetensors" in first_up.stdout


def test_the_result_is_on_the_volume_and_its_artifact_has_the_hash_that_it_states(first_up):
    folder = volumes_dir() / NAMESPACE / "training-checkpoints" / "run-001"
    result = json.loads((folder / "result.json").read_text())
    assert result["artifacts"]
    for artifact in result["artifacts"]:
        assert hashlib.sha256((folder / artifact["path"]).read_bytes()).hexdigest() == artifact["sha256"]


def test_the_job_ran_on_a_gpu_node_with_the_pool_s_taint_and_the_nvidia_runtime_class(first_up):
    pod = pods_of(JOB)[-1]
    assert pod.spec.node_name in ("gpu-0", "gpu-1")
    assert pod.spec.runtime_class_name == "nvidia"
    assert pod.spec.containers[0].resources.limits["nvidia.com/gpu"] == "1"
    nodes = client.CoreV1Api(api_client())
    for name in ("gpu-0", "gpu-1"):
        node = nodes.read_node(name)
        assert node.metadata.labels["pool"] == "gpu"
        assert ("dedicated", "gpu", "NoSchedule") in [(t.key, t.value, t.effect) for t in node.spec.taints]
        assert node.status.allocatable["nvidia.com/gpu"] == "1"


def test_a_second_up_changes_nothing_and_repeats_no_run(first_up, holdfast, project):
    before = job(JOB).metadata.uid
    second = holdfast("up")
    assert "was complete already" in second.stdout
    assert job(JOB).metadata.uid == before
    project.pulumi("preview", "--expect-no-changes")


def test_plain_pulumi_leaves_the_tracked_files_of_the_checkout_as_they_are(first_up, shell):
    before = (ROOT / "Pulumi.dev.yaml").read_bytes()
    subprocess.run(
        ["pulumi", "preview", "--stack=dev", "--non-interactive", "--expect-no-changes"],
        cwd=ROOT, env=shell, check=True, capture_output=True,
    )  # fmt: skip
    assert (ROOT / "Pulumi.dev.yaml").read_bytes() == before
    assert b"encryptionsalt" not in before


def test_a_finished_job_that_was_deleted_is_made_again_and_trains_no_step(first_up, project, kubectl):
    kubectl("delete", "job", JOB, f"--namespace={NAMESPACE}", "--wait=true")
    project.pulumi("up", "--yes", "--skip-preview", "--refresh")
    wait_for("the Job that was made again is complete", lambda: is_complete(JOB))
    said = events_of(pods_of(JOB)[-1].metadata.name)
    assert steps(said, "step") == []
    [result] = [event for event in said if event["event"] == "result"]
    assert result["found"] and result["artifacts"], "what was found is told in full"


def test_status_shows_nodes_operator_quota_and_the_run(first_up, holdfast):
    seen = json.loads(holdfast("status", "--json").stdout)
    text = json.dumps(seen)
    for word in ("gpu-0", "gpu-1", "run-001", "requests.nvidia.com/gpu"):
        assert word in text
