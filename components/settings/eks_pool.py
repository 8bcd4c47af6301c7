"""A node group that the stack creates on EKS: what is decided here, and the provider's arguments passed on."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from components.settings.base import Flag, Settings, Whole, refusal
from components.settings.formats import matching

AmiType = Literal[
    "AL2023_x86_64_NVIDIA",
    "AL2023_ARM_64_NVIDIA",
    "BOTTLEROCKET_x86_64_NVIDIA",
    "BOTTLEROCKET_ARM_64_NVIDIA",
    "CUSTOM",
]
Capacity = Literal["on-demand", "spot", "capacity-block"]

_CLUSTER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_HEX = "[0-9a-f]{8}([0-9a-f]{9})?"
_INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
_TAG_KEY = re.compile(r"[\w\s.:/=+\-@]{1,128}")
_TAG_VALUE = re.compile(r"[\w\s.:/=+\-@]{0,256}")
_AL2023_RELEASE = re.compile(r"1\.\d{2}\.\d+-20\d{6}")
# A commit of eight digits may look like a date; one that is a date of these years is a release of AL2023.
_DATE = r"20[23]\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])"
_BOTTLEROCKET_RELEASE = re.compile(rf"1\.\d+\.\d+-(?!{_DATE}$)[0-9a-f]{{8}}")
# EKS API reference, CreateNodegroup, instanceTypes: at most 20.
MOST_INSTANCE_TYPES = 20
# EC2: at most 16 KiB before it is encoded (EC2 user guide, Run commands when you launch an instance).
LONGEST_USER_DATA = 16 * 1024


def _id(kind: str, example: str, what: str) -> AfterValidator:
    return matching(
        re.compile(f"{kind}-{_HEX}"), f"it is not the id of {what}", f"write one such as {example}"
    )


def _cluster(text: str) -> str:
    if text.startswith("arn:"):
        raise refusal("it is an ARN, and EKS wants the name", f"write {text.rsplit('/', 1)[-1]}")
    if not _CLUSTER.fullmatch(text):
        raise refusal(
            "it is not the name of an EKS cluster", "write the name as `aws eks list-clusters` shows it"
        )
    return text


def _role(text: str) -> str:
    if ":instance-profile/" in text:
        raise refusal(
            "it is an instance profile, and EKS makes one itself from a role",
            "write the ARN of the role, arn:aws:iam::<account>:role/<name>",
        )
    if not _ROLE.fullmatch(text):
        raise refusal(
            "it is not the ARN of an IAM role", "write one such as arn:aws:iam::123456789012:role/gpu-nodes"
        )
    return text


def _ami_type(value: Any) -> Any:
    if isinstance(value, str) and value.upper().startswith("AL2_"):
        raise refusal(
            "Amazon Linux 2 images with GPUs have ended, and with them their driver updates",
            "write AL2023_x86_64_NVIDIA",
        )
    if isinstance(value, str) and re.fullmatch(
        r"(AL2023|BOTTLEROCKET)_(x86_64|ARM_64)(_STANDARD|_FIPS|_NEURON)?", value
    ):
        system, architecture = value.split("_", 1)[0], "ARM_64" if "ARM_64" in value else "x86_64"
        raise refusal("its images have no NVIDIA driver", f"write {system}_{architecture}_NVIDIA")
    return value


def _release(text: str) -> str:
    if not (_AL2023_RELEASE.fullmatch(text) or _BOTTLEROCKET_RELEASE.fullmatch(text)):
        raise refusal(
            "it does not stand for one image for ever, and the image is what brings the driver",
            "write a release such as 1.34.2-20261120 or, on Bottlerocket, 1.52.0-a1b2c3d4; the changelogs of"
            " amazon-eks-ami and Bottlerocket list them",
        )
    return text


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            raise refusal("tags that begin with aws: are AWS' own", "choose another key", at=key, value=value)
        if not _TAG_KEY.fullmatch(key):
            raise refusal(
                "it is not the key of a tag", "write letters, digits, spaces and . : / = + - @ _", at=key
            )
        if not _TAG_VALUE.fullmatch(value):
            raise refusal(
                "it is not the value of a tag",
                "write at most 256 letters, digits, spaces and . : / = + - @ _",
                at=key,
                value=value,
            )
    return tags


def _user_data(text: str) -> str:
    if len(text.encode()) > LONGEST_USER_DATA:
        raise refusal(
            f"it has {len(text.encode())} bytes, and EC2 takes {LONGEST_USER_DATA} at most",
            "put the rest into the image, or fetch it from the user data",
        )
    return text


ClusterName = Annotated[str, AfterValidator(_cluster)]
RoleArn = Annotated[str, AfterValidator(_role)]
SubnetId = Annotated[str, _id("subnet", "subnet-0a1b2c3d4e5f60718", "a subnet")]
SecurityGroupId = Annotated[str, _id("sg", "sg-0a1b2c3d4e5f60718", "a security group")]
ImageId = Annotated[str, _id("ami", "ami-0a1b2c3d4e5f60718", "an image")]
ReservationId = Annotated[str, _id("cr", "cr-0a1b2c3d4e5f60718", "a capacity reservation")]
InstanceType = Annotated[
    str, matching(_INSTANCE_TYPE, "it is not the name of an instance type", "write one such as p5.48xlarge")
]
PlacementGroup = Annotated[
    str,
    matching(
        re.compile(r"[ -~]{1,255}"), "it is not the name of a placement group", "write its name, not its ARN"
    ),
]


class EksSettings(Settings):
    """The node group on EKS. The cluster, its subnets and the nodes' role are there already."""

    cluster: ClusterName
    """Name of the cluster."""
    subnet_ids: Annotated[tuple[SubnetId, ...], Field(min_length=1)]
    """Subnets of the nodes. A capacity block and a cluster placement group are in one zone."""
    node_role_arn: RoleArn
    """Role of the nodes. Pods do not get its rights."""
    ami_type: Annotated[AmiType, BeforeValidator(_ami_type)]
    """What the nodes run. It decides who owns driver, toolkit and device plugin."""
    release_version: Annotated[str, AfterValidator(_release)] | None = None
    """Release of the image, such as `1.34.2-20261120` or, on Bottlerocket, `1.52.0-a1b2c3d4`: it *is* the driver's
    version. Needed unless amiType is `CUSTOM`."""
    image_id: ImageId | None = None
    """Image of `CUSTOM` nodes: Ubuntu without an NVIDIA driver."""
    user_data: Annotated[str, AfterValidator(_user_data)] | None = None
    """What the nodes start with, as plain text: on `CUSTOM` the script that joins them to the cluster with the
    pool's labels and taint, on `AL2023` more MIME parts, on `BOTTLEROCKET` more settings (TOML)."""
    instance_types: Annotated[tuple[InstanceType, ...], Field(min_length=1, max_length=MOST_INSTANCE_TYPES)]
    """Instance types with equal GPUs. More than one gives Spot and on-demand pools a choice."""
    gpus_per_instance: Annotated[Whole, Field(ge=1, le=64)] | None = None
    """Only for instance types that data/gpu-instances.json does not know yet: GPUs of one instance."""
    capacity: Capacity = "on-demand"
    """`on-demand`, `spot`, or `capacity-block`: GPUs that are reserved for a time."""
    capacity_reservation_id: ReservationId | None = None
    """The capacity block, or a targeted on-demand reservation."""
    efa: Flag = False
    """True: an Elastic Fabric Adapter on every network card that can have one. Needs securityGroupIds."""
    security_group_ids: tuple[SecurityGroupId, ...] = ()
    """Security groups of the nodes. Default: the cluster's own."""
    placement_group: PlacementGroup | None = None
    """Name of a placement group that exists already. It does not depend on `efa`."""
    disk_gib: Annotated[Whole, Field(ge=20, le=65_536)] | None = Field(default=None, alias="diskGiB")
    """Size of the encrypted disk of images and /tmp. Default: 200."""
    min_size: Annotated[Whole, Field(ge=0, le=5_000)] = 0
    """Nodes at least. 0: the pool may be empty while no run needs it."""
    max_size: Annotated[Whole, Field(ge=1, le=5_000)]
    """Nodes at most."""
    desired_size: Annotated[Whole, Field(ge=0, le=5_000)] | None = None
    """Nodes at creation. Later the cluster's autoscaler decides. Default: minSize."""
    node_repair: Flag = True
    """True: EKS replaces nodes whose monitoring agent finds them or their GPUs broken."""
    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(default_factory=dict)
    """More tags for node group, instances and volumes, such as a cost centre."""
    node_group_args: dict[str, Any] = Field(default_factory=dict)
    """More arguments of `aws.eks.NodeGroup`, by the provider's own names, such as `updateConfig`."""
    launch_template_args: dict[str, Any] = Field(default_factory=dict)
    """More arguments of `aws.ec2.LaunchTemplate`, by the provider's own names, such as `monitoring`."""

    @property
    def custom(self) -> bool:
        """The nodes run an image of the site's own."""
        return self.ami_type == "CUSTOM"

    @property
    def bottlerocket(self) -> bool:
        """The nodes run Bottlerocket."""
        return self.ami_type.startswith("BOTTLEROCKET")

    @property
    def architecture(self) -> str | None:
        """`x86_64` or `arm64`, as the image wants it; None where the image is the site's own."""
        return None if self.custom else "arm64" if "ARM_64" in self.ami_type else "x86_64"

    @property
    def pinned_to(self) -> re.Pattern[str]:
        """What releases of the pool's images look like."""
        return _BOTTLEROCKET_RELEASE if self.bottlerocket else _AL2023_RELEASE

    @property
    def node_facts(self) -> dict[str, Any]:
        """What the nodes are, in the words of the table's column `nodes`: the row follows from it."""
        return {"amiTypes": self.ami_type}

    @model_validator(mode="after")
    def _sizes(self) -> EksSettings:
        if self.min_size > self.max_size:
            raise refusal(
                f"it is more than maxSize, {self.max_size}",
                f"write {self.max_size} or less, or raise maxSize",
                at="minSize",
                value=self.min_size,
            )
        if self.desired_size is not None and not self.min_size <= self.desired_size <= self.max_size:
            raise refusal(
                f"it is not between minSize, {self.min_size}, and maxSize, {self.max_size}",
                f"write {self.min_size} to {self.max_size}, or remove it",
                at="desiredSize",
                value=self.desired_size,
            )
        return self
