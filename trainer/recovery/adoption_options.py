"""`holdfast-run --steps PATTERN …`: the options for a program that writes its own checkpoints.

PATTERN names the steps below the program's directory, which the program is told as `{dir}`:

    checkpoint-{step}                                            a directory for each step (Hugging Face)
    lightning_logs/*/checkpoints/epoch=*-step={step}.ckpt        a plain file for each step (Lightning)
    model_{step}.keras                                           `{step}` fits any digits: 7, 07, 000007

`*` fits any characters but a slash and `?` fits one; neither fits a leading dot. Everything else is literal.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainer.recovery.checkpoints import LEAST_KEPT
from trainer.recovery.errors import BadInput

DIR, CHECKPOINT, STEP = "{dir}", "{checkpoint}", "{step}"
LONGEST_STEP = 18  # digits
_USAGE = "write `holdfast-run --steps 'checkpoint-{step}' -- PROGRAM ARGUMENT…`"
OPTIONS = ("--steps", "--resume-with", "--artifact", "--marker", "--keep")


@dataclass(frozen=True, order=True)
class Step:
    """One step that a program wrote: its number, and its path relative to the program's directory."""

    number: int
    path: str


@dataclass(frozen=True)
class StepPattern:
    """Where the steps are, one expression for each level of the path."""

    text: str
    levels: tuple[re.Pattern[str], ...]

    @classmethod
    def parse(cls, text: str) -> StepPattern:
        """Raises BadInput: the pattern, why it can not work, what to write instead."""
        if problem := _problem_of_pattern(text):
            raise BadInput(f"{problem}.")
        return cls(text, tuple(re.compile(_expression(part), re.DOTALL) for part in text.split("/")))

    def find(self, root: Path) -> list[Step]:
        """The steps that are there, in the order of their numbers. Links to directories are not followed.

        Raises OSError, FileNotFoundError when the root itself is gone.
        """
        os.stat(root)
        return sorted(self._find(root, "", 0, None))

    def _find(self, folder: Path, prefix: str, level: int, number: int | None) -> Iterator[Step]:
        last = level == len(self.levels) - 1
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return  # removed meanwhile: a program may do that
        for entry in entries:
            match = self.levels[level].fullmatch(entry.name)
            if match is None:
                continue
            here = int(match["step"]) if match.groupdict() else number
            path = f"{prefix}{entry.name}"
            if last and here is not None:
                yield Step(here, path)
            elif not last and entry.is_dir(follow_symlinks=False):
                yield from self._find(Path(entry.path), f"{path}/", level + 1, here)


def _problem_of_pattern(text: str) -> str:
    if text and (problem := _problem_of_path("--steps", text)):
        return problem
    if text.count(STEP) != 1:
        return (
            f"--steps is {text!r}, which needs {STEP} exactly once, where the step's number is: "
            "for example 'checkpoint-{step}' or 'epoch=*-step={step}.ckpt'"
        )
    if other := re.search(r"\{(?!step\})[^{}/]*\}?|(?<!\{step)\}", text):
        return (
            f"--steps is {text!r}, where {other[0]!r} is no placeholder: only {STEP} is one, and * "
            "stands for what else changes"
        )
    if "**" in text:
        return f"--steps is {text!r}, where ** is not offered: write one * for each level of the path"
    return ""


def _expression(part: str) -> str:
    """The regular expression for one level of the path."""
    made = r"(?!\.)" if part[0] in "*?" else ""
    before, found, after = part.partition(STEP)
    made += _literal(before)
    if found:
        # Beside a wildcard all digits belong to the step: `*{step}` finds 120 in `model120`, not 0.
        made += "(?<![0-9])" if before.endswith(("*", "?")) else ""
        made += f"(?P<step>[0-9]{{1,{LONGEST_STEP}}})"
        made += "(?![0-9])" if after.startswith(("*", "?")) else ""
    return made + _literal(after)


def _literal(text: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in text)


@dataclass(frozen=True)
class Adoption:
    """How a program that knows nothing of us is made recoverable.

    resume_with: words added to the program's own when there is a step to go on from. artifacts: globs below
    the program's directory. marker: a file that each step's directory has only once it is whole. keep: how
    many sealed steps are left, None for as many as the program leaves.
    """

    steps: StepPattern
    resume_with: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    marker: str | None = None
    keep: int | None = None

    def command(self, program: Sequence[str], folder: Path, newest: Step | None) -> list[str]:
        """The program's words with `{dir}` filled in, and those to resume with where there is a step."""
        words = [word.replace(DIR, str(folder)) for word in program]
        if newest is not None:
            known = {DIR: str(folder), CHECKPOINT: str(folder / newest.path), STEP: str(newest.number)}
            words += [_filled(word, known) for word in self.resume_with]
        return words


