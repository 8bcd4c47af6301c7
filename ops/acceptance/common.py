"""Assertions that every scenario must pass, whatever was done to it."""

from __future__ import annotations

from itertools import pairwise

from ops.acceptance.committed import committed_once, final_weights, no_result, result_verifies
from ops.acceptance.expectations import Expectation, allowed_words, fits
from ops.acceptance.facts import Json
from ops.acceptance.reading import (
    LEAST_KEPT,
    SERVER_RESOLUTION,
    UNREAD,
    Life,
    Look,
    Reading,
    mapping,
    objects,
    text,
    whole,
)
from ops.acceptance.verdict import Assertion, told


def judge_common(reading: Reading, expect: Expectation) -> list[Assertion]:
    """As a person asks: was it done, did it resume, is anything lost, is the result right."""
    found = [carried_out(reading), *made(reading, expect), *undone(reading), *resumed(reading, expect)]
    if any(life.steps for life in reading.lives):
        found.append(no_step_skipped(reading, expect))
    if reading.sealed:
        found += [checkpoints_kept(reading), checkpoints_unchanged(reading)]
    if expect.result:
        found += [committed_once(reading), result_verifies(reading)]
        if reading.fact.reference or reading.fact.letter:
            found.append(final_weights(reading.fact, reading.reference, reading.where))
    else:
        found.append(no_result(reading))
    found += [exit_codes(reading, expect), how_it_ended(reading, expect)]
    if expect.counted is not None:
        found.append(counted(reading, expect.counted))
    return found


def carried_out(reading: Reading) -> Assertion:
    """The driver did what it had planned, and the run came to an end in time."""
    done, problems = reading.fact.completed, reading.fact.problems
    seen = "all of it was done" if done else "it was not done to the end"
    return told(
        "carried out",
        "the fault is made and the run comes to its end in time",
        "; ".join([seen, *problems]),
        True if done else None if not reading.fact.ended_at else False,
        [f"{reading.where}/completed", *(f"{reading.where}/problems/{i}" for i in range(len(problems)))],
    )


def made(reading: Reading, expect: Expectation) -> list[Assertion]:
    """The fault's actions were answered: a fault that was not made proves nothing."""
    if not expect.actions:
        return []
    found = reading.actions(*expect.actions)
    answered = {action.what for action, _ in found if action.done_at}
    missing = [name for name in expect.actions if name not in answered]
    return [
        told(
            "the fault was made",
            f"{', '.join(expect.actions)}: each asked for and answered",
            f"no answered {', no answered '.join(missing)}" if missing else "all of it",
            not missing,
            [where for _, where in found],
        )
    ]


_UNDOES = {
    "cordon": ("uncordon",),
    "add-taint": ("remove-taint",),
    "stop-kubelet": ("start-kubelet",),
    "fill-volume": ("free-volume",),
    # What was stopped may also be ended.
    "freeze": ("thaw", "kill-program", "corrupt-and-kill", "delete-pod", "evict"),
}


def undone(reading: Reading) -> list[Assertion]:
    """What the driver did to nodes, volume and processes is undone."""
    left, evidence = [], []
    for action, where in reading.actions(*_UNDOES):
        later = [
            (each, place)
            for each, place in reading.actions(*_UNDOES[action.what])
            if each.target == action.target and each.at >= action.at and each.done_at
        ]
        evidence += [where, *(place for _, place in later[:1])]
        if not later:
            left.append(f"{action.what} of {action.target}")
    if not evidence:
        return []
    seen = f"not undone: {', '.join(left)}" if left else "all undone"
    expected = "nodes, volume and processes are left as they were found"
    return [told("left as found", expected, seen, not left, evidence)]


