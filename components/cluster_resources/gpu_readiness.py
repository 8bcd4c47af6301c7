"""The dynamic resource that is created when the GPU stack really works, and not before."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi import dynamic

from components.cluster_resources.access import connect
from components.cluster_resources.errors import ClusterProblem, ClusterUnreachable, in_plain_words
from components.cluster_resources.gpu_judgement import Expectation, Verdict, judge
from components.cluster_resources.gpu_snapshot import Snapshot, observe

POLL_SECONDS = 2.0
SPEAK_SECONDS = 15.0
FAULT_SECONDS = 30.0
"""A fault counts when it stays this long: right after an update the operator still has to rewrite its
DaemonSets.
"""
SILENCE_SECONDS = 60.0
"""How long the API server may not answer, as it does while it is upgraded. Never at the first look."""
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
    started = spoke = heard = clock()
    snapshot = look()
    ready_since: float | None = None
    fault_since: dict[str, float] = {}
    while True:
        verdict, now = judge(snapshot, expectation), clock()
        fault_since = {fault: fault_since.get(fault, now) for fault in verdict.faults}
        lasting = [fault for fault, since in fault_since.items() if now - since >= FAULT_SECONDS]
        if lasting:
            raise ClusterProblem("The GPU stack can not become ready. " + " ".join(lasting))
        ready_since = (ready_since if ready_since is not None else now) if verdict.ready else None
        if ready_since is not None and now - ready_since >= stay_seconds:
            say(f"GPU stack: ready after {now - started:.0f} s.")
            return
        if ready_since is None and now - started >= timeout_seconds:
            raise ClusterProblem(_timeout(verdict, timeout_seconds))
        if now - spoke >= SPEAK_SECONDS:
            say(f"GPU stack, {now - started:.0f} s: {_waited_for(verdict)}")
            spoke = now
        sleep(POLL_SECONDS)
        try:
            snapshot, heard = look(), clock()
        except ClusterUnreachable:
            if clock() - heard >= SILENCE_SECONDS:
                raise


def _waited_for(verdict: Verdict) -> str:
    told = [*verdict.faults, *verdict.waiting]
    if not told:
        return "ready, looking whether it stays so."
    more = f" And {len(told) - 2} more." if len(told) > 2 else ""
    return "waiting. " + " ".join(told[:2]) + more


def _timeout(verdict: Verdict, seconds: float) -> str:
    listed = "\n".join(f"  - {sentence}" for sentence in (*verdict.faults, *verdict.waiting))
    return (
        f"The GPU stack is not ready after {seconds / 60:.0f} minutes "
        f"(holdfast:gpuOperator.timeoutMinutes):\n{listed}\n"
        "Correct what is listed and run `pulumi up` again; the installed release stays and only the "
        "waiting is repeated."
    )


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
        _say,
    )


def _say(text: str) -> None:
    # pulumi.log does not exist in the provider's process; the engine shows what a dynamic provider prints.
    print(text, file=sys.stderr, flush=True)
