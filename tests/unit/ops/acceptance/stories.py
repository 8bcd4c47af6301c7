"""Facts as a real acceptance would record them, one story per fault. Written by a small model of a run, a
clock and a volume, so that times, events, snapshots and hashes agree with each other.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from ops.acceptance.facts import FAULTS, FORMAT, REFERENCE, Acceptance, Scenario, load

BEGIN = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
STEPS, EVERY, STEP_SECONDS, BUDGET, IDLE_LIMIT = 60, 10, 0.1, 2, 3
IMAGE = "registry.example.com/trainer@sha256:" + "ab" * 32
WEIGHTS = hashlib.sha256(b"the weights").hexdigest()
METRICS = {"held_out_accuracy": 0.9611, "train_accuracy": 0.9993}


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def second(at: datetime) -> str:
    """As the API server writes it: cut to the second."""
    return at.replace(microsecond=0).isoformat().replace("+00:00", "Z")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Story:
    """One scenario as it unfolds. `now` is the one clock; the driver, nodes and server agree on it."""

    fault: str
    controller: str = "job"
    now: datetime = BEGIN
    facts: dict[str, Any] = field(default_factory=dict)
    volume: dict[int, int] = field(default_factory=dict)
    """Verified checkpoints: step to the generation that saved it."""
    damaged: set[int] = field(default_factory=set)
    set_aside: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    result: dict[str, Any] | None = None
    generation: int = 0
    counted: int = 0

    def __post_init__(self) -> None:
        kind = next((kind for kind in FAULTS if kind.slug == self.fault), None)
        letter = kind.letter if kind else ""
        self.run_id = f"accept-{self.fault}-{self.controller}"
        self.facts = {
            "letter": letter,
            "fault": self.fault,
            "title": kind.title if kind else "nothing disturbs this run",
            "controller": self.controller,
            "run_id": self.run_id,
            "reference": "",
            "namespace": "acceptance",
            "run": {
                "steps": STEPS,
                "checkpoint_every": EVERY,
                "seed": 7,
                "step_seconds": STEP_SECONDS,
                "gpus": 1,
                "backoff_limit": BUDGET,
                "deadline_seconds": 600,
                "grace_seconds": 30,
                "unreachable_seconds": 10,
                "max_attempts_without_progress": IDLE_LIMIT,
            },
            "started_at": iso(self.now),
            "completed": True,
            **{name: [] for name in ("done", "attempts", "objects", "snapshots", "observations", "watch")},
            "comparisons": [],
            "problems": [],
        }
        self.act("create", self.run_id)

    def wait(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    def act(self, what: str, target: str, **detail: Any) -> None:
        began = self.now
        self.facts["done"].append(
            {
                "at": iso(began),
                "done_at": iso(self.wait(0.02)),
                "what": what,
                "target": target,
                "detail": detail,
            }
        )

    def start(self, node: str = "worker-1", claims: bool = True, program: bool = True) -> dict[str, Any]:
        """A new Pod up to its restore; the attempt, to which more is said."""
        number = len(self.facts["attempts"]) + 1
        created = self.wait(0.11)
        scheduled, sandbox, started = self.wait(0.03), self.wait(0.62), self.wait(0.41)
        attempt = {
            "pod": f"{self.run_id}-{number}",
            "uid": f"uid-{number}",
            "node": node,
            "job": self.run_id,
            "created_at": second(created),
            "scheduled_at": second(scheduled),
            "sandbox_at": second(sandbox),
            "started_at": second(started),
            "phase": "Running",
            "conditions": [],
            "seen": {
                "created": iso(created),
                "scheduled": iso(scheduled),
                "sandbox": iso(sandbox + timedelta(seconds=0.4)),
                "started": iso(started + timedelta(seconds=0.3)),
            },
            "termination": {},
            "events": [],
            "log_source": "api",
            "log_complete": True,
        }
        self.facts["attempts"].append(attempt)
        if not claims:
            return attempt
        self.generation += 1
        attempt["generation"] = self.generation
        self.wait(0.15)
        if self.temporary:
            self.say(attempt, "leftovers-removed", names=sorted(self.temporary))
            self.temporary = []
        if not program:
            return attempt
        self.say(attempt, "start", step=max(self.volume, default=0), run_id=self.run_id)
        self.wait(1.3)
        self.say(attempt, "imported", seconds=1.3)
        for step in sorted(self.damaged, reverse=True):
            place = f"step-{step}-{self.generation}-beef"
            self.volume.pop(step)
            self.set_aside.append(place)
            self.say(attempt, "checkpoint-set-aside", step=str(step), reason="a hash differs", place=place)
        self.damaged = set()
        self.wait(0.02)
        attempt["at"] = attempt["resume"] = max(self.volume, default=0)
        step = attempt["at"]
        found = (
            {"digest": sha(f"{step}/{self.volume[step]}"), "seconds": 0.02} if step else {"reason": "none"}
        )
        self.say(attempt, "restore", step=step, **found)
        return attempt

    def say(self, attempt: dict[str, Any], event: str, **fields: Any) -> None:
        said = {"event": event, "at": iso(self.now), **fields}
        if event in (
            "start",
            "restore",
            "checkpoint",
            "checkpoint-begins",
            "checkpoint-failed",
            "leftovers-removed",
        ):
            said["generation"] = attempt["generation"]
        attempt["events"].append(said)

    def train(self, attempt: dict[str, Any], to: int, fenced: bool = False, full: bool = False) -> None:
        """Steps up to `to`, with a save each EVERY steps."""
        for step in range(attempt["at"] + 1, to + 1):
            self.wait(STEP_SECONDS)
            self.say(attempt, "step", step=step, loss=round(1 / step, 6), seconds=STEP_SECONDS)
            if step % EVERY == 0 and not fenced:
                self.save(attempt, step, full)
        attempt["at"] = to

    def save(self, attempt: dict[str, Any], step: int, full: bool = False) -> None:
        self.wait(0.001)
        self.say(attempt, "checkpoint-begins", step=step)
        self.wait(0.012)
        if full:
            self.say(attempt, "checkpoint-failed", step=step, reason="No space left on device (ENOSPC)")
            return
        self.volume[step] = attempt["generation"]
        for old in sorted(self.volume)[:-2]:
            del self.volume[old]
        digest = sha(f"{step}/{attempt['generation']}")
        self.say(
            attempt, "checkpoint", step=step, digest=digest, bytes=4096, seconds=0.012, blocked_seconds=0.001
        )

    def end(
        self, attempt: dict[str, Any], code: int, words: str = "said at the end", last_words: bool = True
    ) -> None:
        if last_words:
            step = max(self.volume, default=0)
            generation = attempt.get("generation", 0)
            self.say(attempt, "end", code=code, step=step, generation=generation, message=words)
            attempt["termination"] = {"code": code, "step": step, "generation": generation, "message": words}
        finished = self.wait(0.05)
        attempt["finished_at"], attempt["exit_code"] = second(finished), code
        attempt["seen"]["finished"] = iso(finished + timedelta(seconds=0.2))
        attempt["phase"] = "Succeeded" if code == 0 else "Failed"

    def preempt(self, attempt: dict[str, Any], what: str = "delete-pod", save: bool = True) -> None:
        """SIGTERM, one more save, code 75."""
        self.act(what, attempt["pod"], pod_uid=attempt["uid"], node=attempt["node"])
        if what == "evict":
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            attempt["conditions"].append(condition)
        attempt["deletion_requested_at"] = second(self.now)
        self.wait(0.08)
        self.say(attempt, "signal", number=15)
        if save:
            self.save(attempt, attempt["at"])
        self.say(attempt, "stopped", step=attempt["at"], saved=attempt["at"])
        self.end(attempt, 75)
        self.wait(10.0 if self.controller == "job" else 0.4)

    def commit(self, attempt: dict[str, Any], ours: bool = True) -> None:
        if ours:
            self.result = {
                "format": "holdfast.result/1",
                "run_id": self.run_id,
                "step": STEPS,
                "generation": attempt["generation"],
                "metrics": METRICS,
                "artifacts": [
                    {
                        "name": "model.safetensors",
                        "path": f"artifacts/{WEIGHTS}/m",
                        "size": 512,
                        "sha256": WEIGHTS,
                    }
                ],
                "details": {"platform": "cpu", "tolerance": 0.0},
            }
        assert self.result
        self.say(
            attempt,
            "result",
            step=STEPS,
            generation=self.result["generation"],
            metrics=METRICS,
            artifacts={"model.safetensors": WEIGHTS},
            ours=ours,
        )

    def finish(self, attempt: dict[str, Any]) -> None:
        self.train(attempt, STEPS)
        self.wait(0.2)
        self.commit(attempt)
        self.end(attempt, 0)

    def look(self, why: str) -> dict[str, Any]:
        """A snapshot of the volume."""
        entries = [
            {
                "step": step,
                "verified": step not in self.damaged,
                "digest": sha(f"{step}/{generation}"),
                "size": 4096,
                "generation": generation,
                "attempt": 1,
                "problem": "a hash differs" if step in self.damaged else "",
            }
            for step, generation in sorted(self.volume.items())
        ]
        working = {"generation": self.generation, "steps": entries, "temporary": list(self.temporary)}
        result = self.result and {
            **self.result,
            "sha256": sha(json.dumps(self.result)),
            "verified": True,
            "problem": "",
        }
        weights = {
            "name": "model.safetensors",
            "sha256": WEIGHTS,
            "size": 512,
            "verified": True,
            "problem": "",
        }
        inspect = {
            "directory": f"/checkpoints/{self.run_id}",
            "claims": [{"generation": number + 1} for number in range(self.generation)],
            "working": [{**working, "set_aside": list(self.set_aside)}] if self.generation else [],
            "result": result,
            "artifacts": [weights] if result else [],
            "heartbeat": None,
            "problems": [],
        }
        began = self.wait(1.2)
        return {
            "at": iso(began),
            "done_at": iso(self.wait(0.1)),
            "why": why,
            "inspect": inspect,
            "sha256": sha(json.dumps(inspect)),
        }

    def snap(self, why: str) -> None:
        self.facts["snapshots"].append(self.look(why))

    def see(self, what: str, **data: Any) -> None:
        self.facts["observations"].append({"at": iso(self.now), "what": what, "data": data})

    def close(self, ended: str = "", reason: str = "") -> dict[str, Any]:
        """The controller's end, and the last look at the volume."""
        for attempt in self.facts["attempts"]:
            attempt["log_lines"] = len(attempt["events"])
            attempt["log_sha256"] = sha(json.dumps(attempt["events"]))
            for own in ("generation", "at", "resume"):
                attempt.pop(own, None)
        kind = "JobSet" if self.controller == "jobset" else "Job"
        good = "Completed" if kind == "JobSet" else "Complete"
        condition = {"type": ended or good, "status": "True", **({"reason": reason} if reason else {})}
        status: dict[str, Any] = {"conditions": [condition]}
        if self.counted:
            status["restartsCountTowardsMax" if kind == "JobSet" else "failed"] = self.counted
        self.facts["objects"].append(
            {"kind": kind, "name": self.run_id, "uid": "uid-object", "status": status}
        )
        if self.fault != REFERENCE and self.result:
            self.facts["reference"] = f"accept-{REFERENCE}-job"
            compared = {"artifact": "model.safetensors", "sha256": WEIGHTS, "reference_sha256": WEIGHTS}
            self.facts["comparisons"].append({**compared, "max_abs_difference": 0.0, "tensors": 6})
        self.facts["volume"] = self.look("end")
        self.facts["ended_at"] = iso(self.now)
        return self.facts


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


def events(story: dict[str, Any], attempt: int, name: str) -> list[dict[str, Any]]:
    """The events of that name, in the story itself."""
    return [event for event in story["attempts"][attempt]["events"] if event["event"] == name]


SLUGS = [kind.slug for kind in FAULTS]
