"""A volume that fails at any single call (once, from then on, or in its answer only), or takes little.

Whatever fails, the attempt ends in a way that can be retried, what was told before stays true, and power
may be lost at its end.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from tests.processes.crash_model import protocol
from tests.processes.crash_model.disk import materialise, real_tree
from tests.processes.crash_model.exploring import (
    Counted,
    Depth,
    Violation,
    check_some,
    folder,
    in_room,
    quiet,
    run,
)
from tests.processes.crash_model.protocol import RUN, Scenario, known_at
from tests.processes.crash_model.recorder import Recorder
from trainer.recovery import SaveFailed, Unverified

# What an NFS client hears when the server did it, the answer was lost, and the request is sent again.
SENT_AGAIN = {
    "mkdir": errno.EEXIST,
    "link": errno.EEXIST,
    "create": errno.EEXIST,
    "rename": errno.ENOENT,
    "replace": errno.ENOENT,
    "unlink": errno.ENOENT,
    "rmdir": errno.ENOENT,
}
NEEDS_SPACE = frozenset({"create", "write", "mkdir", "link", "rename", "replace", "fsync"})
# Ends that a Job retries. Superseded and BadInput are not among them: they would end the run for good.
RETRIED = (OSError, SaveFailed, Unverified)


class Kind(Enum):
    """How the volume fails."""

    ONCE = "once"
    FROM_HERE = "from here on"
    ANSWER = "done, but the answer is lost"


class Volume:
    """Fails at call `at`. `hit` tells whether it came to that."""

    def __init__(self, at: int, kind: Kind, number: int) -> None:
        self.at, self.kind, self.number = at, kind, number
        self.seen = -1
        self.hit = ""

    def before(self, name: str, place: str) -> None:
        self.seen += 1
        if self.kind is Kind.ANSWER or not (self._is_now() or self.kind is Kind.FROM_HERE and self.hit):
            return
        if self.number == errno.ENOSPC and name not in NEEDS_SPACE:
            return
        self.hit = self.hit or f"{name} {place}"
        raise OSError(self.number, os.strerror(self.number), place)

    def after(self, name: str, place: str) -> None:
        if self.kind is Kind.ANSWER and self._is_now() and name in SENT_AGAIN:
            number = SENT_AGAIN[name]
            self.hit = f"{name} {place}"
            raise OSError(number, os.strerror(number), place)

    def _is_now(self) -> bool:
        return self.seen == self.at


def inject(
    scenario: Scenario, kind: Kind, error: int, depth: Depth, every: int = 1, offset: int = 0
) -> Counted:
    """Fail at every call (or each `every`-th) of a scenario, and lose power at its end. Raises Violation."""
    counted = Counted(f"{scenario.name}: {errno.errorcode[error]} {kind.value}")
    choose = random.Random(f"{depth.seed} {counted.name}")
    tried: set[object] = set()
    with folder() as rooms:
        (rooms / "before").mkdir()
        noted: list[protocol.Fact] = []
        with quiet("a"):
            scenario.before(rooms / "before" / RUN, noted.append)
        past = real_tree(rooms / "before")
        with in_room(rooms) as room:
            materialise(past, room)
            recorder = Recorder(room)
            with recorder.recording():
                run(scenario, room / RUN, recorder.mark)
            counted.calls = len(recorder.calls)
        for at in range(offset, counted.calls, every):
            volume = Volume(at, kind, error)
            with in_room(rooms) as room:
                materialise(past, room)
                recorder = Recorder(room, volume.before, volume.after)
                for fact in noted:
                    recorder.mark(fact)
                end = _end_of(scenario, room / RUN, recorder, volume)
                if volume.hit:
                    counted.points += 1
                    told = _first_told_after(recorder, volume)
                    for number, disk in recorder.disks():
                        if number in (told, len(recorder.calls)):
                            known = known_at(recorder.marks, number)
                            counted.states += check_some(
                                end, recorder, number, disk, known, rooms, choose, depth, tried
                            )
    counted.distinct = len(tried)
    return counted


def _end_of(scenario: Scenario, run_dir: Path, recorder: Recorder, volume: Volume) -> str:
    """Run an attempt. Raises Violation for an end that would not be retried, or that need not have been."""
    end = "it ends well"
    with recorder.recording():
        try:
            run(scenario, run_dir, recorder.mark)
        except RETRIED as error:
            end = f"it ends with {error!r}"
        except Exception as error:
            raise Violation(
                f"ends with {error!r}, which no retry follows: {_what(scenario, volume)}"
            ) from error
    what = f"{_what(scenario, volume)}: {end}"
    passing = volume.kind is not Kind.FROM_HERE and scenario.run is protocol.whole_attempt
    if end != "it ends well" and passing and _hit_a_save(recorder, volume):
        raise Violation(f"one failed save ends the training: {what}")
    return what


def _what(scenario: Scenario, volume: Volume) -> str:
    return f"{scenario.name}, {errno.errorcode[volume.number]} {volume.kind.value} at {volume.hit}"


def _first_told_after(recorder: Recorder, volume: Volume) -> int:
    """When the first save after the fault returned: from here on it must outlive a crash, -1 for never."""
    saved = [at for at, fact in recorder.marks if at > volume.at and isinstance(fact, protocol.Saved)]
    return saved[0] if saved else -1


def _hit_a_save(recorder: Recorder, volume: Volume) -> bool:
    """Whether the call that failed was made between a save's begin and its end."""
    facts = [fact for at, fact in recorder.marks if at <= volume.at]
    return bool(facts) and isinstance(facts[-1], protocol.Offered)


def takes_little(choose: random.Random, most: int) -> Callable[[str, str], int | None]:
    """A volume that takes and gives a few bytes at a time."""
    return lambda name, place: choose.randint(1, most) if name in ("read", "write") else None
