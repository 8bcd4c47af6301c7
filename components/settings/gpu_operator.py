"""The GPU Operator: its chart and how it is installed. Its values follow from the pools' profiles."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from components.settings.base import Settings, Whole, refusal
from components.settings.formats import ChartPath, ChartVersion, DnsLabel, HttpUrl, OciReference

DEFAULT_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"
DEFAULT_CHART = "gpu-operator"
DEFAULT_VERSION = "v26.7.0"


class ChartSource(Settings):
    """A pinned chart: from a repository, an OCI registry, or a folder."""

    repository: HttpUrl | None = None
    name: DnsLabel | None = None
    oci: OciReference | None = None
    path: ChartPath | None = None
    """Folder or archive, relative to the project."""
    version: ChartVersion | None = None

    @model_validator(mode="after")
    def _one_source(self) -> ChartSource:
        given = [key for key in ("repository", "oci", "path") if getattr(self, key) is not None]
        if len(given) > 1:
            raise refusal(
                f"it has {len(given)} sources: {', '.join(given)}",
                "keep one of them",
            )
        if self.name is not None and given and given != ["repository"]:
            raise refusal(
                f"a chart from {given[0]} is not looked up by name",
                f"remove name; {given[0]} already says which chart",
                at="name",
                value=self.name,
            )
        if self.version is None and given:
            raise refusal(
                "a chart without a version is whatever its source has today",
                f"write the version of the chart, such as {DEFAULT_VERSION}",
                at="version",
            )
        return self

    @property
    def is_default(self) -> bool:
        """True if no source of its own is configured: NVIDIA's chart in the tested version."""
        return self.repository is None and self.oci is None and self.path is None

    @property
    def chart(self) -> str:
        """The chart as Helm takes it: a name in the repository, an `oci://` reference, or a folder."""
        return self.oci or self.path or self.name or DEFAULT_CHART

    @property
    def repository_url(self) -> str | None:
        """The chart repository; None for a chart from OCI or a folder."""
        if self.oci or self.path:
            return None
        return self.repository or DEFAULT_REPOSITORY

    @property
    def pinned_version(self) -> str:
        """The chart's exact version."""
        return self.version or DEFAULT_VERSION


class GpuOperatorSettings(Settings):
    """How the GPU Operator is installed."""

    chart: ChartSource = ChartSource()
    namespace: DnsLabel = "gpu-operator"
    nfd: Literal["operator", "existing"] = "operator"
    """Who runs Node Feature Discovery: the operator's chart, or something that is already in the cluster."""
    timeout_minutes: Annotated[Whole, Field(ge=1, le=120)] = 20
    """Minutes until an installation that is not ready is reported as failed."""
    extra_values: dict[str, Any] = Field(default_factory=dict)
    """Chart values merged last. The merged result is still judged by the ownership table."""
