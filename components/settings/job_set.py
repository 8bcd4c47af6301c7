"""The JobSet controller, which makes the runs with `controller: jobset`: its chart and who installs it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from components.settings.base import Settings, Whole
from components.settings.chart_source import ChartSource
from components.settings.choices import JobSetInstall
from components.settings.formats import AnyChartPath, DnsLabel

DEFAULT_NAMESPACE = "jobset-system"


class JobSetChart(ChartSource):
    """A pinned chart: from a repository, an OCI registry, or a folder. Default: version 0.11.1 of
    `oci://registry.k8s.io/jobset/charts/jobset`.
    """

    # Source: https://jobset.sigs.k8s.io/docs/installation/ ("install a released version using Helm"). In OCI
    # the chart's version has no "v" (kubernetes-sigs/jobset, hack/helm-chart-package.sh).
    default_chart: ClassVar[str] = "oci://registry.k8s.io/jobset/charts/jobset"
    default_name: ClassVar[str] = "jobset"
    default_version: ClassVar[str] = "0.11.1"

    path: AnyChartPath | None = None
    """Folder or archive, relative to the project; an absolute path is a change on every other machine."""


class JobSetSettings(Settings):
    """How the JobSet controller is installed."""

    install: JobSetInstall = "auto"
    """`auto`: with the stack, if a run names jobset. `always`: with the stack. `existing`: somebody else has
    installed it. `never`: the cluster has none, and such runs are refused."""
    chart: JobSetChart = JobSetChart()
    namespace: DnsLabel = DEFAULT_NAMESPACE
    """Namespace of the controller."""
    timeout_minutes: Annotated[Whole, Field(ge=1, le=60)] = 10
    """Minutes until a controller that does not take a JobSet is reported as failed."""
    extra_values: dict[str, Any] = Field(default_factory=dict)
    """Chart values merged last."""
