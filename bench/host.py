"""How much of its processors the host of a virtual machine took away meanwhile: a second in which it did is no measure."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

FIELDS = 8  # user, nice, system, idle, iowait, irq, softirq, steal: proc_stat(5); guest time is in user time


class Steal:
    """Reads /proc/stat each second while this context lasts."""

    def __init__(self, period: float = 1.0) -> None:
        self._period = period
        self._seen: list[tuple[float, float, float]] = []  # wall clock, seconds stolen, seconds of all processors
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Steal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def percent(self, start: datetime | None = None, end: datetime | None = None) -> float | None:
        """Of the time of all processors between two moments; None where they were not watched."""
        low = start.astimezone(UTC).timestamp() if start else 0.0
        high = end.astimezone(UTC).timestamp() if end else time.time()
        before = [row for row in self._seen if row[0] <= low] or self._seen[:1]
        after = [row for row in self._seen if row[0] >= high] or self._seen[-1:]
        if not before or not after or after[0][2] <= before[-1][2]:
            return None
        return round(100 * (after[0][1] - before[-1][1]) / (after[0][2] - before[-1][2]), 1)

    def _watch(self) -> None:
        self._read()
        while not self._over.wait(self._period):
            self._read()
        self._read()

    def _read(self) -> None:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1 : FIELDS + 1]]
        second = os.sysconf("SC_CLK_TCK")
        self._seen.append((time.time(), ticks[-1] / second, sum(ticks) / second))
