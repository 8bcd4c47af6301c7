"""One writer: each attempt claims the next generation and takes the working directory over by renaming it.

Layout below the run's checkpoint directory:

    claims/000003.json   who claimed generation 3, and at which step it started; never removed
    generation-3/        working directory of the newest generation: step-N/, set-aside/, heartbeat.json
    artifacts/           published final artifacts, by content
    result.json          the one result

Taking over renames `generation-2` to `generation-3` with everything in it. A process of generation 2 that
lives on (a paused one, or one on a node that lost its kubelet) knows only paths below `generation-2`: its
next create, rename or removal fails with ENOENT. Nothing has to be agreed with it, and no clock is involved.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.recovery.errors import BadInput, Superseded
from trainer.recovery.events import emit, now
from trainer.recovery.files import (
    NO_SPACE,
    create_new,
    encode_json,
    fill,
    fsync_path,
    read_json,
    remove_tree,
    replace_whole,
)

CLAIMS = "claims"
RESULT = "result.json"
ARTIFACTS = "artifacts"
HEARTBEAT = "heartbeat.json"
# Exactly the names that this module makes: "generation-01" is another directory than "generation-1".
_WORKING = re.compile(r"generation-([1-9][0-9]*)")
_CLAIM = re.compile(r"([0-9]+)\.json")
TEMPORARY = "tmp-"
_FORMER = re.compile(rf"{TEMPORARY}former-([0-9]+)-[0-9a-f]+")


@dataclass(frozen=True)
class Generation:
    """A claimed generation; it owns its working directory until it is fenced."""

    number: int
    run_dir: Path

    @property
    def work_dir(self) -> Path:
        return self.run_dir / f"generation-{self.number}"

    @property
    def claim_file(self) -> Path:
        return self.run_dir / CLAIMS / f"{self.number:06d}.json"

    def is_current(self) -> bool:
        """Whether the newest working directory is ours. Only a hint: the fence itself is the failing path.

        Ours may be there again after it was fenced, when a program makes missing parents; then a newer one
        is there too. Raises OSError when the volume fails, which is no sign of either.
        """
        return max(_work_dirs(self.run_dir), default=0) == self.number

    def check_current(self) -> None:
        if not self.is_current():
            raise Superseded(f"Generation {self.number} of {self.run_dir} was taken over by a newer one.")

    def raise_if_fenced(self) -> None:
        """Raise Superseded when fenced: ENOENT of a fenced writer is no failure of the volume.

        For one who handles a failure of the volume, and goes on when the volume can not tell.
        """
        with contextlib.suppress(OSError):
            self.check_current()


def prepare_run_dir(run_dir: Path) -> None:
    """Make the run's directory on a mounted volume. Raises BadInput naming the directory and the user."""
    who = f"uid {os.geteuid()} and gid {os.getegid()}"
    if not run_dir.parent.is_dir():
        raise BadInput(
            f"The checkpoint directory {run_dir} can not be made because {run_dir.parent} does not exist: "
            "mount the checkpoint volume there, or set HOLDFAST_CHECKPOINT_DIR to a directory below its "
            "mount path."
        )
    try:
        for folder in (run_dir, run_dir / CLAIMS):
            # Two first attempts may do this at once; whoever comes second flushes what the first one made.
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            if not folder.is_dir():
                raise BadInput(f"{folder} is not a directory: move it away, or choose another run id.")
            fsync_path(folder.parent)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise unwritable(run_dir, who, error) from error
    if not _may_write(run_dir) or not _may_write(run_dir / CLAIMS):
        raise unwritable(run_dir, who, None)


def _may_write(folder: Path) -> bool:
    """Raises OSError for a volume that fails: `access` says no then, which would end the run for good."""
    if os.access(folder, os.W_OK | os.X_OK):
        return True
    os.stat(folder)
    return os.access(folder, os.W_OK | os.X_OK)


