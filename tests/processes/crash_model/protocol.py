"""The protocol as supervisor and program use it, in steps that note what they were told, and the scenarios.

A fact is noted once the library's function has returned: from then on it must outlive any crash.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer.recovery import Attempt, CheckpointStore, SaveFailed, open_attempt
from trainer.recovery import generation as generations
from trainer.recovery import result as results
from trainer.recovery.files import encode_json, replace_whole, sha256_of

RUN = "run-001"
ENVIRONMENT = {"HOLDFAST_RUN_ID": RUN}
KEEP = 2
CHUNK_BYTES = 16  # a state of some bytes has several chunks
LAST_STEP = 3
Content = Mapping[str, bytes]


def state_of(step: int, of: str = "") -> dict[str, bytes]:
    """What a program saves at a step: files by path. `of` makes another content for the same step."""
    return {"state": f"state of step {step} {of}".encode().ljust(40, b".")}


def sharded_state_of(step: int) -> dict[str, bytes]:
    """The same in folders, with an empty file and an empty folder."""
    return {**state_of(step), "shards/0": f"shard of {step}".encode(), "shards/inner/1": b"", "empty": b""}


@dataclass(frozen=True)
class Offered:
    """A save of this content began: from now on it may be found, too."""

    step: int
    content: Content


@dataclass(frozen=True)
class Saved:
    """A save returned."""

    step: int
    content: Content


@dataclass(frozen=True)
class Restored:
    """A restore returned this step; 0 for none."""

    step: int


@dataclass(frozen=True)
class Damaged:
    """What was saved at this step is no more as it was."""

    step: int


@dataclass(frozen=True)
class Committed:
    """A result was committed or found, and verified, by somebody who ended well: the bytes of result.json."""

    content: bytes


@dataclass(frozen=True)
class Claimed:
    """A generation was claimed: nobody may ever claim that number again."""

    number: int


@dataclass(frozen=True)
class Recorded:
    """The claim of a generation was written down, on a volume that works: it counts as an attempt."""

    number: int


@dataclass(frozen=True)
class Started:
    """The start of an attempt was written down, which counts attempts without progress."""

    number: int
    step: int


Fact = Claimed | Recorded | Started | Offered | Saved | Restored | Damaged | Committed
Note = Callable[[Fact], None]


@dataclass(frozen=True)
class Known:
    """What was told so far. good: saves that returned and are whole; possible: what each step may hold."""

    good: Mapping[int, Content] = field(default_factory=dict)
    possible: Mapping[int, tuple[Content, ...]] = field(default_factory=dict)
    least: int = 0
    result: bytes | None = None
    claimed: int = 0
    recorded: frozenset[int] = frozenset()
    starts: Mapping[int, int] = field(default_factory=dict)

    def plus(self, fact: Fact) -> Known:
        match fact:
            case Offered(step, content):
                before = (self.good[step],) if step in self.good else self.possible.get(step, ())
                return replace(self, possible={**self.possible, step: (*before, content)})
            case Saved(step, content):
                # Retention leaves the newest, and may remove the others from now on.
                kept = sorted({*self.good, step})[-KEEP:]
                good = {one: content if one == step else self.good[one] for one in kept}
                possible = {**self.possible, step: (content,)}
                return replace(self, good=good, possible=possible, least=max(self.least, step))
            case Restored(step):
                return replace(self, least=max(self.least, step))
            case Damaged(step):
                good = {key: value for key, value in self.good.items() if key != step}
                return replace(self, good=good, least=max(good, default=0))
            case Committed(content):
                return replace(self, result=content)
            case Claimed(number):
                return replace(self, claimed=max(self.claimed, number))
            case Recorded(number):
                return replace(self, recorded=self.recorded | {number})
            case Started(number, step):
                return replace(self, starts={**self.starts, number: step})
        raise AssertionError(fact)


def known_at(marks: list[tuple[int, Fact]], number: int, known: Known = Known()) -> Known:
    """What was told before call `number`, added to what was known."""
    for at, fact in marks:
        if at <= number:
            known = known.plus(fact)
    return known


# Steps of the protocol


def claim(run_dir: Path, note: Note) -> Attempt:
    attempt = open_attempt(run_dir, ENVIRONMENT, keep=KEEP)
    note(Claimed(attempt.generation.number))
    store = CheckpointStore(attempt.generation, attempt.store.identity, KEEP, CHUNK_BYTES)
    return Attempt(attempt.generation, store)


def save(
    attempt: Attempt, step: int, note: Note, content: Content | None = None, kept: Content | None = None
) -> None:
    """kept: what is there afterwards, when it is not `content`."""
    content = state_of(step) if content is None else content
    note(Offered(step, content))
    try:
        attempt.store.save(step, lambda folder: write_files(folder, content))
    except OSError as error:
        raise AssertionError(f"a save that fails ends the training: {error!r}") from error
    note(Saved(step, content if kept is None else kept))


def write_files(folder: Path, content: Content) -> None:
    """As a program writes: in pieces, nothing flushed."""
    for path, part in content.items():
        for parent in list(reversed(Path(path).parents))[1:]:  # never the folder itself
            (folder / parent).mkdir(exist_ok=True)
        with (folder / path).open("wb") as stream:
            stream.write(part[:7])
            stream.flush()
            stream.write(part[7:])


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file of a checkpoint but its manifest."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def restore(attempt: Attempt, note: Note) -> int:
    found = attempt.store.restore()
    step = found.step if found else 0
    note(Restored(step))
    return step


def start(attempt: Attempt, step: int) -> None:
    """Nothing is promised by it: a full volume is told as an event, and training goes on."""
    generations.record_start(attempt.generation, step, attempt.store.identity)


def beat(attempt: Attempt) -> None:
    """As the supervisor does each second, without flushing."""
    work_dir = attempt.generation.work_dir
    replace_whole(work_dir / "heartbeat.json", encode_json({"step": 1}), scratch=work_dir, durable=False)


def finish(attempt: Attempt, note: Note, step: int = LAST_STEP) -> None:
    """The program hands its outcome over, the supervisor commits it."""
    for name in ("model", "report"):
        path = attempt.artifact_path(name)
        try:
            path.write_bytes(f"{name} of step {step}".encode())
        except FileNotFoundError:
            attempt.generation.check_current()
            raise
    attempt.finish(step, {"accuracy": 0.5}, ["model", "report"])
    commit(attempt, note)


def commit(attempt: Attempt, note: Note) -> bool:
    outcome = results.read_outcome(attempt.generation)
    attempt.generation.check_current()
    assert outcome is not None
    ours = results.commit(attempt.generation, outcome, attempt.store.identity)
    result = results.find(attempt.generation.run_dir, patience=0)
    if result is None:
        raise AssertionError("the result vanished after it was committed")
    results.verify(attempt.generation.run_dir, result)
    note(Committed(result_bytes(attempt.generation.run_dir)))
    return ours


def find_result(run_dir: Path, note: Note) -> bool:
    """What a new Pod does first of all: verify a result that is there, and end well."""
    result = results.find(run_dir, patience=0)
    if result is None:
        return False
    results.verify(run_dir, result)
    results.settle(run_dir)
    note(Committed(result_bytes(run_dir)))
    return True


def result_bytes(run_dir: Path) -> bytes:
    return (run_dir / "result.json").read_bytes()


def whole_attempt(run_dir: Path, note: Note) -> None:
    """All that a Pod does, from the claim to the result."""
    if find_result(run_dir, note):
        return
    attempt = claim(run_dir, note)
    if find_result(run_dir, note):
        return
    began = restore(attempt, note)
    start(attempt, began)
    for step in range(began + 1, LAST_STEP + 1):
        for _ in range(2):
            try:
                save(attempt, step, note)
                break
            except SaveFailed:
                continue  # as with `try_save`: tried again, and training goes on
        with contextlib.suppress(OSError):
            beat(attempt)
    finish(attempt, note)


# Scenarios


@dataclass(frozen=True)
class Scenario:
    """before: makes a directory of the past, all of it durable. run: what is crashed in, at every call."""

    name: str
    run: Callable[[Path, Note], None]
    before: Callable[[Path, Note], None] = lambda run_dir, note: None
    hard_links: bool = True


def saved_before(*steps: int) -> Callable[[Path, Note], None]:
    def before(run_dir: Path, note: Note) -> None:
        attempt = claim(run_dir, note)
        for step in steps:
            save(attempt, step, note)

    return before


def then(
    first: Callable[[Path, Note], None], *others: Callable[[Path, Note], None]
) -> Callable[[Path, Note], None]:
    def both(run_dir: Path, note: Note) -> None:
        for one in (first, *others):
            one(run_dir, note)

    return both


def damaged(step: int) -> Callable[[Path, Note], None]:
    """The volume lost what a checkpoint's file held, but not its length."""

    def before(run_dir: Path, note: Note) -> None:
        (folder,) = run_dir.glob(f"generation-*/step-{step}")
        (folder / "state").write_bytes(bytes(40))
        note(Damaged(step))

    return before