def resumed(reading: Reading, expect: Expectation) -> list[Assertion]:
    """One per attempt: it started at the last step that had verified by then."""
    found = []
    for life in reading.lives:
        if life.restore is not None:
            found.append(_resume_step(reading, life))
        elif not life.heard_to_the_end and not life.events:
            expected = "the last step that was sealed before"
            found.append(told(f"resume step of {life.title}", expected, UNREAD, None, [life.where]))
    if expect.resumes:
        later = [life for life in reading.claimants[1:] if life.restore is not None]
        zero = [life.title for life in later if not life.resume_step]
        seen = ", ".join(str(life.resume_step) for life in later) or "no attempt that resumed"
        found.append(
            told(
                "resumed above step 0",
                "a checkpoint was sealed before the fault, and every later attempt starts from one",
                f"{', '.join(zero)} started at step 0" if zero else f"resumed at {seen}",
                bool(later) and not zero,
                [life.restore.where for life in later if life.restore],
            )
        )
    return found


def _resume_step(reading: Reading, life: Life) -> Assertion:
    restore = life.restore
    assert restore is not None
    generation = life.generation or 0
    before = reading.sealed_before(generation)
    last = max(before, key=lambda each: (each.step, each.generation), default=None)
    step = last.step if last else 0
    # A writer that dies between the rename and its word has sealed a step that it never acknowledged.
    unsaid = {
        event.step: event
        for other in reading.claimants
        if (other.generation or 0) < generation
        for event in other.all("checkpoint-begins")
        if event.step is not None and event.step > step and not _said(other, event.step)
    }
    evidence = [restore.where, *([last.where] if last else [])]
    seen = "not told" if restore.step is None else f"step {restore.step}"
    holds: bool | None = restore.step == step
    if restore.step in unsaid:
        seen += ", which was sealed but never acknowledged: its writer had died"
        evidence.append(unsaid[restore.step].where)
        holds = True
    elif holds and any((other.generation or 0) < generation for other in reading.cut_short()):
        seen, holds = f"{seen}, but an earlier attempt has {UNREAD}", None
    if last and restore.step == step and last.digest and text(restore.data.get("digest")) != last.digest:
        seen, holds = f"{seen}, but with another manifest than was sealed", False
    by = f"step {step}, sealed last by generation {last.generation}" if last else ""
    expected = by or "step 0: nothing was sealed"
    return told(f"resume step of {life.title}", expected, seen, holds, evidence)


def _said(life: Life, step: int) -> bool:
    return any(event.step == step for event in life.all("checkpoint", "checkpoint-failed"))


def no_step_skipped(reading: Reading, expect: Expectation) -> Assertion:
    """The first new step follows the resume step, and no step is left out up to the last one."""
    wrong, spans, evidence = [], [], []
    for life in reading.lives:
        if not life.steps:
            continue
        steps = [event.step or 0 for event in life.steps]
        evidence += [life.steps[0].where, life.steps[-1].where]
        spans.append(f"{life.title}: {steps[0]} to {steps[-1]}")
        first = (life.resume_step or 0) + 1
        if steps[0] != first:
            wrong.append(f"{life.title} began with step {steps[0]} instead of {first}")
        gap = next((pair for pair in pairwise(steps) if pair[1] != pair[0] + 1), None)
        if gap:
            wrong.append(f"{life.title} went from step {gap[0]} to {gap[1]}")
    last = max((life.last_step or 0 for life in reading.lives), default=0)
    if expect.result and last != reading.fact.run.steps:
        wrong.append(f"the last step is {last} instead of {reading.fact.run.steps}")
    cut = reading.cut_short()
    holds = False if wrong else None if cut else True
    seen = "; ".join(wrong or spans) + (f"; {cut[0].title} has {UNREAD}" if cut else "")
    expected = "each attempt begins with the step after the one it resumed from, and leaves none out"
    return told("no step skipped", expected, seen, holds, evidence)


