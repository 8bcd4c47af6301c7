"""The dynamic resource that is created when the GPU stack really works, and not before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi import dynamic

from components.cluster_resources.access import connect
from components.cluster_resources.errors import in_plain_words
from components.cluster_resources.gpu_judgement import Expectation, judge
from components.cluster_resources.gpu_snapshot import Snapshot, observe
from components.cluster_resources.waiting import Subject, say, wait

SUBJECT = Subject("GPU stack", "holdfast:gpuOperator.timeoutMinutes")
READY_SECONDS_CREATE = 4.0
READY_SECONDS_UPDATE = 20.0
"""Ready counts when it stays this long: after an upgrade the old operands are ready until the new operator
replaces them.
"""

WAITED_FOR = ("cluster", "namespace", "expectation", "triggers")
"""Inputs whose change means waiting again. The way to the cluster and the patience are no reason."""


def wait_until_ready(
    look: Callable[[], Snapshot],
    expectation: Expectation,
    timeout_seconds: float,
    stay_seconds: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Poll until the verdict has been ready for `stay_seconds`. Raises `ClusterProblem` on a lasting fault
    or timeout.
    """
    wait(lambda: judge(look(), expectation), SUBJECT, timeout_seconds, stay_seconds, say, clock, sleep)


class GpuReadinessProvider(dynamic.ResourceProvider):
    """Waits at create and update, owns nothing, and has nothing to delete."""

    serialize_as_secret_always = False

    @in_plain_words
    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        return dynamic.DiffResult(
            changes=any(olds.get(key) != news.get(key) for key in WAITED_FOR), replaces=[]
        )

    @in_plain_words
    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        _wait(props, READY_SECONDS_CREATE)
        return dynamic.CreateResult(f"{props['cluster']}/{props['namespace']}", {**props, "ready": True})

    @in_plain_words
    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        _wait(news, READY_SECONDS_UPDATE)
        return dynamic.UpdateResult({**news, "ready": True})


class GpuReadiness(dynamic.Resource, module="holdfast", name="GpuReadiness"):
    """Exists once the operands run on every GPU node and every GPU is allocatable."""

    ready: pulumi.Output[bool]
    """True; unknown at a preview that would wait."""

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: pulumi.Input[str],
        context: pulumi.Input[str],
        cluster: str,
        namespace: str,
        expectation: Mapping[str, Any],
        triggers: Mapping[str, pulumi.Input[Any]],
        timeout_seconds: int,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`expectation`: see `Expectation.from_props`; `triggers`: anything whose change means waiting
        again.
        """
        props: dict[str, Any] = {
            "kubeconfig": kubeconfig,
            "context": context,
            "cluster": cluster,
            "namespace": namespace,
            "expectation": dict(expectation),
            "triggers": dict(triggers),
            "timeoutSeconds": timeout_seconds,
            "ready": None,
        }
        super().__init__(GpuReadinessProvider(), name, props, opts)


def _wait(props: Mapping[str, Any], stay_seconds: float) -> None:
    cluster = connect(props["kubeconfig"], props["context"])
    wait_until_ready(
        lambda: observe(cluster, props["namespace"]),
        Expectation.from_props(props["expectation"]),
        float(props["timeoutSeconds"]),
        stay_seconds,
        say,
    )
