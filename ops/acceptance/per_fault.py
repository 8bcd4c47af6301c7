"""Assertions of one fault each: that it was what it claims to be, and what must follow from it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ops.acceptance.common import counted_failures
from ops.acceptance.expectations import PREEMPTED, RESERVED, SUPERSEDED
from ops.acceptance.reading import Event, Life, Reading, mapping, text, whole
from ops.acceptance.verdict import Assertion, told


def judge_fault(reading: Reading) -> list[Assertion]:
    """Nothing more than the common ones for a fault that has none of its own."""
    find = _OWN.get(reading.fact.fault)
    return find(reading) if find else []


def _evicted(reading: Reading) -> list[Assertion]:
    """The API server's Eviction, which a plain deletion is not."""
    found = [
        (condition.reason, f"{life.where}/conditions/{index}")
        for life in reading.lives
        for index, condition in enumerate(life.fact.conditions)
        if condition.type == "DisruptionTarget" and condition.status == "True"
    ]
    reasons = {reason for reason, _ in found}
    return [
        told(
            "evicted",
            "DisruptionTarget with the reason EvictionByEvictionAPI",
            ", ".join(sorted(reasons)) or "no DisruptionTarget was seen",
            "EvictionByEvictionAPI" in reasons if found else None,
            [where for _, where in found],
        )
    ]


def _killed_in_a_save(reading: Reading) -> list[Assertion]:
    first = reading.lives[0] if reading.lives else None
    begun = first.all("checkpoint-begins") if first else []
    ended = {event.step for event in first.all("checkpoint", "checkpoint-failed")} if first else set()
    half = next((event for event in reversed(begun) if event.step not in ended), None)
    inside = told(
        "killed inside a save",
        "a save had begun and never ended",
        f"the save of step {half.step} never ended" if half else "no save was cut off",
        half is not None if begun else None,
        [event.where for event in begun[-1:]],
    )
    removed = [
        (name, event)
        for life in reading.lives[1:]
        for event in life.all("leftovers-removed")
        for name in _texts(event.data.get("names"))
        if name.startswith("tmp-step-")
    ]
    seen_there = [look for look in reading.looks if look.temporary and look is not reading.final]
    left = reading.final.temporary if reading.final else []
    there = bool(removed or seen_there)
    words = f"{len(removed)} removed by the next attempt" if removed else "none was seen to be removed"
    half_save = told(
        "the half save is gone",
        "its temporary directory was there, and is not at the end",
        f"{'it was there' if there else 'never seen'}; {words}; at the end: {', '.join(left) or 'none'}",
        None if reading.final is None or not (there or left) else there and not left,
        [event.where for _, event in removed] + [look.where for look in [*seen_there, *_final(reading)]],
    )
    return [inside, half_save]


def _zombie(reading: Reading) -> list[Assertion]:
    old, new = _pair(reading)
    if old is None or new is None:
        seen = f"{len(reading.claimants)} attempt(s) claimed a generation"
        return [told("the old process lived on", "a new attempt ran beside it", seen, None, [reading.where])]
    start = new.first("start") or new.restore
    begun = start.at if start else None
    alive = [
        f"{reading.where}/observations/{index}"
        for index, each in enumerate(reading.fact.observations)
        if each.what == "process-alive"
        and each.data.get("alive") is True
        and old.fact.uid in (each.data.get("uid"), each.data.get("pod_uid"))
        and begun is not None
        and reading.server_time(each.at) >= begun
    ]
    said = [event.where for event in old.events if begun and event.at and event.at > begun]
    lived = told(
        "the old process lived on",
        f"{old.title} was alive after {new.title} had started",
        f"seen alive {len(alive)} times and heard {len(said)} times after that",
        bool(alive or said) if begun else None,
        [*alive[:1], *said[:1], *([start.where] if start else [])],
    )
    return [lived, _nothing_counts(reading, old, new)]


