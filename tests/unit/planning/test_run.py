"""The Job of a run, field by field against the training contract, and as a whole against a golden file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.planning.stack import StackPlan
from components.settings.formats import JOB_ENV

Plan = Callable[..., StackPlan]
IMAGE = "docker.io/acme/trainer@sha256:" + "a" * 64


def _job(plan: Plan, **changes: Any) -> dict[str, Any]:
    return plan(**changes).runs[0].workload


def _pod(plan: Plan, **changes: Any) -> dict[str, Any]:
    return _job(plan, **changes)["spec"]["template"]["spec"]


def _container(plan: Plan, **changes: Any) -> dict[str, Any]:
    (container,) = _pod(plan, **changes)["containers"]
    return container


def test_the_whole_job_of_the_default_run_is_the_golden_one(plan: Plan, data: Path) -> None:
    golden = yaml.safe_load((data / "job-golden.yaml").read_text(encoding="utf-8"))
    assert _job(plan) == golden


def test_the_name_comes_from_the_run_id_in_the_teams_namespace(plan: Plan) -> None:
    metadata = _job(plan)["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("training-run-001", "ml-batch")


def test_a_later_attempt_is_another_job_with_the_same_checkpoints(plan: Plan) -> None:
    run = plan(run={"attempt": 3}).runs[0]
    assert run.workload["metadata"]["name"] == run.job_name == "training-run-001-r3"
    assert run.checkpoint_dir == "/checkpoints/run-001"
    assert run.workload["metadata"]["labels"]["holdfast.dev/attempt"] == "3"


def test_one_completion_in_one_pod_that_is_never_restarted_in_place(plan: Plan) -> None:
    spec = _job(plan)["spec"]
    assert (spec["completions"], spec["parallelism"]) == (1, 1)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_limits_on_retries_time_and_the_finished_job(plan: Plan) -> None:
    spec = _job(plan)["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (
        2,
        14400,
        86400,
    )
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 120


def test_preemption_is_ignored_and_what_no_retry_helps_fails_at_once(plan: Plan) -> None:
    assert _job(plan)["spec"]["podFailurePolicy"] == {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {
                "action": "Ignore",
                "onExitCodes": {"containerName": "trainer", "operator": "In", "values": [75]},
            },
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": "trainer", "operator": "In", "values": [76, 77, 78]},
            },
        ]
    }


def test_neither_an_out_of_memory_kill_nor_a_bare_sigterm_is_ignored(plan: Plan) -> None:
    rules = _job(plan)["spec"]["podFailurePolicy"]["rules"]
    codes = [code for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])]
    assert 137 not in codes
    assert 143 not in codes


def test_no_replacement_starts_while_the_old_pod_is_terminating(plan: Plan) -> None:
    assert _job(plan)["spec"]["podReplacementPolicy"] == "Failed"


def test_pulumi_does_not_wait_for_hours_of_training(plan: Plan) -> None:
    assert _job(plan)["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"


def test_the_suspend_field_is_left_to_a_queue(plan: Plan) -> None:
    assert "suspend" not in _job(plan)["spec"]


def test_the_pod_goes_to_the_pools_nodes_and_tolerates_the_pools_taint_only(plan: Plan) -> None:
    pool = {"labels": {"pool": "a100"}, "taint": {"key": "gpu", "effect": "NoExecute"}}
    pod = _pod(plan, pool=pool)
    assert pod["nodeSelector"] == {"pool": "a100"}
    assert pod["tolerations"][0] == {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}
    assert len(pod["tolerations"]) == 3


def test_a_dead_node_is_left_after_ten_seconds(plan: Plan) -> None:
    short = _pod(plan)["tolerations"][1:]
    assert [item["key"] for item in short] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    for item in short:
        assert (item["operator"], item["effect"], item["tolerationSeconds"]) == ("Exists", "NoExecute", 10)


def test_the_pod_is_not_moved_for_a_fuller_node(plan: Plan) -> None:
    annotations = _job(plan)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_the_runtime_class_is_the_profiles(plan: Plan) -> None:
    planned = plan().runs[0]
    assert planned.runtime_class == "nvidia"
    assert planned.workload["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize("profile", ["gke-cos-managed", "aks-image", "eks-bottlerocket"])
def test_there_is_no_runtime_class_where_the_runtime_injects_gpus_by_itself(profile: str, plan: Plan) -> None:
    planned = plan(pool={"profile": profile}).runs[0]
    assert planned.runtime_class is None
    assert "runtimeClassName" not in planned.workload["spec"]["template"]["spec"]


def test_the_pod_meets_the_restricted_pod_security_standard(plan: Plan) -> None:
    pod = _pod(plan)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False


def test_the_supervisor_is_the_first_process_and_the_program_its_argument(plan: Plan) -> None:
    container = _container(plan)
    assert container["name"] == "trainer"
    assert container["command"] == ["/app/holdfast-run", "--"]
    assert container["args"] == ["/app/train", "--resume", "--checkpoint-dir=/checkpoints/run-001"]


def test_command_and_arguments_are_configuration(plan: Plan) -> None:
    args = ["/opt/fit", "--to", "$(HOLDFAST_CHECKPOINT_DIR)"]
    container = _container(plan, run={"command": ["/opt/holdfast-run", "--"], "args": args})
    assert (container["command"], container["args"]) == (["/opt/holdfast-run", "--"], args)


def test_the_image_is_the_digest_that_the_supervisor_is_told_too(plan: Plan) -> None:
    container = _container(plan)
    assert container["image"] == IMAGE
    assert {"name": "HOLDFAST_IMAGE", "value": IMAGE} in container["env"]


def test_requests_and_limits_are_the_contracts_and_gpus_are_equal_in_both(plan: Plan) -> None:
    assert _container(plan)["resources"] == {
        "requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
        "limits": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
    }


def test_what_a_container_can_not_see_by_itself_comes_by_the_environment(plan: Plan) -> None:
    env = {item["name"]: item.get("value") or item["valueFrom"] for item in _container(plan)["env"]}
    assert env == {
        "HOLDFAST_RUN_ID": "run-001",
        "HOLDFAST_CHECKPOINT_DIR": "/checkpoints/run-001",
        "HOLDFAST_IMAGE": IMAGE,
        "HOLDFAST_ATTEMPT": "1",
        "HOLDFAST_TERMINATION_LOG": "/dev/termination-log",
        "HOLDFAST_GRACE_SECONDS": "120",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "HOLDFAST_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "HOLDFAST_POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}},
        "HOLDFAST_NODE_NAME": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    }
    others = {"HOLDFAST_DEADLINE_SECONDS", "HOLDFAST_GENERATION"}  # JobSet's, and the supervisor's own
    assert {*env, *others} == set(JOB_ENV), "what a run's own env may not set is what the Job sets"


def test_a_program_s_own_settings_come_by_the_run_s_env(plan: Plan) -> None:
    env = {"HOLDFAST_DIGITS_STEPS": "10", "HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS": "3"}
    got = {item["name"]: item.get("value") for item in _container(plan, run={"env": env})["env"]}
    assert got.items() >= env.items()


def test_checkpoints_shared_memory_and_tmp_are_mounted(plan: Plan) -> None:
    pod = _pod(plan)
    assert pod["volumes"] == [
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "training-checkpoints"}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "checkpoints", "mountPath": "/checkpoints"},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]


def test_secrets_are_named_and_never_in_the_job(plan: Plan) -> None:
    secrets = [
        {"name": "wandb"},
        {"name": "hub", "key": "token", "env": "HF_TOKEN", "optional": True},
    ]
    container = _container(plan, run={"secrets": secrets, "env": {"EPOCHS": "10"}})
    assert container["envFrom"] == [{"secretRef": {"name": "wandb"}}]
    assert container["env"][-2:] == [
        {"name": "EPOCHS", "value": "10"},
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}},
        },
    ]


def test_extra_volumes_are_read_only_unless_it_is_said(plan: Plan) -> None:
    volumes = [
        {"name": "data", "mountPath": "/data", "claim": "imagenet", "subPath": "v1"},
        {"name": "config", "mountPath": "/config", "configMap": "training"},
        {"name": "key", "mountPath": "/key", "secret": "deploy-key"},
        {"name": "out", "mountPath": "/out", "claim": "exports", "readOnly": False},
    ]
    pod = _pod(plan, run={"volumes": volumes})
    assert pod["volumes"][3:] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}},
        {"name": "config", "configMap": {"name": "training"}},
        {"name": "key", "secret": {"secretName": "deploy-key"}},
        {"name": "out", "persistentVolumeClaim": {"claimName": "exports"}},
    ]
    assert pod["containers"][0]["volumeMounts"][3:] == [
        {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "v1"},
        {"name": "config", "mountPath": "/config", "readOnly": True},
        {"name": "key", "mountPath": "/key", "readOnly": True},
        {"name": "out", "mountPath": "/out"},
    ]


def test_identity_priority_and_pull_secrets_appear_only_when_they_are_configured(plan: Plan) -> None:
    keys = {"serviceAccountName", "priorityClassName", "imagePullSecrets"}
    assert not keys & set(_pod(plan))
    run = {"serviceAccount": "trainer", "priorityClass": "training", "imagePullSecrets": ["registry"]}
    pod = _pod(plan, run=run)
    assert (pod["serviceAccountName"], pod["priorityClassName"], pod["imagePullSecrets"]) == (
        "trainer",
        "training",
        [{"name": "registry"}],
    )


def test_cost_labels_are_on_job_and_pod_beside_the_runs_own(plan: Plan) -> None:
    job = _job(plan, run={"labels": {"project": "digits"}, "annotations": {"acme.com/owner": "ada"}})
    expected = {
        "project": "digits",
        "app.kubernetes.io/managed-by": "pulumi",
        "app.kubernetes.io/part-of": "holdfast",
        "holdfast.dev/environment": "dev",
        "holdfast.dev/team": "ml-batch",
        "holdfast.dev/run": "run-001",
        "holdfast.dev/attempt": "1",
    }
    template = job["spec"]["template"]["metadata"]
    assert job["metadata"]["labels"] == template["labels"] == expected
    assert job["metadata"]["annotations"]["acme.com/owner"] == "ada"
    assert template["annotations"]["acme.com/owner"] == "ada"


def test_every_number_of_the_contract_is_configuration(plan: Plan) -> None:
    run = {
        "backoffLimit": 5,
        "deadlineSeconds": 60,
        "keepFinishedSeconds": 120,
        "graceSeconds": 30,
        "unreachableSeconds": 0,
        "userId": 2000,
        "groupId": 3000,
        "sharedMemory": "1Gi",
    }
    spec = _job(plan, run=run)["spec"]
    pod = spec["template"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (
        5,
        60,
        120,
    )
    assert (pod["terminationGracePeriodSeconds"], pod["tolerations"][1]["tolerationSeconds"]) == (30, 0)
    security = pod["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (2000, 3000, 3000)
    assert pod["volumes"][1]["emptyDir"]["sizeLimit"] == "1Gi"
    assert {"name": "HOLDFAST_GRACE_SECONDS", "value": "30"} in pod["containers"][0]["env"]


def test_a_plan_says_what_the_component_needs_beside_the_job(plan: Plan) -> None:
    run = plan(run={"cancelled": True}).runs[0]
    assert (run.id, run.team, run.pool, run.namespace, run.claim) == (
        "run-001",
        "ml-batch",
        "gpu",
        "ml-batch",
        "training-checkpoints",
    )
    assert run.cancelled
    assert (run.image, run.gpus) == (IMAGE, 1)
