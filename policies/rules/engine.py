"""Between the policy SDK and the rules: what a rule is given, and how its findings are reported.

A rule sees `Resource` objects and yields `Violation`s. Everything that is certain is reported first; if the
rule then still misses a value, `StillUnknown` makes the SDK print one advisory sentence, and the rule runs
again at `pulumi up`, when all values are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, UnknownValueError

from rules.views import Unknowns, View

DOCUMENT = "docs/policies.md"


@dataclass(frozen=True)
class Resource:
    """One resource as a rule sees it.

    `ancestors` are the URNs of its parents, nearest first. `cluster` tells resources of different clusters
    apart: it is equal for two resources only if they reach the same cluster as far as their providers show.
    """

    type: str
    name: str
    urn: str
    props: View
    unknowns: Unknowns
    ancestors: tuple[str, ...] = ()
    cluster: str = ""

    @property
    def kind(self) -> str:
        return self.type.rsplit(":", 1)[-1]

    @property
    def title(self) -> str:
        return f"{self.kind} '{self.name}'"


@dataclass(frozen=True)
class Violation:
    """What is wrong, why, and what to write instead; `urn` names the resource in a rule over a stack."""

    message: str
    urn: str | None = None


Config = Mapping[str, Any]
ResourceCheck = Callable[[Resource, Config], Iterable[Violation]]
StackCheck = Callable[[Sequence[Resource], Config], Iterable[Violation]]


class StillUnknown(UnknownValueError):
    """The SDK turns this exception into an advisory: the rule could not decide during this preview."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(UNKNOWN_STRING_VALUE, [])
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        self.message = f"not known yet: {shown}. The rule decides at `pulumi up`, when the value is known"


def resource_policy(
    name: str,
    description: str,
    severity: Severity,
    remediation: str,
    check: ResourceCheck,
    config: PolicyConfigSchema | None = None,
    level: EnforcementLevel | None = None,
) -> ResourceValidationPolicy:
    """A policy over single resources, named `name`, that reports what `check` yields.

    `level` None: the pack's own, mandatory.
    """

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        unknowns = Unknowns()
        resource = Resource(args.resource_type, args.name, args.urn, View(args.props, unknowns), unknowns)
        for violation in check(resource, args.get_config()):
            report(violation.message, None)
        if unknowns.paths:
            raise StillUnknown(unknowns.paths)

    return ResourceValidationPolicy(
        name=name,
        description=description,
        validate=validate,
        severity=severity,
        remediation_steps=remediation,
        url=f"{DOCUMENT}#{name}",
        config_schema=config,
        enforcement_level=level,
    )


def stack_policy(
    name: str,
    description: str,
    severity: Severity,
    remediation: str,
    check: StackCheck,
    config: PolicyConfigSchema | None = None,
) -> StackValidationPolicy:
    """A policy over all resources of a stack, named `name`, that reports what `check` yields."""

    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        resources = stack_resources(args.resources)
        for violation in check(resources, args.get_config()):
            report(violation.message, violation.urn)
        paths = [f"{r.title}: {path}" for r in resources for path in r.unknowns.paths]
        if paths:
            raise StillUnknown(paths)

    return StackValidationPolicy(
        name=name,
        description=description,
        validate=validate,
        severity=severity,
        remediation_steps=remediation,
        url=f"{DOCUMENT}#{name}",
        config_schema=config,
    )


def stack_resources(resources: Sequence[PolicyResource]) -> list[Resource]:
    """The stack's resources of Kubernetes; the others say nothing that these rules read."""
    relevant = [r for r in resources if r.resource_type.startswith("kubernetes:")]
    lineage = {r.urn: _ancestors(r) for r in relevant}
    clusters = {r.urn: _cluster(r) for r in relevant}
    # A component such as a Chart has no provider of its own: it goes where its children go.
    for r in relevant:
        for parent in lineage[r.urn]:
            if clusters.get(parent) == "":
                clusters[parent] = clusters[r.urn]
    built = []
    for r in relevant:
        unknowns = Unknowns()
        built.append(
            Resource(
                type=r.resource_type,
                name=r.name,
                urn=r.urn,
                props=View(r.props, unknowns),
                unknowns=unknowns,
                ancestors=lineage[r.urn],
                cluster=clusters[r.urn],
            )
        )
    return built


def _ancestors(resource: PolicyResource) -> tuple[str, ...]:
    found: list[str] = []
    parent = resource.parent
    while parent is not None and parent.urn not in found:
        found.append(parent.urn)
        parent = parent.parent
    return tuple(found)


def _cluster(resource: PolicyResource) -> str:
    """Two providers with the same kubeconfig and context are one cluster; else each provider is its own."""
    provider = resource.provider
    if provider is None:
        return ""
    props = View(provider.props)
    where = [props[key].peek_text() for key in ("kubeconfig", "context", "cluster")]
    return "|".join(part or "" for part in where) if any(where) else provider.urn