def _nothing_counts(reading: Reading, old: Life, new: Life) -> Assertion:
    """Neither a checkpoint nor the result is of the old attempt, but for what it had sealed before."""
    name = "nothing of the zombie counts"
    expected = f"no checkpoint above step {new.resume_step} and no result is of generation {old.generation}"
    if reading.final is None or new.resume_step is None:
        missing = (
            "the volume was not read at the end" if reading.final is None else f"{new.title} did not restore"
        )
        return told(name, expected, missing, None, [f"{reading.where}/volume"])
    wrong = [
        f"step {step} on the volume is of generation {old.generation}"
        for step, entry in reading.final.verified.items()
        if step > new.resume_step and whole(entry.get("generation")) == old.generation
    ]
    wrong += [
        f"it acknowledged step {event.step}"
        for event in old.all("checkpoint")
        if event.step is not None and event.step > new.resume_step
    ]
    if whole(reading.final.result.get("generation")) == old.generation:
        wrong.append("result.json is its own")
    if any(event.data.get("ours") is True for event in old.all("result")):
        wrong.append("it says that it committed")
    if old.fact.exit_code == 0:
        wrong.append("it ended with 0")
    where = [reading.final.where, *(event.where for event in old.all("checkpoint", "result"))]
    return told(name, expected, "; ".join(wrong) or "nothing of it", not wrong, where)


def _set_aside(reading: Reading) -> list[Assertion]:
    damage = next(iter(reading.actions("corrupt-and-kill")), None)
    step = whole(damage[0].detail.get("step")) if damage else None
    if damage is None or step is None:
        seen = "no action says which step was damaged"
        return [
            told("set aside", "the damaged checkpoint is set aside", seen, None, [f"{reading.where}/done"])
        ]
    events = [
        (life, event)
        for life in reading.lives
        for event in life.all("checkpoint-set-aside")
        if str(event.data.get("step")) == str(step)
    ]
    kept = [name for look in _final(reading) for name in look.set_aside if name.startswith(f"step-{step}-")]
    aside = told(
        "set aside",
        f"step {step}, whose byte was flipped, is reported and kept aside",
        f"reported {len(events)} times; aside at the end: {', '.join(kept) or 'nothing'}",
        None if reading.final is None else bool(events and kept),
        [damage[1], *(event.where for _, event in events), *(look.where for look in _final(reading))],
    )
    life = events[0][0] if events else next(iter(reading.claimants[1:]), None)
    sealed = reading.sealed_before(life.generation or 0) if life else []
    before = max((each.step for each in sealed if each.step < step), default=None)
    resume = life.resume_step if life else None
    back = told(
        "resumed from the one before",
        f"step {before}, the newest good one below {step}" if before else f"a good one below step {step}",
        "no attempt restored after it" if resume is None else f"step {resume}",
        None if resume is None else before is not None and resume == before,
        [damage[1], *([life.restore.where] if life and life.restore else [])],
    )
    return [aside, back]


def _two_finishers(reading: Reading) -> list[Assertion]:
    old, new = _pair(reading)
    if old is None or new is None:
        seen = f"{len(reading.claimants)} attempt(s) claimed a generation"
        return [told("at once", "two attempts came to the end at once", seen, None, [reading.where])]
    start = new.first("start") or new.restore
    last = max((event.at for event in old.events if event.at), default=None)
    overlap = start is not None and start.at is not None and last is not None and start.at <= last
    steps = reading.fact.run.steps
    ends = {life.title: life.last_step for life in (old, new)}
    at_once = told(
        "at once",
        f"both attempts were there at once and did the last step, {steps}",
        f"{'at once' if overlap else 'one after the other'}; last steps: "
        + ", ".join(f"{title}: {step}" for title, step in ends.items()),
        overlap and all(step == steps for step in ends.values()) if last and start else None,
        [life.where for life in (old, new)],
    )
    wins = [life for life in (old, new) if any(e.data.get("ours") is True for e in life.all("result"))]
    lost = [life for life in (old, new) if life not in wins]
    finds = [life for life in lost if life.all("result") or life.fact.exit_code == SUPERSEDED]
    one = told(
        "one of the two",
        "one committed; the other found that result or was superseded",
        f"{', '.join(life.title for life in wins) or 'none'} committed; the other "
        + ("found it or was superseded" if finds else "said neither"),
        len(wins) == 1 and len(finds) == 1 if not reading.cut_short() or len(wins) > 1 else None,
        [event.where for life in (old, new) for event in life.all("result")] or [old.where, new.where],
    )
    return [at_once, one]


def _volume_full(reading: Reading) -> list[Assertion]:
    failures = [(life, event) for life in reading.lives for event in life.all("checkpoint-failed")]
    if not failures:
        unread = reading.cut_short()
        seen = "no failed save was reported"
        where = [life.where for life in reading.lives]
        return [told("reported", "the failed save is reported", seen, None if unread else False, where)]
    life, failed = failures[0]
    after = life.events[life.events.index(failed) + 1 :]
    steps = [event for event in after if event.name == "step"]
    saves = [event for event in after if event.name == "checkpoint"]
    return [
        told(
            "reported",
            "the failed save is reported with its reason",
            f"step {failed.step}: {text(failed.data.get('reason')) or 'no reason'}",
            bool(text(failed.data.get("reason"))),
            [event.where for _, event in failures],
        ),
        told(
            "training went on",
            "the same attempt trains on after it",
            f"{len(steps)} steps after it",
            bool(steps),
            [failed.where, *_ends(steps)],
        ),
        told(
            "a later save succeeded",
            "the same attempt saves again once there is room",
            f"step {saves[0].step}" if saves else "none",
            bool(saves),
            [failed.where, *_ends(saves[:1])],
        ),
    ]


