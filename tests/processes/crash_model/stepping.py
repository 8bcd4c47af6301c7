"""Several attempts at once, each in a thread that waits before every call until it is its turn."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.processes.crash_model.exploring import Gone
from tests.processes.crash_model.protocol import Note, no_hard_links
from tests.processes.crash_model.recorder import SHARED, Recorder
from trainer.recovery import Superseded

LONGEST_STEP_SECONDS = 30


class Attempts:
    """Attempts at one run, stepped from call to call: one at a time, and past calls that nobody else sees."""

    def __init__(self, root: Path, work: Sequence[Callable[[Note], None]]) -> None:
        self.recorder = Recorder(root, self._before)
        self.living = list(range(len(work)))
        self.superseded: list[int] = []
        self.failed: list[BaseException] = []
        self._power = True
        self._turns = [threading.Semaphore(0) for _ in work]
        self._back = threading.Semaphore(0)
        self._mine = threading.local()
        self._threads = [
            threading.Thread(target=self._run, args=(number, one), daemon=True)
            for number, one in enumerate(work)
        ]

    def play(self, schedule: Sequence[tuple[int, int]], to_the_end: bool, hard_links: bool = True) -> None:
        """Run as scheduled: (attempt, calls). Then all to their ends, or power is lost where they are."""
        with self.recorder.recording(), contextlib.nullcontext() if hard_links else no_hard_links():
            for thread in self._threads:
                thread.start()
            for number, calls in schedule:
                self._step(number % len(self._threads), calls)
            self._power = to_the_end
            for number in list(self.living):
                while number in self.living:
                    self._step(number, 1)
            for thread in self._threads:
                thread.join(LONGEST_STEP_SECONDS)

    def _step(self, number: int, calls: int) -> None:
        for _ in range(calls):
            if number not in self.living:
                return
            self._turns[number].release()
            assert self._back.acquire(timeout=LONGEST_STEP_SECONDS), f"attempt {number} hangs"

    def _before(self, name: str, place: str) -> None:
        number = getattr(self._mine, "number", None)
        if number is None:
            return
        if name in SHARED and self._power:
            self._back.release()
            self._turns[number].acquire()
        if not self._power:
            raise Gone

    def _run(self, number: int, work: Callable[[Note], None]) -> None:
        self._turns[number].acquire()
        self._mine.number = number
        try:
            if self._power:
                work(self.recorder.mark)
        except Gone:
            pass
        except Superseded:
            self.superseded.append(number)
        except BaseException as error:
            self.failed.append(error)
        finally:
            self._mine.number = None
            self.living.remove(number)
            self._back.release()