def leftovers(run_dir: Path, note: Note) -> None:
    """What attempts leave that died in a save, in a removal, or while they handed over."""
    (work_dir,) = run_dir.glob("generation-*")
    for name in ("tmp-step-9-dead", "tmp-removed-1-dead", "outcome"):
        (work_dir / name / "inner").mkdir(parents=True)
        (work_dir / name / "inner" / "part").write_bytes(b"half")
    for name in ("outcome.json", "heartbeat.json", "tmp-outcome.json-dead"):
        (work_dir / name).write_bytes(
            json.dumps({"step": 99, "artifacts": {"x": "outcome/inner/part"}}).encode()
        )


def stray(run_dir: Path, note: Note) -> None:
    """A fenced program brought its directory back."""
    (run_dir / "generation-1").rename(run_dir / "generation-4")
    (run_dir / "generation-2" / "step-9").mkdir(parents=True)
    (run_dir / "generation-2" / "step-9" / "state").write_bytes(b"of a zombie")


def published_half(run_dir: Path, note: Note) -> None:
    """An attempt published one artifact and died; the volume lost the artifact's content."""
    attempt = claim(run_dir, note)
    work = attempt.artifact_path("model")
    work.write_bytes(b"model of step 3")
    place = run_dir / "artifacts" / sha256_of(work) / "model"
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(15))


