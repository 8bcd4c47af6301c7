"""What a pool on EKS becomes: the providers' arguments, the operator's values, the Job's node selector."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from components.planning.eks_pool import LAUNCH_TEMPLATE, NODE_GROUP, EksPoolPlan
from components.planning.instance_types import as_of, instance_types, unusable
from components.planning.provider_arguments import problems
from components.planning.stack import StackPlan

Plan = Callable[..., StackPlan]
RESERVED = {"capacityReservationId": "cr-0a1b2c3d4e5f60718"}
GROUPS = {"securityGroupIds": ["sg-0a1b2c3d4e5f60718"]}
OWN_IMAGE = {
    "amiType": "CUSTOM",
    "releaseVersion": None,
    "imageId": "ami-0a1b2c3d4e5f60718",
    "userData": "#!/bin/bash\n/etc/eks/bootstrap.sh training --kubelet-extra-args"
    " '--node-labels=pool=gpu --register-with-taints=dedicated=gpu:NoSchedule'\n",
}
TAGS = {
    "Name": "training-gpu",
    "holdfast.dev/node-pool": "gpu",
    "app.kubernetes.io/managed-by": "pulumi",
    "app.kubernetes.io/part-of": "holdfast",
    "holdfast.dev/environment": "dev",
}


@pytest.fixture
def on_eks(plan: Plan) -> Callable[..., StackPlan]:
    """The plan of a stack with one pool on EKS; keywords change the pool's `eks`, None takes a key away."""

    def planned(pool: dict[str, Any] | None = None, **eks: Any) -> StackPlan:
        base = {
            "cluster": "training",
            "subnetIds": ["subnet-0a1b2c3d4e5f60718"],
            "nodeRoleArn": "arn:aws:iam::123456789012:role/gpu-nodes",
            "amiType": "AL2023_x86_64_NVIDIA",
            "releaseVersion": "1.34.2-20261120",
            "instanceTypes": ["p5.48xlarge"],
            "maxSize": 4,
        }
        given = {key: value for key, value in (base | eks).items() if value is not None}
        only = {"name": "gpu", "kind": "eks", "eks": given, **(pool or {})}
        return plan(only_pool=only, run={"pool": only["name"]})

    return planned


def made(planned: StackPlan, name: str = "gpu") -> EksPoolPlan:
    cloud = planned.cloud_pools[name]
    assert isinstance(cloud, EksPoolPlan)
    return cloud


def test_the_arguments_of_the_default_pool_are_exactly_these(on_eks: Plan) -> None:
    pool = made(on_eks())
    assert pool.node_group == {
        "nodeGroupName": "gpu",
        "clusterName": "training",
        "nodeRoleArn": "arn:aws:iam::123456789012:role/gpu-nodes",
        "subnetIds": ["subnet-0a1b2c3d4e5f60718"],
        "amiType": "AL2023_x86_64_NVIDIA",
        "releaseVersion": "1.34.2-20261120",
        "capacityType": "ON_DEMAND",
        "instanceTypes": ["p5.48xlarge"],
        "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 0},
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "nodeRepairConfig": {"enabled": True},
        "labels": {"pool": "gpu"},
        "taints": [{"key": "dedicated", "value": "gpu", "effect": "NO_SCHEDULE"}],
        "tags": TAGS,
    }
    assert pool.launch_template == {
        "updateDefaultVersion": True,
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    "volumeSize": 200,
                    "volumeType": "gp3",
                    "encrypted": "true",
                    "deleteOnTermination": "true",
                },
            }
        ],
        "tagSpecifications": [
            {"resourceType": "instance", "tags": TAGS},
            {"resourceType": "volume", "tags": TAGS},
        ],
        "tags": TAGS,
    }


