"""`holdfast-run --steps`: make a program recoverable that writes its own checkpoints and knows nothing of us.

The program writes below `generation-N/program`, which it is told as `{dir}`. Each step is sealed as a
checkpoint `step-N` beside it (adoption_sealing.py). Before the program starts, what stands there is brought
to exactly the sealed steps, because frameworks pick the newest directory themselves: what is not sealed, or
has changed since, is set aside, and the newest sealed one is put back when it is not there.
"""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.recovery import manifest as manifests
from trainer.recovery.adoption_files import check_same, put_files, signature
from trainer.recovery.adoption_options import Adoption, Step, is_file, is_plain_path
from trainer.recovery.adoption_sealing import FORMAT, Sealer, SealingThread
from trainer.recovery.checkpoints import Checkpoint, CheckpointStore, newest_sealed_step
from trainer.recovery.errors import BadInput, Unverified
from trainer.recovery.events import emit
from trainer.recovery.exit_codes import ExitCode
from trainer.recovery.files import fsync_path, remove_tree
from trainer.recovery.generation import TEMPORARY, Generation
from trainer.recovery.manifest import Manifest
from trainer.recovery.result import Outcome
from trainer.recovery.retention import SET_ASIDE

FOLDER = "program"
UNSEALED = "unsealed-"
UNSEALED_KEPT = 2  # each killed attempt leaves one, as large as a checkpoint


