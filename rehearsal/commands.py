"""Short commands, run to their end, whose failure is told in a sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rehearsal.errors import RehearsalError


def run(*argv: str | Path, fix: str = "Run `./holdfast down`, then `./holdfast up`.", stdin: str | None = None) -> str:
    """Standard output of a command. Raises RehearsalError with what the command said when it fails or is missing."""
    words = [str(part) for part in argv]
    try:
        done = subprocess.run(words, capture_output=True, text=True, input=stdin, check=False)
    except FileNotFoundError as error:
        raise RehearsalError(f"The program {words[0]} is not installed.", fix) from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-600:]
        raise RehearsalError(f"`{' '.join(words)}` failed with code {done.returncode}: {said or 'it said nothing'}.", fix)
    return done.stdout


def run_in(pid: int, argv: Sequence[str | Path], fix: str = "Run `./holdfast up` again.") -> str:
    """The same, inside the namespaces (mount, network, pid, UTS) of the process `pid`."""
    return run("nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--uts", "--", *argv, fix=fix)
