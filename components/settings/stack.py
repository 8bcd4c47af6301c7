"""The whole stack's settings, and the configuration keys that they are read from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from components.settings.base import Settings
from components.settings.cluster import ClusterSettings
from components.settings.formats import DnsLabel
from components.settings.gpu_operator import GpuOperatorSettings
from components.settings.job_set import JobSetSettings
from components.settings.node_pool import NodePoolSettings
from components.settings.problems import NAMESPACE
from components.settings.run import RunSettings
from components.settings.team import TeamSettings

__all__ = ["NAMESPACE", "SETTING_KEYS", "StackSettings"]

SETTING_KEYS: Mapping[str, Literal["text", "object"]] = MappingProxyType(
    {
        "environment": "text",
        "cluster": "object",
        "nodePools": "object",
        "gpuOperator": "object",
        "jobSet": "object",
        "teams": "object",
        "runs": "object",
    }
)
"""Every key of the configuration, without its namespace, and whether it is plain text or structured."""


class StackSettings(Settings):
    """One environment: the cluster, its GPU pools, the operator, the teams and their runs."""

    environment: DnsLabel
    cluster: ClusterSettings
    node_pools: tuple[Annotated[NodePoolSettings, Field(discriminator="kind")], ...]
    gpu_operator: GpuOperatorSettings = GpuOperatorSettings()
    job_set: JobSetSettings = JobSetSettings()
    teams: tuple[TeamSettings, ...] = ()
    runs: tuple[RunSettings, ...] = ()
