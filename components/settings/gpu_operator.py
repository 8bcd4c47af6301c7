"""The GPU Operator: its chart and how it is installed. Its values follow from the pools' profiles."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from components.settings.base import Settings, Whole
from components.settings.chart_source import ChartSource
from components.settings.choices import OperatorInstall
from components.settings.formats import ChartPath, DnsLabel, ReleaseName


class GpuOperatorChart(ChartSource):
    """A pinned chart: from a repository, an OCI registry, or a folder. Default: version v26.7.0 of
    `gpu-operator` in NVIDIA's repository.
    """

    default_chart: ClassVar[str] = "gpu-operator"
    default_name: ClassVar[str] = "gpu-operator"
    default_repository: ClassVar[str | None] = "https://helm.ngc.nvidia.com/nvidia"
    default_version: ClassVar[str] = "v26.7.0"

    path: ChartPath | None = None
    """Folder or archive, relative to the project."""


class GpuOperatorSettings(Settings):
    """How the GPU Operator is installed."""

    install: OperatorInstall = "always"
    """`always`: by the stack, if a pool's row wants an operator. `existing`: somebody else has installed one;
    it is left alone, and the stack only waits until it serves the pools as their row says."""
    chart: GpuOperatorChart = GpuOperatorChart()
    namespace: DnsLabel = "gpu-operator"
    release_name: ReleaseName = "gpu-operator"
    """Name of the Helm release; another than the default for one that was taken over."""
    nfd: Literal["operator", "existing"] = "operator"
    """Who runs Node Feature Discovery: the operator's chart, or something that is already in the cluster."""
    timeout_minutes: Annotated[Whole, Field(ge=1, le=120)] = 20
    """Minutes until an installation that is not ready is reported as failed."""
    extra_values: dict[str, Any] = Field(default_factory=dict)
    """Chart values merged last. The merged result is still judged by the ownership table."""
