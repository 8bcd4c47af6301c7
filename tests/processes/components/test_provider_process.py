"""The dynamic resources as the engine really runs them: `python -m pulumi.dynamic`, spoken to over gRPC."""

from __future__ import annotations

import asyncio
import subprocess
import sys
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


@pytest.fixture(scope="module")
def provider() -> Iterator[Any]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.dynamic"],
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
