"""Crash at every call of a scenario, in every state that the disk may then have, and recover from each."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.processes.crash_model import adopting, protocol
from tests.processes.crash_model.disk import Disk, Fate, Tree, materialise, real_tree
from tests.processes.crash_model.protocol import RUN, Known, Scenario, known_at
from tests.processes.crash_model.recorder import REAL, Recorder, one_thread
from tests.processes.crash_model.repeatable import repeatable
from trainer.recovery import Attempt
from trainer.recovery.generation import claims

SHARED_MEMORY = Path("/dev/shm")


class Gone(BaseException):
    """The process ends here: nothing that comes later runs, whatever would clean up."""


class Violation(AssertionError):
    """An invariant does not hold; the text says which, in which scenario, and what survived."""


@dataclass
class Counted:
    """What was looked at. points: crash points, one more than calls; distinct: states recovered from."""

    name: str
    calls: int = 0
    points: int = 0
    states: int = 0
    distinct: int = 0
    nested: int = 0

    @property
    def recoveries(self) -> int:
        """Different states that were recovered from, those of a second crash included."""
        return self.distinct + self.nested


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder in memory where there is such: nothing here needs a disk."""
    place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="crash-model-", dir=place)).resolve()
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def quiet(prefix: str) -> Iterator[None]:
    """Not recorded: no flushing (nothing crashes for real), no events, and the same names each time."""
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    os.write = lambda descriptor, content: (  # type: ignore[assignment]
        len(content) if descriptor == 1 else REAL["write"](descriptor, content)
    )
    try:
        with one_thread(), repeatable(prefix):
            yield
    finally:
        os.fsync, os.write = REAL["fsync"], REAL["write"]


def record(scenario: Scenario, root: Path, dies_at: int | None = None) -> Recorder:
    """Run a scenario once and record it: undisturbed, or until its process dies at that call."""
    noted: list[protocol.Fact] = []
    with quiet("a"):
        scenario.before(root / RUN, noted.append)
    recorder = Recorder(root)
    for fact in noted:
        recorder.mark(fact)

    def dies(name: str, place: str) -> None:
        if len(recorder.calls) == dies_at:
            raise Gone

    recorder.before = dies
    with recorder.recording(), contextlib.suppress(Gone):
        run(scenario, root / RUN, recorder.mark)
    recorder.before = None
    return recorder


def run(scenario: Scenario, run_dir: Path, note: protocol.Note) -> None:
    with contextlib.nullcontext() if scenario.hard_links else protocol.no_hard_links():
        scenario.run(run_dir, note)


def check(tree: Tree, known: Known, room: Path, whole: bool = False) -> None:
    """Make a state real, recover from it, and check every invariant. `whole`: and train to the end."""
    check_kept(tree, known)
    materialise(tree, room)
    with quiet("c"):
        recover(room / RUN, known, lambda fact: None, whole)


def recover(run_dir: Path, known: Known, note: protocol.Note, whole: bool = False) -> None:
    """What the next Pod does, with every invariant on the way. Raises Violation."""
    with _told("recovery itself fails"):
        found = protocol.find_result(run_dir, note)
    check_result(run_dir, known, found)
    if found:
        return
    with _told("recovery itself fails"):
        attempt = protocol.claim(run_dir, note)
        step = protocol.restore(attempt, note)
    check_claims(attempt, known)
    if step < known.least:
        raise Violation(f"a save that returned is lost: step {known.least} was told, step {step} is restored")
    if step:
        content = protocol.read_files(attempt.store.work_dir / f"step-{step}")
        if content not in known.possible[step]:
            raise Violation(f"step {step} is restored with {content}, which nobody saved")
    left = [name for name in os.listdir(attempt.store.work_dir) if name.startswith(("tmp-", "outcome"))]
    if left:
        raise Violation(f"leftovers of dead attempts are not removed: {left}")
    if (attempt.store.work_dir / adopting.FOLDER).exists():
        with _told("bringing the program's own steps in order fails"):
            newest, _ = adopting.prepare(attempt, note)
        if (
            newest != step
            or step
            and adopting.found_by_the_program(attempt, step) not in known.possible[step]
        ):
            raise Violation(
                f"the program goes on from step {newest} instead of {step}, or from other content"
            )
        if whole:
            with _told("the program does not go on"):
                adopting.trains(attempt, note)
    elif whole:
        with _told("recovery does not come to its end"):
            protocol.start(attempt, step)
            protocol.save(attempt, step + 1, note)
            protocol.finish(attempt, note)
            protocol.find_result(run_dir, note)


