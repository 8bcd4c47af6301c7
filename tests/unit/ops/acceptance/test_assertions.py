"""Every assertion has a story in which it does not hold, and one in which what it needs is not known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from ops.acceptance.judge import conclude
from ops.acceptance.verdict import Holds, Outcome, ScenarioVerdict
from tests.unit.ops.acceptance import stories
from tests.unit.ops.acceptance.stories import assertion, events, judged, scenario
from tests.unit.ops.acceptance.story import METRICS

Doc = dict[str, Any]
Edit = Callable[[Doc], object]
YES, NO, NOT_SHOWN = Holds.YES, Holds.NO, Holds.NOT_SHOWN


@cache
def good(fault: str) -> ScenarioVerdict:
    return judged(scenario(fault))


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
    _result(story)["metrics"] = {**METRICS, "train_accuracy": 0.9}
    assert assertion(judged(story), "final weights").holds is NO
