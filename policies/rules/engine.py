"""Between the policy SDK and the rules: what a rule is given, and how its findings are reported.

A rule sees `Resource` objects and yields `Violation`s. Everything that is certain is reported first; if the
rule then still misses a value, `StillUnknown` makes the SDK print one advisory sentence, and the rule runs
again at `pulumi up`, when all values are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
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

from rules import exceptions
from rules.views import Unknowns, View

DOCUMENT = "docs/policies.md"


@dataclass(frozen=True)
class Resource:
    """One resource as a rule sees it.

    `ancestors` are the URNs of its parents, nearest first. `cluster` tells resources of different clusters
    apart: it is equal for two resources only if they reach the same cluster as far as their providers show.
    `depends_on` are the URNs of what it was made from, `provider_from` those of its provider's; `protect` is
    the resource option of that name.
    """

    type: str
    name: str
    urn: str
    props: View
    unknowns: Unknowns
    ancestors: tuple[str, ...] = ()
    cluster: str = ""
    depends_on: tuple[str, ...] = ()
    provider_from: tuple[str, ...] = ()
    protect: bool = False

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
Wants = Callable[[str], bool]
"""Whether a rule reads resources of a type. What no rule reads is not even converted (see rules.server)."""


class StillUnknown(UnknownValueError):
    """The SDK turns this exception into an advisory: the rule could not decide during this preview."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(UNKNOWN_STRING_VALUE, [])
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        self.message = f"not known yet: {shown}. The rule decides at `pulumi up`, when the value is known"


def of_kubernetes(type_: str) -> bool:
    return type_.startswith("kubernetes:")


class ResourceRule(ResourceValidationPolicy):
    """A policy over single resources of the types that it wants."""

    def __init__(self, check: ResourceCheck, wants: Wants, **words: Any) -> None:
        super().__init__(validate=self._judge, **words)
        self._check = check
        self.wants = wants

    def _judge(self, args: ResourceValidationArgs, report: ReportViolation) -> None:
        if not self.wants(args.resource_type):
            return
        unknowns = Unknowns()
        resource = Resource(
            args.resource_type,
            args.name,
            args.urn,
            View(args.props, unknowns),
            unknowns,
            protect=bool(args.opts.protect),
        )
        config = args.get_config()
        excused = exceptions.exemptions(config)
        for violation in self._check(resource, config):
            if not excused.excuse(args.urn, date.today()):
                report(violation.message, None)
        if unknowns.paths:
            raise StillUnknown(unknowns.paths)


class StackRule(StackValidationPolicy):
    """A policy over all resources of a stack that are of the types that it wants."""

    def __init__(self, check: StackCheck, wants: Wants, **words: Any) -> None:
        super().__init__(validate=self._judge, **words)
        self._check = check
        self.wants = wants

    def _judge(self, args: StackValidationArgs, report: ReportViolation) -> None:
        resources = StackResources.of(args.resources).wanted_by(self.wants)
        config = args.get_config()
        excused = exceptions.exemptions(config)
        for violation in self._check(resources, config):
            if violation.urn is None or not excused.excuse(violation.urn, date.today()):
                report(violation.message, violation.urn)
        paths = [f"{r.title}: {path}" for r in resources for path in r.unknowns.paths]
        if paths:
            raise StillUnknown(paths)


def _words(
    name: str,
    description: str,
    severity: Severity,
    remediation: str,
    settings: Mapping[str, dict[str, Any]] | None,
    level: EnforcementLevel | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "severity": severity,
        "remediation_steps": remediation,
        "url": f"{DOCUMENT}#{name}",
        "config_schema": PolicyConfigSchema(
            properties={**(settings or {}), exceptions.SETTING: exceptions.SCHEMA}
        ),
        "enforcement_level": level,
    }


def resource_policy(
    name: str,
    description: str,
    severity: Severity,
    remediation: str,
    check: ResourceCheck,
    settings: Mapping[str, dict[str, Any]] | None = None,
    level: EnforcementLevel | None = None,
    wants: Wants = of_kubernetes,
) -> ResourceRule:
    """A policy over single resources, named `name`, that reports what `check` yields.

    `settings` are JSON schemas of its configuration by key. `level` None: the pack's own, mandatory.
    """
    words = _words(name, description, severity, remediation, settings, level)
    return ResourceRule(check, wants, **words)


def stack_policy(
    name: str,
    description: str,
    severity: Severity,
    remediation: str,
    check: StackCheck,
    settings: Mapping[str, dict[str, Any]] | None = None,
    level: EnforcementLevel | None = None,
    wants: Wants = of_kubernetes,
) -> StackRule:
    """A policy over all resources of a stack, named `name`, that reports what `check` yields."""
    words = _words(name, description, severity, remediation, settings, level)
    return StackRule(check, wants, **words)


class StackResources(list[PolicyResource]):
    """A stack's resources as the SDK has them, with what all rules need of them worked out once."""

    def __init__(self, resources: Iterable[PolicyResource]) -> None:
        super().__init__(resources)
        self._origins = {r.urn: tuple(other.urn for other in r.dependencies) for r in self}
        self._ancestors = {r.urn: _ancestors(r) for r in self}
        self._clusters = {r.urn: _cluster(r) for r in self if of_kubernetes(r.resource_type)}
        # A component such as a Chart has no provider of its own: it goes where its children go.
        for r in self:
            cluster = self._clusters.get(r.urn)
            for parent in self._ancestors[r.urn] if cluster else ():
                if self._clusters.get(parent) == "":
                    self._clusters[parent] = cluster or ""

    @classmethod
    def of(cls, resources: Sequence[PolicyResource]) -> StackResources:
        return resources if isinstance(resources, cls) else cls(resources)

    def wanted_by(self, wants: Wants) -> list[Resource]:
        """Resources of the wanted types, each with a list of its own for what the rule finds unknown."""
        return [self._resource(r) for r in self if wants(r.resource_type)]

    def _resource(self, r: PolicyResource) -> Resource:
        unknowns = Unknowns()
        return Resource(
            type=r.resource_type,
            name=r.name,
            urn=r.urn,
            props=View(r.props, unknowns),
            unknowns=unknowns,
            ancestors=self._ancestors[r.urn],
            cluster=self._clusters.get(r.urn, ""),
            depends_on=self._origins[r.urn],
            provider_from=self._origins.get(r.provider.urn, ()) if r.provider is not None else (),
            protect=bool(r.opts.protect),
        )


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
