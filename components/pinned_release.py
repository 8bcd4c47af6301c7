"""One Helm release of a pinned chart. Whoever makes it waits for what it installs, and says for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pulumi
import pulumi_kubernetes as k8s

from components.chart_source import fingerprint, local_chart


class ReleasePlan(Protocol):
    """What a planner decided of a release."""

    @property
    def namespace(self) -> str: ...
    @property
    def release_name(self) -> str: ...
    @property
    def chart(self) -> str: ...
    @property
    def repository_url(self) -> str | None: ...
    @property
    def version(self) -> str: ...
    @property
    def values(self) -> Mapping[str, Any]: ...
    @property
    def timeout_seconds(self) -> int: ...


def pinned_release(
    name: str, plan: ReleasePlan, setting: str, parent: pulumi.Resource, after: Sequence[pulumi.Resource]
) -> k8s.helm.v3.Release:
    """The release. `setting` is the section that configures it, for errors: `gpuOperator`."""
    folder = local_chart(plan.chart)
    return k8s.helm.v3.Release(
        name,
        name=plan.release_name,
        namespace=plan.namespace,
        # A path stays as written: the provider runs in the project's folder, and an absolute path would
        # enter the state.
        chart=plan.chart,
        version=plan.version,
        repository_opts={"repo": plan.repository_url} if plan.repository_url else None,
        values=dict(plan.values),
        # An edited chart of the same version is no diff for the provider (it compares inputs), so its
        # hash is an input.
        description=f"chart files {fingerprint(folder, plan.version, setting)}" if folder else None,
        # Bounds the hooks; the default of 300 s is too short (pulumi-kubernetes#4389).
        timeout=plan.timeout_seconds,
        # Helm's own wait is silent, ends in "context deadline exceeded", and knows neither what an operator
        # makes nor whether a webhook answers.
        skip_await=True,
        # Atomic would uninstall a failed release, and with it the Pods and events that say why it failed.
        atomic=False,
        # Only acts on a failed upgrade, where it deletes the new objects: the next upgrade then starts
        # from a known state.
        cleanup_on_fail=True,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=list(after)),
    )