def _many_preemptions(reading: Reading) -> list[Assertion]:
    preempted = [life for life in reading.lives if life.fact.exit_code == PREEMPTED]
    budget = reading.fact.run.backoff_limit
    return [
        told(
            "more preemptions than the budget",
            f"more than {budget}, which is what the run may fail",
            f"{len(preempted)} attempts were preempted",
            len(preempted) > budget,
            [f"{life.where}/exit_code" for life in preempted],
        )
    ]


def _always_crashes(reading: Reading) -> list[Assertion]:
    budget = reading.fact.run.backoff_limit
    crashed = [life for life in reading.lives if life.fact.exit_code not in (None, *RESERVED)]
    found, where = counted_failures(reading)
    # A JobSet counts the restarts that it made, a Job every failed Pod.
    wanted = budget if reading.fact.controller == "jobset" else budget + 1
    return [
        told(
            "stopped at the budget",
            f"{budget + 1} attempts: the first, and {budget} that the budget allows",
            f"{len(reading.lives)} attempts, {len(crashed)} of them crashed",
            len(reading.lives) == len(crashed) == budget + 1,
            [life.where for life in reading.lives],
        ),
        told(
            "every crash counted",
            f"{wanted} counted",
            "the controller's status was not read" if found is None else f"{found} counted",
            None if found is None else found == wanted,
            where,
        ),
    ]


def _bad_input(reading: Reading) -> list[Assertion]:
    steps = sum(len(life.steps) for life in reading.lives)
    reasons = [
        (text(mapping(life.fact.termination).get("message")), f"{life.where}/termination")
        for life in reading.lives
    ]
    told_why = any(words for words, _ in reasons)
    return [
        told(
            "failed at once",
            "one attempt, and not one step",
            f"{len(reading.lives)} attempts, {steps} steps",
            len(reading.lives) == 1 and not steps if reading.lives else None,
            [life.where for life in reading.lives],
        ),
        told(
            "the reason is told",
            "a sentence in the termination message",
            "; ".join(words for words, _ in reasons if words) or "none",
            told_why,
            [where for _, where in reasons],
        ),
    ]


def _no_progress(reading: Reading) -> list[Assertion]:
    limit = reading.fact.run.max_attempts_without_progress
    starts = [event for life in reading.lives for event in life.all("start")[:1]]
    steps = {event.step for event in starts}
    where = ", ".join(str(step) for step in sorted(step for step in steps if step is not None))
    seen = f"{len(starts)} attempts started, at step {where}"
    last = reading.lives[-1] if reading.lives else None
    return [
        told(
            "stopped for want of progress",
            f"{limit} attempts start at one step, and the next one gives up before it trains",
            f"{seen}; {len(reading.lives)} attempts in all",
            len(starts) == limit
            and len(steps) == 1
            and len(reading.lives) == limit + 1
            and last is not None
            and not last.steps
            if starts
            else None,
            [event.where for event in starts],
        )
    ]


def _pair(reading: Reading) -> tuple[Life | None, Life | None]:
    """The first two attempts that claimed a generation."""
    found = reading.claimants[:2]
    return (found[0], found[1]) if len(found) == 2 else (None, None)


def _final(reading: Reading) -> list:
    return [reading.final] if reading.final else []


def _ends(events: list[Event]) -> list[str]:
    return (
        [event.where for event in (events[:1] + events[-1:])]
        if len(events) > 1
        else [e.where for e in events]
    )


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


_OWN: Mapping[str, Callable[[Reading], list[Assertion]]] = {
    "eviction": _evicted,
    "drain": _evicted,
    "kill-during-save": _killed_in_a_save,
    "zombie": _zombie,
    "corrupted-checkpoint": _set_aside,
    "two-finishers": _two_finishers,
    "volume-full": _volume_full,
    "many-preemptions": _many_preemptions,
    "always-crashes": _always_crashes,
    "bad-input": _bad_input,
    "no-progress": _no_progress,
}