def check_claims(attempt: Attempt, known: Known) -> None:
    """A number that is used twice fences nobody; a start that is forgotten counts as no progress."""
    if attempt.generation.number <= known.claimed:
        raise Violation(
            f"generation {known.claimed} was claimed and {attempt.generation.number} is claimed again"
        )
    records = claims(attempt.generation.run_dir)
    if forgotten := known.recorded - set(records):
        raise Violation(f"the claims of generations {sorted(forgotten)} are forgotten")
    for number, step in known.starts.items():
        if records.get(number, {}).get("start_step") != step:
            raise Violation(
                f"the start of generation {number} at step {step} is forgotten: {records.get(number)}"
            )


def check_result(run_dir: Path, known: Known, found: bool) -> None:
    if known.result is None:
        return
    if not found:
        raise Violation("an acknowledged result is lost")
    if protocol.result_bytes(run_dir) != known.result:
        raise Violation("an acknowledged result was written over")


def check_kept(tree: Tree, known: Known) -> None:
    """Retention, in every state: as many whole checkpoints as are to be kept, if so many were saved."""
    whole = sum(_is_whole(tree, step, known) for step in known.possible)
    least = min(protocol.KEEP, len(known.good))
    if whole < least:
        raise Violation(f"only {whole} whole checkpoints are left, but {least} were saved and are to be kept")


def _is_whole(tree: Tree, step: int, known: Known) -> bool:
    found: dict[str, dict[str, bytes]] = {}
    for path, content in tree.items():
        run, _, rest = path.partition("/")
        generation, _, rest = rest.partition("/")
        name, _, inner = rest.partition("/")
        # A sealed step that is being replaced is brought back under its name by the next attempt.
        if (
            run == RUN
            and generation.startswith("generation-")
            and inner
            and (name == f"step-{step}" or name.startswith(f"tmp-former-{step}-"))
        ):
            content = tree[content] if isinstance(content, str) else content  # another name of the same file
            if isinstance(content, bytes):
                found.setdefault(f"{generation}/{name}", {})[inner] = content
    for files in found.values():
        if files.pop("manifest.json", b"").endswith(b"}\n") and files in known.possible[step]:
            return True
    return False


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"{what}: {type(error).__name__}: {error}") from error


# Exploring


@dataclass(frozen=True)
class Depth:
    """How much is looked at.

    drawn: random fates at each point; whole: each how many-th state is trained to the end.
    nested: states of a scenario in whose recovery a second crash is made, at each of its calls. every: each
    how many-th call is taken where one more crash or fault multiplies them. examples: random schedules.
    """

    drawn: int = 2
    whole: int = 9
    nested: int = 1
    nested_drawn: int = 1
    every: int = 13
    examples: int = 50
    seed: int = 0


DEPTHS = {
    "fast": Depth(drawn=1, whole=10**9, nested=0, every=17, examples=15),
    "usual": Depth(),
    "thorough": Depth(drawn=12, whole=1, nested=25, nested_drawn=4, every=1, examples=400),
}
# Of the environment; a seed beside it looks at other random states.
DEPTH, SEED = "HOLDFAST_CRASH_MODEL", "HOLDFAST_CRASH_MODEL_SEED"


def depth_of(environ: Mapping[str, str]) -> Depth:
    """How deep to look: `fast`, `usual` or `thorough`."""
    return replace(DEPTHS[environ.get(DEPTH, "usual")], seed=int(environ.get(SEED, "0")))


def explore(scenario: Scenario, depth: Depth = Depth()) -> Counted:
    """Every crash point of a scenario. Raises Violation."""
    counted = Counted(scenario.name)
    choose = random.Random(f"{depth.seed} {scenario.name}")
    with folder() as rooms:
        (rooms / "recorded").mkdir()
        recorder = record(scenario, rooms / "recorded")
        counted.calls = len(recorder.calls)
        seen: list[tuple[Tree, Known]] = []
        tried: set[object] = set()
        for number, disk in recorder.disks():
            counted.points += 1
            known = known_at(recorder.marks, number)
            for fates in disk.fates(choose, depth.drawn):
                counted.states += 1
                tree = disk.after(fates).tree()
                key = (tuple(tree.items()), repr(known))
                if key in tried:
                    continue
                tried.add(key)
                seen.append((tree, known))
                with where(scenario.name, recorder, number, disk, fates), in_room(rooms) as room:
                    check(tree, known, room, whole=len(tried) % depth.whole == 0)
        counted.distinct = len(tried)
        if disk.everything().tree() != real_tree(rooms / "recorded"):
            raise AssertionError(f"{scenario.name}: something changed the folder beside the recorder")
        for tree, known in choose.sample(seen, min(depth.nested, len(seen))):
            counted.nested += crash_again(scenario.name, tree, known, rooms, choose, depth)
    return counted


