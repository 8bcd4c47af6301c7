"""Checkpoints of one run: saved whole or not at all, restored only when every hash fits.

Save: temporary directory, every file hashed and flushed, manifest last, one rename to `step-N`, flush.
Restore: newest to oldest, over everything that any generation left; a bad one is set aside.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from trainer.recovery import manifest as manifests
from trainer.recovery.background import Background
from trainer.recovery.errors import SaveFailed, Superseded, Unverified
from trainer.recovery.events import emit
from trainer.recovery.files import fsync_path, remove_tree, write_new
from trainer.recovery.generation import TEMPORARY, Generation
from trainer.recovery.manifest import Manifest
from trainer.recovery.retention import retain, set_aside
from trainer.recovery.volume import call_writer, reason_of

LEAST_KEPT = 2
_STEP = re.compile(r"step-(0|[1-9][0-9]*)")  # exactly the names made here
Snapshot = TypeVar("Snapshot")


@dataclass(frozen=True)
class Checkpoint:
    """A sealed checkpoint: the directory, and what its manifest says."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step


@dataclass(frozen=True)
class _State:
    """What the program says about a checkpoint, for its manifest."""

    cursor: Mapping[str, Any]
    rng: Mapping[str, Any]
    frameworks: Mapping[str, str]

    @classmethod
    def of(cls, *parts: Mapping[str, Any] | None) -> _State:
        # A copy: the loop goes on with its own. TypeError for what JSON has not, before anything is written.
        return cls(*(json.loads(json.dumps(part or {})) for part in parts))


