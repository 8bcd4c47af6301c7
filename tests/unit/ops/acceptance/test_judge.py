"""Facts to verdict: each fault's good story passes, each assertion has a story in which it does not hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest

from ops.acceptance.facts import REFERENCE, dump
from ops.acceptance.judge import conclude, failing, judge
from ops.acceptance.reading import read
from ops.acceptance.verdict import Assertion, Holds, Outcome, ScenarioVerdict
from tests.unit.ops.acceptance import stories
from tests.unit.ops.acceptance.stories import events, scenario

Doc = dict[str, Any]
Edit = Callable[[Doc], object]
YES, NO, NOT_SHOWN = Holds.YES, Holds.NO, Holds.NOT_SHOWN


def judged(story: Doc, **more: Any) -> ScenarioVerdict:
    _, scenarios = read(stories.acceptance(story, **more))
    return judge(scenarios[0])


@cache
def good(fault: str) -> ScenarioVerdict:
    return judged(scenario(fault))


def assertion(verdict: ScenarioVerdict, name: str) -> Assertion:
    return next(each for each in verdict.assertions if each.name == name)


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


def _set(place: Doc, **values: Any) -> None:
    place.update(values)


def _all(story: Doc, name: str, **values: Any) -> None:
    for attempt in range(len(story["attempts"])):
        for event in events(story, attempt, name):
            event.update(values)


def _drop_steps(story: Doc, attempt: int, count: int) -> None:
    said = story["attempts"][attempt]["events"]
    for event in events(story, attempt, "step")[5 : 5 + count]:
        said.remove(event)


def _only(story: Doc, attempt: int, *without: str) -> None:
    said = story["attempts"][attempt]["events"]
    said[:] = [event for event in said if event["event"] not in without]


def _no_steps(story: Doc) -> None:
    for folder in story["volume"]["inspect"]["working"]:
        folder["steps"] = []


def _restore(story: Doc, step: int) -> None:
    events(story, 1, "restore")[0]["step"] = step


def _result(story: Doc) -> Doc:
    return story["volume"]["inspect"]["result"]


def _other_weights(story: Doc, difference: float | None = None, **details: Any) -> None:
    """As a GPU leaves them: the file differs from the reference's."""
    result, other = _result(story), "cd" * 32
    result["artifacts"][0]["sha256"] = other
    result["details"].update(details)
    story["volume"]["inspect"]["artifacts"][0]["sha256"] = other
    _all(story, "result", artifacts={"model.safetensors": other})
    _set(story["comparisons"][0], sha256=other, max_abs_difference=difference)


def _job(story: Doc) -> Doc:
    return story["objects"][0]["status"]