class Adopted:
    """One attempt of such a program: `prepare`, then `start_sealing`, then `finish` once it has ended."""

    def __init__(self, adoption: Adoption, generation: Generation, identity: Mapping[str, Any]) -> None:
        self.adoption, self.generation = adoption, generation
        self.store = CheckpointStore(generation, identity)
        self.folder = generation.work_dir / FOLDER
        self.newest: Step | None = None
        self._thread: SealingThread | None = None

    def prepare(self) -> None:
        """Leave only verified steps below the program's directory. Reads the newest, and those that changed.

        Raises BadInput for a directory whose checkpoints another kind of program saved, Superseded, and
        OSError when something that is not sealed can not be moved away.
        """
        try:
            _make(self.folder)
            found = self.store.restore()
            sealed = self._bring_in_order(found)
        except FileNotFoundError:
            self.generation.check_current()
            raise
        self._thread = SealingThread(Sealer(self.store, self.folder, self.adoption, sealed))

    def command(self, program: Sequence[str]) -> list[str]:
        """The program's words with `{dir}`, and `--resume-with` where there is a step, filled in."""
        return self.adoption.command(program, self.folder, self.newest)

    def start_sealing(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def check(self) -> None:
        """Raise what ended the sealing, a bug."""
        if self._thread is not None:
            self._thread.check()

    def finish(self, code: int, told_to_end: bool, within_seconds: float | None) -> None:
        """Seal what the program that ended with `code` left; what takes longer than that stays unsealed.

        No save was cut short when it ended by itself with 0, or with 75: that says so. A handler that leaves
        with 0 in the middle of a save is as common as one that saves first.
        """
        whole = code == ExitCode.PREEMPTED or (code == ExitCode.DONE and not told_to_end)
        if self._thread is None or self._thread.finish(whole, within_seconds):
            return
        emit(
            "checkpoint-failed",
            step=0,
            generation=self.generation.number,
            reason="the grace period ended before the last step was hashed: raise graceSeconds",
        )

    def outcome(self) -> Outcome:
        """What the finished program leaves: the artifacts that it was asked for, or the newest step's files.

        Raises BadInput when there is nothing, and Unverified when the newest step could not be sealed.
        """
        step = newest_sealed_step(self.generation.work_dir)
        if self.adoption.artifacts:
            paths = [path for text in self.adoption.artifacts for path in self._matches(text)]
            return Outcome(step, artifacts=_named({path: f"{FOLDER}/{path}" for path in paths}))
        self._check_newest_is_sealed(step)
        files = [entry.path for entry in manifests.read(self.store.work_dir / f"step-{step}").files]
        return Outcome(step, artifacts=_named({path: f"step-{step}/{path}" for path in files}))

    def _check_newest_is_sealed(self, sealed: int) -> None:
        """An older step's files must not pass for the result."""
        steps = self.adoption.steps.find(self.folder) if self.folder.is_dir() else []
        if not steps and not self.store.steps():
            raise BadInput(
                f"The program ended with 0, but nothing below {{dir}} fits --steps "
                f"{self.adoption.steps.text!r} (there is {self._there()}): correct the pattern, or name the "
                "final files with --artifact."
            )
        if not steps or (steps[-1].number <= sealed and self.store.steps()):
            return
        newest = steps[-1].path
        marker = self.adoption.marker
        if (
            marker is not None
            and (self.folder / newest).is_dir()
            and not is_file(self.folder / newest / marker)
        ):
            raise BadInput(
                f"The program ended with 0, but {newest} has no {marker!r}, which --marker names: name the "
                "file that the program writes last into each step's directory, or leave --marker out."
            )
        raise Unverified(f"{newest}, the newest step, was not sealed (the event before this says why)")

    def _there(self) -> str:
        names = sorted(os.listdir(self.folder)) if self.folder.is_dir() else []
        return ", ".join(names[:5]) or "nothing"

    def _matches(self, text: str) -> list[str]:
        """Plain files that fit the glob, or lie below a directory that does; nothing behind a link."""
        found: set[str] = set()
        for name in glob.glob(text, root_dir=self.folder, recursive=True, include_hidden=True):
            found.add(name)
            for parent, _, inner in os.walk(self.folder / name):
                found.update(os.path.relpath(f"{parent}/{each}", self.folder) for each in inner)
        real = Path(os.path.realpath(self.folder))
        found = {
            path
            for path in map(os.path.normpath, found)
            if is_file(self.folder / path) and Path(os.path.realpath(real / path)) == real / path
        }
        if not found:
            raise BadInput(
                f"The program ended with 0, but no file below {{dir}} fits --artifact {text!r} (there is "
                f"{self._there()}): correct the pattern, or let the program write the file."
            )
        return sorted(found)

    # Before the program starts

    def _bring_in_order(self, newest: Checkpoint | None) -> list[Step]:
        """The sealed steps. Afterwards nothing else under a step's name is left for the program to find."""
        sealed: list[Step] = []
        for number in self.store.steps():
            folder = self.store.work_dir / f"step-{number}"
            if newest is None or number > newest.step:
                continue  # could not be read now; `restore` has said so
            manifest, step = self._read(folder)
            if manifest is None or step is None:
                continue
            if self._stands(folder, manifest, step):
                sealed.append(step)
            elif number == newest.step:
                self._put_back(folder, manifest, step)
                sealed.append(step)
            elif os.path.lexists(folder):
                sealed.append(step)  # the program has removed its own
            if number == newest.step:
                self.newest = step
        known = {step.path for step in sealed}
        for step in self.adoption.steps.find(self.folder):
            if step.path not in known:
                reason = f"{step.path} is not sealed: its attempt ended before it was known to be whole"
                self._set_aside(step, reason)
        self._remove_old_unsealed()
        return sealed

    def _read(self, folder: Path) -> tuple[Manifest | None, Step | None]:
        try:
            manifest = manifests.read(folder)
            manifests.check_sizes(folder, manifest)
        except Unverified as error:
            self._move_aside(folder, folder.name, str(error), int(folder.name.removeprefix("step-")))
            return None, None
        if manifest.cursor.get("format") != FORMAT or not is_plain_path(path := manifest.cursor.get("path")):
            raise BadInput(
                f"{folder} was not sealed by `holdfast-run --steps`: the run was a program that saves by the "
                "library. Give this one a run id and a directory of its own."
            )
        return manifest, Step(manifest.step, str(path))

    def _stands(self, sealed: Path, manifest: Manifest, step: Step) -> bool:
        """Whether the program's own is what was sealed. One that is not is set aside; one may be gone."""
        if not os.path.lexists(self.folder / step.path):
            return False
        times = manifest.cursor.get("modified")
        try:
            check_same(self.folder, sealed, manifest, step.path, times if isinstance(times, dict) else {})
            return True
        except Unverified as error:
            self._set_aside(step, f"it changed after it was sealed: {error}")
        try:
            manifests.verify(sealed, manifest)
        except Unverified as error:  # written to in place: the sealed one has the same files
            self._move_aside(sealed, sealed.name, str(error), step.number)
        return False

    def _put_back(self, sealed: Path, manifest: Manifest, step: Step) -> None:
        """Give the program the newest sealed step again: it had removed it, or what it left is bad."""
        built = self.store.work_dir / f"{TEMPORARY}back-{step.number}-{secrets.token_hex(4)}"
        os.mkdir(built)
        put_files(sealed, built, signature(sealed, step.path))
        target = self.folder / step.path
        for parent in list(reversed(Path(step.path).parents))[1:]:
            _make(self.folder / parent)
        os.rename(built / step.path, target)
        fsync_path(target.parent)
        remove_tree(built)

    def _set_aside(self, step: Step, reason: str) -> None:
        name = f"{UNSEALED}{step.path.replace('/', '__')}"
        self._move_aside(self.folder / step.path, name, reason, step.number)

    def _move_aside(self, path: Path, name: str, reason: str, number: int) -> None:
        """Raises OSError where it can not be moved: a program that would find it must not be started."""
        target = self.store.work_dir / SET_ASIDE / f"{name}-{self.generation.number}-{secrets.token_hex(2)}"
        _make(target.parent)
        os.rename(path, target)
        fsync_path(target.parent)
        fsync_path(path.parent)
        place = str(target.relative_to(self.store.work_dir))
        emit("checkpoint-set-aside", step=number, reason=reason, place=place)

    def _remove_old_unsealed(self) -> None:
        folder = self.store.work_dir / SET_ASIDE
        if not folder.is_dir():
            return
        names = [name for name in os.listdir(folder) if name.startswith(UNSEALED)]
        names.sort(key=lambda name: os.lstat(folder / name).st_ctime_ns, reverse=True)
        for name in (removed := names[UNSEALED_KEPT:]):
            path = folder / name
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        if removed:
            emit("set-aside-removed", generation=self.generation.number, names=removed)


def _make(folder: Path) -> None:
    """Never with parents: that would bring a fenced directory back."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        if folder.is_symlink() or not folder.is_dir():
            raise


def _named(paths: Mapping[str, str]) -> dict[str, str]:
    """Names for artifacts: the file's own; where several have the same, the whole path with __ for /."""
    names = [Path(path).name for path in paths]
    return {
        name if names.count(name := Path(path).name) == 1 else path.replace("/", "__"): place
        for path, place in paths.items()
    }
