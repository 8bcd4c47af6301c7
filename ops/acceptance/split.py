"""Where the time went: each recovery in parts, what it cost, and how much of the run was useful work.

The moments come from three clocks (ops/acceptance/facts.py). All are brought to the API server's; nodes are
taken to agree with it, as NTP makes them. Server times are cut to whole seconds: where the driver saw the
change within that second, its milliseconds are used. So one part may be wrong by a second; the whole is not,
because its ends are a driver's and a Pod's moment, in milliseconds. No part is negative, and parts sum to the
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ops.acceptance.common import counted_failures
from ops.acceptance.facts import Action
from ops.acceptance.reading import DISTURBING, SERVER_RESOLUTION, Event, Life, Reading, number
from ops.acceptance.verdict import Part, Recovery, Split, Totals

RESOLUTION_SECONDS = 1.0
# In the order of time. What each is, is said in docs/acceptance.md.
PARTS = (
    "terminate",
    "retry delay",
    "queue",
    "schedule",
    "mount",
    "start",
    "import",
    "restore",
    "first step",
)
_ALMOST = timedelta(milliseconds=999)

Moments = list[tuple[str, datetime | None]]
"""Each part with the moment at which it ends; None: not known, so it is told with the next one."""


def recoveries_of(reading: Reading) -> list[Recovery]:
    """One per attempt that followed another which had ended, or which was given up for dead."""
    found = []
    for ended, resumed in zip(reading.lives, reading.lives[1:], strict=False):
        cause = _cause(reading, ended, resumed)
        gone = _end_of(reading, ended, resumed)
        if cause is None and gone is None:
            continue  # a second one was made beside it
        if resumed.heard_to_the_end and not (resumed.first("start") or resumed.restore):
            continue  # it gave up before it started the program
        found.append(_recovery(reading, ended, resumed, cause, gone))
    return found


def start_of(reading: Reading) -> Split | None:
    """From the first Pod's creation to the end of its first step; None where one of them was not seen."""
    if not reading.lives:
        return None
    life = reading.lives[0]
    created = moment_of(reading, life, "created")
    return _split(created, _start_moments(reading, life, created)) if created else None


def totals_of(reading: Reading, recoveries: Sequence[Recovery]) -> Totals:
    """A scenario in numbers."""
    committed = any(event.data.get("ours") is True for _, event in reading.results)
    useful, wall = _useful_seconds(reading) if committed else None, _wall_seconds(reading)
    lost = [each.lost_steps for each in recoveries]
    gpu = [each.lost_gpu_seconds for each in recoveries]
    times = [each.split.seconds for each in recoveries if each.split]
    return Totals(
        attempts=len(reading.lives),
        counted_failures=counted_failures(reading)[0],
        resume_steps=[life.resume_step for life in reading.lives[1:] if life.resume_step is not None],
        wall_seconds=wall,
        useful_seconds=useful,
        goodput=round(min(1.0, useful / wall), 4) if wall and useful is not None else None,
        lost_steps=_sum(lost),
        lost_gpu_seconds=_sum(gpu),
        recovery_seconds=max(times, default=None),
    )


def _recovery(
    reading: Reading, ended: Life, resumed: Life, cause: tuple[Action, datetime] | None, gone: datetime | None
) -> Recovery:
    created = moment_of(reading, resumed, "created")
    begins = cause[1] if cause else gone
    split = None
    if begins and created:
        refused = _first_refusal(reading, gone or begins, created)
        moments: Moments = [("terminate", gone or created), ("retry delay", refused or created)]
        split = _split(begins, [*moments, *_start_moments(reading, resumed, created)])
    resume = resumed.resume_step
    lost = [event for event in ended.steps if resume is not None and (event.step or 0) > resume]
    lost_steps = None if resume is None else len({event.step for event in lost})
    lost_seconds = None if resume is None else _seconds(lost)
    idle = _idle_seconds(reading, ended, resumed, gone or created)
    held = None if idle is None or lost_seconds is None else idle + lost_seconds
    gpus = reading.fact.run.gpus
    return Recovery(
        ended=ended.index,
        resumed=resumed.index,
        cause=cause[0].what if cause else f"it ended with {_code(ended)}",
        resume_step=resume,
        lost_steps=lost_steps,
        lost_step_seconds=lost_seconds,
        idle_gpu_seconds=_round(None if idle is None else idle * gpus),
        lost_gpu_seconds=_round(None if held is None else held * gpus),
        split=split,
    )


def _code(life: Life) -> str:
    return "an untold code" if life.fact.exit_code is None else f"code {life.fact.exit_code}"


def _cause(reading: Reading, ended: Life, resumed: Life) -> tuple[Action, datetime] | None:
    """The last thing that was done to the ended attempt before the next one was made."""
    created = moment_of(reading, resumed, "created")
    latest = created + SERVER_RESOLUTION if created else None
    found = None
    for action, _ in reading.actions(*DISTURBING):
        at = reading.server_time(action.at)
        if _meant(action, ended) and (latest is None or at <= latest):
            found = (action, at)
    return found


def _meant(action: Action, life: Life) -> bool:
    """The action was done to this attempt, or to the node below it while it was there."""
    names = {str(action.detail.get(key)) for key in ("pod", "pod_uid", "uid")} | {action.target}
    if life.fact.pod in names or life.fact.uid in names or f"pod/{life.fact.pod}" in names:
        return True
    return action.what == "stop-kubelet" and bool(life.fact.node) and life.fact.node in names


