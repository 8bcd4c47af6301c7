"""The operator's driver on nodes whose image brings one."""

import pulumi_kubernetes as k8s
from common import options

k8s.core.v1.Namespace(
    "gpu-operator",
    metadata={"name": "gpu-operator", "labels": {"holdfast.dev/node-profile": "self-managed-driver-toolkit"}},
    opts=options,
)
k8s.apiextensions.CustomResource(
    "cluster-policy",
    api_version="nvidia.com/v1",
    kind="ClusterPolicy",
    metadata={"name": "cluster-policy"},
    spec={"driver": {"enabled": True}, "toolkit": {"enabled": False}, "devicePlugin": {"enabled": True}},
    opts=options,
)
