"""The recording providers answer as a provider must, and write down everything that they were asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import provider_pb2

from rehearsal.recording_providers import Recorded, plugins, read
from rehearsal.recording_providers.provider import UNKNOWN, Recorder, RecordingProvider, plain

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


class Aborted(Exception):
    """As gRPC ends a call."""


class Context:
    def abort(self, code: Any, details: str) -> None:
        raise Aborted(details)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return tmp_path / "recording.jsonl"


@pytest.fixture
def aws(recording: Path) -> RecordingProvider:
    return RecordingProvider("aws", Recorder(str(recording)))


def struct(**values: Any) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(values)
    return made


def about(**more: Any) -> dict[str, Any]:
    return {"urn": f"urn:pulumi:dev::p::{NODE_GROUP}::gpu", "type": NODE_GROUP, "name": "gpu", **more}


def test_a_creation_has_an_id_the_inputs_and_what_only_a_real_run_knows(aws: RecordingProvider) -> None:
    made = aws.Create(provider_pb2.CreateRequest(**about(properties=struct(diskSize=200))), Context())
    assert made.id == "gpu-recorded"
    outputs = plain(made.properties)
    assert (outputs["diskSize"], outputs["status"]) == (200, "ACTIVE")
    assert outputs["arn"].endswith(":nodegroup/recording/gpu/0")


def test_at_a_preview_what_only_a_real_run_knows_is_unknown(aws: RecordingProvider) -> None:
    request = provider_pb2.CreateRequest(**about(properties=struct(diskSize=200), preview=True))
    outputs = plain(aws.Create(request, Context()).properties)
    assert (outputs["diskSize"], outputs["arn"]) == (200, UNKNOWN)


def test_every_change_of_a_launch_template_is_a_new_version_of_it(aws: RecordingProvider) -> None:
    template = {
        "urn": "urn:pulumi:dev::p::t::lt",
        "type": "aws:ec2/launchTemplate:LaunchTemplate",
        "name": "lt",
    }
    made = aws.Create(provider_pb2.CreateRequest(**template, properties=struct(imageId="ami-1")), Context())
    assert plain(made.properties)["latestVersion"] == 1
    request = {**template, "olds": made.properties, "news": struct(imageId="ami-2")}
    assert (
        plain(aws.Update(provider_pb2.UpdateRequest(**request), Context()).properties)["latestVersion"] == 2
    )
    ahead = aws.Update(provider_pb2.UpdateRequest(**request, preview=True), Context())
    assert plain(ahead.properties)["latestVersion"] == UNKNOWN


def test_what_the_inputs_say_is_not_answered_otherwise(aws: RecordingProvider) -> None:
    given = struct(releaseVersion="1.33.1-20250101")
    made = aws.Create(provider_pb2.CreateRequest(**about(properties=given)), Context())
    assert plain(made.properties)["releaseVersion"] == "1.33.1-20250101"


@pytest.mark.parametrize(
    ("before", "after", "changed", "replaces"),
    [
        ({"version": "1.33"}, {"version": "1.33"}, [], []),
        ({"version": "1.33"}, {"version": "1.34"}, ["version"], []),
        ({"amiType": "A", "tags": {}}, {"amiType": "B", "tags": {}}, ["amiType"], ["amiType"]),
        ({"labels": {"a": "1"}}, {}, ["labels"], []),
    ],
)
def test_a_difference_is_what_differs_and_a_fixed_argument_replaces(
    before: dict[str, Any],
    after: dict[str, Any],
    changed: list[str],
    replaces: list[str],
    aws: RecordingProvider,
) -> None:
    request = provider_pb2.DiffRequest(
        **about(id="gpu-recorded", old_inputs=struct(**before), news=struct(**after))
    )
    difference = aws.Diff(request, Context())
    assert (list(difference.diffs), list(difference.replaces)) == (changed, replaces)


def test_new_code_of_a_dynamic_resource_is_no_difference(aws: RecordingProvider) -> None:
    old, new = struct(__provider="pickled", a=1), struct(__provider="pickled anew", a=1)
    difference = aws.Diff(provider_pb2.DiffRequest(**about(olds=old, news=new)), Context())
    assert difference.changes == provider_pb2.DiffResponse.DIFF_NONE


def test_a_function_without_a_known_answer_is_refused_by_name(
    aws: RecordingProvider, recording: Path
) -> None:
    with pytest.raises(Aborted, match="aws:eks/getCluster:getCluster"):
        aws.Invoke(provider_pb2.InvokeRequest(tok="aws:eks/getCluster:getCluster"), Context())
    assert read(recording)[0].operation == "invoke"


def test_everything_asked_is_read_back_in_order(aws: RecordingProvider, recording: Path) -> None:
    assert read(recording) == []
    aws.Check(provider_pb2.CheckRequest(**about(news=struct(tags=["a"], __provider="pickled"))), Context())
    aws.Delete(provider_pb2.DeleteRequest(**about(properties=struct())), Context())
    assert read(recording) == [
        Recorded("check", NODE_GROUP, "gpu", {"tags": ["a"]}, False),
        Recorded("delete", NODE_GROUP, "gpu", {}, False),
    ]
    assert read(recording)[0].kind == "NodeGroup"


def test_the_engine_finds_one_executable_for_each_package(tmp_path: Path) -> None:
    named = plugins(tmp_path, ("aws", "pulumi-python"))
    assert named == [{"name": "aws", "path": str(tmp_path)}, {"name": "pulumi-python", "path": str(tmp_path)}]
    for plugin in named:
        script = tmp_path / f"pulumi-resource-{plugin['name']}"
        assert script.stat().st_mode & 0o111 and f"--package={plugin['name']}" in script.read_text()
