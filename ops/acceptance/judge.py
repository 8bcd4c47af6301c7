"""From facts to a verdict: `conclude(facts)`. Pure: the same facts give the same verdict anywhere."""

from __future__ import annotations

from ops.acceptance.common import judge_common
from ops.acceptance.expectations import EXPECTED
from ops.acceptance.facts import REFERENCE, Acceptance, Skipped, dump, load
from ops.acceptance.per_fault import judge_fault
from ops.acceptance.reading import Reading, read
from ops.acceptance.split import recoveries_of, start_of, totals_of
from ops.acceptance.verdict import Assertion, Holds, Outcome, ScenarioVerdict, Verdict, outcome_of, told

_BAD = (Outcome.FAILED, Outcome.NOT_SHOWN)


def conclude(facts: Acceptance) -> Verdict:
    """Judge every scenario and reference, and the acceptance as a whole."""
    facts = load(dump(facts))  # as the file will have them, so that the file gives the same verdict
    references, scenarios = ([judge(each) for each in group] for group in read(facts))
    late = [each.fault for each in facts.skipped if each.not_reached]
    there = {scenario.fault for scenario in facts.scenarios} | {each.fault for each in facts.skipped}
    missing = [*dict.fromkeys([*late, *(slug for slug in facts.asked if slug not in there)])]
    outcome = _overall(references, scenarios, missing)
    return Verdict(
        outcome=outcome,
        sentence=_sentence(outcome, scenarios, references, missing, facts),
        missing=missing,
        references=references,
        scenarios=scenarios,
    )


def judge(reading: Reading) -> ScenarioVerdict:
    """One scenario: assertions, recoveries and totals."""
    fact = reading.fact
    recoveries = recoveries_of(reading)
    assertions = _assertions(reading)
    return ScenarioVerdict(
        where=reading.where,
        letter=fact.letter,
        fault=fact.fault,
        controller=fact.controller,
        run_id=fact.run_id,
        title=fact.title,
        outcome=outcome_of(assertion.holds for assertion in assertions),
        assertions=assertions,
        start=start_of(reading),
        recoveries=recoveries,
        totals=totals_of(reading, recoveries),
    )


def _assertions(reading: Reading) -> list[Assertion]:
    fault = reading.fact.fault
    expect = EXPECTED.get(fault)
    if expect is None or (fault == REFERENCE) != reading.where.startswith("/references/"):
        seen = f"the fault {fault!r} at {reading.where}"
        return [
            told("known fault", "a fault that this release judges", seen, None, [f"{reading.where}/fault"])
        ]
    return [*judge_common(reading, expect), *judge_fault(reading)]


def _overall(
    references: list[ScenarioVerdict], scenarios: list[ScenarioVerdict], missing: list[str]
) -> Outcome:
    found = {each.outcome for each in [*references, *scenarios]}
    if Outcome.FAILED in found:
        return Outcome.FAILED
    whole = bool(scenarios) and not missing and found == {Outcome.PASSED}
    return Outcome.PASSED if whole else Outcome.NOT_SHOWN


def _sentence(
    outcome: Outcome,
    scenarios: list[ScenarioVerdict],
    references: list[ScenarioVerdict],
    missing: list[str],
    facts: Acceptance,
) -> str:
    runs = len(scenarios)
    if not runs:
        said = "No fault was made, so nothing is shown."
    elif outcome is Outcome.PASSED:
        said = f"All {runs} faults were survived as they must be." if runs > 1 else "The fault was survived."
    else:
        passed = sum(each.outcome is Outcome.PASSED for each in scenarios)
        named = (_named([*scenarios, *references], bad) for bad in _BAD)
        said = " ".join([f"{passed} of {runs} faults passed.", *filter(None, named)])
    if missing:
        said += f" Asked for and not made: {', '.join(missing)}."
    if skipped := left_out(facts):
        said += f" {len(skipped)} skipped, each with its reason."
    return said.strip()


def _named(runs: list[ScenarioVerdict], outcome: Outcome) -> str:
    names = ", ".join(f"{each.fault} ({each.controller})" for each in runs if each.outcome is outcome)
    return f"{outcome.capitalize()}: {names}." if names else ""


def left_out(facts: Acceptance) -> list[Skipped]:
    """Faults that could not be made here, each with its reason; not those that an early end cut off."""
    return [each for each in facts.skipped if not each.not_reached]


def failing(scenario: ScenarioVerdict) -> list[Assertion]:
    """The assertions that do not hold or are not shown, worst first."""
    order = {Holds.NO: 0, Holds.NOT_SHOWN: 1}
    found = [each for each in scenario.assertions if each.holds is not Holds.YES]
    return sorted(found, key=lambda each: order[each.holds])