# (fault, assertion, what is wrong, how it is found)
BROKEN: list[tuple[str, str, Edit, Holds]] = [
    ("pod-deletion", "carried out", lambda s: _set(s, completed=False), NO),
    ("pod-deletion", "carried out", lambda s: _set(s, completed=False, ended_at=None), NOT_SHOWN),
    ("pod-deletion", "the fault was made", lambda s: s["done"].pop(), NO),
    ("pod-deletion", "the fault was made", lambda s: _set(s["done"][1], done_at=None), NO),
    ("drain", "left as found", lambda s: s["done"].pop(), NO),
    ("zombie", "left as found", lambda s: _set(s["done"][-1], done_at=None), NO),
    ("two-finishers", "left as found", lambda s: s["done"].pop(), NO),
    ("pod-deletion", "resume step of attempt 2", lambda s: _restore(s, 20), NO),
    ("pod-deletion", "resume step of attempt 2", lambda s: _restore(s, 30), NO),
    ("pod-deletion", "resume step of attempt 1", lambda s: events(s, 0, "restore")[0].update(step=10), NO),
    (
        "pod-deletion",
        "resume step of attempt 2",
        lambda s: (_set(s["attempts"][0], log_complete=False), s["attempts"][0]["events"].pop()),
        NOT_SHOWN,
    ),
    (
        "pod-deletion",
        "resume step of attempt 2",
        lambda s: _set(s["attempts"][1], log_complete=False, events=[]),
        NOT_SHOWN,
    ),
    (
        "pod-deletion",
        "resume step of attempt 2",
        lambda s: events(s, 1, "restore")[0].update(digest="00"),
        NO,
    ),
    ("pod-deletion", "checkpoints unchanged", lambda s: _all(s, "checkpoint", digest="00"), NO),
    ("pod-deletion", "resumed above step 0", lambda s: _restore(s, 0), NO),
    ("pod-deletion", "no step skipped", lambda s: _drop_steps(s, 1, 1), NO),
    ("pod-deletion", "no step skipped", lambda s: _restore(s, 20), NO),
    (
        "pod-deletion",
        "no step skipped",
        lambda s: s["attempts"][1]["events"].remove(events(s, 1, "step")[-1]),
        NO,
    ),
    ("pod-deletion", "nothing lost", _no_steps, NO),
    ("pod-deletion", "nothing lost", lambda s: _set(s, volume=None), NOT_SHOWN),
    ("pod-deletion", "nothing lost", lambda s: s["snapshots"][0]["inspect"]["working"][0]["steps"].pop(), NO),
    (
        "pod-deletion",
        "checkpoints unchanged",
        lambda s: s["volume"]["inspect"]["working"][0]["steps"][0].update(
            verified=False, problem="a hash differs"
        ),
        NO,
    ),
    (
        "pod-deletion",
        "checkpoints unchanged",
        lambda s: s["snapshots"].append({**s["volume"], "inspect": _other_digest(s)}),
        NO,
    ),
    ("pod-deletion", "result committed once", lambda s: _all(s, "result", ours=False), NO),
    ("two-finishers", "result committed once", lambda s: _second_result(s, ours=True), NO),
    ("two-finishers", "result committed once", lambda s: _second_result(s, ours=False, step=59), NO),
    (
        "pod-deletion",
        "result committed once",
        lambda s: s["snapshots"].append(
            {**s["volume"], "inspect": {"result": {**_result(s), "sha256": "00"}}}
        ),
        NO,
    ),
    ("pod-deletion", "result committed once", lambda s: _result(s).update(generation=1), NO),
    (
        "pod-deletion",
        "result committed once",
        lambda s: (_set(s["attempts"][0], log_complete=False), s["attempts"][0]["events"].pop()),
        NOT_SHOWN,
    ),
    (
        "pod-deletion",
        "result verifies",
        lambda s: _result(s).update(verified=False, problem="a hash differs"),
        NO,
    ),
    ("pod-deletion", "result verifies", lambda s: _result(s).update(verified=None), NOT_SHOWN),
    ("pod-deletion", "result verifies", lambda s: _result(s).update(step=59), NO),
    ("pod-deletion", "result verifies", lambda s: _result(s).update(run_id="another"), NO),
    ("pod-deletion", "result verifies", lambda s: s["volume"]["inspect"].update(artifacts=[]), NO),
    ("pod-deletion", "result verifies", lambda s: s["volume"]["inspect"].update(result=None), NO),
    ("pod-deletion", "final weights", _other_weights, NO),
    ("pod-deletion", "final weights", lambda s: _other_weights(s, 1e-6, tolerance=1e-4), NO),
    ("pod-deletion", "final weights", lambda s: _set(s, reference=""), NOT_SHOWN),
    ("pod-deletion", "final weights", lambda s: _set(s["comparisons"][0], sha256="ef" * 32), NO),
    ("pod-deletion", "exit codes", lambda s: _set(s["attempts"][0], exit_code=0), NO),
    ("pod-deletion", "exit codes", lambda s: _set(s["attempts"][0], exit_code=143), NO),
    ("pod-deletion", "exit codes", lambda s: _set(s["attempts"][0], exit_code=None), NOT_SHOWN),
    ("pod-deletion", "exit codes", lambda s: s["attempts"][0]["termination"].update(code=1), NO),
    ("pod-deletion", "exit codes", lambda s: s["attempts"].pop(0), NO),
    ("volume-full", "exit codes", lambda s: s["attempts"].append(dict(s["attempts"][0])), NO),
    ("pod-deletion", "how it ended", lambda s: _job(s)["conditions"][0].update(type="Failed"), NO),
    ("pod-deletion", "how it ended", lambda s: _set(_job(s), conditions=[]), NOT_SHOWN),
    (
        "always-crashes",
        "how it ended",
        lambda s: _job(s)["conditions"][0].update(reason="DeadlineExceeded"),
        NO,
    ),
    ("many-preemptions", "counted failures", lambda s: _set(_job(s), failed=1), NO),
    ("crash", "counted failures", lambda s: _job(s).pop("failed"), NO),
    ("crash", "counted failures", lambda s: _set(s, objects=[]), NOT_SHOWN),
    ("always-crashes", "no result", lambda s: s["volume"]["inspect"].update(result={"step": 60}), NO),
    ("always-crashes", "no result", lambda s: _set(s, volume=None), NOT_SHOWN),
    (
        "eviction",
        "evicted",
        lambda s: s["attempts"][0]["conditions"][0].update(reason="DeletionByTaintManager"),
        NO,
    ),
    ("eviction", "evicted", lambda s: _set(s["attempts"][0], conditions=[]), NOT_SHOWN),
    (
        "kill-during-save",
        "killed inside a save",
        lambda s: s["attempts"][0]["events"].append({"event": "checkpoint", "step": 30, "generation": 1}),
        NO,
    ),
    ("kill-during-save", "killed inside a save", lambda s: _only(s, 0, "checkpoint-begins"), NOT_SHOWN),
    (
        "kill-during-save",
        "the half save is gone",
        lambda s: s["volume"]["inspect"]["working"][0].update(temporary=["tmp-step-30-1a2b3c4d"]),
        NO,
    ),
    (
        "kill-during-save",
        "the half save is gone",
        lambda s: (_only(s, 1, "leftovers-removed"), _set(s, snapshots=[])),
        NOT_SHOWN,
    ),
    (
        "zombie",
        "the old process lived on",
        lambda s: (_set(s, observations=[]), _only_until_second(s)),
        NO,
    ),
    ("zombie", "the old process lived on", lambda s: s["attempts"].pop(), NOT_SHOWN),
    (
        "zombie",
        "nothing of the zombie counts",
        lambda s: s["attempts"][0]["events"].append({"event": "checkpoint", "step": 30, "generation": 1}),
        NO,
    ),
    (
        "zombie",
        "nothing of the zombie counts",
        lambda s: s["volume"]["inspect"]["working"][0]["steps"][0].update(generation=1),
        NO,
    ),
    ("zombie", "nothing of the zombie counts", lambda s: _result(s).update(generation=1), NO),
    ("zombie", "nothing of the zombie counts", lambda s: _set(s["attempts"][0], exit_code=0), NO),
    ("zombie", "nothing of the zombie counts", lambda s: _set(s, volume=None), NOT_SHOWN),
    ("corrupted-checkpoint", "set aside", lambda s: _only(s, 1, "checkpoint-set-aside"), NO),
    (
        "corrupted-checkpoint",
        "set aside",
        lambda s: s["volume"]["inspect"]["working"][0].update(set_aside=[]),
        NO,
    ),
    ("corrupted-checkpoint", "set aside", lambda s: s["done"][1]["detail"].pop("step"), NOT_SHOWN),
    ("corrupted-checkpoint", "resumed from the one before", lambda s: _restore(s, 30), NO),
    ("corrupted-checkpoint", "resumed from the one before", lambda s: _restore(s, 10), NO),
    ("corrupted-checkpoint", "resumed from the one before", lambda s: _only(s, 1, "restore"), NOT_SHOWN),
    ("two-finishers", "at once", lambda s: _drop_steps(s, 0, 99), NO),
    ("two-finishers", "at once", lambda s: s["attempts"].pop(), NOT_SHOWN),
    ("two-finishers", "one of the two", lambda s: _second_result(s, ours=True), NO),
    ("two-finishers", "one of the two", lambda s: _set(s["attempts"][0], exit_code=1), NO),
    ("volume-full", "reported", lambda s: _only(s, 0, "checkpoint-failed"), NO),
    ("volume-full", "reported", lambda s: events(s, 0, "checkpoint-failed")[0].update(reason=""), NO),
    ("volume-full", "training went on", lambda s: _end_at(s, "checkpoint-failed"), NO),
    ("volume-full", "a later save succeeded", lambda s: _end_at(s, "checkpoint-failed"), NO),
    (
        "many-preemptions",
        "more preemptions than the budget",
        lambda s: s["run"].update(backoff_limit=3),
        NO,
    ),
    ("always-crashes", "stopped at the budget", lambda s: s["attempts"].pop(), NO),
    ("always-crashes", "stopped at the budget", lambda s: s["attempts"].append(s["attempts"][0]), NO),
    ("always-crashes", "every crash counted", lambda s: _set(_job(s), failed=1), NO),
    ("always-crashes", "every crash counted", lambda s: _set(s, objects=[]), NOT_SHOWN),
    ("bad-input", "failed at once", lambda s: s["attempts"].append(s["attempts"][0]), NO),
    ("bad-input", "the reason is told", lambda s: _set(s["attempts"][0], termination={}), NO),
    ("no-progress", "stopped for want of progress", lambda s: s["attempts"].pop(), NO),
    ("no-progress", "stopped for want of progress", lambda s: events(s, 1, "start")[0].update(step=10), NO),
]


