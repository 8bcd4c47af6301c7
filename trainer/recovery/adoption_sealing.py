"""Sealing the steps of a program that writes them itself, while it runs and after it ended.

A step becomes a checkpoint like any other, `step-N` with a manifest, in two moves:

prepared   its files stood still between two looks: they are linked into a temporary directory and hashed
sealed     it is known to be finished and is still the same: the manifest is written, one rename

It is finished when its marker is there, when it is a zip archive with its directory, which is written last,
when the program has begun a newer one (programs write one step after the other), or when the program ended
in a way that no save was cut short. One that the program removed
by then is sealed from the links: a program that keeps a single step removes it as soon as it has the next.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainer.recovery import manifest as manifests
from trainer.recovery.adoption_files import (
    Signature,
    contents,
    head_of,
    is_whole_archive,
    odd_one,
    plain_files,
    put_files,
    signature,
)
from trainer.recovery.adoption_options import Adoption, Step, is_file
from trainer.recovery.checkpoints import LEAST_KEPT, CheckpointStore
from trainer.recovery.errors import Superseded
from trainer.recovery.events import emit
from trainer.recovery.files import fsync_path, remove_tree, write_new
from trainer.recovery.generation import TEMPORARY
from trainer.recovery.manifest import FileEntry, Manifest
from trainer.recovery.volume import reason_of

LOOK_SECONDS = 0.5
QUIET_LOOKS = 2  # looks in a row that see the same files; doubled each time that was too early
RETRY_SECONDS = 30.0
FORMAT = "holdfast.adopted/1"  # in the manifest's cursor


@dataclass
class _Seen:
    """A step that is not sealed yet. order: the look that saw it first, and its number."""

    step: Step
    order: tuple[int, int]
    signature: Signature = ()
    quiet: int = 0
    patience: int = QUIET_LOOKS
    links: Path | None = None
    linked: Signature = ()
    files: tuple[FileEntry, ...] = ()
    seconds: float = 0.0
    not_before: float = 0.0


@dataclass
class _Sealed:
    """A sealed step as it stands in the program's directory. head: what is compared at each look."""

    step: Step
    head: tuple[int, int, int] | None
    signature: Signature


