"""A node pool that the stack creates on GKE: what is decided here, and the provider's arguments passed on."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from components.settings.base import Flag, Settings, Whole, refusal
from components.settings.formats import matching

# Of the zones for AI too, such as us-south1-ai1b.
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-(ai\d+)?[a-z]")
_REGION = re.compile(r"[a-z]+-[a-z]+\d+")
_PROJECT = re.compile(r"([a-z][a-z0-9-]*\.)*([a-z][a-z0-9-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_CLUSTER = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_WORD = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"1\.\d{2}\.\d+-gke\.\d+")
_SERVICE_ACCOUNT = re.compile(r"[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com")
_DEFAULT_ACCOUNT = re.compile(r"\d+-compute@developer\.gserviceaccount\.com")
_RESERVATION = re.compile(
    r"(projects/[^/]+/reservations/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?(/reservationBlocks/[a-z0-9-]+)?"
)
# Google's limit of clients that share one GPU.
# GoogleCloudPlatform, GKE custom compute classes, gpuSharing.maxSharedClientsPerGPU: 2 to 48.
MOST_CLIENTS = 48


def _location(text: str) -> str:
    if not (_ZONE.fullmatch(text) or _REGION.fullmatch(text)):
        raise refusal(
            "it is neither a region nor a zone",
            "write the cluster's own, such as us-central1 or us-central1-a",
        )
    return text


def _cluster(text: str) -> str:
    if "/" in text:
        raise refusal(
            "it is a path, and project and location have settings of their own",
            f"write {text.rstrip('/').rsplit('/', 1)[-1]} here, and project and location below it",
        )
    if not _CLUSTER.fullmatch(text):
        raise refusal(
            "it is not the name of a GKE cluster",
            "write the name as `gcloud container clusters list` shows it",
        )
    return text


def _version(text: str) -> str:
    if text.lower() in ("latest", "-") or re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
        raise refusal(
            "it stands for another version tomorrow, and node image and driver would change with it",
            "write the whole version, such as 1.33.5-gke.1201000, or remove it and let GKE upgrade the nodes",
        )
    if not _VERSION.fullmatch(text):
        raise refusal(
            "it is not a GKE version",
            "write the whole version, such as 1.33.5-gke.1201000; `gcloud container get-server-config` lists"
            " them",
        )
    return text


def _service_account(text: str) -> str:
    if text == "default" or _DEFAULT_ACCOUNT.fullmatch(text):
        raise refusal(
            "Compute Engine's default service account may have the project's role Editor, and every node"
            " would have it",
            "write an account of the pool's own with the role roles/container.defaultNodeServiceAccount",
        )
    if not _SERVICE_ACCOUNT.fullmatch(text):
        raise refusal(
            "it is not the e-mail address of a service account",
            "write one such as gpu-nodes@my-project.iam.gserviceaccount.com",
        )
    return text


ClusterName = Annotated[str, AfterValidator(_cluster)]
Location = Annotated[str, AfterValidator(_location)]
Zone = Annotated[str, matching(_ZONE, "it is not a zone", "write a zone such as us-central1-a")]
ProjectId = Annotated[
    str,
    matching(_PROJECT, "it is not the id of a Google Cloud project", "write the id, such as my-project-123"),
]
MachineType = Annotated[
    str, matching(_WORD, "it is not the name of a machine type", "write one such as a3-highgpu-8g")
]
AcceleratorType = Annotated[
    str, matching(_WORD, "it is not the name of an accelerator", "write one such as nvidia-h100-80gb")
]
PartitionSize = Annotated[
    str,
    matching(re.compile(r"\d+g\.\d+gb"), "it is not the size of a partition", "write one such as 1g.10gb"),
]
Reservation = Annotated[
    str,
    matching(
        _RESERVATION,
        "it is not a reservation",
        "write its name, or projects/<project>/reservations/<name> if another project shares it",
    ),
]
NodeVersion = Annotated[str, AfterValidator(_version)]
ServiceAccount = Annotated[str, AfterValidator(_service_account)]


class GkeSharing(Settings):
    """Several containers on one GPU. It gives neither memory nor fault isolation."""

    strategy: Literal["TIME_SHARING", "MPS"]
    """`TIME_SHARING`: they take turns; `MPS`: they run at once."""
    max_clients_per_gpu: Annotated[Whole, Field(ge=2, le=MOST_CLIENTS)]
    """Containers that may share one GPU; a node then offers that many `nvidia.com/gpu` for each."""


class GkeAccelerator(Settings):
    """The GPUs of one node, and who installs their driver."""

    type: AcceleratorType | None = None
    """Default: the machine type's own. Needed where the machine type has none, as N1."""
    count: Annotated[Whole, Field(ge=1, le=16)] | None = None
    """GPUs of one node. Default: the machine type's own."""
    driver: Literal["DEFAULT", "LATEST", "INSTALLATION_DISABLED"] = "DEFAULT"
    """`DEFAULT` or `LATEST`: GKE installs the driver of the node's version. Always written out, because the
    provider's own default once recreated pools (magic-modules#11152)."""
    partition: PartitionSize | None = None
    """Size of the MIG partitions that every GPU is divided into; a node then offers each as one
    `nvidia.com/gpu`."""
    sharing: GkeSharing | None = None
    """Default: a GPU belongs to one container."""


