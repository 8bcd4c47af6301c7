"""Waiting that is shown: what is being done, for how long, and what it waits for.

On a terminal a spinner with a clock; elsewhere a line at the start, one every 15 seconds, and one at the end.
Everything goes to standard error, so that a command's own output stays clean.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from rich.console import Console
from rich.status import Status

HEARTBEAT_SECONDS = 15.0


class Step:
    """One piece of work under way. Several threads may have a step open at once."""

    def __init__(self, title: str, estimate_seconds: float | None) -> None:
        self.title = title
        self.estimate_seconds = estimate_seconds
        self.started = time.monotonic()
        self._note = ""

    def note(self, text: str) -> None:
        """Say what is being waited for right now."""
        self._note = text

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def line(self) -> str:
        usual = f" of about {_clock(self.estimate_seconds)}" if self.estimate_seconds else ""
        waiting = f": {self._note}" if self._note else ""
        return f"{self.title} ({_clock(self.elapsed)}{usual}){waiting}"


class Progress:
    """Shows steps to a person at a terminal or in a log file."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._open: list[Step] = []
        self._lock = threading.RLock()
        self._status: Status | None = None
        self._wake = threading.Event()

    def say(self, text: str) -> None:
        with self._lock:
            self.console.print(text, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def step(self, title: str, estimate_seconds: float | None = None) -> Iterator[Step]:
        step = Step(title, estimate_seconds)
        with self._lock:
            self._open.append(step)
            if not self.console.is_terminal and estimate_seconds and estimate_seconds > HEARTBEAT_SECONDS:
                self.say(f"… {title} (about {_clock(estimate_seconds)})")
            if len(self._open) == 1:
                self._wake.clear()
                threading.Thread(target=self._beat, daemon=True).start()
        failed = True
        try:
            yield step
            failed = False
        finally:
            with self._lock:
                self._open.remove(step)
                if not self._open:
                    self._wake.set()
                    if self._status:
                        self._status.stop()
                        self._status = None
                if failed:
                    self.say(f"✗ {title} (after {_clock(step.elapsed)})")
                elif step.elapsed > 0.5:
                    self.say(f"✓ {title} ({_clock(step.elapsed)})")
            sys.stderr.flush()

    def _beat(self) -> None:
        spoken = time.monotonic()
        while not self._wake.wait(0.5):
            with self._lock:
                if not self._open:
                    return
                text = " · ".join(step.line() for step in self._open)
                if self.console.is_terminal:
                    if self._status is None:
                        self._status = self.console.status(text)
                        self._status.start()
                    self._status.update(text)
                elif time.monotonic() - spoken >= HEARTBEAT_SECONDS:
                    spoken = time.monotonic()
                    self.say(f"… {text}")


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"
