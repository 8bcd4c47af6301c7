"""The dynamic resources as the engine really runs them, spoken to over gRPC: by the official plugin and by ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.output import Unknown
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from components.cluster_resources.gpu_readiness import GpuReadinessProvider
from components.cluster_resources.job_removal import JobRemovalProvider
from components.cluster_resources.node_pool_membership import NodePoolMembershipProvider
from rehearsal.toolchain import SHIMS

ROOT = Path(__file__).resolve().parents[3]
POOL: dict[str, Any] = {
    "__provider": serialize_provider(NodePoolMembershipProvider()),
    "kubeconfig": "/nowhere/kubeconfig",
    "context": "c",
    "cluster": "c",
    "owner": "o",
    "pool": "gpu",
    "selector": {"matchLabels": {"a": "b"}},
    "labels": {"pool": "gpu"},
    "taint": {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
}
READINESS: dict[str, Any] = {
    "__provider": serialize_provider(GpuReadinessProvider()),
    "kubeconfig": "/nowhere/kubeconfig",
    "context": "c",
    "cluster": "c",
    "namespace": "gpu-operator",
    "expectation": {
        "pools": [],
        "runtimeClasses": [],
        "daemonSets": [],
        "nfdDaemonSets": [],
        "absentDaemonSets": [],
        "deployments": [],
    },
    "triggers": {"revision": 1},
    "timeoutSeconds": 60,
}
REMOVAL: dict[str, Any] = {
    "__provider": serialize_provider(JobRemovalProvider()),
    "kubeconfig": "/nowhere/kubeconfig",
    "context": "c",
    "namespace": "ml",
    "job": "training-1",
    "uid": "u1",
    "graceSeconds": 1,
}


SHIM = SHIMS / "dynamic_provider.py"
WAYS = {"official": ["-m", "pulumi.dynamic"], "ours": [str(SHIM)]}


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def provider(request: pytest.FixtureRequest) -> Iterator[Any]:
    process = subprocess.Popen(
        [sys.executable, "-u", *request.param],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield provider_pb2_grpc.ResourceProviderStub(channel)
    finally:
        process.kill()
        process.wait()


def struct(values: dict[str, Any]) -> Any:
    return asyncio.run(rpc.serialize_properties(values, {}))


def test_a_missing_cluster_fails_the_check_in_one_sentence(provider: Any) -> None:
    answer = provider.Check(provider_pb2.CheckRequest(news=struct(POOL)))
    (failure,) = answer.failures
    assert failure.property == ""
    assert failure.reason.startswith("The kubeconfig file /nowhere/kubeconfig does not exist")
    assert "\n" not in failure.reason


def test_a_cluster_that_is_not_made_yet_passes_the_check(provider: Any) -> None:
    answer = provider.Check(provider_pb2.CheckRequest(news=struct({**POOL, "kubeconfig": Unknown()})))
    assert not answer.failures and answer.inputs["kubeconfig"] == rpc.UNKNOWN


def test_a_failed_wait_is_shown_without_stack_frames(provider: Any) -> None:
    with pytest.raises(grpc.RpcError) as error:
        provider.Create(provider_pb2.CreateRequest(properties=struct(READINESS)))
    assert "The kubeconfig file /nowhere/kubeconfig does not exist" in error.value.details()
    assert 'File "' not in error.value.details()


def test_unchanged_inputs_are_no_diff(provider: Any) -> None:
    for inputs, outputs in ((READINESS, {**READINESS, "ready": True}), (REMOVAL, REMOVAL)):
        diff = provider.Diff(provider_pb2.DiffRequest(id="x", olds=struct(outputs), news=struct(inputs)))
        assert diff.changes == provider_pb2.DiffResponse.DIFF_NONE


def test_a_job_whose_uid_is_not_known_yet_replaces_its_removal_first(provider: Any) -> None:
    diff = provider.Diff(
        provider_pb2.DiffRequest(id="x", olds=struct(REMOVAL), news=struct({**REMOVAL, "uid": Unknown()}))
    )
    assert list(diff.replaces) == ["uid"] and diff.deleteBeforeReplace is True


def test_a_readiness_with_unknown_nodes_would_wait_again(provider: Any) -> None:
    expectation = {**READINESS["expectation"], "pools": [{"name": "gpu", "nodes": Unknown()}]}
    diff = provider.Diff(
        provider_pb2.DiffRequest(
            id="x", olds=struct(READINESS), news=struct({**READINESS, "expectation": expectation})
        )
    )
    assert diff.changes == provider_pb2.DiffResponse.DIFF_SOME and not diff.replaces


def is_running(process: int) -> bool:
    """False too for one that has ended and that nobody has waited for: it has no command line any more."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False


def test_it_ends_with_an_engine_that_was_killed() -> None:
    # The shell stands for the engine: it starts the plugin, is killed, and says nothing to it.
    engine = subprocess.Popen(
        ["/bin/sh", "-c", '"$0" -u "$1" & echo $!; wait', sys.executable, str(SHIM)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert engine.stdout is not None
    plugin = int(engine.stdout.readline())
    assert int(engine.stdout.readline()) > 0, "its port: it serves"
    engine.kill()
    engine.wait()
    until = time.monotonic() + 30
    while is_running(plugin):
        assert time.monotonic() < until, "the plugin outlives its engine"
        time.sleep(0.1)
