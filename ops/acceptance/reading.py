"""Facts in the words of the judge: what each attempt said, what was acknowledged, what was where.

Nothing here fails on a value of the wrong kind: events, status objects and snapshots come from elsewhere, and
in a file that somebody else wrote they may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from ops.acceptance.facts import Acceptance, Action, Attempt, Json, Scenario, Snapshot

# Ways in which a scenario ends an attempt, or makes a second one beside it.
DISTURBING = frozenset({"delete-pod", "evict", "kill-program", "corrupt-and-kill", "stop-kubelet"})
# Server times are cut to whole seconds, so that what happened later may seem to have happened before.
SERVER_RESOLUTION = timedelta(seconds=1)
UNREAD = "a log that was not read to its end"
LEAST_KEPT = 2  # verified checkpoints that retention leaves: trainer/recovery/checkpoints.py


def whole(value: Any) -> int | None:
    """The whole number, or None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Any) -> float | None:
    """The finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= 1e300 else None  # which no NaN is


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[Json]:
    """The objects of a list; nothing for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def moment(value: Any) -> datetime | None:
    """The time of an event, with a zone, or None."""
    try:
        found = datetime.fromisoformat(value)
        return found.astimezone(UTC) if found.tzinfo else None
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Event:
    """One line that an attempt said. `where`: its JSON pointer."""

    name: str
    at: datetime | None
    step: int | None
    generation: int | None
    data: Json
    where: str


@dataclass(frozen=True)
class Life:
    """One attempt: the Pod, and what it said. `index`: its place in the scenario's attempts."""

    index: int
    fact: Attempt
    where: str
    events: tuple[Event, ...]

    @property
    def title(self) -> str:
        return f"attempt {self.index + 1}"

    def all(self, *names: str) -> list[Event]:
        return [event for event in self.events if event.name in names]

    def first(self, name: str) -> Event | None:
        return next((event for event in self.events if event.name == name), None)

    @cached_property
    def generation(self) -> int | None:
        """The generation that it claimed; None where it claimed none, or did not say."""
        for event in self.all("start", "restore", "checkpoint"):
            if event.generation:
                return event.generation
        said = [mapping(self.fact.termination).get("generation"), *(e.generation for e in self.all("end"))]
        return next((found for value in said if (found := whole(value)) and not self.first("result")), None)

    @cached_property
    def steps(self) -> list[Event]:
        return [event for event in self.all("step") if event.step is not None]

    @cached_property
    def spoke(self) -> tuple[datetime, datetime] | None:
        """When it first and last said something; None where it said nothing."""
        times = [event.at for event in self.events if event.at]
        return (min(times), max(times)) if times else None

    @property
    def heard_to_the_end(self) -> bool:
        """The log was read to its end, or to the supervisor's last words."""
        return self.fact.log_complete or bool(self.events and self.events[-1].name == "end")

    @property
    def restore(self) -> Event | None:
        return self.first("restore")

    @property
    def resume_step(self) -> int | None:
        return self.restore.step if self.restore else None

    @property
    def last_step(self) -> int | None:
        return max((event.step for event in self.steps if event.step is not None), default=None)


@dataclass(frozen=True)
class Sealed:
    """A checkpoint that an attempt acknowledged. `digest`: of its manifest; empty where it was not told."""

    step: int
    generation: int
    at: datetime | None
    where: str
    life: Life
    digest: str = ""


@dataclass(frozen=True)
class Look:
    """A snapshot of the run's directory. `steps`: (step, generation that saved it) to the inspected entry."""

    fact: Snapshot
    where: str

    @cached_property
    def working(self) -> list[Json]:
        return objects(self.fact.inspect.get("working"))

    @cached_property
    def entries(self) -> list[Json]:
        return [entry for folder in self.working for entry in objects(folder.get("steps"))]

    @cached_property
    def verified(self) -> dict[int, Json]:
        found: dict[int, Json] = {}
        for entry in self.entries:
            if entry.get("verified") is True and (step := whole(entry.get("step"))) is not None:
                found[step] = entry
        return found

    @cached_property
    def temporary(self) -> list[str]:
        """Temporary directories of saves, by name; not those of a removal."""
        names = [name for folder in self.working for name in _names(folder.get("temporary"))]
        return [name for name in names if name.startswith("tmp-step-")]

    @cached_property
    def set_aside(self) -> list[str]:
        return [name for folder in self.working for name in _names(folder.get("set_aside"))]

    @property
    def result(self) -> Json:
        return mapping(self.fact.inspect.get("result"))


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


