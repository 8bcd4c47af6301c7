"""A node group on EKS, decided: the final arguments of `aws.eks.NodeGroup` and of its launch template."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.planning.instance_types import instance_types
from components.planning.labels import environment_labels
from components.planning.merge import deep_merge
from components.planning.node_pools import NodePoolPlan, cloud_taints
from components.settings.eks_pool import EksSettings
from components.settings.node_pool import EksNodePoolSettings

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
DEFAULT_DISK_GIB = 200
POOL_TAG = "holdfast.dev/node-pool"

_CAPACITY = {"on-demand": "ON_DEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}


@dataclass(frozen=True)
class EksPoolPlan:
    """One pool on EKS, decided. Arguments by the provider's own names (camelCase), final."""

    name: str
    """Name of the node group in its cluster."""
    node_group: Mapping[str, Any]
    """Arguments of `aws.eks.NodeGroup`, without its launch template's id and version."""
    launch_template: Mapping[str, Any]
    """Arguments of `aws.ec2.LaunchTemplate`."""


def gpus_per_node(eks: EksSettings) -> int | None:
    """`nvidia.com/gpu` of one instance; None where the instance types do not say or do not agree."""
    table = instance_types()
    counts = {table[name].gpus if name in table else eks.gpus_per_instance for name in eks.instance_types}
    return counts.pop() if len(counts) == 1 else None


def plan_eks_pool(pool: EksNodePoolSettings, common: NodePoolPlan, environment: str) -> EksPoolPlan:
    """The plan of one pool whose settings have been checked, see eks_checks.py."""
    eks = pool.eks
    # The name in the cloud, so that a renamed pool keeps its launch template and with it its nodes.
    name = {"Name": f"{eks.cluster}-{pool.cloud_name}", POOL_TAG: pool.cloud_name}
    tags = {**name, **environment_labels(environment), **eks.tags}
    group = _node_group(pool, common, tags)
    if "maxUnavailablePercentage" in eks.node_group_args.get("updateConfig", {}):
        del group["updateConfig"]["maxUnavailable"]  # EKS takes one of the two
    return EksPoolPlan(
        name=pool.cloud_name,
        node_group=deep_merge(group, eks.node_group_args),
        launch_template=deep_merge(_launch_template(eks, tags), eks.launch_template_args),
    )


def _node_group(pool: EksNodePoolSettings, common: NodePoolPlan, tags: Mapping[str, str]) -> dict[str, Any]:
    eks = pool.eks
    image = {"amiType": eks.ami_type, "releaseVersion": eks.release_version}
    return {
        "nodeGroupName": pool.cloud_name,
        "clusterName": eks.cluster,
        "nodeRoleArn": eks.node_role_arn,
        "subnetIds": list(eks.subnet_ids),
        # With an image in the launch template EKS refuses amiType and releaseVersion
        # (EKS user guide, Customize managed nodes with launch templates, Specifying an AMI).
        **({} if eks.custom else image),
        "capacityType": _CAPACITY[eks.capacity],
        # A capacity block's instance type is the launch template's (EKS user guide, Create a managed node group
        # with Capacity Blocks for ML); it may stand in one of the two only.
        **({} if eks.capacity == "capacity-block" else {"instanceTypes": list(eks.instance_types)}),
        "scalingConfig": {
            "minSize": eks.min_size,
            "maxSize": eks.max_size,
            "desiredSize": eks.min_size if eks.desired_size is None else eks.desired_size,
        },
        # MINIMAL ends a node before it starts the next: there is hardly ever one GPU instance more to be had
        # (EKS API reference, NodegroupUpdateConfig).
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "nodeRepairConfig": {"enabled": eks.node_repair},
        "labels": dict(common.labels),
        "taints": cloud_taints(common),
        "tags": dict(tags),
    }


def _launch_template(eks: EksSettings, tags: Mapping[str, str]) -> dict[str, Any]:
    template: dict[str, Any] = {
        "updateDefaultVersion": True,
        # Only with a token, and with one hop: a Pod of its own network can not take the node's credentials
        # (EKS best practices guide, Restrict access to the instance profile).
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
        "blockDeviceMappings": [
            {
                "deviceName": _device(eks),
                "ebs": {
                    "volumeSize": eks.disk_gib or DEFAULT_DISK_GIB,
                    "volumeType": "gp3",
                    "encrypted": "true",
                    "deleteOnTermination": "true",
                },
            }
        ],
        "tagSpecifications": [{"resourceType": kind, "tags": dict(tags)} for kind in ("instance", "volume")],
        "tags": dict(tags),
    }
    if eks.image_id:
        template["imageId"] = eks.image_id
    if eks.user_data:
        template["userData"] = base64.b64encode(eks.user_data.encode()).decode()
    if eks.capacity == "capacity-block":
        template["instanceType"] = eks.instance_types[0]
        template["instanceMarketOptions"] = {"marketType": "capacity-block"}
    if eks.capacity_reservation_id:
        template["capacityReservationSpecification"] = {
            "capacityReservationTarget": {"capacityReservationId": eks.capacity_reservation_id}
        }
    if eks.placement_group:
        template["placement"] = {"groupName": eks.placement_group}
    if eks.efa:
        template["networkInterfaces"] = _interfaces(eks)
    elif eks.security_group_ids:
        template["vpcSecurityGroupIds"] = list(eks.security_group_ids)
    return template


def _device(eks: EksSettings) -> str:
    """The disk of images and /tmp."""
    if eks.bottlerocket:
        # /dev/xvda has the system, /dev/xvdb the data (bottlerocket-os/bottlerocket, README, Default Volumes).
        return "/dev/xvdb"
    return "/dev/sda1" if eks.custom else "/dev/xvda"


def _interfaces(eks: EksSettings) -> list[dict[str, Any]]:
    """An ordinary interface first, which alone has an address, and an adapter on each card that can have one.

    EC2 user guide, Maximize network bandwidth on instances with multiple network cards
    (terraform-aws-eks#3653). An adapter that shares card 0 with the ordinary interface is device 1 there.
    """
    groups = {"securityGroups": list(eks.security_group_ids), "deleteOnTermination": "true"}
    first = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface", **groups}
    adapters = [
        {"networkCardIndex": card, "deviceIndex": 0 if card else 1, "interfaceType": "efa-only", **groups}
        for card in instance_types()[eks.instance_types[0]].efa_cards
    ]
    return [first, *adapters]
