"""A small model of one run, a clock and a volume, which writes facts whose times, events and hashes agree."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ops.acceptance.facts import FAULTS, REFERENCE

BEGIN = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
STEPS, EVERY, STEP_SECONDS, BUDGET, IDLE_LIMIT = 60, 10, 0.1, 2, 3
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