def _other_digest(story: Doc) -> Doc:
    folder = story["volume"]["inspect"]["working"][0]
    steps = [{**entry, "digest": "00" * 32} for entry in folder["steps"]]
    return {"working": [{**folder, "steps": steps}]}


def _second_result(story: Doc, **fields: Any) -> None:
    said = events(story, 1, "result")[0]
    story["attempts"][0]["events"].insert(-1, {**said, **fields})


def _only_until_second(story: Doc) -> None:
    begun = events(story, 1, "start")[0]["at"]
    said = story["attempts"][0]["events"]
    said[:] = [event for event in said if event["at"] < begun]


def _end_at(story: Doc, name: str) -> None:
    said = story["attempts"][0]["events"]
    del said[said.index(events(story, 0, name)[0]) + 1 :]


@pytest.mark.parametrize(
    ("fault", "name", "edit", "holds"), BROKEN, ids=[f"{b[0]}-{b[1]}-{n}" for n, b in enumerate(BROKEN)]
)
def test_an_assertion_does_not_hold_where_the_facts_are_wrong(
    fault: str, name: str, edit: Edit, holds: Holds
) -> None:
    story = scenario(fault)
    assert assertion(good(fault), name).holds is YES
    edit(story)
    verdict = judged(story)
    assert assertion(verdict, name).holds is holds
    assert verdict.outcome is not Outcome.PASSED