def _end_of(reading: Reading, ended: Life, resumed: Life) -> datetime | None:
    """When the container had ended, or its Pod was removed for dead; None where it outlived the next one's
    creation.
    """
    created = moment_of(reading, resumed, "created")
    latest = created + SERVER_RESOLUTION if created else None
    for state in ("finished", "gone"):
        at = moment_of(reading, ended, state)
        if at is not None and (latest is None or at <= latest):
            return at
    return None


def moment_of(reading: Reading, life: Life, state: str) -> datetime | None:
    """When an attempt came into a state: the server's second, made finer by what the driver saw."""
    fact = life.fact
    at = {
        "created": fact.created_at,
        "scheduled": fact.scheduled_at,
        "sandbox": fact.sandbox_at,
        "started": fact.started_at,
        "finished": fact.finished_at,
    }.get(state)
    seen = reading.server_time(fact.seen[state]) if state in fact.seen else None
    if at is None:
        return seen
    at = at.astimezone(UTC)
    if seen is None or at.microsecond:
        return at
    # Seen more than a second later, it was told late, and the middle of its second is the best guess.
    guess = max(seen, at) if seen <= at + _ALMOST else at + SERVER_RESOLUTION / 2
    # The container was there whenever it said something.
    if state == "started" and life.spoke and at <= life.spoke[0] <= at + _ALMOST:
        return min(guess, life.spoke[0])
    if state == "finished" and life.spoke and at <= life.spoke[1] <= at + _ALMOST:
        return max(guess, life.spoke[1])
    return guess


def _start_moments(reading: Reading, life: Life, created: datetime | None) -> Moments:
    """From a Pod that was made to its first new step."""
    scheduled = moment_of(reading, life, "scheduled")
    restore, imported = life.restore, life.first("imported")
    waited = any(
        seen.kind == "Pod" and seen.name == life.fact.pod and "PodScheduled=False" in seen.what
        for seen in reading.fact.watch
    )
    step = next(iter(life.steps), None)
    return [
        # A Pod that the scheduler turned down once is in the queue until it has a node.
        ("queue", scheduled if waited else created),
        ("schedule", None if waited else scheduled),
        ("mount", moment_of(reading, life, "sandbox")),
        ("start", moment_of(reading, life, "started")),
        ("import", imported.at if imported else _restore_begins(restore)),
        ("restore", restore.at if restore else None),
        ("first step", step.at if step else None),
    ]


def _restore_begins(restore: Event | None) -> datetime | None:
    """For a program that does not say when it had imported its framework."""
    seconds = number(restore.data.get("seconds")) if restore else None
    if restore is None or restore.at is None or seconds is None or not 0 <= seconds < 1e6:
        return None
    return restore.at - timedelta(seconds=seconds)


def _first_refusal(reading: Reading, since: datetime, created: datetime) -> datetime | None:
    """When the quota, or another admission, first refused the Pod that was made later."""
    times = [
        reading.server_time(seen.at)
        for seen in reading.fact.watch
        if seen.kind == "Event" and seen.what.startswith("event FailedCreate")
    ]
    return min((at for at in times if since <= at <= created), default=None)


def _split(begins: datetime, moments: Moments) -> Split | None:
    """Parts between moments; each moment is brought between the one before it and the last one."""
    last = moments[-1][1]
    if last is None:
        return None
    last = max(last, begins)
    parts, now, untold = [], begins, []
    for name, moment in moments:
        if moment is None:
            untold.append(name)
            continue
        ends = min(max(moment, now), last)
        parts += [Part(name=each, seconds=None, note=f"told with {name}") for each in untold]
        parts.append(Part(name=name, seconds=round((ends - now).total_seconds(), 3)))
        now, untold = ends, []
    return Split(
        begins=begins.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        seconds=round((last - begins).total_seconds(), 3),
        resolution_seconds=RESOLUTION_SECONDS,
        parts=parts,
    )


def _idle_seconds(
    reading: Reading, ended: Life, resumed: Life, ended_latest: datetime | None
) -> float | None:
    """Seconds in which a Pod held its GPUs without training: after the last step, before the first one."""
    freed = moment_of(reading, ended, "finished") or ended_latest
    last = ended.steps[-1].at if ended.steps else moment_of(reading, ended, "scheduled")
    held = moment_of(reading, resumed, "scheduled")
    first = resumed.steps[0] if resumed.steps else None
    if freed is None or last is None or held is None or first is None or first.at is None:
        return None
    stopping = max(0.0, (freed - last).total_seconds())
    own = number(first.data.get("seconds")) or 0.0
    return stopping + max(0.0, (first.at - held).total_seconds() - own)


def _useful_seconds(reading: Reading) -> float | None:
    """Each step once: as the attempt of the newest generation did it."""
    done: dict[int, Event] = {}
    for life in sorted(reading.lives, key=lambda life: (life.generation or 0, life.index)):
        done.update({event.step: event for event in life.steps if event.step is not None})
    return _seconds(list(done.values())) if done else None


def _wall_seconds(reading: Reading) -> float | None:
    if not reading.lives:
        return None
    begun = moment_of(reading, reading.lives[0], "created")
    results = [event.at for _, event in reading.results if event.data.get("ours") is True and event.at]
    ends = results or [at for life in reading.lives if (at := moment_of(reading, life, "finished"))]
    return _round(max(0.0, (max(ends) - begun).total_seconds())) if begun and ends else None


def _seconds(steps: Sequence[Event]) -> float | None:
    """What the steps took, as they said; None where one did not."""
    found = [number(event.data.get("seconds")) for event in steps]
    return None if any(each is None for each in found) else _round(sum(each or 0.0 for each in found))


def _sum(values: Sequence[float | None]) -> float | None:
    return None if any(value is None for value in values) else _round(sum(value or 0 for value in values))


def _round(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, 3)