def checkpoints_kept(reading: Reading) -> Assertion:
    """No acknowledged checkpoint is gone, but for those that two newer verified ones replace."""
    name, expected = (
        "nothing lost",
        (f"every acknowledged checkpoint is there and verifies, or {LEAST_KEPT} newer ones do"),
    )
    if reading.final is None:
        return told(name, expected, "the volume was not read at the end", None, [f"{reading.where}/volume"])
    lost, evidence = [], []
    good = [each for each in reading.sealed if not reading.damaged(each)]
    damaged = {each.step for each in reading.sealed if reading.damaged(each)}
    for look in reading.looks:
        if look is not reading.final and _taken_over_during(reading, look):
            continue
        begun = reading.server_time(look.fact.at) - SERVER_RESOLUTION
        done = reading.server_time(look.fact.done_at or look.fact.at) + SERVER_RESOLUTION
        # One that was sealed while the volume was being read may have made an older one go.
        at_once = {each.step for each in reading.sealed if each.at is None or each.at <= done}
        # One that was damaged since was good when an older one had to go.
        newer = set(look.verified) | (at_once if look is not reading.final else damaged)
        for each in good:
            known = look is reading.final or (each.at is not None and each.at <= begun)
            replaced = len([step for step in newer if step > each.step]) >= LEAST_KEPT
            if known and each.step not in look.verified and not replaced:
                lost.append(f"step {each.step} of {each.life.title} is not there ({look.fact.why})")
                evidence += [each.where, look.where]
    cut = reading.cut_short()
    steps = ", ".join(str(step) for step in sorted(reading.final.verified)) or "none"
    seen = "; ".join(lost) or f"{len(reading.sealed)} acknowledged; verified at the end: {steps}"
    holds = False if lost else None if cut else True
    if holds is None:
        seen += f"; {cut[0].title} has {UNREAD}"
    return told(name, expected, seen, holds, evidence or [reading.final.where])


def _taken_over_during(reading: Reading, look: Look) -> bool:
    """An attempt renamed the directory while it was read."""
    begun = reading.server_time(look.fact.at) - SERVER_RESOLUTION
    done = reading.server_time(look.fact.done_at or look.fact.at) + SERVER_RESOLUTION
    starts = [event.at for life in reading.lives for event in life.all("start", "restore") if event.at]
    return any(begun <= at <= done for at in starts) or len(look.working) > 1


def checkpoints_unchanged(reading: Reading) -> Assertion:
    """A sealed checkpoint has one manifest for all its life, and verifies each time it is read."""
    wrong, evidence, first = [], [], {}
    sealed: dict[int | None, set[str]] = {}
    for each in reading.sealed:
        sealed.setdefault(each.step, set()).add(each.digest)
    for look in reading.looks:
        for entry in look.entries:
            key = (whole(entry.get("step")), whole(entry.get("generation")))
            if entry.get("verified") is True:
                digest = text(entry.get("digest"))
                known = sealed.get(key[0], set())
                if known and "" not in known and digest not in known:
                    wrong.append(
                        f"step {key[0]} has another manifest than was acknowledged ({look.fact.why})"
                    )
                    evidence.append(look.where)
                if first.setdefault(key, digest) != digest:
                    wrong.append(
                        f"step {key[0]} of generation {key[1]} has another manifest ({look.fact.why})"
                    )
                    evidence.append(look.where)
            elif entry.get("verified") is False and not _excused(reading, entry):
                wrong.append(f"step {key[0]} does not verify ({look.fact.why}): {text(entry.get('problem'))}")
                evidence.append(look.where)
    seen = "; ".join(wrong) or f"{len(first)} read in {len(reading.looks)} looks at the volume"
    holds = False if wrong else bool(first) or None
    expected = "what is sealed keeps its manifest and verifies each time"
    return told(
        "checkpoints unchanged", expected, seen, holds, evidence or [look.where for look in reading.looks]
    )


def _excused(reading: Reading, entry: Json) -> bool:
    """Damaged by the driver, or removed by retention while it was read."""
    damaged = {whole(action.detail.get("step")) for action, _ in reading.actions("corrupt-and-kill")}
    return whole(entry.get("step")) in damaged or "went away" in text(entry.get("problem"))