class CheckpointStore:
    """The checkpoints in one generation's working directory.

    keep: verified checkpoints that retention leaves, at least 2. identity: run_id, image and attempt for
    manifests.
    """

    def __init__(
        self,
        generation: Generation,
        identity: Mapping[str, Any],
        keep: int = LEAST_KEPT,
        chunk_bytes: int = manifests.CHUNK_BYTES,
    ) -> None:
        if keep < LEAST_KEPT:
            raise ValueError(f"keep is {keep}, but at least {LEAST_KEPT} verified checkpoints are kept")
        self.generation = generation
        self.identity = dict(identity)
        self.keep = keep
        self.chunk_bytes = chunk_bytes
        self._known_good: set[int] = set()
        self._background: Background[Checkpoint] = Background()

    @property
    def work_dir(self) -> Path:
        return self.generation.work_dir

    def steps(self) -> list[int]:
        """Steps that have a directory, newest first. Whether they are good only their hashes tell."""
        return sealed_steps(self.work_dir)

    # Saving

    def save(
        self,
        step: int,
        write: Callable[[Path], None],
        cursor: Mapping[str, Any] | None = None,
        rng: Mapping[str, Any] | None = None,
        frameworks: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """Save step N: `write(folder)` puts plain files into an empty directory, the rest is done here.

        Raises SaveFailed when the volume refuses (what was saved before is untouched), and Superseded when a
        newer generation has taken over. An exception of `write` that the volume did not cause is passed on.
        A save in the background is waited for first.
        """
        began = time.monotonic()
        self.wait()
        return self._save(step, write, _State.of(cursor, rng, frameworks), began, None)

    def try_save(self, step: int, write: Callable[[Path], None], **state: Any) -> Checkpoint | None:
        """`save`, for a training loop: a failed save is reported as an event and training goes on (None)."""
        return self._or_tell(step, lambda: self.save(step, write, **state))

    def save_in_background(
        self,
        step: int,
        snapshot: Callable[[], Snapshot],
        write: Callable[[Path, Snapshot], None],
        cursor: Mapping[str, Any] | None = None,
        rng: Mapping[str, Any] | None = None,
        frameworks: Mapping[str, str] | None = None,
        when_busy: Literal["wait", "skip"] = "wait",
    ) -> bool:
        """Save step N while training goes on: True once its snapshot is taken, False when it was skipped.

        `snapshot()` is called here and copies the state in memory, which is all that training waits for;
        `write(folder, copy)` and everything else that `save` does run in a thread. At most one save is in
        flight. While one is, `when_busy="wait"` waits for it (event `checkpoint-waits`), so that a
        checkpoint is never left out, and "skip" leaves this one out (event `checkpoint-skipped`). `snapshot`
        is never called before the former save has ended: it can copy into the same memory each time, which
        takes a tenth of the time that fresh memory takes.

        A save that fails is reported as `try_save` does. Superseded, or what `write` raised, is raised by the
        next call of `check`, `wait`, `save`, `restore` or this. Call `wait` before the program ends. Only one
        thread of the program may use the store.
        """
        began = time.monotonic()
        if when_busy not in ("wait", "skip"):
            raise ValueError(f"when_busy is {when_busy!r}: write 'wait' or 'skip'")
        if (busy := self._background.busy_with) is not None:
            event = "checkpoint-waits" if when_busy == "wait" else "checkpoint-skipped"
            emit(event, step=step, generation=self.generation.number, saving=busy)
            if when_busy == "skip":
                return False
        self.wait()
        state = _State.of(cursor, rng, frameworks)
        copies = [snapshot()]
        blocked = time.monotonic() - began

        def save(aside: bool) -> Checkpoint | None:
            # Popped, so that the memory is free again while files are hashed and flushed.
            return self._save_unseen(
                step, lambda folder: write(folder, copies.pop()), state, began, blocked if aside else None
            )

        self._background.start(step, save)
        return True

    def wait(self) -> Checkpoint | None:
        """Wait for the save in the background, if any: the newest one's checkpoint, None when it failed.

        Raises Superseded, or what `write` raised, once.
        """
        return self._background.wait()

    def check(self) -> None:
        """Raise what a save in the background has ended with, as `wait`, but without waiting for one.

        Cheap: call it each step, and a program that was superseded ends at once.
        """
        self._background.check()

    def newest_good_step(self) -> int:
        """The newest step that this attempt has saved or restored itself; 0 for none."""
        return max(self._known_good, default=0)

    def _save(
        self,
        step: int,
        write: Callable[[Path], None],
        state: _State,
        began: float,
        blocked: float | None,
    ) -> Checkpoint:
        """`blocked`: seconds that training waited; None for all of them."""
        temporary = self.work_dir / f"{TEMPORARY}step-{step}-{secrets.token_hex(4)}"
        try:
            os.mkdir(temporary)  # never with parents: a fenced writer must fail here
            emit("checkpoint-begins", step=step, generation=self.generation.number)
            call_writer(write, temporary)
            saved = self._seal(temporary, step, state)
            # A writer that makes missing folders brings a fenced directory back, which nobody will read.
            self.generation.raise_if_fenced()
        except OSError as error:
            self.generation.raise_if_fenced()
            reason = f"The checkpoint of step {step} could not be saved: {reason_of(error)}"
            raise SaveFailed(reason) from error
        finally:
            remove_tree(temporary)
        self._known_good.add(step)
        seconds = round(time.monotonic() - began, 3)
        emit(
            "checkpoint",
            step=step,
            generation=self.generation.number,
            bytes=saved.manifest.size,
            digest=saved.manifest.digest,
            seconds=seconds,
            blocked_seconds=seconds if blocked is None else round(blocked, 3),
        )
        try:
            retain(self.generation, self.steps(), self._known_good, self.keep)
        except OSError as error:
            # The checkpoint is saved: what can not be removed now is removed after the next one.
            emit("retention-failed", step=step, reason=reason_of(error))
        return saved

    def _or_tell(self, step: int, save: Callable[[], Checkpoint]) -> Checkpoint | None:
        try:
            return save()
        except SaveFailed as error:
            emit("checkpoint-failed", step=step, generation=self.generation.number, reason=str(error))
            return None

    def _save_unseen(self, step: int, *arguments: Any) -> Checkpoint | None:
        try:
            return self._or_tell(step, lambda: self._save(step, *arguments))
        except Superseded:
            raise
        except BaseException as error:
            # It is raised where the program asks next; told here too, for a program that asks no more.
            what = f"{type(error).__name__}: {error}"
            reason = f"The program's own writing of step {step} ended with {what}"
            emit("checkpoint-failed", step=step, generation=self.generation.number, reason=reason)
            raise

    def _seal(self, temporary: Path, step: int, state: _State) -> Checkpoint:
        manifest = Manifest(
            step=step,
            run_id=str(self.identity.get("run_id", "")),
            generation=self.generation.number,
            files=manifests.describe_files(temporary, self.chunk_bytes),
            cursor=state.cursor,
            rng=state.rng,
            frameworks=state.frameworks,
            image=self.identity.get("image"),
            attempt=int(self.identity.get("attempt", 1)),
            chunk_bytes=self.chunk_bytes,
        )
        write_new(temporary / manifests.NAME, manifest.encode())
        fsync_path(temporary)
        target = self.work_dir / f"step-{step}"
        if os.path.lexists(target) and (kept := self._already_there(target)):
            fsync_path(self.work_dir)  # it may be there because just this failed the last time
            return kept
        os.rename(temporary, target)
        fsync_path(self.work_dir)
        return Checkpoint(target, manifest)

    def _already_there(self, target: Path) -> Checkpoint | None:
        """One that verifies stays (nothing is renamed onto it); one that does not is set aside.

        Raises OSError for one that can not be read now: it may be good, and whoever saved it relies on it.
        """
        try:
            return self._verified(target)
        except Unverified as error:
            set_aside(self.generation, target, str(error))
            return None

    # Restoring

    def restore(self) -> Checkpoint | None:
        """The newest checkpoint that verifies, or None when there is none and training starts at step 0.

        One that does not verify is set aside and said so; one that can not be read now is passed over and
        left. Raises OSError when that leaves none (a volume that fails is no reason to start from nothing),
        and Superseded when fenced.
        """
        self.wait()
        unreadable: OSError | None = None
        started = time.monotonic()
        # What the former writer renamed in last may not be on the volume yet, and from now on we rely on it.
        self._flush()
        for step in self.steps():
            folder = self.work_dir / f"step-{step}"
            try:
                found = self._verified(folder)
            except Unverified as error:
                set_aside(self.generation, folder, str(error))
            except OSError as error:
                self.generation.check_current()
                emit("checkpoint-unreadable", step=step, reason=reason_of(error))
                unreadable = error
            else:
                self._known_good.add(step)
                emit(
                    "restore",
                    step=step,
                    generation=self.generation.number,
                    saved_by_generation=found.manifest.generation,
                    bytes=found.manifest.size,
                    digest=found.manifest.digest,
                    seconds=round(time.monotonic() - started, 3),
                )
                return found
        self.generation.check_current()  # a fenced directory looks empty
        if unreadable is not None:
            raise unreadable
        emit(
            "restore",
            step=0,
            generation=self.generation.number,
            reason="there is no checkpoint to resume from",
        )
        return None

    def _verified(self, folder: Path) -> Checkpoint:
        manifest = manifests.read(folder)
        if folder.name != f"step-{manifest.step}":
            raise Unverified(f"{manifests.NAME} says step {manifest.step}, the directory is {folder.name}")
        if manifest.run_id != str(self.identity.get("run_id", "")):
            raise Unverified(f"{manifests.NAME} is of the run {manifest.run_id!r}")
        manifests.verify(folder, manifest)
        return Checkpoint(folder, manifest)

    def _flush(self) -> None:
        try:
            fsync_path(self.work_dir)
        except FileNotFoundError:
            self.generation.check_current()


def sealed_steps(work_dir: Path) -> list[int]:
    """Steps with a directory below a working directory, newest first; empty when the directory is gone."""
    try:
        names = os.listdir(work_dir)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((step for name in names if (step := step_of(name)) is not None), reverse=True)


def step_of(name: str) -> int | None:
    """The step whose checkpoint has this directory name, None for a name of another kind."""
    return int(match[1]) if (match := _STEP.fullmatch(name)) else None


def newest_sealed_step(work_dir: Path) -> int:
    """The newest step whose manifest is whole and whose files have their sizes (unread); 0 for none."""
    for step in sealed_steps(work_dir):
        folder = work_dir / f"step-{step}"
        try:
            manifests.check_sizes(folder, manifests.read(folder))
        except (Unverified, OSError):
            continue
        return step
    return 0


__all__ = ["Checkpoint", "CheckpointStore", "Superseded", "newest_sealed_step", "sealed_steps", "step_of"]
