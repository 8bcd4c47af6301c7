"""What must be undone in every exit path: registered before the deed, done once, the last one first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from ops.errors import describe


class Undo:
    """A stack of deeds to undo. `run` never raises: what can not be undone is told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[str, Callable[[], None]]] = []

    def later(self, title: str, undo: Callable[[], None]) -> Callable[[], None]:
        """Register; returns a function that undoes it now, after which `run` leaves it alone.

        Undone now and failing, it raises and stays registered: `run` tries it again.
        """
        entry = (title, undo)
        with self._lock:
            self._open.append(entry)

        def now() -> None:
            with self._lock:
                if entry not in self._open:
                    return
            undo()
            with self._lock, suppress(ValueError):
                self._open.remove(entry)

        return now

    def run(self) -> list[str]:
        """Undo all that is left; sentences about what could not be undone."""
        problems = []
        while True:
            with self._lock:
                if not self._open:
                    return problems
                title, undo = self._open.pop()
            try:
                undo()
            except Exception as error:  # one that fails must not keep the others from being undone
                problems.append(f"Not undone: {title}. {describe(error)[0].splitlines()[0]}")
