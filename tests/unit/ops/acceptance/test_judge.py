"""Facts to verdict: good stories pass, and the whole is what its parts are."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from ops.acceptance.facts import REFERENCE, dump
from ops.acceptance.judge import conclude, failing
from ops.acceptance.verdict import Holds, Outcome
from tests.unit.ops.acceptance import stories
from tests.unit.ops.acceptance.stories import assertion, events, judged, scenario

Doc = dict[str, Any]
YES, NO, NOT_SHOWN = Holds.YES, Holds.NO, Holds.NOT_SHOWN


@pytest.mark.parametrize("controller", ["job", "jobset"])
def test_every_fault_that_was_survived_passes(controller: str) -> None:
    verdict = conclude(stories.acceptance(*[scenario(slug, controller) for slug in stories.SLUGS]))
    assert [(run.fault, [each.name for each in failing(run)]) for run in verdict.scenarios] == [
        (slug, []) for slug in stories.SLUGS
    ]
    assert verdict.outcome is Outcome.PASSED
    assert verdict.sentence == "All 13 faults were survived as they must be."


def test_names_of_assertions_are_unique_in_a_scenario_and_point_into_the_facts() -> None:
    acceptance = stories.acceptance(*[scenario(slug) for slug in stories.SLUGS])
    facts, verdict = json.loads(dump(acceptance)), conclude(acceptance)
    for run in [*verdict.scenarios, *verdict.references]:
        names = [each.name for each in run.assertions]
        assert len(names) == len(set(names))
        for each in run.assertions:
            assert each.evidence, f"{run.fault}: {each.name} has no evidence"
            for pointer in each.evidence:
                assert resolve(facts, pointer) is not MISSING, f"{run.fault}: {each.name}: {pointer}"


MISSING = object()


def resolve(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else MISSING
        else:
            value = value.get(part, MISSING)
    return value


def test_a_step_that_was_sealed_and_never_acknowledged_may_be_resumed_from() -> None:
    story = scenario("kill-during-save")
    said = story["attempts"][1]["events"]
    events(story, 1, "restore")[0]["step"] = 30
    for event in [e for e in said if e["event"] != "restore" and 20 < e.get("step", 0) <= 30]:
        said.remove(event)
    found = assertion(judged(story), "resume step of attempt 2")
    assert found.holds is YES
    assert "never acknowledged" in found.seen


def test_a_checkpoint_that_retention_removed_while_the_volume_was_read_is_not_lost() -> None:
    story = scenario("pod-deletion")
    entry = story["snapshots"][0]["inspect"]["working"][0]["steps"][0]
    entry.update(verified=False, problem="went away while it was read")
    seals = [event for event in events(story, 0, "checkpoint") if event["step"] == 25]
    story["snapshots"][0]["done_at"] = seals[0]["at"]
    verdict = judged(story)
    assert assertion(verdict, "checkpoints unchanged").holds is YES
    assert assertion(verdict, "nothing lost").holds is YES


def test_a_drivers_clock_is_brought_to_the_servers() -> None:
    """The driver's clock is an hour behind: what it did then seems to be before every checkpoint."""
    story = scenario("corrupted-checkpoint")
    for action in story["done"]:
        for key in ("at", "done_at"):
            action[key] = (datetime.fromisoformat(action[key]) - timedelta(hours=1)).isoformat()
    cluster = stories.document()["cluster"]
    assert assertion(judged(story), "resume step of attempt 2").holds is NO
    right = judged(story, cluster={**cluster, "clock_offset_seconds": 3600.0})
    assert assertion(right, "resume step of attempt 2").holds is YES


def test_a_fault_that_was_asked_for_and_not_made_is_not_shown() -> None:
    verdict = conclude(stories.acceptance(scenario("crash"), asked=["crash", "zombie"]))
    assert verdict.outcome is Outcome.NOT_SHOWN
    assert verdict.missing == ["zombie"]
    assert verdict.sentence == "1 of 1 faults passed. Asked for and not made: zombie."


def test_a_fault_that_is_skipped_with_a_reason_does_not_stand_in_the_way() -> None:
    reason = {"letter": "d", "fault": "zombie", "reason": "Not here.", "what_to_do": "There."}
    facts = stories.acceptance(scenario("crash"), asked=["crash", "zombie"], skipped=[reason])
    verdict = conclude(facts)
    assert verdict.outcome is Outcome.PASSED
    assert verdict.sentence == "The fault was survived. 1 skipped, each with its reason."


def test_a_fault_that_an_early_end_cut_off_is_not_shown() -> None:
    late = {
        "letter": "d",
        "fault": "zombie",
        "reason": "It ended.",
        "what_to_do": "Again.",
        "not_reached": True,
    }
    verdict = conclude(stories.acceptance(scenario("crash"), skipped=[late]))
    assert verdict.outcome is Outcome.NOT_SHOWN
    assert verdict.missing == ["zombie"]


def test_nothing_made_is_nothing_shown() -> None:
    verdict = conclude(stories.acceptance())
    assert verdict.outcome is Outcome.NOT_SHOWN
    assert verdict.sentence == "No fault was made, so nothing is shown."


def test_a_reference_that_was_disturbed_fails_the_whole() -> None:
    reference = scenario(REFERENCE)
    reference["attempts"].insert(0, scenario("pod-deletion")["attempts"][0])
    verdict = conclude(stories.acceptance(scenario("crash"), references=[reference]))
    assert verdict.outcome is Outcome.FAILED
    assert "exit codes" in [each.name for each in failing(verdict.references[0])]


def test_a_fault_of_another_release_is_not_shown() -> None:
    verdict = judged({**scenario("crash"), "fault": "meteor"})
    assert [(each.name, each.holds) for each in verdict.assertions] == [("known fault", NOT_SHOWN)]
