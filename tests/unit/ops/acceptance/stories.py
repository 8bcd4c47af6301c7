"""Facts as a real acceptance would record them: one story per fault, told by the model in story.py."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from functools import cache
from typing import Any

from ops.acceptance.facts import FAULTS, FORMAT, REFERENCE, Acceptance, Scenario, load
from ops.acceptance.judge import judge
from ops.acceptance.reading import read
from ops.acceptance.verdict import Assertion, ScenarioVerdict
from tests.unit.ops.acceptance.story import (
    BEGIN,
    BUDGET,
    IDLE_LIMIT,
    STEP_SECONDS,
    STEPS,
    Story,
    iso,
)

IMAGE = "registry.example.com/trainer@sha256:" + "ab" * 32


def _reference(story: Story) -> None:
    story.finish(story.start())


def _preempted(what: str, story: Story) -> None:
    first = story.start()
    story.train(first, 25)
    story.snap("before-fault")
    if story.fault == "drain":
        story.act("cordon", "worker-1")
    story.preempt(first, what)
    if story.fault == "drain":
        story.act("uncordon", "worker-1")
    story.finish(story.start("worker-2"))


def _kill_during_save(story: Story) -> None:
    first = story.start()
    story.train(first, 29)
    story.wait(STEP_SECONDS)
    story.say(first, "step", step=30, loss=0.03, seconds=STEP_SECONDS)
    story.say(first, "checkpoint-begins", step=30)
    story.temporary = ["tmp-step-30-1a2b3c4d"]
    story.snap("during-save")
    story.act("kill-program", first["pod"], pod_uid=first["uid"], signal=9)
    story.end(first, 137)
    story.counted = 1
    story.wait(10)
    story.finish(story.start())


def _zombie(story: Story) -> None:
    first = story.start()
    story.train(first, 24)
    story.snap("before-fault")
    story.act("stop-kubelet", "worker-1", node="worker-1")
    story.train(first, 28)
    story.wait(50)
    story.act("add-taint", "worker-1", taint="node.kubernetes.io/out-of-service")
    first["seen"]["gone"] = iso(story.wait(17))
    second_one = story.start("worker-2")
    story.see("process-alive", uid=first["uid"], pod=first["pod"], node="worker-1", pid=99, alive=True)
    story.train(first, 33, fenced=True)
    story.train(second_one, 40)
    first["events"].append({"event": "superseded", "at": iso(story.now), "reason": "a newer generation"})
    first["log_source"], first["log_complete"] = "node", False
    story.finish(second_one)
    story.act("start-kubelet", "worker-1")
    story.act("remove-taint", "worker-1")


def _corrupted(story: Story) -> None:
    first = story.start()
    story.train(first, 33)
    story.damaged = {30}
    story.act("corrupt-and-kill", first["pod"], pod_uid=first["uid"], step=30, file="state", offset=100)
    story.snap("after-fault")
    story.end(first, 137)
    story.counted = 1
    story.wait(10)
    story.finish(story.start())


def _two_finishers(story: Story) -> None:
    first = story.start()
    story.train(first, 50)
    story.act("freeze", first["pod"])
    story.act("create-second", f"{story.run_id}-second")
    other = story.start("worker-2")
    story.train(other, 59)
    story.act("thaw", first["pod"])
    story.train(first, STEPS, fenced=True)
    story.train(other, STEPS)
    story.commit(other)
    story.say(first, "superseded", reason="a newer generation")
    story.end(first, 76)
    story.end(other, 0)


def _volume_full(story: Story) -> None:
    first = story.start()
    story.train(first, 25)
    story.act("fill-volume", "checkpoints", bytes=1 << 20)
    story.train(first, 35, full=True)
    story.act("free-volume", "checkpoints")
    story.finish(first)


def _many_preemptions(story: Story) -> None:
    for number in range(BUDGET + 1):
        attempt = story.start()
        story.train(attempt, 12 * (number + 1))
        story.preempt(attempt, save=number != 1)
    story.finish(story.start())


def _crash(story: Story) -> None:
    first = story.start()
    story.train(first, 27)
    story.act("kill-program", first["pod"], signal=11)
    story.end(first, 139)
    story.counted = 1
    story.wait(10)
    story.finish(story.start())


def _always_crashes(story: Story) -> None:
    story.facts["run"]["fail_at_step"] = 25
    for _ in range(BUDGET + 1):
        attempt = story.start()
        story.train(attempt, 25)
        story.end(attempt, 1)
        story.wait(10)
    story.counted = BUDGET if story.controller == "jobset" else BUDGET + 1


def _bad_input(story: Story) -> None:
    attempt = story.start()
    attempt["events"] = attempt["events"][:1]
    story.say(attempt, "bad-input", reason="HOLDFAST_DIGITS_BATCH is 'many': write a whole number.")
    story.end(attempt, 78, "the program refused its input")
    story.counted = 1


def _no_progress(story: Story) -> None:
    for _ in range(IDLE_LIMIT):
        attempt = story.start()
        story.train(attempt, 5)
        story.preempt(attempt, save=False)
    story.end(story.start(program=False), 77, "3 attempts in a row started at step 0")
    story.counted = 1


_TOLD = {
    REFERENCE: _reference,
    "pod-deletion": lambda story: _preempted("delete-pod", story),
    "eviction": lambda story: _preempted("evict", story),
    "drain": lambda story: _preempted("evict", story),
    "kill-during-save": _kill_during_save,
    "zombie": _zombie,
    "corrupted-checkpoint": _corrupted,
    "two-finishers": _two_finishers,
    "volume-full": _volume_full,
    "many-preemptions": _many_preemptions,
    "crash": _crash,
    "always-crashes": _always_crashes,
    "bad-input": _bad_input,
    "no-progress": _no_progress,
}
_FAILED = {
    "always-crashes": "BackoffLimitExceeded",
    "bad-input": "PodFailurePolicy",
    "no-progress": "PodFailurePolicy",
}


@cache
def _story(fault: str, controller: str) -> str:
    story = Story(fault, controller)
    _TOLD[fault](story)
    reason = _FAILED.get(fault, "")
    return json.dumps(story.close("Failed" if reason else "", reason))


def scenario(fault: str, controller: str = "job") -> dict[str, Any]:
    """One scenario as JSON, to be changed at will."""
    return json.loads(_story(fault, controller))


def document(*scenarios: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The facts of an acceptance as JSON, with one reference."""
    return {
        "format": FORMAT,
        "tool_version": "0.1.0",
        "id": "acc-1",
        "stack": "dev",
        "environment": "rehearsal",
        "cluster": {
            "server_version": "v1.37.2",
            "nodes": [{"name": "worker-1", "gpus": 2}, {"name": "worker-2", "gpus": 2}],
            "rehearsal": True,
            "clock_offset_seconds": 0.0,
        },
        "image": IMAGE,
        "started_at": iso(BEGIN),
        "ended_at": iso(BEGIN + timedelta(minutes=5)),
        "asked": [each["fault"] for each in scenarios],
        "references": [scenario(REFERENCE)],
        "scenarios": copy.deepcopy(list(scenarios)),
        "skipped": [],
        "problems": [],
        **more,
    }


@cache
def _alone() -> Acceptance:
    return load(json.dumps(document()))


def acceptance(*scenarios: dict[str, Any], **more: Any) -> Acceptance:
    if more:
        return load(json.dumps(document(*scenarios, **more)))
    read = [Scenario.model_validate_json(json.dumps(each)) for each in scenarios]
    return _alone().model_copy(update={"scenarios": read, "asked": [each.fault for each in read]})


def judged(story: dict[str, Any], **more: Any) -> ScenarioVerdict:
    """The verdict on one story."""
    return judge(read(acceptance(story, **more))[1][0])


def assertion(verdict: ScenarioVerdict, name: str) -> Assertion:
    return next(each for each in verdict.assertions if each.name == name)


def events(story: dict[str, Any], attempt: int, name: str) -> list[dict[str, Any]]:
    """The events of that name, in the story itself."""
    return [event for event in story["attempts"][attempt]["events"] if event["event"] == name]


SLUGS = [kind.slug for kind in FAULTS]