@dataclass(frozen=True)
class Reading:
    """A scenario, read. `where`: its JSON pointer; `offset`: what makes a driver's time a server's."""

    fact: Scenario
    where: str
    offset: timedelta
    reference: Scenario | None = None

    @cached_property
    def lives(self) -> list[Life]:
        return [self._life(index, attempt) for index, attempt in enumerate(self.fact.attempts)]

    @cached_property
    def claimants(self) -> list[Life]:
        """Attempts that claimed a generation, oldest generation first."""
        return sorted((life for life in self.lives if life.generation), key=lambda life: life.generation or 0)

    @cached_property
    def sealed(self) -> list[Sealed]:
        return [
            Sealed(
                step=event.step,
                generation=event.generation or life.generation or 0,
                at=event.at,
                where=event.where,
                life=life,
                digest=text(event.data.get("digest")),
            )
            for life in self.lives
            for event in life.all("checkpoint")
            if event.step is not None
        ]

    @cached_property
    def looks(self) -> list[Look]:
        """All snapshots by time, the last one at the end."""
        found = [Look(each, f"{self.where}/snapshots/{i}") for i, each in enumerate(self.fact.snapshots)]
        return [*found, *([self.final] if self.final else [])]

    @cached_property
    def final(self) -> Look | None:
        return Look(self.fact.volume, f"{self.where}/volume") if self.fact.volume else None

    @cached_property
    def results(self) -> list[tuple[Life, Event]]:
        return [(life, event) for life in self.lives for event in life.all("result")]

    def actions(self, *names: str) -> list[tuple[Action, str]]:
        """What the driver did, by name, with the JSON pointer; in the order of time."""
        found = [
            (action, f"{self.where}/done/{index}")
            for index, action in enumerate(self.fact.done)
            if action.what in names
        ]
        return sorted(found, key=lambda each: each[0].at)

    def server_time(self, driver: datetime) -> datetime:
        """A driver's moment by the API server's clock."""
        try:
            return driver.astimezone(UTC) + self.offset
        except OverflowError:
            return driver

    def damaged(self, sealed: Sealed) -> bool:
        """The driver damaged this very checkpoint: it was sealed before, and not saved anew afterwards."""
        for action, _ in self.actions("corrupt-and-kill"):
            done = self.server_time(action.done_at or action.at) + SERVER_RESOLUTION
            if action.detail.get("step") == sealed.step and (sealed.at is None or sealed.at <= done):
                return True
        return False

    def sealed_before(self, generation: int) -> list[Sealed]:
        """Acknowledged and unharmed checkpoints of older generations."""
        return [each for each in self.sealed if each.generation < generation and not self.damaged(each)]

    def cut_short(self) -> list[Life]:
        """Attempts whose log was not read as far as it counts.

        A log that goes on after a later attempt had taken over is enough: what a fenced writer says from then
        on has no effect, which the volume shows.
        """
        return [life for life in self.lives if not life.heard_to_the_end and not self._outlived(life)]

    def _outlived(self, life: Life) -> bool:
        last = life.spoke[1] if life.spoke else None
        starts = [
            later.first("start")
            for later in self.claimants
            if (later.generation or 0) > (life.generation or 0)
        ]
        return bool(life.generation and last) and any(
            start and start.at and start.at <= last for start in starts
        )

    def _life(self, index: int, attempt: Attempt) -> Life:
        where = f"{self.where}/attempts/{index}"
        return Life(index, attempt, where, tuple(_events(attempt.events, f"{where}/events")))


def _events(raw: list[Json], where: str) -> Iterator[Event]:
    for index, data in enumerate(raw):
        yield Event(
            name=text(data.get("event")),
            at=moment(data.get("at")),
            step=whole(data.get("step")),
            generation=whole(data.get("generation")),
            data=data,
            where=f"{where}/{index}",
        )


def read(facts: Acceptance) -> tuple[list[Reading], list[Reading]]:
    """The references and the scenarios of an acceptance, read."""
    offset = number(facts.cluster.clock_offset_seconds) or 0.0
    ahead = timedelta(seconds=offset if abs(offset) < 1e9 else 0.0)
    references = [Reading(run, f"/references/{i}", ahead) for i, run in enumerate(facts.references)]
    scenarios = [
        Reading(run, f"/scenarios/{i}", ahead, facts.reference_of(run))
        for i, run in enumerate(facts.scenarios)
    ]
    return references, scenarios