def _filled(word: str, known: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, known)), lambda match: known[match[0]], word)


def split_options(arguments: Sequence[str]) -> tuple[Adoption | None, list[str]]:
    """The options before the program, and the program's words (`--` not among them). Raises BadInput."""
    given: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0] != "--" and rest[0].startswith("--"):
        name, equals, value = rest.pop(0).partition("=")
        if name not in OPTIONS:
            raise BadInput(
                f"holdfast-run has no option {name!r}: it has {', '.join(OPTIONS)}; the program's own "
                "options come after `--`, as in `holdfast-run -- PROGRAM ARGUMENT…`."
            )
        if not equals:
            if not rest or rest[0] == "--":
                raise BadInput(f"{name} has no value: {_USAGE}.")
            value = rest.pop(0)
        if name in given and name != "--artifact":
            raise BadInput(f"{name} is given twice, {given[name][0]!r} and {value!r}: give it once.")
        given.setdefault(name, []).append(value)
    if rest and rest[0] == "--":
        rest.pop(0)
    return (_adoption(given, rest) if given else None), rest


def _adoption(given: dict[str, list[str]], program: Sequence[str]) -> Adoption:
    if "--steps" not in given:
        raise BadInput(f"{next(iter(given))} is for a program whose checkpoints --steps names: {_USAGE}.")
    steps = StepPattern.parse(given["--steps"][0])
    if not any(DIR in word for word in program):
        raise BadInput(
            "No argument of the program holds {dir}, so that its checkpoints would lie where nobody guards "
            "them: give {dir} as its output directory, for example `-- python3 train.py --output_dir {dir}`."
        )
    if misplaced := next((word for word in program if CHECKPOINT in word), None):
        raise BadInput(
            f"The program's argument {misplaced!r} holds {CHECKPOINT}, which the first attempt has not: "
            f"move what belongs to it to --resume-with, for example --resume-with '--resume {CHECKPOINT}'."
        )
    for glob in given.get("--artifact", ()):
        if problem := _problem_of_path("--artifact", glob):
            raise BadInput(f"{problem}.")
    return Adoption(
        steps,
        _resume_words(given.get("--resume-with", [""])[0]),
        tuple(given.get("--artifact", ())),
        _marker(given.get("--marker", [None])[0]),
        _keep(given.get("--keep", [None])[0]),
    )


def _resume_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(
            f"--resume-with is {text!r}, which can not be split into words ({error}): quote as in a "
            "shell, for example '--resume_from_checkpoint {checkpoint}'."
        ) from error


def _marker(name: str | None) -> str | None:
    if name is not None and (not name or "/" in name or name in (".", "..")):
        raise BadInput(
            f"--marker is {name!r}: name the file that the program writes last into each step's directory, "
            "without its path, for example trainer_state.json."
        )
    return name


def _keep(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < LEAST_KEPT:
        raise BadInput(f"--keep is {text!r}: write a whole number of at least {LEAST_KEPT}.")
    return int(text)


def _problem_of_path(option: str, text: str) -> str:
    """Why a pattern does not lead to something below the program's directory; empty when it does."""
    if not text:
        return f"{option} is empty: write a path below the program's directory"
    if text == DIR or text.startswith(f"{DIR}/"):
        return f"{option} is {text!r}, but is below {DIR} already: write {text[len(DIR) + 1 :]!r}"
    if text.startswith("/"):
        return (
            f"{option} is {text!r}, an absolute path, but every attempt has a directory of its own: write "
            f"the part below {DIR}"
        )
    if any(part in ("", ".", "..") for part in text.split("/")):
        return f"{option} is {text!r}: write a path below {DIR}, without empty parts, '.' and '..'"
    return ""


def is_plain_path(text: object) -> bool:
    """Whether what a manifest calls a path is one below a directory."""
    return isinstance(text, str) and bool(text) and not _problem_of_path("", text) and "\0" not in text


def is_file(path: Path | PurePosixPath) -> bool:
    """A plain file, not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
