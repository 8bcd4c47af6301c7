"""Node profiles that can not work, written by hand: each in a cluster of its own, with an operator on it."""

import os

import pulumi
import pulumi_kubernetes as k8s

for row in os.environ["REJECTED_ROWS"].split(","):
    provider = k8s.Provider(row, kubeconfig="/nowhere/kubeconfig", context=row)
    options = pulumi.ResourceOptions(provider=provider)
    k8s.core.v1.Namespace(
        f"{row}-namespace",
        metadata={"name": "gpu-operator", "labels": {"holdfast.dev/node-profile": row}},
        opts=options,
    )
    k8s.helm.v3.Release(
        f"{row}-operator",
        name="gpu-operator",
        namespace="gpu-operator",
        chart="gpu-operator",
        version="v26.7.0",
        repository_opts={"repo": "https://helm.ngc.nvidia.com/nvidia"},
        values={"driver": {"enabled": row == "gke-cos-operator-driver"}},
        opts=options,
    )
