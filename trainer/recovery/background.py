"""One piece of work at a time, in a thread of its own, and what became of it for whoever asks later."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs one piece of work at a time. For one thread to use: the training loop's.

    The thread is no daemon: an interpreter that ends by `sys.exit` or an exception waits for it.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._step = 0
        self._outcome: T | None = None
        self._error: BaseException | None = None

    @property
    def busy_with(self) -> int | None:
        """The step whose work goes on now, or None."""
        return self._step if self._thread is not None and self._thread.is_alive() else None

    def start(self, step: int, work: Callable[[bool], T | None]) -> None:
        """Start `work(True)` in a thread, or, where no thread is to be had, do `work(False)` here.

        The former work must have been waited for.
        """
        self._step, self._outcome, self._error = step, None, None
        thread = Thread(target=self._run, args=(work, True), name=f"checkpoint-{step}")
        try:
            thread.start()
        except RuntimeError:  # the Pod's limit of processes, or an interpreter that ends
            self._run(work, False)
        else:
            self._thread = thread

    def wait(self) -> T | None:
        """Wait for the work to end: what it returned, or None. Raises, once, the exception it ended with."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()
        return self._outcome

    def check(self) -> None:
        """Raise, once, the exception that the work has ended with; never waits."""
        if self.busy_with is None:
            self.wait()

    def _run(self, work: Callable[[bool], T | None], aside: bool) -> None:
        try:
            self._outcome = work(aside)
        except BaseException as error:  # of whatever kind: `wait` raises it where it can be acted on
            self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