def committed(run_dir: Path, note: Note) -> None:
    finish(claim(run_dir, note), note)


def claims_anew(then_do: Callable[[Attempt, Note], Any]) -> Callable[[Path, Note], None]:
    return lambda run_dir, note: then_do(claim(run_dir, note), note)


def each_save(*steps: int) -> Callable[[Attempt, Note], None]:
    def run(attempt: Attempt, note: Note) -> None:
        for step in steps:
            save(attempt, step, note)

    return run


def restored_and_saved(attempt: Attempt, note: Note) -> None:
    step = restore(attempt, note)
    save(attempt, step + 1, note)


def is_recorded(attempt: Attempt, note: Note) -> None:
    note(Recorded(attempt.generation.number))


def starts(attempt: Attempt, note: Note) -> None:
    """On a volume that works it is promised."""
    for _ in range(2):
        start(attempt, 1)
        note(Started(attempt.generation.number, 1))


def saves_in_background(attempt: Attempt, note: Note) -> None:
    for step in (1, 2, 3):
        content = state_of(step)
        note(Offered(step, content))
        attempt.store.save_in_background(step, lambda of=content: of, write_files)
        if attempt.store.wait() is not None:
            note(Saved(step, content))


def saves_twice(attempt: Attempt, note: Note) -> None:
    """The same step again, with another content: what is there stays."""
    save(attempt, 2, note)
    save(attempt, 2, note, state_of(2, "of another try"), kept=state_of(2))


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("first claim", claims_anew(is_recorded)),
    Scenario("third claim", claims_anew(is_recorded), then(saved_before(1), saved_before(2))),
    Scenario("first save", claims_anew(each_save(1))),
    Scenario(
        "a save of files in folders", claims_anew(lambda a, note: save(a, 1, note, sharded_state_of(1)))
    ),
    Scenario("saves with retention", claims_anew(each_save(1, 2, 3, 4))),
    Scenario("saves in the background", claims_anew(saves_in_background)),
    Scenario("save onto a good one", claims_anew(saves_twice), saved_before(1)),
    Scenario("save onto a good one of a former attempt", claims_anew(each_save(2)), saved_before(1, 2)),
    Scenario("save onto a bad one", claims_anew(each_save(2)), then(saved_before(1, 2), damaged(2))),
    Scenario("takeover with leftovers", claims_anew(restored_and_saved), then(saved_before(1, 2), leftovers)),
    Scenario(
        "takeover with a stray directory", claims_anew(restored_and_saved), then(saved_before(1, 2), stray)
    ),
    Scenario("restore", claims_anew(restored_and_saved), saved_before(1, 2)),
    Scenario(
        "restore past bad ones",
        claims_anew(restored_and_saved),
        then(saved_before(1, 2, 3), damaged(3), saved_before(4), damaged(4)),
    ),
    Scenario("record the start", claims_anew(starts), saved_before(1)),
    Scenario(
        "heartbeats", claims_anew(lambda a, note: (beat(a), beat(a), save(a, 2, note))), saved_before(1)
    ),
    Scenario("commit", claims_anew(finish), saved_before(1, 2)),
    Scenario("commit after a half publication", claims_anew(finish), published_half),
    Scenario("verify and settle", lambda run_dir, note: find_result(run_dir, note) and None, committed),
    Scenario("commit without hard links", claims_anew(finish), saved_before(1, 2), hard_links=False),
    Scenario("resumed attempt", whole_attempt, saved_before(1, 2)),
    Scenario("whole attempt", whole_attempt),
)


@contextmanager
def no_hard_links() -> Iterator[None]:
    """A volume that has none, as SMB."""
    real = os.link

    def link(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    os.link = link
    try:
        yield
    finally:
        os.link = real
