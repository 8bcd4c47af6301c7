"""Where a chart comes from: a repository, an OCI registry, or a folder; always in one exact version."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from components.settings.base import Settings, refusal
from components.settings.formats import ChartVersion, DnsLabel, HttpUrl, OciReference


class ChartSource(Settings):
    """A pinned chart: from a repository, an OCI registry, or a folder."""

    default_chart: ClassVar[str]
    """What is installed where nothing else is said: a name in `default_repository`, or `oci://…`."""
    default_name: ClassVar[str]
    """Name of the chart in a repository that is given without one."""
    default_repository: ClassVar[str | None] = None
    default_version: ClassVar[str]

    repository: HttpUrl | None = None
    """URL of a Helm repository."""
    name: DnsLabel | None = None
    """Name of the chart in the repository."""
    oci: OciReference | None = None
    """Reference in an OCI registry, such as `oci://host/path/chart`, without the version."""
    path: str | None = None
    """Folder or archive, relative to the project."""
    version: ChartVersion | None = None
    """Exact version of the chart."""

    @model_validator(mode="after")
    def _one_source(self) -> ChartSource:
        given = [key for key in ("repository", "oci", "path") if getattr(self, key) is not None]
        if len(given) > 1:
            raise refusal(
                f"it has {len(given)} sources: {', '.join(given)}",
                "keep one of them",
            )
        if self.name is not None and given != ["repository"] and (given or not self.default_repository):
            source = given[0] if given else self.default_chart
            raise refusal(
                f"a chart from {source} is not looked up by name",
                f"remove name; {source} already says which chart",
                at="name",
                value=self.name,
            )
        if self.version is None and given:
            raise refusal(
                "a chart without a version is whatever its source has today",
                f"write the version of the chart, such as {self.default_version}",
                at="version",
            )
        return self

    @property
    def is_default(self) -> bool:
        """True if no source of its own is configured: the project's own chart."""
        return self.repository is None and self.oci is None and self.path is None

    @property
    def chart(self) -> str:
        """The chart as Helm takes it: a name in the repository, an `oci://` reference, or a folder."""
        if self.repository:
            return self.name or self.default_name
        return self.oci or self.path or self.name or self.default_chart

    @property
    def repository_url(self) -> str | None:
        """The chart repository; None for a chart from OCI or a folder."""
        if self.oci or self.path:
            return None
        return self.repository or self.default_repository

    @property
    def pinned_version(self) -> str:
        """The chart's exact version."""
        return self.version or self.default_version
