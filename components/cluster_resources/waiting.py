"""Waiting for something in a cluster: shown, with a limit, and ended early by a fault that stays."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from components.cluster_resources.errors import ClusterProblem, ClusterUnreachable

POLL_SECONDS = 2.0
SPEAK_SECONDS = 15.0
FAULT_SECONDS = 30.0
"""A fault counts when it stays this long: right after an update the cluster is still being rewritten."""
SILENCE_SECONDS = 60.0
"""How long the API server may not answer, as it does while it is upgraded. Never at the first look."""


@dataclass(frozen=True)
class Verdict:
    """`ready`, or what is waited for and what waiting can not heal. Sentences are stable while nothing
    changes.
    """

    waiting: tuple[str, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What a person should know although nothing is waited for."""

    @property
    def ready(self) -> bool:
        return not self.waiting and not self.faults


@dataclass(frozen=True)
class Subject:
    """What is waited for, in words."""

    name: str
    """Such as `GPU stack`; with an article in a sentence."""
    setting: str
    """The setting that limits the wait, such as `holdfast:gpuOperator.timeoutMinutes`."""


def wait(
    look: Callable[[], Verdict],
    subject: Subject,
    timeout_seconds: float,
    stay_seconds: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Poll until the verdict has been ready for `stay_seconds`. Raises `ClusterProblem` on a lasting fault
    or timeout.
    """
    started = spoke = heard = clock()
    verdict = look()
    ready_since: float | None = None
    fault_since: dict[str, float] = {}
    while True:
        now = clock()
        fault_since = {fault: fault_since.get(fault, now) for fault in verdict.faults}
        lasting = [fault for fault, since in fault_since.items() if now - since >= FAULT_SECONDS]
        if lasting:
            raise ClusterProblem(f"The {subject.name} can not become ready. " + " ".join(lasting))
        ready_since = (ready_since if ready_since is not None else now) if verdict.ready else None
        if ready_since is not None and now - ready_since >= stay_seconds:
            say(" ".join([f"{subject.name}: ready after {now - started:.0f} s.", *verdict.notes]))
            return
        if ready_since is None and now - started >= timeout_seconds:
            raise ClusterProblem(_timeout(verdict, subject, timeout_seconds))
        if now - spoke >= SPEAK_SECONDS:
            say(f"{subject.name}, {now - started:.0f} s: {_waited_for(verdict)}")
            spoke = now
        sleep(POLL_SECONDS)
        try:
            verdict, heard = look(), clock()
        except ClusterUnreachable:
            if clock() - heard >= SILENCE_SECONDS:
                raise


def say(text: str) -> None:
    """Show a line: pulumi.log does not exist in the provider's process, but the engine shows what a dynamic
    provider prints.
    """
    print(text, file=sys.stderr, flush=True)


def _waited_for(verdict: Verdict) -> str:
    told = [*verdict.faults, *verdict.waiting]
    if not told:
        return "ready, looking whether it stays so."
    more = f" And {len(told) - 2} more." if len(told) > 2 else ""
    return "waiting. " + " ".join(told[:2]) + more


def _timeout(verdict: Verdict, subject: Subject, seconds: float) -> str:
    listed = "\n".join(f"  - {sentence}" for sentence in (*verdict.faults, *verdict.waiting))
    return (
        f"The {subject.name} is not ready after {seconds / 60:.0f} minutes ({subject.setting}):\n{listed}\n"
        "Correct what is listed and run `pulumi up` again; the installed release stays and only the "
        "waiting is repeated."
    )