class GkeSettings(Settings):
    """The node pool on GKE. The cluster is there already."""

    cluster: ClusterName
    """Name of the cluster."""
    location: Location
    """Region or zone of the cluster."""
    project: ProjectId | None = None
    """Default: the project of the stack's `gcp:project`."""
    node_locations: tuple[Zone, ...] = ()
    """Zones of the nodes. Needed in a region: only some of its zones have the GPUs."""
    version: NodeVersion | None = None
    """Version of the nodes, and with it of GKE's driver. GKE upgrades neither before the version's end of
    support. Default: GKE upgrades both with the cluster."""
    release_channel: Flag = True
    """False: the cluster is in no release channel."""
    machine_type: MachineType
    """Machine type of the nodes."""
    accelerator: GkeAccelerator = GkeAccelerator()
    image_type: Literal["COS_CONTAINERD", "UBUNTU_CONTAINERD"] = "COS_CONTAINERD"
    """Node image."""
    default_device_plugin: Flag = True
    """False: the nodes get the label `gke-no-default-nvidia-gpu-device-plugin=true`, and the operator brings
    the device plugin."""
    driver_installer: Flag = False
    """True: Google's driver installer DaemonSet is in the cluster."""
    spot: Flag = False
    """True: Spot nodes, which Google may take away at any time."""
    reservation: Reservation | None = None
    """Reservation that the nodes are taken from, and from no other."""
    gvnic: Flag = True
    """Google's virtual network card, which the machine types of A3 and later need."""
    compact_placement: Flag = False
    """True: the nodes stand close to each other, in one zone."""
    service_account: ServiceAccount
    """E-mail address of the nodes' service account. Pods do not get its rights, but those of workload
    identity."""
    disk_gib: Annotated[Whole, Field(ge=20, le=65_536, alias="diskGiB")] = 200
    """Size of a node's boot disk, where images and /tmp are."""
    min_nodes: Annotated[Whole, Field(ge=0, le=15_000)] = 0
    """Nodes at least, over all zones. 0: the pool is empty while no run needs it."""
    max_nodes: Annotated[Whole, Field(ge=1, le=15_000)]
    """Nodes at most, over all zones."""
    node_pool_args: dict[str, Any] = Field(default_factory=dict)
    """More arguments of `gcp.container.NodePool`, by the provider's own names, such as `networkConfig`."""

    @property
    def node_facts(self) -> dict[str, Any]:
        """What the nodes are, in the words of the table's column `nodes`: the row follows from it."""
        return {
            "imageTypes": self.image_type,
            "gpuDriverVersions": self.accelerator.driver,
            "defaultDevicePlugin": self.default_device_plugin,
            "driverInstaller": self.driver_installer,
        }

    @model_validator(mode="after")
    def _sizes(self) -> GkeSettings:
        if self.min_nodes > self.max_nodes:
            raise refusal(
                f"it is more than maxNodes, {self.max_nodes}",
                f"write {self.max_nodes} or less, or raise maxNodes",
                at="minNodes",
                value=self.min_nodes,
            )
        return self