def test_every_assertion_has_a_story_in_which_it_fails() -> None:
    verdict = conclude(stories.acceptance(*[scenario(slug) for slug in stories.SLUGS]))
    names = {each.name for run in verdict.scenarios for each in run.assertions}
    general = {"resume step of attempt 3", "resume step of attempt 4"}
    assert names - general == {name for _, name, _, holds in BROKEN if holds is NO}


@pytest.mark.parametrize(
    ("difference", "tolerance", "holds"), [(5e-5, 1e-4, YES), (2e-4, 1e-4, NO), (None, 1e-4, YES)]
)
def test_weights_of_a_gpu_are_compared_within_the_tolerance_that_the_result_states(
    difference: float | None, tolerance: float, holds: Holds
) -> None:
    story = scenario("pod-deletion")
    _other_weights(story, difference, platform="gpu", tolerance=tolerance)
    found = assertion(judged(story), "final weights")
    assert found.holds is holds
    assert "within 0.0001" in found.expected
    assert ("compared by the recorded metrics" in found.seen) is (difference is None)


def test_metrics_out_of_tolerance_do_not_stand_for_weights() -> None:
    story = scenario("pod-deletion")
    _other_weights(story, None, platform="gpu", tolerance=1e-4)
    _result(story)["metrics"] = {**stories.METRICS, "train_accuracy": 0.9}
    assert assertion(judged(story), "final weights").holds is NO


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
    assert verdict.sentence == "1 of 1 passed. Asked for and not made: zombie."


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
