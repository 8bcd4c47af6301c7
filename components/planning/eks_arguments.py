"""What a site passes on to the node group and the launch template of a pool on EKS, and what it can not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.planning import provider_arguments
from components.planning.eks_pool import LAUNCH_TEMPLATE, NODE_GROUP
from components.planning.provider_arguments import Decided
from components.settings.consistency import Told, told
from components.settings.eks_pool import EksSettings
from components.settings.substitution import Path


def _setting(name: str) -> tuple[str, str]:
    return f"the pool's own setting {name} decides it", f"write {name} instead"


_PROHIBITED = (
    "EKS takes no launch template that has it (EKS user guide, Customize managed nodes with launch templates)"
)
DECIDED_GROUP: Decided = {
    ("clusterName",): _setting("eks.cluster"),
    ("nodeGroupName",): _setting("name"),
    ("nodeGroupNamePrefix",): _setting("name"),
    ("nodeRoleArn",): _setting("eks.nodeRoleArn"),
    ("subnetIds",): _setting("eks.subnetIds"),
    ("amiType",): _setting("eks.amiType"),
    ("releaseVersion",): _setting("eks.releaseVersion"),
    ("instanceTypes",): _setting("eks.instanceTypes"),
    ("capacityType",): _setting("eks.capacity"),
    ("scalingConfig",): (
        "the pool has settings of its own for it",
        "write eks.minSize, maxSize and desiredSize",
    ),
    ("diskSize",): _setting("eks.diskGiB"),
    ("nodeRepairConfig", "enabled"): _setting("eks.nodeRepair"),
    ("labels",): _setting("labels"),
    ("taints",): _setting("taint"),
    ("tags",): _setting("eks.tags"),
    ("launchTemplate",): (
        "the launch template is the stack's own, with the metadata service, disks and images that ownership needs",
        "write eks.launchTemplateArgs instead",
    ),
    ("remoteAccess",): (
        "EKS takes no remoteAccess beside a launch template",
        "use SSM Session Manager, or write eks.launchTemplateArgs.keyName and eks.securityGroupIds",
    ),
    ("region",): ("node group and launch template are in one region", "set aws:region for the stack"),
}
"""Arguments of the node group that ownership, safety or the pool's other settings depend on."""
DECIDED_TEMPLATE: Decided = {
    ("name",): ("it is made anew under another name before the old one goes", "remove it"),
    ("namePrefix",): ("it is made anew under another name before the old one goes", "remove it"),
    ("region",): ("node group and launch template are in one region", "set aws:region for the stack"),
    ("imageId",): (
        "the image decides who owns the driver",
        "write eks.amiType with eks.releaseVersion, or amiType: CUSTOM with eks.imageId",
    ),
    ("userData",): _setting("eks.userData"),
    ("instanceType",): _setting("eks.instanceTypes"),
    ("instanceRequirements",): (
        "it would let in instances with other GPUs than the pool's",
        "write eks.instanceTypes",
    ),
    ("instanceMarketOptions",): _setting("eks.capacity"),
    ("capacityReservationSpecification",): _setting("eks.capacityReservationId"),
    ("placement", "groupName"): _setting("eks.placementGroup"),
    ("placement", "groupId"): _setting("eks.placementGroup"),
    ("vpcSecurityGroupIds",): _setting("eks.securityGroupIds"),
    ("securityGroupNames",): _setting("eks.securityGroupIds"),
    ("networkInterfaces", "subnetId"): (_PROHIBITED, "write eks.subnetIds"),
    ("iamInstanceProfile",): (_PROHIBITED, "write eks.nodeRoleArn"),
    ("hibernationOptions",): (_PROHIBITED, "remove it"),
    ("instanceInitiatedShutdownBehavior",): (_PROHIBITED, "remove it"),
    ("metadataOptions", "httpTokens"): (
        "without a token every Pod and every server-side request could take the node's credentials",
        "remove it: it is required",
    ),
    ("metadataOptions", "httpEndpoint"): ("the node joins its cluster with it", "remove it"),
    ("defaultVersion",): ("the node group names the version itself", "remove it"),
    ("updateDefaultVersion",): ("the node group names the version itself", "remove it"),
    ("tagSpecifications",): _setting("eks.tags"),
    ("tags",): _setting("eks.tags"),
}
"""Arguments of the launch template that ownership, safety or the pool's other settings depend on."""


def problems(path: Path, eks: EksSettings) -> Iterator[Told]:
    """Every argument that can not be passed on. `path`: the pool's `eks`."""
    group: Path = (*path, "nodeGroupArgs")
    template: Path = (*path, "launchTemplateArgs")
    yield from provider_arguments.problems(NODE_GROUP, eks.node_group_args, group, DECIDED_GROUP)
    yield from provider_arguments.problems(
        LAUNCH_TEMPLATE, eks.launch_template_args, template, DECIDED_TEMPLATE
    )
    disks = eks.launch_template_args.get("blockDeviceMappings")
    if disks is None:
        return
    here: Path = (*template, "blockDeviceMappings")
    if eks.disk_gib is not None:
        yield told(here, None, "it replaces the disk that eks.diskGiB makes", "remove one of the two")
    for number, disk in enumerate(disks if isinstance(disks, list) else ()):
        if _encrypted(disk) is False:
            yield told(
                (*here, number, "ebs", "encrypted"),
                None,
                "an image's layers, and what runs write to /tmp, would be on a disk that is not encrypted",
                'write encrypted: "true"',
            )


def _encrypted(disk: Any) -> bool | None:
    """Whether a disk is encrypted; None where it is none, or its form is told elsewhere."""
    ebs = disk.get("ebs") if isinstance(disk, Mapping) else None
    return str(ebs.get("encrypted", "")).lower() == "true" if isinstance(ebs, Mapping) else None
