"""NVIDIA's device plugin as a DaemonSet of its own, beside the operator's."""

import pulumi_kubernetes as k8s
from common import options

k8s.apiextensions.CustomResource(
    "cluster-policy",
    api_version="nvidia.com/v1",
    kind="ClusterPolicy",
    metadata={"name": "cluster-policy"},
    spec={"driver": {"enabled": False}, "toolkit": {"enabled": False}, "devicePlugin": {"enabled": True}},
    opts=options,
)
k8s.apps.v1.DaemonSet(
    "plugin",
    metadata={"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system"},
    spec={
        "selector": {"matchLabels": {"app": "plugin"}},
        "template": {
            "metadata": {"labels": {"app": "plugin"}},
            "spec": {
                "containers": [
                    {"name": "plugin", "image": "nvcr.io/nvidia/k8s-device-plugin@sha256:" + "2" * 64}
                ]
            },
        },
    },
    opts=options,
)
