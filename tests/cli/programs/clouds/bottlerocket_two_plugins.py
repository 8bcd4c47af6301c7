"""NVIDIA's device plugin on Bottlerocket, which runs one of its own."""

import pulumi_kubernetes as k8s
from parts import TAINT, TOLERATION, job, node_group, options

node_group("BOTTLEROCKET_x86_64_NVIDIA", taints=[TAINT])
k8s.helm.v3.Release(
    "device-plugin",
    name="nvidia-device-plugin",
    namespace="nvidia-device-plugin",
    chart="nvidia-device-plugin",
    version="0.18.0",
    repository_opts={"repo": "https://nvidia.github.io/k8s-device-plugin"},
    values={"tolerations": [TOLERATION]},
    opts=options,
)
job(TOLERATION, runtime_class=None)
