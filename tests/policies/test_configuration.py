"""The pack's configuration: levels, and exceptions with a reason and an end."""

import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import analyzer_pb2
from pulumi_policy import EnforcementLevel
from pulumi_policy.policy import _PolicyAnalyzerServicer
from rules.catalogue import POLICIES
from rules.exceptions import exemptions
from rules.server import Servicer

RULE = "image-by-digest"
JOB = "kubernetes:batch/v1:Job"
STACK_RULE = "node-profile-agreement"
EVER = "2999-12-31"


@pytest.fixture
def tagged(build):
    """A Job whose image is a tag."""
    return build.job(build.gpu(image="docker.io/example/trainer:v1"))


def excepted(**more):
    return {"resource": "run-*", "reason": "moves to digests with release 4", "expires": EVER, **more}


def test_an_exception_in_force_leaves_its_resource_alone_and_no_other(judge, tagged):
    judge.configure(RULE, exceptions=[excepted()])
    assert judge.resource(JOB, tagged, "run-7").of(RULE) == []
    assert len(judge.resource(JOB, tagged, "other").of(RULE)) == 1


@pytest.mark.parametrize(
    "pattern", ["run-7", "*::run-7", "urn:pulumi:dev::*::kubernetes:batch/v1:Job::run-?"]
)
def test_a_resource_is_named_by_its_name_or_its_urn(judge, tagged, pattern):
    judge.configure(RULE, exceptions=[excepted(resource=pattern)])
    assert judge.resource(JOB, tagged, "run-7").of(RULE) == []


def test_an_exception_of_a_rule_over_the_stack_is_about_the_resource_that_it_names(judge, example):
    label = {"metadata": {"name": "gpu-operator", "labels": {"holdfast.dev/node-profile": "rehearsal"}}}
    stack = [
        example("kubernetes:core/v1:Namespace", label, "ns"),
        example(
            "kubernetes:helm.sh/v3:Release", {"chart": "gpu-operator", "namespace": "gpu-operator"}, "op"
        ),
    ]
    assert judge.stack(*stack).of(STACK_RULE) != []
    judge.configure(STACK_RULE, exceptions=[excepted(resource="op")])
    assert judge.stack(*stack).of(STACK_RULE) == []


def test_an_expired_exception_excuses_nothing_and_is_an_error_of_its_own(judge, tagged):
    judge.configure(RULE, exceptions=[excepted(expires="2020-02-29")])
    assert len(judge.resource(JOB, tagged, "run-7").of(RULE)) == 1
    (message,) = judge.stack().of(RULE)
    assert "the exception for 'run-*' expired on 2020-02-29 (moves to digests with release 4)" in message


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([{"resource": "run-*", "expires": EVER}], "exceptions[0] says no reason, so it excuses nothing"),
        ([excepted(reason="  ")], "exceptions[0] says no reason"),
        ([{"reason": "x"}], "says no resource and no expires"),
        ([excepted(expires="next week")], "exceptions[0].expires is 'next week', which is no date"),
        ([excepted(expires="2026-02-30")], "which is no date"),
        ([excepted(expire=EVER)], "has expire, which no exception has"),
        (["run-*"], "exceptions[0] is no object"),
        ("run-*", "exceptions is no list"),
    ],
)
def test_a_broken_exception_excuses_nothing_and_says_so(judge, tagged, given, says):
    judge.configure(RULE, exceptions=given)
    assert len(judge.resource(JOB, tagged, "run-7").of(RULE)) == 1
    (message,) = judge.stack().of(RULE)
    assert says in message and message.startswith("Containers of GPU workloads name their image by digest.")


def test_several_broken_exceptions_are_all_told():
    found = exemptions({"exceptions": [excepted(reason=""), excepted(), excepted(expires="x")]})
    assert len(found.problems) == 2 and len(found.written) == 1


@pytest.mark.parametrize("rule", POLICIES, ids=lambda rule: rule.name)
def test_every_rule_has_exceptions(rule):
    assert "exceptions" in rule.config_schema.properties


def _ask(servicer, levels, properties):
    config = {name: analyzer_pb2.PolicyConfig(enforcementLevel=level) for name, level in levels.items()}
    servicer.Configure(analyzer_pb2.ConfigureAnalyzerRequest(policyConfig=config), None)
    struct = struct_pb2.Struct()
    struct.update(properties)
    return servicer.Analyze(
        analyzer_pb2.AnalyzeRequest(type=JOB, name="run", urn="x", properties=struct), None
    )


def test_a_rule_that_fails_itself_says_so_and_the_others_go_on(tagged, monkeypatch):
    def broken(resource, config):
        raise KeyError("spec")

    servicer = Servicer("holdfast", POLICIES, EnforcementLevel.MANDATORY)
    monkeypatch.setattr(next(p for p in POLICIES if p.name == "whole-gpus"), "_check", broken)
    said = {d.policyName: d.message for d in _ask(servicer, {}, tagged).diagnostics}
    assert set(said) == {"whole-gpus", RULE}
    assert "a defect of the policy pack (KeyError: 'spec')" in said["whole-gpus"]
    assert "Disable whole-gpus in the pack's configuration" in said["whole-gpus"]


def test_a_rule_has_the_level_of_its_configuration(tagged):
    servicer = Servicer("holdfast", POLICIES, EnforcementLevel.MANDATORY)
    for level in (analyzer_pb2.ADVISORY, analyzer_pb2.MANDATORY):
        (diagnostic,) = _ask(servicer, {RULE: level}, tagged).diagnostics
        assert diagnostic.enforcementLevel == level
    assert list(_ask(servicer, {RULE: analyzer_pb2.DISABLED}, tagged).diagnostics) == []


def test_our_server_says_what_the_sdks_server_says(tagged, judge):
    # Only the conversion is ours: asked the same, both give the same answer.
    unknown = {
        **tagged,
        "spec": {"template": {"spec": {"tolerations": [{"key": judge.unknown}], "containers": []}}},
    }
    for properties in (tagged, unknown):
        ours = _ask(Servicer("holdfast", POLICIES, EnforcementLevel.MANDATORY), {}, properties)
        theirs = _ask(
            _PolicyAnalyzerServicer("holdfast", "0.0.1", list(POLICIES), EnforcementLevel.MANDATORY),
            {},
            properties,
        )
        assert len(ours.diagnostics) > 0
        for one, other in zip(ours.diagnostics, theirs.diagnostics, strict=True):
            assert (one.policyName, one.enforcementLevel, one.severity, one.urn) == (
                other.policyName,
                other.enforcementLevel,
                other.severity,
                other.urn,
            )
            assert one.message.replace("@v0.0.1", "") == other.message.replace("@v0.0.1", "")
