"""Judges examples through the SDK's own analyzer servicer: rules meet the proxies of a real engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import analyzer_pb2

PACK = Path(__file__).resolve().parents[2] / "policies"
sys.path.insert(0, str(PACK))

from pulumi_policy import EnforcementLevel
from pulumi_policy.deserialize import SPECIAL_SECRET_SIG, SPECIAL_SIG_KEY
from pulumi_policy.proxy import UNKNOWN_OBJECT_VALUE, UNKNOWN_STRING_VALUE
from rules.catalogue import POLICIES
from rules.server import DEFECT, Servicer

DIGEST = "sha256:" + "ab" * 32
IMAGE = f"docker.io/example/trainer@{DIGEST}"


@dataclass(frozen=True)
class Example:
    """A resource as the engine sends it; `parent`, `provider` and `depends_on` are names of others."""

    type: str
    props: Mapping[str, Any]
    name: str = "example"
    parent: str = ""
    provider: str = ""
    provider_props: Mapping[str, Any] = field(default_factory=dict)
    depends_on: Sequence[str] = ()
    protect: bool = False

    @property
    def urn(self) -> str:
        return f"urn:pulumi:dev::test::{self.type}::{self.name}"


@dataclass(frozen=True)
class Verdict:
    """What the pack said: violations and advisories (rules that could not decide), as (policy, message)."""

    violations: list[tuple[str, str]]
    advisories: list[tuple[str, str]]

    def of(self, policy: str) -> list[str]:
        return [message for name, message in self.violations if name == policy]

    def undecided(self, policy: str) -> list[str]:
        return [message for name, message in self.advisories if name == policy]


class Judge:
    """The pack behind the server that the engine talks to."""

    unknown = UNKNOWN_STRING_VALUE
    unknown_object = UNKNOWN_OBJECT_VALUE
    image = IMAGE

    def __init__(self) -> None:
        self._servicer = self._new()

    def _new(self) -> Servicer:
        return Servicer("holdfast", POLICIES, EnforcementLevel.MANDATORY)

    def configure(self, policy: str, **settings: Any) -> None:
        config = analyzer_pb2.PolicyConfig(
            enforcementLevel=analyzer_pb2.MANDATORY, properties=_struct(settings)
        )
        self._servicer.Configure(analyzer_pb2.ConfigureAnalyzerRequest(policyConfig={policy: config}), None)

    @staticmethod
    def secret(value: Any) -> dict[str, Any]:
        return {SPECIAL_SIG_KEY: SPECIAL_SECRET_SIG, "value": value}

    def resource(
        self, type_: str, props: Mapping[str, Any], name: str = "example", protect: bool = False
    ) -> Verdict:
        example = Example(type_, props, name)
        request = analyzer_pb2.AnalyzeRequest(
            type=type_,
            properties=_struct(props),
            urn=example.urn,
            name=name,
            options=analyzer_pb2.AnalyzerResourceOptions(protect=protect),
        )
        return _verdict(self._servicer.Analyze(request, None))

    def stack(self, *examples: Example) -> Verdict:
        urns = {example.name: example.urn for example in examples}
        sent = []
        for example in examples:
            message = analyzer_pb2.AnalyzerResource(
                type=example.type,
                properties=_struct(example.props),
                urn=example.urn,
                name=example.name,
                parent=urns.get(example.parent, example.parent),
                dependencies=[urns[name] for name in example.depends_on],
                options=analyzer_pb2.AnalyzerResourceOptions(protect=example.protect),
            )
            if example.provider:
                message.provider.CopyFrom(
                    analyzer_pb2.AnalyzerProviderResource(
                        type="pulumi:providers:kubernetes",
                        properties=_struct(example.provider_props),
                        urn=Example("pulumi:providers:kubernetes", {}, example.provider).urn,
                        name=example.provider,
                    )
                )
            sent.append(message)
        return _verdict(self._servicer.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest(resources=sent), None))


def _struct(props: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(dict(props))
    return struct


def _verdict(response: analyzer_pb2.AnalyzeResponse) -> Verdict:
    assert [d.message for d in response.diagnostics if DEFECT in d.message] == []

    def of(level: int) -> list[tuple[str, str]]:
        return [(d.policyName, d.message) for d in response.diagnostics if d.enforcementLevel == level]

    return Verdict(of(analyzer_pb2.MANDATORY), of(analyzer_pb2.ADVISORY))


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
def example() -> type[Example]:
    return Example


def gpu_container(**more: Any) -> dict[str, Any]:
    return {"name": "trainer", "image": IMAGE, "resources": {"limits": {"nvidia.com/gpu": 1}}, **more}


def make_job(spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "run", **metadata}, "spec": {"template": {"spec": dict(spec)}}}


@dataclass(frozen=True)
class Build:
    """Short ways to write examples."""

    def job(
        self, *containers: Mapping[str, Any], metadata: Mapping[str, Any] | None = None, **pod: Any
    ) -> dict:
        return make_job({"containers": list(containers), **pod}, **(metadata or {}))

    def gpu(self, **more: Any) -> dict[str, Any]:
        return gpu_container(**more)

    def amounts(
        self, limits: Any = None, requests: Any = None, name: str = "nvidia.com/gpu"
    ) -> dict[str, Any]:
        resources: dict[str, Any] = {}
        if limits is not None:
            resources["limits"] = {name: limits}
        if requests is not None:
            resources["requests"] = {name: requests}
        return {"name": "trainer", "image": IMAGE, "resources": resources}

    def daemonset(self, name: str, image: str, **pod: Any) -> dict[str, Any]:
        containers: Sequence[Mapping[str, Any]] = [{"name": "main", "image": image}]
        return {
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"template": {"spec": {"containers": containers, **pod}}},
        }


@pytest.fixture
def build() -> Build:
    return Build()
