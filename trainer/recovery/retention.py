"""What is taken away: bad checkpoints set aside, old ones removed. Never the last good ones."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from trainer.recovery import manifest as manifests
from trainer.recovery.errors import Unverified
from trainer.recovery.events import emit
from trainer.recovery.files import fsync_path, remove_tree
from trainer.recovery.generation import TEMPORARY, Generation
from trainer.recovery.volume import reason_of

SET_ASIDE = "set-aside"
MOST_SET_ASIDE = 3  # enough to look into; each takes as much of the volume as a good one
_ASIDE = re.compile(r"step-(0|[1-9][0-9]*)-([1-9][0-9]*)-[0-9a-f]{4}")  # exactly the names made here


def set_aside(generation: Generation, folder: Path, reason: str) -> None:
    """Move a bad checkpoint away, for a person to look at. One that can not be moved is passed over.

    The newest MOST_SET_ASIDE are kept, older ones removed. Raises Superseded.
    """
    work_dir = generation.work_dir
    target = work_dir / SET_ASIDE / f"{folder.name}-{generation.number}-{secrets.token_hex(2)}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(target.parent)  # never with parents: that would bring a fenced directory back
        os.rename(folder, target)
        fsync_path(target.parent)
        fsync_path(work_dir)
        place = str(target.relative_to(work_dir))
    except OSError as error:
        generation.raise_if_fenced()
        place = f"still in place: {reason_of(error)}"
    emit("checkpoint-set-aside", step=_step(folder), reason=reason, place=place)
    _retain_set_aside(generation)


def retain(generation: Generation, steps: Sequence[int], known_good: set[int], keep: int) -> None:
    """Remove checkpoints older than the newest `keep` of `known_good`, which this attempt has saved or
    verified itself.

    Only those count, and only while they still look whole: an unread one is never a reason to remove another.
    steps: all that have a directory, newest first. Raises Superseded.
    """
    good = 0
    for step in steps:
        folder = generation.work_dir / f"step-{step}"
        if good >= keep:
            if _remove(generation, folder):
                known_good.discard(step)
        elif step in known_good and _looks_whole(folder):
            good += 1


def _retain_set_aside(generation: Generation) -> None:
    folder = generation.work_dir / SET_ASIDE
    if folder.is_symlink():
        return
    try:
        names = os.listdir(folder)
    except OSError:
        return  # there is none, or the volume fails: looked at again the next time
    ours = [match for name in names if (match := _ASIDE.fullmatch(name))]
    ours.sort(key=lambda match: (int(match[2]), int(match[1])))  # by attempt, then by step
    old = [match[0] for match in ours[:-MOST_SET_ASIDE]]
    if removed := [name for name in old if _remove(generation, folder / name)]:
        emit("set-aside-removed", generation=generation.number, names=removed)


def _looks_whole(folder: Path) -> bool:
    try:
        manifests.check_sizes(folder, manifests.read(folder))
    except (Unverified, OSError):
        return False
    return True


def _step(folder: Path) -> int:
    """Of `step-N`, or of `step-N-…` that was set aside."""
    return int(folder.name.split("-")[1])


def _remove(generation: Generation, folder: Path) -> bool:
    doomed = generation.work_dir / f"{TEMPORARY}removed-{_step(folder)}-{secrets.token_hex(4)}"
    try:
        # Renamed first: half removed, it must not pass for a checkpoint.
        os.rename(folder, doomed)
    except OSError as error:
        generation.raise_if_fenced()
        emit("retention-failed", step=_step(folder), reason=reason_of(error))
        return False
    remove_tree(doomed)
    return True
