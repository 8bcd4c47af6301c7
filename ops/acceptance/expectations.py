"""What each fault must lead to: how the run ends, with which exit codes, and what counts as a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ops.acceptance.facts import REFERENCE

# Codes with a meaning of their own (trainer/recovery/exit_codes.py); any other is a fault, and counts.
PREEMPTED, SUPERSEDED, NO_PROGRESS, BAD_INPUT = 75, 76, 77, 78
RESERVED = frozenset({0, PREEMPTED, SUPERSEDED, NO_PROGRESS, BAD_INPUT})
KILLED = 137  # 128 + SIGKILL


@dataclass(frozen=True)
class Expectation:
    """Of one fault.

    result: the run ends with a committed result; else it fails and has none.
    ended: codes of the attempts before the last one. None in it: the code may stay unknown, because the node
        was gone. Empty: there is one attempt.
    any_fault: codes that are not reserved are expected besides `ended`.
    last: code of the last attempt.
    counted: failures that count against the budget; None: told by the fault's own assertion.
    resumes: a checkpoint was sealed before the fault, so that every later attempt starts above step 0.
    actions: what the driver must have done, each with an answer.
    reasons: reason of the Job's Failed condition.
    """

    result: bool = True
    ended: frozenset[int | None] = frozenset()
    any_fault: bool = False
    last: frozenset[int] = frozenset({0})
    any_last_fault: bool = False
    counted: int | None = 0
    resumes: bool = False
    actions: tuple[str, ...] = ()
    reasons: frozenset[str] = field(default_factory=frozenset)


_PREEMPTION: frozenset[int | None] = frozenset({PREEMPTED})

EXPECTED: Mapping[str, Expectation] = {
    REFERENCE: Expectation(),
    "pod-deletion": Expectation(ended=_PREEMPTION, resumes=True, actions=("delete-pod",)),
    "eviction": Expectation(ended=_PREEMPTION, resumes=True, actions=("evict",)),
    "drain": Expectation(ended=_PREEMPTION, resumes=True, actions=("cordon", "evict", "uncordon")),
    "kill-during-save": Expectation(
        ended=frozenset({KILLED}), counted=1, resumes=True, actions=("kill-program",)
    ),
    "zombie": Expectation(
        ended=frozenset({PREEMPTED, SUPERSEDED, KILLED, 143, None}), resumes=True, actions=("stop-kubelet",)
    ),
    "corrupted-checkpoint": Expectation(
        ended=frozenset({KILLED}), counted=1, resumes=True, actions=("corrupt-and-kill",)
    ),
    # Whoever loses the race has verified the other's result (0), or was fenced before it came so far (76).
    "two-finishers": Expectation(
        ended=frozenset({0, SUPERSEDED}),
        last=frozenset({0, SUPERSEDED}),
        counted=None,
        resumes=True,
        actions=("create-second",),
    ),
    "volume-full": Expectation(actions=("fill-volume", "free-volume")),
    "many-preemptions": Expectation(ended=_PREEMPTION, resumes=True),
    "crash": Expectation(any_fault=True, counted=1, resumes=True),
    "always-crashes": Expectation(
        result=False,
        any_fault=True,
        last=frozenset(),
        any_last_fault=True,
        counted=None,
        reasons=frozenset({"BackoffLimitExceeded"}),
    ),
    "bad-input": Expectation(
        result=False, last=frozenset({BAD_INPUT}), counted=None, reasons=frozenset({"PodFailurePolicy"})
    ),
    "no-progress": Expectation(
        result=False,
        ended=_PREEMPTION,
        any_fault=True,
        last=frozenset({NO_PROGRESS}),
        counted=None,
        reasons=frozenset({"PodFailurePolicy"}),
    ),
}


def fits(code: int | None, codes: frozenset[int | None] | frozenset[int], any_fault: bool) -> bool:
    """Whether an exit code is one of those, or, if so allowed, any code that means a fault."""
    return code in codes or (any_fault and code is not None and code not in RESERVED)


def allowed_words(codes: frozenset[int | None] | frozenset[int], any_fault: bool) -> str:
    """`75`, `0 or 76`, `any code of a fault`."""
    known = [str(code) for code in sorted(code for code in codes if code is not None)]
    if None in codes:
        known.append("untold")
    if any_fault:
        known.append("any code of a fault")
    return " or ".join(known)
