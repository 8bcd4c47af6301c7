"""One way to wait: with a limit, a note of what is missing, and an error that says what was not ready."""

from __future__ import annotations

import time
from collections.abc import Callable

from rehearsal.errors import RehearsalError
from rehearsal.progress import Step


def wait_until(
    missing: Callable[[], str], *, limit_seconds: float, step: Step, fix: str, interval_seconds: float = 0.25
) -> None:
    """Call `missing` until it returns an empty string.

    `missing` says in a few words what is not ready yet. Raises RehearsalError with its last words after the limit.
    """
    deadline = time.monotonic() + limit_seconds
    while words := missing():
        step.note(f"waiting for {words}")
        if time.monotonic() > deadline:
            raise RehearsalError(f"{step.title}: after {limit_seconds:.0f} s this was not ready: {words}.", fix)
        time.sleep(interval_seconds)