@pytest.mark.parametrize(
    ("eks", "profile", "gpus", "operator", "runtime_class"),
    [
        ({}, "eks-al2023", 8, True, "nvidia"),
        (
            {"amiType": "AL2023_ARM_64_NVIDIA", "instanceTypes": ["g5g.16xlarge"]},
            "eks-al2023",
            2,
            True,
            "nvidia",
        ),
        (
            {"amiType": "BOTTLEROCKET_x86_64_NVIDIA", "releaseVersion": "1.52.0-a1b2c3d4"},
            "eks-bottlerocket",
            8,
            False,
            None,
        ),
        (
            {
                "amiType": "BOTTLEROCKET_ARM_64_NVIDIA",
                "releaseVersion": "1.52.0-a1b2c3d4",
                "instanceTypes": ["g5g.xlarge"],
            },
            "eks-bottlerocket",
            1,
            False,
            None,
        ),
        (OWN_IMAGE, "eks-ubuntu", 8, True, "nvidia"),
    ],
    ids=lambda value: value.get("amiType", "default") if isinstance(value, dict) else None,
)
def test_the_image_decides_the_row_and_the_row_decides_operator_and_runtime_class(
    eks: dict[str, Any],
    profile: str,
    gpus: int,
    operator: bool,
    runtime_class: str | None,
    on_eks: Plan,
) -> None:
    planned = on_eks(**eks)
    (pool,) = planned.pools
    assert (pool.ownership.profile, pool.gpus_per_node, pool.runtime_class) == (profile, gpus, runtime_class)
    assert (planned.operator is not None) is operator
    assert pool.node_selector == {"pool": "gpu"}
    assert pool.tolerations == [
        {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    ]


def test_an_image_of_ones_own_is_the_launch_templates_alone(on_eks: Plan) -> None:
    """EKS refuses amiType and releaseVersion beside an image in the launch template."""
    pool = made(on_eks(**OWN_IMAGE))
    assert {"amiType", "releaseVersion"}.isdisjoint(pool.node_group)
    assert pool.launch_template["imageId"] == OWN_IMAGE["imageId"]
    assert base64.b64decode(pool.launch_template["userData"]).decode() == OWN_IMAGE["userData"]


@pytest.mark.parametrize(
    ("eks", "device"),
    [
        ({"amiType": "BOTTLEROCKET_x86_64_NVIDIA", "releaseVersion": "1.52.0-a1b2c3d4"}, "/dev/xvdb"),
        (OWN_IMAGE, "/dev/sda1"),
    ],
    ids=["Bottlerocket's data volume", "Ubuntu's root volume"],
)
def test_the_disk_is_the_one_that_has_images_and_temporary_files(
    eks: dict[str, Any], device: str, on_eks: Plan
) -> None:
    (disk,) = made(on_eks(**eks, diskGiB=500)).launch_template["blockDeviceMappings"]
    assert (disk["deviceName"], disk["ebs"]["volumeSize"]) == (device, 500)


def test_nodes_start_with_their_startup_taints_which_operands_tolerate_and_jobs_do_not(on_eks: Plan) -> None:
    taint = {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}
    planned = on_eks(pool={"startupTaints": [taint]})
    assert made(planned).node_group["taints"] == [
        {"key": "dedicated", "value": "gpu", "effect": "NO_SCHEDULE"},
        {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NO_EXECUTE"},
    ]
    assert planned.operator is not None
    values = planned.operator.values
    for tolerations in (
        values["daemonsets"]["tolerations"],
        values["node-feature-discovery"]["worker"]["tolerations"],
    ):
        assert {**taint, "operator": "Equal"} in tolerations
    assert [item["key"] for item in planned.pools[0].tolerations] == ["dedicated"]
    assert planned.warnings == (
        'nodePools "gpu": an autoscaler takes the startup taint node.cilium.io/agent-not-ready=true:NoExecute for'
        " one that stays, and brings no node for Pods that do not tolerate it. Start the cluster's with"
        " --startup-taint=node.cilium.io/agent-not-ready, or write a key that begins with"
        " startup-taint.cluster-autoscaler.kubernetes.io/.",
    )
    known = {**taint, "key": "startup-taint.cluster-autoscaler.kubernetes.io/gpu-check"}
    assert on_eks(pool={"startupTaints": [known]}).warnings == ()


def test_spot_nodes_are_a_spot_pool_everywhere(on_eks: Plan) -> None:
    planned = on_eks(capacity="spot", instanceTypes=["p4d.24xlarge", "p4de.24xlarge"])
    (pool,) = planned.pools
    group = made(planned).node_group
    assert (pool.spot, group["capacityType"]) == (True, "SPOT")
    assert group["instanceTypes"] == ["p4d.24xlarge", "p4de.24xlarge"]
    assert group["labels"] == {"pool": "gpu", "holdfast.dev/spot": "true"} == pool.node_selector
    assert any("waits longer after each preemption" in warning for warning in planned.warnings)


def test_a_capacity_block_is_a_market_of_the_launch_template_with_its_one_instance_type(on_eks: Plan) -> None:
    pool = made(on_eks(capacity="capacity-block", **RESERVED))
    assert pool.node_group["capacityType"] == "CAPACITY_BLOCK"
    assert "instanceTypes" not in pool.node_group
    assert {
        key: pool.launch_template[key]
        for key in ("instanceType", "instanceMarketOptions", "capacityReservationSpecification")
    } == {
        "instanceType": "p5.48xlarge",
        "instanceMarketOptions": {"marketType": "capacity-block"},
        "capacityReservationSpecification": {"capacityReservationTarget": RESERVED},
    }


def test_a_reservation_on_demand_is_targeted_and_no_other_market(on_eks: Plan) -> None:
    pool = made(on_eks(**RESERVED))
    assert pool.node_group["instanceTypes"] == ["p5.48xlarge"]
    assert "instanceMarketOptions" not in pool.launch_template
    assert pool.launch_template["capacityReservationSpecification"] == {"capacityReservationTarget": RESERVED}


@pytest.mark.parametrize(
    ("instance", "places"),
    [
        ("g6e.48xlarge", [(0, 1), (1, 0), (2, 0), (3, 0)]),
        ("p5.48xlarge", [(0, 1), *((card, 0) for card in range(1, 32))]),
        ("p6-b300.48xlarge", [(card, 0) for card in range(1, 17)]),
    ],
)
def test_every_network_card_that_can_have_an_adapter_has_one_beside_one_ordinary_interface(
    instance: str, places: list[tuple[int, int]], on_eks: Plan
) -> None:
    template = made(on_eks(instanceTypes=[instance], efa=True, **GROUPS)).launch_template
    first, *adapters = template["networkInterfaces"]
    assert (first["networkCardIndex"], first["deviceIndex"], first["interfaceType"]) == (0, 0, "interface")
    assert [(one["networkCardIndex"], one["deviceIndex"]) for one in adapters] == places
    assert {one["interfaceType"] for one in adapters} == {"efa-only"}
    assert all(one["securityGroups"] == GROUPS["securityGroupIds"] for one in (first, *adapters))
    assert "vpcSecurityGroupIds" not in template


def test_placement_group_and_adapters_do_not_depend_on_each_other(on_eks: Plan) -> None:
    placed = made(on_eks(placementGroup="training")).launch_template
    assert placed["placement"] == {"groupName": "training"}
    assert "networkInterfaces" not in placed
    adapters = made(on_eks(efa=True, **GROUPS)).launch_template
    assert "placement" not in adapters
    assert made(on_eks(**GROUPS)).launch_template["vpcSecurityGroupIds"] == GROUPS["securityGroupIds"]


def test_what_a_site_passes_on_is_merged_below_what_the_pool_decides(on_eks: Plan) -> None:
    pool = made(
        on_eks(
            tags={"cost-centre": "ml"},
            nodeGroupArgs={"updateConfig": {"maxUnavailablePercentage": 50}, "forceUpdateVersion": True},
            launchTemplateArgs={"metadataOptions": {"httpPutResponseHopLimit": 2}, "keyName": "ops"},
        )
    )
    assert pool.node_group["updateConfig"] == {"maxUnavailablePercentage": 50, "updateStrategy": "MINIMAL"}
    assert pool.node_group["forceUpdateVersion"] is True
    assert pool.launch_template["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 2,
    }
    assert pool.launch_template["keyName"] == "ops"
    assert pool.node_group["tags"] == {**TAGS, "cost-centre": "ml"} == pool.launch_template["tags"]


def test_a_renamed_pool_is_the_same_node_group_with_the_same_launch_template(on_eks: Plan) -> None:
    before = made(on_eks())
    after = made(on_eks(pool={"name": "h100", "formerNames": ["gpu"]}), "h100")
    assert after == before


def test_every_argument_that_is_set_is_one_of_the_providers_and_of_its_kind(on_eks: Plan) -> None:
    everything = on_eks(
        capacity="capacity-block", efa=True, placementGroup="training", tags={"a": "b"}, **RESERVED, **GROUPS
    )
    for planned in (everything, on_eks(**OWN_IMAGE), on_eks(capacity="spot")):
        pool = made(planned)
        assert list(problems(NODE_GROUP, pool.node_group, ("nodePools",), {})) == []
        assert list(problems(LAUNCH_TEMPLATE, pool.launch_template, ("nodePools",), {})) == []


@pytest.mark.parametrize(
    ("eks", "warning"),
    [
        (
            {"subnetIds": ["subnet-0a1b2c3d4e5f60718", "subnet-0a1b2c3d4e5f60719"], "placementGroup": "p"},
            'nodePools "gpu": with placementGroup its nodes can start in one zone only, and eks.subnetIds has'
            " 2 subnets. Nodes that are tried in another zone fail.",
        ),
        (
            {"instanceTypes": ["p5.48xlarge", "p5en.48xlarge"]},
            'nodePools "gpu": its instance types have different GPUs (H100, H200). A run that is moved may find'
            " less memory than it began with.",
        ),
        (
            OWN_IMAGE | {"userData": "#!/bin/bash\n/etc/eks/bootstrap.sh training\n"},
            'nodePools "gpu": its userData does not hand pool=gpu and dedicated=gpu:NoSchedule to the kubelet'
            " (--node-labels, --register-with-taints). EKS adds them about half a minute after a node has joined,"
            " and until then Pods of others may be sent there.",
        ),
    ],
    ids=["two zones for a placement group", "two GPUs", "user data without labels and taint"],
)
def test_what_works_and_should_be_known_is_a_warning(eks: dict[str, Any], warning: str, on_eks: Plan) -> None:
    assert on_eks(**eks).warnings == (warning,)


@pytest.mark.parametrize("eks", [{}, OWN_IMAGE, RESERVED], ids=["default", "own image", "reservation"])
def test_a_sound_pool_has_no_warning(eks: dict[str, Any], on_eks: Plan) -> None:
    assert on_eks(**eks).warnings == ()


def test_an_instance_type_that_the_table_does_not_know_yet_counts_as_the_site_says(on_eks: Plan) -> None:
    planned = on_eks(instanceTypes=["p9.48xlarge"], gpusPerInstance=16)
    assert planned.pools[0].gpus_per_node == 16


def test_the_table_of_instance_types_is_dated_and_names_whole_gpus_of_two_architectures() -> None:
    assert as_of() == "2026-12-01"
    assert {row.architecture for row in instance_types().values()} == {"x86_64", "arm64"}
    assert all(
        1 <= row.gpus <= 8 and row.efa_cards == tuple(sorted(set(row.efa_cards)))
        for row in instance_types().values()
    )
    assert not [name for name in instance_types() if unusable(name)]
    assert len(instance_types()["p5.48xlarge"].efa_cards) == 32