def unwritable(run_dir: Path, who: str, error: OSError | None) -> BadInput:
    """A volume that refuses this user: NFS and hostPath ignore fsGroup, so the owner must fit."""
    place = run_dir if run_dir.is_dir() else run_dir.parent
    owner = os.stat(place)
    reason = error.strerror if error else "Permission denied"
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return BadInput(
            f"The checkpoint directory {run_dir} can not be written because the file system at {place} is "
            "mounted read-only: mount the checkpoint volume read-write (readOnly: false, access mode "
            "ReadWriteMany), or repair it when it fell back to read-only after an error."
        )
    return BadInput(
        f"The checkpoint directory {run_dir} can not be written by {who} ({reason}): {place} belongs to uid "
        f"{owner.st_uid} and gid {owner.st_gid} with mode {owner.st_mode & 0o7777:o}; give the directory "
        "(or the export or access point behind it) that uid and gid, or run with the directory's."
    )


def claim(run_dir: Path, identity: Mapping[str, Any]) -> Generation:
    """Claim the next generation and fence the former one. `identity` says who we are (run_id, pod, node, …).

    Raises Superseded when an even newer one claimed meanwhile, and BadInput when the directory is another
    run's.
    """
    former = claims(run_dir)
    owners = {name for record in former.values() if isinstance(name := record.get("run_id"), str) and name}
    if owners and identity.get("run_id") not in owners:
        raise BadInput(
            f"The checkpoint directory {run_dir} belongs to the run {sorted(owners)[0]!r}, not to "
            f"{identity.get('run_id')!r}: give each run a directory of its own."
        )
    # Names count too, whatever they are: claims may have been lost, and nothing is renamed onto anything.
    number = max([0, *former, *_taken(run_dir)]) + 1
    while True:
        generation = Generation(number, run_dir)
        try:
            descriptor = create_new(generation.claim_file)
            break
        except FileExistsError:
            number += 1
    try:
        fill(descriptor, encode_json(_claim_record(generation, identity)))
        fsync_path(generation.claim_file.parent)
    except OSError as error:
        # The name is the claim, the content only tells about it: `record_start` writes it again. What fills
        # the volume may be the half checkpoint of a dead attempt, which goes away only by taking over.
        if error.errno not in NO_SPACE:
            raise
        emit("volume-full", generation=number, reason=f"the claim has no content yet: {error.strerror}")
    _take_over(generation)
    _remove_leftovers(generation)
    return generation


def claims(run_dir: Path) -> dict[int, dict[str, Any]]:
    """Every claim so far by generation. One whose content is damaged still counts, without content."""
    found = {}
    for name in _names(run_dir / CLAIMS):
        if (number := generation_of_claim(name)) is not None:
            found[number] = read_json(run_dir / CLAIMS / name) or {}
    return dict(sorted(found.items()))


def generation_of_claim(name: str) -> int | None:
    """The generation that a file of this name below `claims/` claims, None for a name of another kind."""
    return int(match[1]) if (match := _CLAIM.fullmatch(name)) else None


def generation_of_folder(name: str) -> int | None:
    """The generation whose working directory has this name, None for a name of another kind."""
    return int(match[1]) if (match := _WORKING.fullmatch(name)) else None


def newest_work_dir(run_dir: Path) -> Path | None:
    """The working directory of the newest generation that has one; for readers that claim nothing."""
    numbers = _work_dirs(run_dir)
    return run_dir / f"generation-{max(numbers)}" if numbers else None


def record_start(generation: Generation, step: int, identity: Mapping[str, Any]) -> None:
    """Write down at which step this attempt starts: what `attempts_without_progress` counts.

    On a full volume it is not written, and the attempt counts as one that never started.
    """
    record = read_json(generation.claim_file) or _claim_record(generation, identity)
    content = encode_json({**record, "start_step": step})
    try:
        replace_whole(generation.claim_file, content, scratch=generation.work_dir)
    except OSError as error:
        generation.check_current()
        if error.errno not in NO_SPACE:
            raise
        emit("volume-full", generation=generation.number, reason=f"the start is not noted: {error.strerror}")