def exit_codes(reading: Reading, expect: Expectation) -> Assertion:
    """The contract's codes, attempt by attempt; the supervisor's last words agree with the container's."""
    lives, wrong, unread = reading.lives, [], []
    for life in lives:
        code, last = life.fact.exit_code, life is lives[-1]
        codes, any_fault = (expect.last, expect.any_last_fault) if last else (expect.ended, expect.any_fault)
        said = whole(mapping(life.fact.termination).get("code"))
        if code is None and None not in codes:
            unread.append(life.title)
        elif not fits(code, codes, any_fault):
            wrong.append(f"{life.title} ended with {code}")
        elif code is not None and said is not None and said != code:
            wrong.append(f"{life.title} said {said} and ended with {code}")
    if (expect.ended or expect.any_fault) and len(lives) == 1:
        wrong.append("the fault ended no attempt")
    earlier = allowed_words(expect.ended, expect.any_fault)
    last_words = allowed_words(expect.last, expect.any_last_fault)
    expected = f"{earlier}, the last attempt {last_words}" if earlier else f"one attempt, with {last_words}"
    codes_seen = ", ".join(
        "untold" if life.fact.exit_code is None else str(life.fact.exit_code) for life in lives
    )
    seen = "; ".join([codes_seen or "no attempt", *wrong, *(f"{title}: not read" for title in unread)])
    holds = False if wrong else None if unread or not lives else True
    return told("exit codes", expected, seen, holds, [f"{life.where}/exit_code" for life in lives])


def how_it_ended(reading: Reading, expect: Expectation) -> Assertion:
    """The controller's own word for the end."""
    kind = "JobSet" if reading.fact.controller == "jobset" else "Job"
    good = "Completed" if kind == "JobSet" else "Complete"
    wanted = good if expect.result else "Failed"
    ends, evidence = [], []
    for index, item in enumerate(reading.fact.objects):
        if item.kind == kind:
            evidence.append(f"{reading.where}/objects/{index}/status")
            ends += [c for c in objects(item.status.get("conditions")) if c.get("status") == "True"]
    types = {text(c.get("type")): text(c.get("reason")) for c in ends if c.get("type") in (good, "Failed")}
    reasons = " or ".join(sorted(expect.reasons)) if kind == "Job" else ""
    expected = f"the {kind} is {wanted}" + (f" with the reason {reasons}" if reasons else "")
    seen = ", ".join(f"{name} ({reason})" if reason else name for name, reason in sorted(types.items()))
    holds: bool | None = wanted in types if types else None
    if holds and reasons:
        holds = types[wanted] in expect.reasons
    return told("how it ended", expected, seen or "no end was seen", holds, evidence)


def counted_failures(reading: Reading) -> tuple[int | None, list[str]]:
    """What the controller has counted against the run's budget, and where it says so."""
    kind, word = (
        ("JobSet", "restartsCountTowardsMax") if reading.fact.controller == "jobset" else ("Job", "failed")
    )
    found = [
        (item.status, f"{reading.where}/objects/{index}/status")
        for index, item in enumerate(reading.fact.objects)
        if item.kind == kind
    ]
    if not found or not all(status for status, _ in found):
        return None, [where for _, where in found]
    # The API leaves a zero out.
    return sum(whole(status.get(word)) or 0 for status, _ in found), [where for _, where in found]


def counted(reading: Reading, wanted: int) -> Assertion:
    """What does not count, does not; what counts, does, and stays within the budget."""
    found, where = counted_failures(reading)
    budget = reading.fact.run.backoff_limit
    expected = f"{wanted} of {budget} that the budget allows"
    seen = "the controller's status was not read" if found is None else f"{found} counted"
    return told(
        "counted failures", expected, seen, None if found is None else found == wanted <= budget, where
    )
