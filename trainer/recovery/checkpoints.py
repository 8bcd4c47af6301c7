"""Checkpoints of one run: saved whole or not at all, restored only when every hash fits.

Save: temporary directory, every file hashed and flushed, manifest last, one rename to `step-N`, flush.
Restore: newest to oldest, over everything that any generation left; a bad one is set aside, never
deleted.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.recovery import manifest as manifests
from trainer.recovery.errors import SaveFailed, Superseded, Unverified
from trainer.recovery.events import emit
from trainer.recovery.files import fsync_path, remove_tree, write_new
from trainer.recovery.generation import TEMPORARY, Generation
from trainer.recovery.manifest import Manifest
from trainer.recovery.volume import call_writer, reason_of

SET_ASIDE = "set-aside"
LEAST_KEPT = 2
_STEP = re.compile(r"step-(0|[1-9][0-9]*)")  # exactly the names made here


@dataclass(frozen=True)
class Checkpoint:
    """A sealed checkpoint: the directory, and what its manifest says."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step


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
        """
        started = time.monotonic()
        temporary = self.work_dir / f"{TEMPORARY}step-{step}-{secrets.token_hex(4)}"
        try:
            os.mkdir(temporary)  # never with parents: a fenced writer must fail here
            emit("checkpoint-begins", step=step, generation=self.generation.number)
            call_writer(write, temporary)
            saved = self._seal(temporary, step, cursor or {}, rng or {}, frameworks or {})
        except OSError as error:
            self.generation.check_current()  # ENOENT of a fenced writer is no failure of the volume
            reason = f"The checkpoint of step {step} could not be saved: {reason_of(error)}"
            raise SaveFailed(reason) from error
        finally:
            remove_tree(temporary)
        self._known_good.add(step)
        seconds = round(time.monotonic() - started, 3)
        emit(
            "checkpoint",
            step=step,
            generation=self.generation.number,
            bytes=saved.manifest.size,
            digest=saved.manifest.digest,
            seconds=seconds,
            blocked_seconds=seconds,
        )
        self._retain()
        return saved

    def try_save(self, step: int, write: Callable[[Path], None], **state: Any) -> Checkpoint | None:
        """`save`, for a training loop: a failed save is reported as an event and training goes on (None)."""
        try:
            return self.save(step, write, **state)
        except SaveFailed as error:
            emit("checkpoint-failed", step=step, generation=self.generation.number, reason=str(error))
            return None

    def _seal(
        self,
        temporary: Path,
        step: int,
        cursor: Mapping[str, Any],
        rng: Mapping[str, Any],
        frameworks: Mapping[str, str],
    ) -> Checkpoint:
        manifest = Manifest(
            step=step,
            run_id=str(self.identity.get("run_id", "")),
            generation=self.generation.number,
            files=manifests.describe_files(temporary, self.chunk_bytes),
            cursor=cursor,
            rng=rng,
            frameworks=frameworks,
            image=self.identity.get("image"),
            attempt=int(self.identity.get("attempt", 1)),
            chunk_bytes=self.chunk_bytes,
        )
        write_new(temporary / manifests.NAME, manifest.encode())
        fsync_path(temporary)
        target = self.work_dir / f"step-{step}"
        if os.path.lexists(target) and (kept := self._already_there(target)):
            return kept
        os.rename(temporary, target)
        fsync_path(self.work_dir)
        return Checkpoint(target, manifest)

    def _already_there(self, target: Path) -> Checkpoint | None:
        """One that verifies stays (nothing is renamed onto it); one that does not is set aside."""
        try:
            return self._verified(target)
        except (Unverified, OSError) as error:
            self._set_aside(target, str(error))
            return None

    # Restoring

    def restore(self) -> Checkpoint | None:
        """The newest checkpoint that verifies, or None when there is none and training starts at step 0.

        One that does not verify is set aside and said so; one that can not be read now is passed over and
        left. Raises OSError when that leaves none (a volume that fails is no reason to start from nothing),
        and Superseded when fenced.
        """
        unreadable: OSError | None = None
        started = time.monotonic()
        # What the former writer renamed in last may not be on the volume yet, and from now on we rely on it.
        self._flush()
        for step in self.steps():
            folder = self.work_dir / f"step-{step}"
            try:
                found = self._verified(folder)
            except Unverified as error:
                self._set_aside(folder, str(error))
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
            reason="there is no checkpoint that verifies",
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

    def _set_aside(self, folder: Path, reason: str) -> None:
        """Move a bad checkpoint away, for a person to look at. One that can not be moved is passed over."""
        target = self.work_dir / SET_ASIDE / f"{folder.name}-{self.generation.number}-{secrets.token_hex(2)}"
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(target.parent)  # never with parents: that would bring a fenced directory back
            os.rename(folder, target)
            fsync_path(target.parent)
            fsync_path(self.work_dir)
            place = str(target.relative_to(self.work_dir))
        except OSError as error:
            self.generation.check_current()
            place = f"still in place: {reason_of(error)}"
        emit("checkpoint-set-aside", step=folder.name.removeprefix("step-"), reason=reason, place=place)

    def _flush(self) -> None:
        try:
            fsync_path(self.work_dir)
        except FileNotFoundError:
            self.generation.check_current()

    # Retention

    def _retain(self) -> None:
        """Remove checkpoints older than the newest `keep` that this attempt has saved or verified itself.

        Only those count, and only while they still look whole: an unread one is never a reason to remove
        another.
        """
        good = 0
        for step in self.steps():
            if good >= self.keep:
                self._remove(step)
            elif step in self._known_good and self._looks_whole(step):
                good += 1

    def _looks_whole(self, step: int) -> bool:
        folder = self.work_dir / f"step-{step}"
        try:
            manifests.check_sizes(folder, manifests.read(folder))
        except (Unverified, OSError):
            return False
        return True

    def _remove(self, step: int) -> None:
        doomed = self.work_dir / f"{TEMPORARY}removed-{step}-{secrets.token_hex(4)}"
        try:
            # Renamed first: half removed, it must not pass for a checkpoint.
            os.rename(self.work_dir / f"step-{step}", doomed)
        except OSError as error:
            self.generation.check_current()
            emit("retention-failed", step=step, reason=reason_of(error))
            return
        remove_tree(doomed)
        self._known_good.discard(step)


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
