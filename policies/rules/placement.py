"""Whether two DaemonSets can meet on one node, by their node selectors and required node affinity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rules.views import View


@dataclass(frozen=True)
class Requirement:
    """One requirement on one node label; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()


# All requirements of one alternative hold at once; a Pod may have several alternatives.
Alternative = tuple[Requirement, ...]


def alternatives(spec: View) -> tuple[Alternative, ...]:
    """The node selection of a Pod spec. What is unknown is left out: it must not prove a distance."""
    selector = spec["nodeSelector"]
    base = tuple(
        Requirement(key, "In", frozenset({value}))
        for key in selector.peek_keys()
        if (value := selector[key].peek_text()) is not None
    )
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [tuple(_requirements(term)) for term in required["nodeSelectorTerms"].peek_elements()]
    return tuple(base + term for term in terms) or (base,)


def _requirements(term: View) -> Iterator[Requirement]:
    for expression in term["matchExpressions"].peek_elements():
        key, operator = expression["key"].peek_text(), expression["operator"].peek_text()
        values = [value.peek_text() for value in expression["values"].peek_elements()]
        if key and operator in ("In", "NotIn", "Exists", "DoesNotExist") and None not in values:
            yield Requirement(key, operator, frozenset(value for value in values if value is not None))


def never_meet(one: tuple[Alternative, ...], other: tuple[Alternative, ...]) -> bool:
    """True only if no node can satisfy both: every pair of alternatives contradicts itself."""
    return all(any(_contradict(a, b) for a in left for b in right) for left in one for right in other)


def _contradict(a: Requirement, b: Requirement) -> bool:
    if a.key != b.key:
        return False
    if b.operator == "In" and a.operator != "In":
        a, b = b, a
    if a.operator == "In":
        if b.operator == "In":
            return not a.values & b.values
        if b.operator == "NotIn":
            return a.values <= b.values
        return b.operator == "DoesNotExist"
    return {a.operator, b.operator} == {"Exists", "DoesNotExist"}
