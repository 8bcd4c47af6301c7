"""The Pod of a training run, field by field as the training contract has it, under every controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.planning.labels import run_labels
from components.planning.node_pools import NodePoolPlan
from components.planning.quota import GPU
from components.settings.run import CHECKPOINT_ROOT, RunSecret, RunSettings, RunVolume
from components.settings.team import TeamSettings

TRAINER = "trainer"
"""Name of the one container."""
TERMINATION_LOG = "/dev/termination-log"
# Exit codes of the training contract, as a controller's failure policy reads them.
PREEMPTED = 75
FINAL_FAILURES = (76, 77, 78)
_GRACE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def workload_labels(run: RunSettings, team: TeamSettings, environment: str) -> dict[str, str]:
    """Labels of everything that belongs to one attempt of one run: by them its Pods are found."""
    return {**run.labels, **run_labels(environment, team.name, run.id, run.attempt)}


def workload_metadata(run: RunSettings, team: TeamSettings, environment: str) -> dict[str, Any]:
    """Metadata of the Job or JobSet."""
    return {
        "name": run.job_name,
        "namespace": team.namespace_name,
        "labels": workload_labels(run, team, environment),
        # A run takes hours: its progress is read by a command of its own (pulumi-kubernetes#842, #449).
        "annotations": {**run.annotations, "pulumi.com/skipAwait": "true"},
    }


def pod_template(
    run: RunSettings,
    team: TeamSettings,
    pool: NodePoolPlan,
    environment: str,
    more_env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The Pod template. `more_env`: variables that the controller's way of working needs."""
    return {
        "metadata": {
            "labels": workload_labels(run, team, environment),
            # A training Pod is not to be moved for a fuller node.
            "annotations": {
                **run.annotations,
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "true",
            },
        },
        "spec": _pod(run, team, pool, more_env or {}),
    }


def on_disruption(action: str) -> dict[str, Any]:
    """A rule of a Job's podFailurePolicy for Pods that Kubernetes itself took away."""
    return {"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def on_exit_codes(action: str, *codes: int) -> dict[str, Any]:
    """A rule of a Job's podFailurePolicy for exit codes of the trainer."""
    return {
        "action": action,
        "onExitCodes": {"containerName": TRAINER, "operator": "In", "values": list(codes)},
    }


def _pod(
    run: RunSettings, team: TeamSettings, pool: NodePoolPlan, more_env: Mapping[str, str]
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        # The addresses of every Service of the namespace are no business of the trainer's environment.
        "enableServiceLinks": False,
        "nodeSelector": pool.node_selector,
        "tolerations": [*pool.tolerations, *_short_tolerations(run.unreachable_seconds)],
        "terminationGracePeriodSeconds": run.grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": run.user_id,
            "runAsGroup": run.group_id,
            "fsGroup": run.group_id,
            # A recursive chown of a large volume takes hours (kubernetes#69699).
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(run, more_env)],
        "volumes": [
            {
                "name": "checkpoints",
                "persistentVolumeClaim": {"claimName": team.checkpoint_storage.claim_name},
            },
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": run.shared_memory}},
            {"name": "tmp", "emptyDir": {}},
            *(_volume(volume) for volume in run.volumes),
        ],
    }
    if pool.runtime_class:
        spec["runtimeClassName"] = pool.runtime_class
    if run.service_account:
        spec["serviceAccountName"] = run.service_account
    if run.priority_class:
        spec["priorityClassName"] = run.priority_class
    if run.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in run.image_pull_secrets]
    return spec


def _short_tolerations(seconds: int) -> list[dict[str, Any]]:
    # The default is 300 s, in which a dead node's run waits.
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in _GRACE_TAINTS
    ]


def _container(run: RunSettings, more_env: Mapping[str, str]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": TRAINER,
        "image": run.image,
        "imagePullPolicy": run.image_pull_policy,
        "command": list(run.command),
        "args": list(run.program_args),
        "env": _environment(run, more_env),
        "resources": {
            "requests": {"cpu": run.requests.cpu, "memory": run.requests.memory, GPU: str(run.gpus)},
            "limits": {"cpu": run.limits.cpu, "memory": run.limits.memory, GPU: str(run.gpus)},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": TERMINATION_LOG,
        # The supervisor writes it; where it was killed first, the log's end must serve.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "checkpoints", "mountPath": CHECKPOINT_ROOT},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": "/tmp"},
            *(_mount(volume) for volume in run.volumes),
        ],
    }
    from_secrets = [_all_keys(secret) for secret in run.secrets if secret.key is None]
    if from_secrets:
        container["envFrom"] = from_secrets
    return container


def _environment(run: RunSettings, more_env: Mapping[str, str]) -> list[dict[str, Any]]:
    plain = {
        "HOLDFAST_RUN_ID": run.id,
        "HOLDFAST_CHECKPOINT_DIR": run.checkpoint_dir,
        "HOLDFAST_IMAGE": run.image,
        "HOLDFAST_ATTEMPT": str(run.attempt),
        "HOLDFAST_TERMINATION_LOG": TERMINATION_LOG,
        "HOLDFAST_GRACE_SECONDS": str(run.grace_seconds),
        **more_env,
        # The root file system is read-only, and frameworks write caches.
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
    }
    downward = {
        "HOLDFAST_POD_NAME": "metadata.name",
        "HOLDFAST_POD_UID": "metadata.uid",
        "HOLDFAST_NODE_NAME": "spec.nodeName",
    }
    return [
        *({"name": name, "value": value} for name, value in plain.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in downward.items()),
        *({"name": name, "value": value} for name, value in run.env.items()),
        *(_one_key(secret) for secret in run.secrets if secret.key is not None),
    ]


def _one_key(secret: RunSecret) -> dict[str, Any]:
    reference = {"name": secret.name, "key": secret.key, **({"optional": True} if secret.optional else {})}
    return {"name": secret.env, "valueFrom": {"secretKeyRef": reference}}


def _all_keys(secret: RunSecret) -> dict[str, Any]:
    return {"secretRef": {"name": secret.name, **({"optional": True} if secret.optional else {})}}


def _volume(volume: RunVolume) -> dict[str, Any]:
    source: dict[str, Any]
    if volume.claim:
        source = {"persistentVolumeClaim": {"claimName": volume.claim}}
    elif volume.config_map:
        source = {"configMap": {"name": volume.config_map}}
    else:
        source = {"secret": {"secretName": volume.secret}}
    return {"name": volume.name, **source}


def _mount(volume: RunVolume) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": volume.name, "mountPath": volume.mount_path}
    if volume.read_only:
        mount["readOnly"] = True
    if volume.sub_path:
        mount["subPath"] = volume.sub_path
    return mount