def crash_again(name: str, tree: Tree, known: Known, rooms: Path, choose: random.Random, depth: Depth) -> int:
    """Crash at every call of the recovery from a state, and recover from that. How many states."""
    tried: set[object] = set()
    with in_room(rooms) as room:
        materialise(tree, room)
        recorder = Recorder(room)
        with recorder.recording():
            recover(room / RUN, known, recorder.mark, whole=True)
        for number, disk in recorder.disks():
            later = known_at(recorder.marks, number, known)
            check_some(f"recovery from {name}", recorder, number, disk, later, rooms, choose, depth, tried)
    return len(tried)


def killed(scenario: Scenario, depth: Depth, last: int | None = None) -> Counted:
    """The process alone ends, at each `every`-th call; the next one takes over; power is lost under that.

    Nothing of the dead one's is durable because it ended, and the next one sees all of it. last: only at so
    many calls at the end, but at each of them. Raises Violation.
    """
    counted = Counted(f"{scenario.name}, killed, then power lost")
    choose = random.Random(f"{depth.seed} {counted.name}")
    tried: set[object] = set()
    with folder() as rooms:
        (rooms / "whole").mkdir()
        counted.calls = len(record(scenario, rooms / "whole").calls)
        calls = range(counted.calls)
        for at in calls[:: depth.every] if last is None else calls[-last:]:
            with in_room(rooms) as room:
                recorder = record(scenario, room, dies_at=at)
                died = len(recorder.calls)
                with recorder.recording("d"):
                    protocol.whole_attempt(room / RUN, recorder.mark)
                told = {number for number, _ in recorder.marks}
                counted.points += 1
                for number, disk in recorder.disks():
                    if number > died and (number in told or number % 10 == 0):
                        known = known_at(recorder.marks, number)
                        counted.states += check_some(
                            f"{scenario.name}, killed at call {at}",
                            recorder,
                            number,
                            disk,
                            known,
                            rooms,
                            choose,
                            depth,
                            tried,
                        )
    counted.distinct = len(tried)
    return counted


def check_some(
    name: str,
    recorder: Recorder,
    number: int,
    disk: Disk,
    known: Known,
    rooms: Path,
    choose: random.Random,
    depth: Depth,
    tried: set[object],
) -> int:
    """Recover from a few states at one crash point: nothing pending kept, all of it, and random parts."""
    count = len(disk.pending)
    some = [
        (Fate.LOST,) * count,
        (Fate.KEPT,) * count,
        *(disk.drawn(choose) for _ in range(depth.nested_drawn)),
    ]
    for fates in some:
        tree = disk.after(fates).tree()
        key = (tuple(tree.items()), repr(known))
        if key not in tried:
            tried.add(key)
            with where(name, recorder, number, disk, fates), in_room(rooms) as room:
                check(tree, known, room, whole=len(tried) % depth.whole == 0)
    return len(some)


@contextmanager
def in_room(rooms: Path) -> Iterator[Path]:
    room = Path(tempfile.mkdtemp(dir=rooms))
    try:
        yield room
    finally:
        shutil.rmtree(room)


@contextmanager
def where(name: str, recorder: Recorder, number: int, disk: Disk, fates: Sequence[Fate]) -> Iterator[None]:
    try:
        yield
    except Violation as error:
        last = recorder.calls[number - 1] if number else None
        pending = "".join(
            f"\n  {fate.value}: {effect}" for fate, effect in zip(fates, disk.pending, strict=True)
        )
        done = f"after {last.name} {last.path}" if last else "before the first call"
        raise Violation(
            f"{error}\n  in: {name}, crash point {number} ({done}); what was pending:{pending or ' nothing'}"
        ) from error
