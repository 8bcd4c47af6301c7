"""What the programs of this folder share: a Job as somebody writes it who has never heard of our planner."""

from __future__ import annotations

import os
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

DIGEST = "registry.example.com/ml/train@sha256:" + "1" * 64

# Render mode needs no cluster, so that a preview gets as far as the policies.
provider = k8s.Provider("offline", render_yaml_to_directory=os.environ["RENDER_DIRECTORY"])
options = pulumi.ResourceOptions(provider=provider)


def job(
    *,
    image: str = DIGEST,
    resources: dict[str, Any] | None = None,
    volume: dict[str, Any] | None = None,
    tolerations: tuple[dict[str, str], ...] = (),
) -> k8s.batch.v1.Job:
    """A Job with one container that mounts one volume at /checkpoints."""
    gpus = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}}
    claim = {"persistentVolumeClaim": {"claimName": "checkpoints"}}
    container = {
        "name": "train",
        "image": image,
        "resources": gpus if resources is None else resources,
        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "tolerations": list(tolerations),
        "volumes": [{"name": "checkpoints", **(claim if volume is None else volume)}],
    }
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return k8s.batch.v1.Job(
        "train",
        metadata={"name": "train", "namespace": "somebody"},
        spec={"podFailurePolicy": {"rules": [ignored]}, "template": {"spec": pod}},
        opts=options,
    )


def claim(*modes: str) -> k8s.core.v1.PersistentVolumeClaim:
    """The claim behind the Job's volume."""
    spec = {
        "accessModes": list(modes),
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": "checkpoints", "namespace": "somebody"}
    return k8s.core.v1.PersistentVolumeClaim("checkpoints", metadata=metadata, spec=spec, opts=options)
