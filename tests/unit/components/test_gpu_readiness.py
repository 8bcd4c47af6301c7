"""The waiting loop: how long it waits, when it gives up, and what it says meanwhile."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from components.cluster_resources import errors
from components.cluster_resources.errors import ClusterProblem, ClusterUnreachable, in_plain_words
from components.cluster_resources.gpu_judgement import Expectation, PoolExpectation
from components.cluster_resources.gpu_readiness import GpuReadinessProvider, wait_until_ready
from components.cluster_resources.gpu_snapshot import ClusterPolicy, DaemonSet, Node, Pod, Snapshot

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
EXPECTED = Expectation(
    pools=(PoolExpectation("gpu", ("gpu-0",), 1, TAINT),),
    daemonsets=("v",),
    deployments=(),
    nfd_daemonsets=(),
)
TOLERANT = ({"operator": "Exists"},)


def snapshot(gpus: int = 1, tolerations: tuple[dict[str, str], ...] = TOLERANT) -> Snapshot:
    return Snapshot(
        nodes={"gpu-0": Node("gpu-0", True, "", {}, (TAINT,), gpus, gpus)},
        daemonsets={"v": DaemonSet("v", 1, 1, tolerations, {}, "")},
        pods=(Pod("v-1", "v", "gpu-0", True, ""),),
        cluster_policy=ClusterPolicy("ready", "Reconciled", ""),
    )


class Waiting:
    """A wait in a time that passes by sleeping only."""

    def __init__(self, look: Callable[[float], Snapshot]) -> None:
        self.now, self.said, self._look = 0.0, [], look

    def run(self, timeout: float = 1200, stay: float = 4) -> float:
        wait_until_ready(
            lambda: self._look(self.now),
            EXPECTED,
            timeout,
            stay,
            self.said.append,
            lambda: self.now,
            self._sleep,
        )
        return self.now

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_ready_stack_is_accepted_once_it_stays_ready() -> None:
    assert Waiting(lambda now: snapshot()).run(stay=4) == 4


def test_ready_for_a_moment_is_not_ready() -> None:
    """Right after an upgrade the old operands still look ready."""
    assert Waiting(lambda now: snapshot(gpus=0 if 10 <= now < 30 else 1)).run(stay=20) == 50


def test_a_lasting_fault_ends_the_wait_within_a_minute() -> None:
    waiting = Waiting(lambda now: snapshot(gpus=0, tolerations=()))
    with pytest.raises(
        ClusterProblem, match="DaemonSet v does not tolerate the taint dedicated=gpu:NoSchedule of pool gpu"
    ):
        waiting.run()
    assert waiting.now < 60


def test_a_fault_of_the_moment_does_not_end_the_wait() -> None:
    """After an update of the tolerations the operator still has to rewrite its DaemonSets."""
    assert Waiting(lambda now: snapshot(tolerations=() if now < 20 else TOLERANT)).run() == 24


def test_a_timeout_lists_everything_that_is_not_ready() -> None:
    waiting = Waiting(lambda now: Snapshot())
    with pytest.raises(ClusterProblem) as error:
        waiting.run(timeout=120)
    text = str(error.value)
    assert "not ready after 2 minutes (holdfast:gpuOperator.timeoutMinutes)" in text
    assert (
        "  - The operator's ClusterPolicy does not exist yet.\n" in text
        and "  - DaemonSet v does not exist yet.\n" in text
    )
    assert 120 <= waiting.now < 123


def silent(start: float, end: float) -> Callable[[float], Snapshot]:
    def look(now: float) -> Snapshot:
        if start <= now < end:
            raise ClusterUnreachable("The cluster can not be reached.")
        return snapshot(gpus=0 if now < end else 1)

    return look


def test_an_api_server_that_is_away_for_a_moment_does_not_end_the_wait() -> None:
    assert Waiting(silent(10, 50)).run() == 54


def test_an_api_server_that_stays_away_ends_the_wait() -> None:
    waiting = Waiting(silent(10, 500))
    with pytest.raises(ClusterUnreachable):
        waiting.run()
    assert waiting.now < 75


def test_a_cluster_that_is_away_at_the_first_look_is_told_at_once() -> None:
    waiting = Waiting(silent(0, 500))
    with pytest.raises(ClusterUnreachable):
        waiting.run()
    assert waiting.now == 0


def test_something_is_said_at_least_every_fifteen_seconds() -> None:
    waiting = Waiting(lambda now: snapshot(gpus=0 if now < 100 else 1))
    waiting.run()
    assert len(waiting.said) >= 100 // 17
    assert waiting.said[0] == "GPU stack, 16 s: waiting. Node gpu-0 offers 0 nvidia.com/gpu, expected 1."
    assert waiting.said[-1].startswith("GPU stack: ready after")


PROPS: dict[str, Any] = {
    "kubeconfig": "/k",
    "context": "c",
    "cluster": "c",
    "namespace": "gpu-operator",
    "timeoutSeconds": 1200.0,
    "expectation": {"pools": [{"name": "gpu", "nodes": ["gpu-0"], "gpusPerNode": 1.0, "taint": TAINT}]},
    "triggers": {"revision": 1.0},
}


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ({}, False),
        ({"triggers": {"revision": 2.0}}, True),
        ({"expectation": {"pools": []}}, True),
        ({"cluster": "d"}, True),
        ({"kubeconfig": "/elsewhere"}, False),
        ({"timeoutSeconds": 60.0}, False),
    ],
)
def test_it_waits_again_only_if_what_is_waited_for_changed(change: dict[str, Any], waits: bool) -> None:
    diff = GpuReadinessProvider().diff("id", {**PROPS, "ready": True}, {**PROPS, **change})
    assert diff.changes is waits and diff.replaces == []


def test_an_expectation_survives_the_way_through_the_engine() -> None:
    props = {
        **PROPS["expectation"],
        "runtimeClasses": ["nvidia"],
        "daemonSets": ["v"],
        "nfdDaemonSets": [],
        "absentDaemonSets": ["d"],
        "deployments": ["gpu-operator"],
    }
    expectation = Expectation.from_props(props)
    assert expectation.pools == (PoolExpectation("gpu", ("gpu-0",), 1, TAINT),)
    assert (expectation.runtime_classes, expectation.daemonsets) == (("nvidia",), ("v",))
    assert (expectation.nfd_daemonsets, expectation.absent_daemonsets) == ((), ("d",))


def test_a_problem_is_shown_without_stack_frames_and_a_bug_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """pulumi.dynamic answers with traceback.format_exc()."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    monkeypatch.setattr(errors, "in_provider_process", lambda: True)

    def shown(error: Exception) -> str:
        @in_plain_words
        def method() -> None:
            raise error

        try:
            method()
        except type(error):
            return traceback.format_exc()
        raise AssertionError("the error was lost")

    assert "File" not in shown(ClusterProblem("The cluster is gone."))
    assert "in method" in shown(KeyError("bug"))
