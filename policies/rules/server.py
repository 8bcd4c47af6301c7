"""Serves the pack to the engine, and reads every resource once for all of its rules.

The SDK's own server converts a resource anew for each policy, 0.5 ms for a Job, and the whole stack anew for
each policy over stacks: with this pack's rules that alone would cost more than all of the checking. This
server differs in nothing else: the same messages, the same order, the SDK's own policies, levels and proxies.
It converts only what some rule reads, and it says which exceptions of the configuration excuse nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from datetime import date
from typing import Any

import grpc
from google.protobuf import json_format
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyResource,
    ResourceValidationArgs,
    StackValidationArgs,
)
from pulumi_policy.deserialize import deserialize_properties
from pulumi_policy.policy import _PolicyAnalyzerServicer
from pulumi_policy.proxy import UnknownValueError, unknown_checking_proxy

from rules.engine import ResourceRule, StackResources, StackRule, of_kubernetes
from rules.exceptions import exemptions

# A whole stack is one message: the SDK's own limit.
_MESSAGE_BYTES = 400 * 1024 * 1024
_A_DAY = 24 * 60 * 60
DEFECT = "the rule itself has failed, which is a defect of the policy pack"


class Servicer(_PolicyAnalyzerServicer):
    """The engine's questions, answered by a list of rules."""

    def __init__(self, name: str, rules: Sequence[Policy], level: EnforcementLevel) -> None:
        # The engine takes the version from PulumiPolicy.yaml; this one is what the SDK says too.
        super().__init__(name, "0.0.1", list(rules), level)
        self._pack = name
        self._of_resources = [rule for rule in rules if isinstance(rule, ResourceRule)]
        self._of_stacks = [rule for rule in rules if isinstance(rule, StackRule)]

    def Analyze(self, request: Any, _context: Any) -> Any:
        self._configure_runtime_settings()
        response = analyzer_pb2.AnalyzeResponse()
        rules = [rule for rule in self._of_resources if self._is_on(rule) and rule.wants(request.type)]
        if rules:
            props, options = _properties(request.properties), self._get_resource_options(request)
            provider = self._get_provider_resource(request)
            for rule in rules:
                args = ResourceValidationArgs(
                    request.type,
                    props,
                    request.urn,
                    request.name,
                    options,
                    provider,
                    self._get_policy_config(rule.name),
                )
                self._ask(response, rule, lambda report, rule=rule, args=args: rule.validate(args, report))
        return response

    def AnalyzeStack(self, request: Any, _context: Any) -> Any:
        self._configure_runtime_settings()
        response = analyzer_pb2.AnalyzeResponse()
        self._say_which_exceptions_fail(response)
        rules = [rule for rule in self._of_stacks if self._is_on(rule)]
        resources = self._stack(request.resources, rules)
        for rule in rules:
            args = StackValidationArgs(resources, self._get_policy_config(rule.name))
            self._ask(response, rule, lambda report, rule=rule, args=args: rule.validate(args, report))
        return response

    def _is_on(self, rule: Policy) -> bool:
        return self._get_enforcement_level(rule) is not EnforcementLevel.DISABLED

    def _stack(self, sent: Any, rules: Sequence[StackRule]) -> StackResources:
        wanted = {type_: any(rule.wants(type_) for rule in rules) for type_ in {r.type for r in sent}}
        providers: dict[str, Any] = {}
        built = {}
        for r in sent:
            provider = None
            if of_kubernetes(r.type) and r.HasField("provider"):
                if r.provider.urn not in providers:
                    providers[r.provider.urn] = self._get_provider_resource(r)
                provider = providers[r.provider.urn]
            props = _properties(r.properties) if wanted[r.type] else {}
            options = self._get_resource_options(r)
            built[r.urn] = PolicyResource(r.type, props, r.urn, r.name, options, provider, None, [], {})
        for r in sent:
            built[r.urn].parent = built.get(r.parent)
            built[r.urn].dependencies.extend(built[urn] for urn in r.dependencies if urn in built)
        return StackResources(built.values())

    def _ask(self, response: Any, rule: Policy, judge: Callable[[Any], Any]) -> None:
        level = self._get_enforcement_level(rule)
        if level is EnforcementLevel.REMEDIATE:  # the SDK reports it so: no rule of ours changes a resource
            level = EnforcementLevel.MANDATORY
        report = self._create_report_violation(response, rule.name, rule.description, level, rule.severity)
        try:
            judge(report)
        except UnknownValueError as unknown:
            response.diagnostics.append(
                analyzer_pb2.AnalyzeDiagnostic(
                    policyName=rule.name,
                    policyPackName=self._pack,
                    policyPackVersion="0.0.1",
                    message=f"can't run policy '{rule.name}' from policy pack '{self._pack}' during preview:"
                    f" {unknown.message}",
                    description=rule.description,
                    enforcementLevel=analyzer_pb2.ADVISORY,
                )
            )
        except Exception as error:  # noqa: BLE001, the engine would end the preview with a stack trace
            report(
                f"{DEFECT} ({type(error).__name__}: {error}). It has judged nothing here. Disable"
                f" {rule.name} in the pack's configuration until it is mended.",
                None,
            )

    def _say_which_exceptions_fail(self, response: Any) -> None:
        for rule in [*self._of_resources, *self._of_stacks]:
            given = exemptions(self._get_policy_config(rule.name) or {})
            report = self._create_report_violation(
                response, rule.name, rule.description, EnforcementLevel.MANDATORY, rule.severity
            )
            for problem in [*given.problems, *given.run_out(date.today())]:
                report(f"configuration of {rule.name}: {problem}.", None)


def _properties(struct: Any) -> Any:
    return unknown_checking_proxy(deserialize_properties(json_format.MessageToDict(struct)))


def serve(name: str, rules: Sequence[Policy]) -> None:
    """Answers the engine until it ends this program; every rule is mandatory that does not say otherwise.

    The first line of the output is the port, as the engine's protocol wants it.
    """
    limits = [("grpc.max_receive_message_length", _MESSAGE_BYTES)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=limits)
    servicer = Servicer(name, rules, EnforcementLevel.MANDATORY)
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.buffer.write(f"{port}\n".encode())
    sys.stdout.buffer.flush()
    try:
        while True:
            time.sleep(_A_DAY)
    except KeyboardInterrupt:
        server.stop(0)
