"""What follows from an acceptance's facts: assertions, recovery times, one verdict. `holdfast.verdict/1`.

Everything here is derived by `ops.acceptance.judge` and `ops.acceptance.split`, and can be derived again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from ops.acceptance.facts import Fact

FORMAT: Literal["holdfast.verdict/1"] = "holdfast.verdict/1"
# Raised with every change by which the same facts may give another verdict: an old file is then not accused.
RULES = 1


class Holds(StrEnum):
    """Whether an assertion holds. What could not be read is not shown, which is no pass."""

    YES = "yes"
    NO = "no"
    NOT_SHOWN = "not shown"


class Outcome(StrEnum):
    """Of a scenario, and of the whole."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SHOWN = "not shown"


def outcome_of(parts: Iterable[Holds]) -> Outcome:
    """Failed where one does not hold, not shown where one is not shown or there is none."""
    found = set(parts)
    if Holds.NO in found:
        return Outcome.FAILED
    return Outcome.PASSED if found == {Holds.YES} else Outcome.NOT_SHOWN


class Assertion(Fact):
    """One thing that must be true. `evidence`: JSON pointers (RFC 6901) into the facts."""

    name: str
    """Unique in its scenario."""
    expected: str
    seen: str
    holds: Holds
    evidence: list[str] = []


def told(name: str, expected: str, seen: str, holds: bool | None, evidence: Iterable[str] = ()) -> Assertion:
    """An assertion; `holds` None: a fact that it needs could not be read."""
    verdict = Holds.NOT_SHOWN if holds is None else Holds.YES if holds else Holds.NO
    return Assertion(name=name, expected=expected, seen=seen, holds=verdict, evidence=list(evidence))


class Part(Fact):
    """One part of a recovery. `seconds` is None where it is not told apart; `note` says where it went."""

    name: str
    seconds: float | None
    note: str = ""


class Split(Fact):
    """From one moment to the first training step after it, in parts that sum to `seconds`.

    `resolution_seconds`: of a single part. Its ends come from three clocks, one of which has whole seconds.
    """

    begins: str
    """ISO time, by the API server's clock."""
    seconds: float
    resolution_seconds: float
    parts: list[Part]


class Recovery(Fact):
    """From what ended an attempt to the first new step of the next one."""

    ended: int
    """Place in the scenario's attempts of the one that ended, and of the one that went on."""
    resumed: int
    cause: str
    resume_step: int | None
    lost_steps: int | None
    """Steps done that had to be done again."""
    lost_step_seconds: float | None
    idle_gpu_seconds: float | None
    """GPUs times the seconds for which a Pod held them without training: stopping, and starting again."""
    lost_gpu_seconds: float | None
    """Of the lost steps and of the idle time."""
    split: Split | None
    """None where the first new step was not seen."""


class Totals(Fact):
    """A scenario in numbers; seconds. None where it can not be told."""

    attempts: int
    counted_failures: int | None
    resume_steps: list[int]
    wall_seconds: float | None
    """From the first Pod's creation to the committed result."""
    useful_seconds: float | None
    """Of the steps that led to the result, each counted once."""
    goodput: float | None
    """useful / wall"""
    lost_steps: int | None
    lost_gpu_seconds: float | None
    recovery_seconds: float | None
    """The longest recovery."""


class ScenarioVerdict(Fact):
    """One run: its assertions and its times. `where`: JSON pointer of the scenario in the facts."""

    where: str
    letter: str
    fault: str
    controller: str
    run_id: str
    title: str
    outcome: Outcome
    assertions: list[Assertion]
    start: Split | None
    """From the first Pod's creation to its first step: what any start of this program costs here."""
    recoveries: list[Recovery]
    totals: Totals


class Verdict(Fact):
    """The whole. `sentence` says it to a person."""

    format: Literal["holdfast.verdict/1"] = FORMAT
    rules: int = RULES
    outcome: Outcome
    sentence: str
    missing: list[str] = []
    """Slugs of faults that were asked for and not made, without being skipped for a reason of the cluster."""
    references: list[ScenarioVerdict]
    scenarios: list[ScenarioVerdict]