class Sealer:
    """Looks at the program's directory again and again. One thread at a time calls it.

    sealed: the steps that were verified before the program started, also those that it has removed.
    """

    def __init__(
        self, store: CheckpointStore, folder: Path, adoption: Adoption, sealed: Iterable[Step] = ()
    ) -> None:
        self.store, self.folder, self.adoption = store, folder, adoption
        self.generation = store.generation
        self._sealed: dict[str, _Sealed] = {}
        self._seen: dict[str, _Seen] = {}
        self._looks = 0
        self._latest = (0, -1)
        for step in sealed:
            self._note_sealed(step)
            self._latest = max(self._latest, (0, step.number))

    def look(self, ended: bool = False, whole: bool = False) -> None:
        """Seal what is due. ended: nobody writes any more. whole: no save was cut short by the end.

        Raises Superseded, and OSError when the program's directory can not be listed.
        """
        try:
            steps = self.adoption.steps.find(self.folder)
        except FileNotFoundError:
            self.generation.check_current()
            steps = []  # the program removed its own directory
        self._looks += 1
        there = {step.path for step in steps}
        for step in steps:
            self._notice(step)
        for seen in sorted(self._seen.values(), key=lambda seen: seen.order, reverse=True):
            # The newest first: it is worth most, and after SIGTERM the time is short.
            self._consider(seen, seen.step.path in there, ended, whole)
        self._retain()

    def _notice(self, step: Step) -> None:
        if step.path in self._seen:
            return
        sealed = self._sealed.get(step.path)
        if sealed is not None and not self._is_written_anew(sealed):
            return
        order = (self._looks, step.number)
        self._seen[step.path] = _Seen(step, order)
        if sealed is None:
            self._latest = max(self._latest, order)

    def _is_written_anew(self, sealed: _Sealed) -> bool:
        """Whether there is something else than when it was sealed; less is there while it is removed."""
        path = sealed.step.path
        if (head := head_of(self.folder, path)) == sealed.head:
            return False
        try:
            now = signature(self.folder, path)
        except FileNotFoundError:
            return False
        sealed.head = head
        return not set(contents(now)) <= set(contents(sealed.signature))

    def _note_sealed(self, step: Step) -> None:
        try:
            now = signature(self.folder, step.path)
        except (FileNotFoundError, NotADirectoryError):
            now = ()
        self._sealed[step.path] = _Sealed(step, head_of(self.folder, step.path), now)

    def _consider(self, seen: _Seen, there: bool, ended: bool, whole: bool) -> None:
        try:
            if there and not self._stood_still(seen, ended):
                return
            finished = self._is_finished(seen, there, ended and whole)
            if not there and not (finished and seen.links):
                self._drop(seen)
            elif ended and not finished:
                self._unprepare(seen)
            elif time.monotonic() >= seen.not_before or ended:
                if seen.links is None and (finished or self.adoption.marker is None):
                    self._prepare(seen)
                if seen.links is not None and finished:
                    self._seal(seen, there)
        except FileNotFoundError:
            self.generation.check_current()
            self._unprepare(seen)  # removed by the program while we looked
        except OSError as error:
            self.generation.check_current()
            self._failed(seen, reason_of(error))
        except ValueError as error:
            self._failed(seen, str(error))

    def _stood_still(self, seen: _Seen, ended: bool) -> bool:
        now = signature(self.folder, seen.step.path)
        if now == seen.signature:
            seen.quiet += 1
        else:
            if seen.links is not None:
                seen.patience *= 2  # it had only paused
            self._unprepare(seen)
            seen.signature, seen.quiet, seen.not_before = now, 1, 0.0
        return ended or seen.quiet >= seen.patience

    def _is_finished(self, seen: _Seen, there: bool, whole: bool) -> bool:
        root = self.folder if there else seen.links
        if root is not None:
            place = root / seen.step.path
            if self.adoption.marker and place.is_dir():
                marker = place / self.adoption.marker
                return is_file(marker) and os.lstat(marker).st_size > 0
            if is_file(place) and (proven := is_whole_archive(place)) is not None:
                return proven
        return whole or seen.order < self._latest

    def _prepare(self, seen: _Seen) -> None:
        if (odd := odd_one(seen.signature)) is not None:
            raise ValueError(f"{odd} is neither a plain file nor a directory")
        if not plain_files(seen.signature):
            return  # nothing in it yet
        started = time.monotonic()
        links = self.store.work_dir / f"{TEMPORARY}step-{seen.step.number}-{secrets.token_hex(4)}"
        os.mkdir(links)  # never with parents: a fenced writer must fail here
        try:
            put_files(self.folder, links, seen.signature)
            files = manifests.describe_files(links, self.store.chunk_bytes)
            if signature(self.folder, seen.step.path) == seen.signature:
                seen.links, seen.files = links, files
                seen.linked = signature(links, seen.step.path)
                seen.seconds = time.monotonic() - started
        finally:
            if seen.links is None:
                remove_tree(links)

    def _seal(self, seen: _Seen, there: bool) -> None:
        started, links, number = time.monotonic(), seen.links, seen.step.number
        if links is None:
            return
        now = signature(links, seen.step.path)
        if now != seen.linked or (there and signature(self.folder, seen.step.path) != seen.signature):
            self._unprepare(seen)  # it was written to after it was hashed: the next look sees that
            return
        manifest = self._manifest(seen)
        write_new(links / manifests.NAME, manifest.encode())
        fsync_path(links)
        self._put_in_place(links, number)
        seen.links = None
        del self._seen[seen.step.path]
        self._note_sealed(seen.step)
        emit(
            "checkpoint",
            step=number,
            generation=self.generation.number,
            path=seen.step.path,
            bytes=manifest.size,
            digest=manifest.digest,
            seconds=round(seen.seconds + time.monotonic() - started, 3),
            blocked_seconds=0.0,
        )

    def _manifest(self, seen: _Seen) -> Manifest:
        times = {path: at for path, (_, at) in plain_files(seen.signature).items()}
        identity = self.store.identity
        return Manifest(
            step=seen.step.number,
            run_id=str(identity.get("run_id", "")),
            generation=self.generation.number,
            files=seen.files,
            cursor={"format": FORMAT, "path": seen.step.path, "modified": times},
            image=identity.get("image"),
            attempt=int(identity.get("attempt", 1)),
            chunk_bytes=self.store.chunk_bytes,
        )

    def _put_in_place(self, links: Path, number: int) -> None:
        """One of that step that is there already was written over by the program: the last content counts."""
        target = self.store.work_dir / f"step-{number}"
        former = None
        if os.path.lexists(target):
            former = self.store.work_dir / f"{TEMPORARY}former-{number}-{secrets.token_hex(4)}"
            os.rename(target, former)
        try:
            os.rename(links, target)
        except OSError:
            if former is not None:
                os.rename(former, target)
            raise
        fsync_path(self.store.work_dir)
        if former is not None:
            remove_tree(former)

    def _failed(self, seen: _Seen, reason: str) -> None:
        self._unprepare(seen)
        seen.not_before = time.monotonic() + RETRY_SECONDS
        emit(
            "checkpoint-failed",
            step=seen.step.number,
            generation=self.generation.number,
            reason=f"{seen.step.path} could not be sealed: {reason}",
        )

    def _unprepare(self, seen: _Seen) -> None:
        if seen.links is not None:
            remove_tree(seen.links)
            seen.links = None

    def _drop(self, seen: _Seen) -> None:
        self._unprepare(seen)
        self._seen.pop(seen.step.path, None)

    # Retention

    def _retain(self) -> None:
        """Ours follows the program's: what it removed goes, but for the newest two. `keep` removes both."""
        paths = {sealed.step.number: path for path, sealed in self._sealed.items()}
        known = [number for number in self.store.steps() if number in paths]
        for number in known[self.adoption.keep or LEAST_KEPT :]:
            path = paths[number]
            if self.adoption.keep is not None:
                self._remove(self.folder / path, number)
            if not os.path.lexists(self.folder / path):
                self._remove(self.store.work_dir / f"step-{number}", number)
                del self._sealed[path]

    def _remove(self, path: Path, number: int) -> None:
        doomed = self.store.work_dir / f"{TEMPORARY}removed-{number}-{secrets.token_hex(4)}"
        try:
            # Renamed first: half removed, it must not pass for a step.
            os.rename(path, doomed)
            remove_tree(doomed) if doomed.is_dir() else doomed.unlink()
        except FileNotFoundError:
            self.generation.check_current()  # the program was quicker
        except OSError as error:
            self.generation.check_current()
            emit("retention-failed", step=number, reason=reason_of(error))


class SealingThread:
    """The sealer's looks while the program runs, beside the supervisor's own loop."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="sealing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the thread, a bug: without it nothing would be sealed any more."""
        if self._error is not None:
            raise self._error

    def finish(self, whole: bool, within_seconds: float | None) -> bool:
        """The last look, after the program ended: True when it was done within that time."""
        until = None if within_seconds is None else time.monotonic() + within_seconds
        self._stop.set()
        if not self._ended_by(until):
            return False
        self.check()
        self._thread = threading.Thread(target=self._last_look, args=(whole,), name="sealing", daemon=True)
        self._thread.start()
        if not self._ended_by(until):
            return False
        self.check()
        return True

    def _ended_by(self, until: float | None) -> bool:
        self._thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        told = ""
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self._sealer.look()
            except Superseded:
                return  # the supervisor sees it by itself, and stops the program
            except OSError as error:  # a volume that fails for a while stops no training
                if told != (reason := reason_of(error)):
                    emit("checkpoint-unreadable", step=0, reason=f"the steps can not be listed: {reason}")
                told = reason
            except Exception as error:
                self._error = error
                return

    def _last_look(self, whole: bool) -> None:
        try:
            self._sealer.look(ended=True, whole=whole)
        except Exception as error:
            self._error = error
