"""The same names and times in every run: a state that was seen is known again, a failure can be repeated."""

from __future__ import annotations

import datetime as datetimes
import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo

from trainer.recovery import events

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Clock = Callable[[], timedelta]


def steady() -> Clock:
    """A clock that goes on by a millisecond each time it is looked at."""
    count = itertools.count()
    return lambda: timedelta(milliseconds=next(count))


@contextmanager
def repeatable(prefix: str, clock: Clock | None = None) -> Iterator[None]:
    """`prefix`: a hex digit that the random names begin with, so that those of several processes differ."""
    tell = clock or steady()
    count = itertools.count()

    class Fake(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return BEGAN + tell()

    def token_hex(nbytes: int | None = None) -> str:
        return f"{prefix}{next(count):0{2 * (nbytes or 32) - 1}x}"

    real = secrets.token_hex, events.datetime, time.time
    assert events.datetime is datetimes.datetime, "one at a time"
    secrets.token_hex, events.datetime, time.time = (  # type: ignore[misc]
        token_hex,
        Fake,
        lambda: (BEGAN + tell()).timestamp(),
    )
    try:
        yield
    finally:
        secrets.token_hex, events.datetime, time.time = real  # type: ignore[misc]
