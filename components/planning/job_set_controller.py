"""The JobSet controller: whether the stack installs it, and with what values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from components.planning.labels import environment_labels
from components.planning.merge import at, deep_merge
from components.settings.job_set import JobSetSettings
from components.settings.run import RunSettings

RELEASE_NAME = "jobset"


@dataclass(frozen=True)
class JobSetPlan:
    """The controller that the stack's JobSets need."""

    install: bool
    """False: it is in the cluster already, and is only waited for."""
    namespace: str
    namespace_labels: Mapping[str, str]
    release_name: str
    chart: str
    """Name in the repository, `oci://` reference, or folder."""
    repository_url: str | None
    version: str
    values: Mapping[str, Any]
    """Nested chart values, final: extraValues are merged."""
    timeout_seconds: int


def plan_job_set(
    environment: str, settings: JobSetSettings, runs: Iterable[RunSettings]
) -> JobSetPlan | None:
    """The controller's plan; None where the stack has nothing to do with JobSet.

    A cancelled run counts: the controller does not come and go with it.
    """
    wanted = any(run.controller == "jobset" for run in runs)
    if settings.install == "never" or (settings.install != "always" and not wanted):
        return None
    values = deep_merge(_own_values(settings), settings.extra_values)
    # The chart's Pods meet the restricted standard, but for the one switch for clusters whose API server can
    # not reach the Pod network (values.yaml: controller.podSecurityContext, securityContext, hostNetwork).
    security = "privileged" if at(values, ("controller", "hostNetwork")) else "restricted"
    return JobSetPlan(
        install=settings.install != "existing",
        namespace=settings.namespace,
        namespace_labels={
            **environment_labels(environment),
            **{f"pod-security.kubernetes.io/{mode}": security for mode in ("enforce", "audit", "warn")},
        },
        release_name=RELEASE_NAME,
        chart=settings.chart.chart,
        repository_url=settings.chart.repository_url,
        version=settings.chart.pinned_version,
        values=values,
        timeout_seconds=settings.timeout_minutes * 60,
    )


def _own_values(settings: JobSetSettings) -> dict[str, Any]:
    """Image and certificates by name, because they differ between the chart as published and as in its
    repository, where it names the staging registry and the tag `main` (charts/jobset/values.yaml,
    hack/helm-chart-package.sh).
    """
    version = settings.chart.pinned_version.removeprefix("v")
    return {
        "image": {
            "repository": "registry.k8s.io/jobset/jobset",
            "tag": f"v{version}",
            "pullPolicy": "IfNotPresent",
        },
        # The controller makes the webhook's certificate itself; cert-manager need not be there.
        "certManager": {"enable": False},
        # Needs the Prometheus operator's CRDs, which a cluster may lack.
        "prometheus": {"enable": False},
    }
