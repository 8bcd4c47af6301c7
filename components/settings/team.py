"""Teams: a namespace with its budget, defaults, network rules, rights and checkpoint storage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.amounts import Cpu, Memory, QuotaMap
from components.settings.base import Flag, Settings, Whole
from components.settings.checkpoint_storage import CheckpointStorageSettings
from components.settings.formats import (
    Cidr,
    DnsLabel,
    GroupName,
    LabelMap,
    Protocol,
    TeamNamespace,
)

DEFAULT_QUOTA: dict[str, str] = {
    "requests.nvidia.com/gpu": "2",
    "requests.cpu": "16",
    "requests.memory": "64Gi",
    "limits.cpu": "32",
    "limits.memory": "128Gi",
    "pods": "10",
}


class ComputeSettings(Settings):
    """A pair of cpu and memory quantities."""

    cpu: Cpu
    memory: Memory


class LimitRangeSettings(Settings):
    """What a container gets that does not say its own requests and limits, and the most that one may have."""

    default_request: ComputeSettings = ComputeSettings(cpu="500m", memory="1Gi")
    default_limit: ComputeSettings = ComputeSettings(cpu="1", memory="2Gi")
    max: ComputeSettings | None = None


class EgressPort(Settings):
    """One port that may be reached."""

    port: Annotated[Whole, Field(ge=1, le=65535)]
    protocol: Protocol = "TCP"


class EgressSettings(Settings):
    """An address range that the team's Pods may reach."""

    cidr: Cidr
    exclude: tuple[Cidr, ...] = ()
    """Ranges inside `cidr` that stay closed."""
    ports: tuple[EgressPort, ...] = ()
    """Empty: every port."""


class DnsSettings(Settings):
    """The cluster's DNS Pods."""

    namespace: DnsLabel = "kube-system"
    pod_labels: LabelMap = Field(default_factory=lambda: {"k8s-app": "kube-dns"})


class NetworkSettings(Settings):
    """What the team's Pods may reach: nothing but DNS unless it is said here."""

    dns: DnsSettings = DnsSettings()
    https: Flag = False
    """True: TCP 443 to any address but the cloud's metadata, for object storage and data sets."""
    egress: tuple[EgressSettings, ...] = ()
    within_team: Flag = False
    """True: the team's Pods may talk to each other (multi-node training)."""


class TeamSettings(Settings):
    """One team."""

    name: DnsLabel
    namespace: TeamNamespace | None = None
    """Default: the team's name."""
    group: GroupName
    """RBAC group whose members submit and read the team's runs."""
    quota: QuotaMap = Field(default_factory=dict)
    """Changes to the default quota, key by key; see `hard_quota`."""
    limit_range: LimitRangeSettings = LimitRangeSettings()
    network: NetworkSettings = NetworkSettings()
    checkpoint_storage: CheckpointStorageSettings

    @property
    def namespace_name(self) -> str:
        """The team's namespace."""
        return self.namespace or self.name

    @property
    def hard_quota(self) -> dict[str, str]:
        """The whole quota: the defaults with the team's changes, as canonical Kubernetes quantities."""
        return {**DEFAULT_QUOTA, **self.quota}