def _claim_record(generation: Generation, identity: Mapping[str, Any]) -> dict[str, Any]:
    return {"generation": generation.number, "claimed_at": now(), **identity}


def attempts_without_progress(generation: Generation, step: int, attempt: int) -> int:
    """How many attempts just before this one started at `step` too (or never came as far as starting).

    Only those of the same declared attempt count: a person who declares a retry has changed something.
    """
    count = 0
    for number, record in sorted(claims(generation.run_dir).items(), reverse=True):
        if number >= generation.number:
            continue
        if record.get("attempt", attempt) != attempt or record.get("start_step", step) != step:
            break
        count += 1
    return count


def _take_over(generation: Generation) -> None:
    """Make the newest former working directory ours in one rename; a first attempt makes an empty one."""
    run_dir = generation.run_dir
    while True:
        numbers = _work_dirs(run_dir)
        if numbers and max(numbers) >= generation.number:
            raise Superseded(f"Generation {generation.number} of {run_dir} was overtaken while it claimed.")
        try:
            if numbers:
                os.rename(run_dir / f"generation-{max(numbers)}", generation.work_dir)
            else:
                os.mkdir(generation.work_dir)
            break
        except (FileNotFoundError, FileExistsError):
            # An NFS client that sent it again, because the answer was lost, hears that too. Only who claimed
            # this number makes this name.
            if _is_folder(generation.work_dir):
                break
            # Another claimant renamed it first: look again who is the newest.
    fsync_path(run_dir)
    # A claim newer than ours may have looked for directories before ours appeared; then it is the one that
    # counts.
    if max(claims(run_dir), default=0) > generation.number:
        raise Superseded(f"Generation {generation.number} of {run_dir} was overtaken while it claimed.")
    for number in _work_dirs(run_dir):
        if number < generation.number:
            # A program that makes missing parents brought its fenced directory back. Nothing reads it.
            _move_stray(run_dir / f"generation-{number}", generation)


def _move_stray(stray: Path, generation: Generation) -> None:
    target = generation.work_dir / f"{TEMPORARY}stray-{stray.name}-{secrets.token_hex(4)}"
    try:
        os.rename(stray, target)
    except FileNotFoundError:
        generation.check_current()


def _remove_leftovers(generation: Generation) -> None:
    """Temporary directories and the uncommitted outcome of attempts that are dead or fenced by now."""
    _bring_back(generation)
    temporary = []
    for name in _names(generation.work_dir):
        if name.startswith(TEMPORARY) or name in ("outcome", "outcome.json", HEARTBEAT):
            path = generation.work_dir / name
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink(missing_ok=True)
            temporary += [name] if name.startswith(TEMPORARY) else []
    if temporary:
        emit("leftovers-removed", generation=generation.number, names=sorted(temporary))


def _bring_back(generation: Generation) -> None:
    """A sealed step is replaced in two renames: undo the first where its process died before the second."""
    work_dir = generation.work_dir
    former = [match for name in _names(work_dir) if (match := _FORMER.fullmatch(name))]
    try:
        for match in former:
            if not os.path.lexists(work_dir / f"step-{match[1]}"):
                os.rename(work_dir / match[0], work_dir / f"step-{match[1]}")
        if former:
            fsync_path(work_dir)  # before what was replaced is removed
    except FileNotFoundError:
        generation.check_current()
        raise


def _work_dirs(run_dir: Path) -> list[int]:
    """Generations that have a working directory. A file or link of such a name is none."""
    return [number for number in _taken(run_dir) if _is_folder(run_dir / f"generation-{number}")]


def _taken(run_dir: Path) -> list[int]:
    """Generations whose working directory's name is taken, by whatever."""
    return [number for name in _names(run_dir) if (number := generation_of_folder(name)) is not None]


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
