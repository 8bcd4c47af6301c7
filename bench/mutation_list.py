"""The mistakes that `bench/mutations.py` makes, one at a time, below `trainer/recovery`.

An edit's text must be in the file exactly once. Whoever changes those lines changes the mutation with them.
"""

from __future__ import annotations

from dataclasses import dataclass

_HERE = "tests/processes/crash_model"
# The cheap ones first: the first that fails ends the run.
CRASHES = (f"{_HERE}/test_crashes.py", f"{_HERE}/test_schedules.py", f"{_HERE}/test_faults.py")
FAULTS = (f"{_HERE}/test_faults.py",)
SCHEDULES = (f"{_HERE}/test_schedules.py",)
PODS = (f"{_HERE}/test_pods.py",)
HOSTILE = ("tests/processes/trainer/test_hostile_volume.py", "tests/processes/trainer/test_result.py")


@dataclass(frozen=True)
class Mutation:
    """edits: (text that is there once, text in its place). tests: files that may catch it."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    tests: tuple[str, ...] = CRASHES


def _one(name: str, file: str, old: str, new: str, tests: tuple[str, ...] = CRASHES) -> Mutation:
    return Mutation(name, file, ((old, new),), tests)


_FLUSHING = (
    _one(
        "a checkpoint's name is not flushed",
        "checkpoints.py",
        "        os.rename(temporary, target)\n        fsync_path(self.work_dir)\n",
        "        os.rename(temporary, target)\n",
    ),
    _one(
        "the names in a checkpoint are not flushed",
        "checkpoints.py",
        "        fsync_path(temporary)\n",
        "",
    ),
    _one(
        "the folders in a checkpoint are not flushed",
        "manifest.py",
        "        fsync_path(inner)\n",
        "        pass\n",
    ),
    _one(
        "the program's files are not flushed",
        "parallel.py",
        "return _submit(self._flushing, fsync_path, path)",
        "return _submit(self._flushing, lambda path: None, path)",
    ),
    _one(
        "the library's own files are not flushed",
        "files.py",
        "            os.fsync(descriptor)\n    finally:\n        os.close(descriptor)\n\n\ndef write_new",
        "            pass\n    finally:\n        os.close(descriptor)\n\n\ndef write_new",
    ),
    _one(
        "the run's directory is not flushed into its parent",
        "generation.py",
        "            fsync_path(folder.parent)\n",
        "",
    ),
    _one(
        "a claim's name is not flushed",
        "generation.py",
        "        fsync_path(generation.claim_file.parent)\n",
        "",
    ),
    _one(
        "the working directory's name is not flushed",
        "generation.py",
        "    fsync_path(run_dir)\n    # A claim newer",
        "    # A claim newer",
    ),
    _one(
        "restore does not flush what a dead attempt renamed in last",
        "checkpoints.py",
        "        self._flush()\n",
        "",
    ),
    _one(
        "a step that is there already is not flushed before it counts",
        "checkpoints.py",
        "            fsync_path(self.work_dir)  # it may be there",
        "            pass  # it may be there",
    ),
    _one(
        "the start of an attempt is not flushed",
        "files.py",
        "    if durable:\n        fsync_path(path.parent)\n",
        "",
    ),
    _one(
        "the directories of artifacts are not flushed",
        "result.py",
        "    for parent in (folder, folder.parent, generation.run_dir):\n        fsync_path(parent)\n",
        "",
    ),
    Mutation(
        "an artifact's content is not flushed",
        "result.py",
        (("    fsync_path(source)\n", ""), ("    fsync_path(target)\n", "")),
    ),
    _one(
        "the result's name is not flushed",
        "files.py",
        "    fsync_path(path.parent)\n    return won\n",
        "    return won\n",
    ),
    _one(
        "a result that is found is not flushed before it counts",
        "result.py",
        "    fsync_path(run_dir / RESULT)\n    fsync_path(run_dir)\n",
        "    pass\n",
    ),
)

_ORDER = (
    Mutation(
        "the manifest is written first, the files are flushed after the rename",
        "checkpoints.py",
        (
            (
                "files=manifests.describe_files(temporary, self.chunk_bytes),",
                "files=_unflushed(temporary, self.chunk_bytes),",
            ),
            (
                "        os.rename(temporary, target)\n",
                "        os.rename(temporary, target)\n"
                '        [fsync_path(path) for path in target.rglob("*")]\n',
            ),
            (
                "def sealed_steps(",
                "def _unflushed(folder: Path, size: int) -> Any:\n"
                "    from trainer.recovery.parallel import hash_chunk\n\n"
                "    return tuple(\n"
                "        manifests.FileEntry(\n"
                "            path.relative_to(folder).as_posix(),\n"
                "            (whole := path.stat().st_size),\n"
                "            tuple(hash_chunk(path, at, min(size, whole - at))"
                " for at in range(0, whole, size)),\n"
                "        )\n"
                '        for path in sorted(folder.rglob("*"))\n'
                "        if path.is_file()\n"
                "    )\n\n\n"
                "def sealed_steps(",
            ),
        ),
    ),
    Mutation(
        "the manifest is written last of all, after the rename",
        "checkpoints.py",
        (
            ("        write_new(temporary / manifests.NAME, manifest.encode())\n", ""),
            (
                "        os.rename(temporary, target)\n",
                "        os.rename(temporary, target)\n"
                "        write_new(target / manifests.NAME, manifest.encode())\n",
            ),
        ),
    ),
    _one(
        "a checkpoint is renamed onto an existing one",
        "checkpoints.py",
        "if os.path.lexists(target) and (kept := self._already_there(target)):",
        "if os.path.lexists(target) and (kept := remove_tree(target)):",
    ),
    _one(
        "retention counts checkpoints that it has not looked at",
        "retention.py",
        "        elif step in known_good and _looks_whole(folder):\n",
        "        else:\n",
    ),
    _one(
        "retention leaves one checkpoint only",
        "retention.py",
        "        if good >= keep:\n",
        "        if good >= 1:\n",
    ),
    _one(
        "retention removes the last good one, too",
        "retention.py",
        "        if good >= keep:\n",
        "        if good >= 0:\n",
    ),
    _one(
        "retention removes the newest ones",
        "retention.py",
        "    for step in steps:\n",
        "    for step in reversed(steps):\n",
    ),
)

_TRUST = (
    _one(
        "hashes are not verified on restore",
        "checkpoints.py",
        "        manifests.verify(folder, manifest)\n        return Checkpoint",
        "        return Checkpoint",
    ),
    _one(
        "the newest directory is trusted",
        "checkpoints.py",
        "                found = self._verified(folder)\n",
        '                found = Checkpoint(folder, Manifest(step, "", 0, ()))\n',
    ),
    _one(
        "the manifest's own digest is not checked",
        "manifest.py",
        "        if claimed != _digest(body):\n",
        "        if not claimed:\n",
        ("tests/processes/trainer/test_checkpoints.py", *HOSTILE),
    ),
    _one(
        "the oldest checkpoint is restored first",
        "checkpoints.py",
        "        for step in self.steps():\n",
        "        for step in reversed(self.steps()):\n",
    ),
    _one(
        "a checkpoint that can not be read now is no checkpoint",
        "checkpoints.py",
        "            raise unreadable\n",
        "            pass\n",
        HOSTILE,
    ),
    _one(
        "a good checkpoint that can not be read now makes place for a new one",
        "checkpoints.py",
        "        except Unverified as error:\n            set_aside(self.generation, target, str(error))\n",
        "        except (Unverified, OSError) as error:\n"
        "            set_aside(self.generation, target, str(error))\n",
        FAULTS + HOSTILE,
    ),
    _one(
        "a result's artifacts are not verified",
        "result.py",
        "            if sha256_of(path) != artifact.sha256:\n",
        "            if not artifact.sha256:\n",
        HOSTILE,
    ),
)

_FENCE = (
    _one(
        "no fence: the takeover links everything into a new directory and leaves the former one",
        "generation.py",
        '                os.rename(run_dir / f"generation-{max(numbers)}", generation.work_dir)\n',
        '                __import__("shutil").copytree(\n'
        '                    run_dir / f"generation-{max(numbers)}",\n'
        "                    generation.work_dir,\n"
        "                    copy_function=os.link,\n"
        "                )\n",
    ),
    Mutation(
        "no fence: one directory for all, and the newest claim is looked at instead",
        "generation.py",
        (
            (
                '        return self.run_dir / f"generation-{self.number}"\n',
                '        return self.run_dir / "generation-1"\n',
            ),
            (
                "        return max(_work_dirs(self.run_dir), default=0) == self.number\n",
                "        return max(claims(self.run_dir), default=0) == self.number\n",
            ),
            (
                "        if number < generation.number:\n            # A program",
                "        if number < 0:\n            # A program",
            ),
        ),
        SCHEDULES,
    ),
    _one(
        "a save into a directory that the program brought back counts",
        "checkpoints.py",
        "            # A writer that makes missing folders brings a fenced directory back, which nobody will read.\n"
        "            self.generation.raise_if_fenced()\n",
        "",
        HOSTILE,
    ),
    _one(
        "two attempts may claim the same number",
        "files.py",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644",
        "os.O_WRONLY | os.O_CREAT, 0o644",
        SCHEDULES,
    ),
    _one(
        "a takeover does not look for a newer claim",
        "generation.py",
        "    if max(claims(run_dir), default=0) > generation.number:\n",
        "    if run_dir is None:\n",
        SCHEDULES,
    ),
    _one(
        "an own rename whose answer was lost is taken for a takeover",
        "generation.py",
        "            if _is_folder(generation.work_dir):\n                break\n",
        "            if generation is None:\n                break\n",
        FAULTS,
    ),
    _one(
        "the result is written over",
        "files.py",
        "            os.link(temporary, path)\n",
        "            os.replace(temporary, path)\n",
    ),
    _one(
        "the result is looked for, then written",
        "files.py",
        "            os.link(temporary, path)\n            won = True\n",
        "            won = not os.path.lexists(path)\n"
        "            if won:\n"
        "                os.replace(temporary, path)\n",
        SCHEDULES,
    ),
    _one(
        "without hard links: everybody writes an own result",
        "files.py",
        '    winners = (first / "content").read_bytes()\n',
        "    winners = content\n",
        (*SCHEDULES, *FAULTS),
    ),
)

_REST = (
    _one(
        "leftovers are not removed",
        "generation.py",
        "    _remove_leftovers(generation)\n    return generation\n",
        "    return generation\n",
    ),
    _one(
        "the outcome of a dead attempt stays, and is committed",
        "generation.py",
        'or name in ("outcome", "outcome.json", HEARTBEAT)',
        "or name in (HEARTBEAT,)",
        PODS,
    ),
    _one(
        "a step that was being replaced is not brought back",
        "generation.py",
        "    _bring_back(generation)\n    temporary = []\n",
        "    temporary = []\n",
    ),
    _one(
        "a write that took a part counts as whole",
        "files.py",
        "            view = view[os.write(descriptor, view) :]\n",
        "            view = view[os.write(descriptor, view) * 0 + len(view) :]\n",
        FAULTS,
    ),
    _one(
        "a volume that fails after a save ends the training",
        "checkpoints.py",
        "        except OSError as error:\n            # The checkpoint is saved",
        "        except ZeroDivisionError as error:\n            # The checkpoint is saved",
        FAULTS,
    ),
    _one(
        "a failed save ends the training",
        "checkpoints.py",
        "            raise SaveFailed(reason) from error\n",
        "            raise OSError(reason) from error\n",
        FAULTS,
    ),
    _one(
        "exit 0 on SIGTERM completes the Job",
        "exit_codes.py",
        "    if child == 0 and (finished or not sigterm_received):\n",
        "    if child == 0:\n",
        PODS,
    ),
    _one(
        "a preemption counts as a failure",
        "exit_codes.py",
        "        return ExitCode.PREEMPTED\n    return child\n",
        "        return child\n    return child\n",
        PODS,
    ),
    _one(
        "a program's bad input is taken for a preemption",
        "exit_codes.py",
        "FINAL = frozenset({ExitCode.SUPERSEDED, ExitCode.NO_PROGRESS, ExitCode.BAD_INPUT})",
        "FINAL = frozenset({ExitCode.SUPERSEDED, ExitCode.NO_PROGRESS})",
        PODS,
    ),
    _one(
        "bad settings are taken for a preemption",
        "supervisor.py",
        "    except BadInput as error:\n        ending = Ending(ExitCode.BAD_INPUT, 0, 0, str(error))\n",
        "    except BadInput as error:\n        ending = Ending(ExitCode.PREEMPTED, 0, 0, str(error))\n",
        PODS,
    ),
)

MUTATIONS: tuple[Mutation, ...] = (*_FLUSHING, *_ORDER, *_TRUST, *_FENCE, *_REST)
