"""What the programs of this folder share: cloud node pools, an operator and a Job as somebody writes them by hand."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

IMAGE = "registry.example.com/ml/train@sha256:" + "1" * 64
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NO_SCHEDULE"}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
NO_WORKLOAD = {"plugin": {"env": [{"name": "WITH_WORKLOAD", "value": "false"}]}}

cluster = k8s.Provider("production", kubeconfig="/nowhere/kubeconfig", context="production")
options = pulumi.ResourceOptions(provider=cluster)


def tolerating(*tolerations: dict[str, str]) -> dict[str, Any]:
    """Chart values with which operands and NFD's workers go to tainted nodes."""
    return {
        "daemonsets": {"tolerations": [GPU_TOLERATION, *tolerations]},
        "node-feature-discovery": {"worker": {"tolerations": [GPU_TOLERATION, *tolerations]}},
    }


def operator(values: dict[str, Any]) -> k8s.helm.v3.Release:
    """NVIDIA's chart, pinned."""
    return k8s.helm.v3.Release(
        "gpu-operator",
        name="gpu-operator",
        namespace="gpu-operator",
        chart="gpu-operator",
        version="v26.7.0",
        repository_opts={"repo": "https://helm.ngc.nvidia.com/nvidia"},
        values=values,
        opts=options,
    )


def critical_pods_quota() -> k8s.core.v1.ResourceQuota:
    """On GKE Pods of the system's priorities start only where a quota lets them (gpu-operator#660)."""
    names = ["system-node-critical", "system-cluster-critical"]
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": names}]}
    return k8s.core.v1.ResourceQuota(
        "critical-pods",
        metadata={"name": "critical-pods", "namespace": "gpu-operator"},
        spec={"hard": {"pods": "1000"}, "scopeSelector": selector},
        opts=options,
    )


def job(*tolerations: dict[str, str], runtime_class: str | None = "nvidia") -> k8s.batch.v1.Job:
    """A Job of one GPU that survives a preemption."""
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "tolerations": [GPU_TOLERATION, *tolerations],
        "terminationGracePeriodSeconds": 120,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "fsGroup": 10001,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "train",
                "image": IMAGE,
                "resources": {
                    "requests": {"nvidia.com/gpu": 1, "cpu": "8", "memory": "64Gi"},
                    "limits": {"nvidia.com/gpu": 1, "cpu": "16", "memory": "64Gi"},
                },
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
            }
        ],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}}],
    }
    if runtime_class:
        pod["runtimeClassName"] = runtime_class
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return k8s.batch.v1.Job(
        "train",
        metadata={"name": "train", "namespace": "ml", "annotations": {"pulumi.com/skipAwait": "true"}},
        spec={
            "backoffLimit": 6,
            "activeDeadlineSeconds": 86400,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [ignored]},
            "template": {"spec": pod},
        },
        opts=options,
    )


def node_group(ami_type: str, *, taints: list[dict[str, str]] | None = None) -> Any:
    """An EKS node group with one kind of GPU instance."""
    import pulumi_aws as aws

    return aws.eks.NodeGroup(
        "gpu",
        cluster_name="production",
        node_group_name="gpu",
        node_role_arn="arn:aws:iam::123456789012:role/nodes",
        subnet_ids=["subnet-1"],
        ami_type=ami_type,
        release_version="1.34.2-20261120",
        instance_types=["g6.12xlarge"],
        scaling_config={"min_size": 0, "max_size": 4, "desired_size": 0},
        labels={"pool": "gpu"},
        taints=taints or [],
    )


def node_pool(driver: str, *, no_default_plugin: bool = False) -> Any:
    """A GKE node pool of Container-Optimized OS with two L4."""
    import pulumi_gcp as gcp

    labels = {"pool": "gpu"}
    if no_default_plugin:
        labels["gke-no-default-nvidia-gpu-device-plugin"] = "true"
    return gcp.container.NodePool(
        "gpu",
        cluster="production",
        location="europe-west4",
        name="gpu",
        autoscaling={"min_node_count": 0, "max_node_count": 4},
        node_config={
            "machine_type": "g2-standard-24",
            "image_type": "COS_CONTAINERD",
            "labels": labels,
            "guest_accelerators": [
                {
                    "type": "nvidia-l4",
                    "count": 2,
                    "gpu_driver_installation_config": {"gpu_driver_version": driver},
                }
            ],
        },
    )
