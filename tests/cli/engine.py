"""The Pulumi CLI as the tests of this tier call it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def write_project(folder: Path, base: Mapping[str, Any] | None = None, **more: Any) -> None:
    """The Pulumi.yaml of a Python program in a test's folder: of ours, or `base`, with what `more` changes.

    It runs with the checkout's packages by their own path, not by a link in the folder: Python keeps bytecode per path, and
    compiling the clouds' SDKs again takes 8 s of every command.
    """
    own = yaml.safe_load((ROOT / "Pulumi.yaml").read_text()) if base is None else base
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({**own, **more, "runtime": runtime}))


@dataclass(frozen=True)
class Said:
    """What a command printed, without colours, and its exit code."""

    code: int
    text: str


@dataclass(frozen=True)
class Engine:
    """The Pulumi CLI with a home and a backend of its own."""

    env: Mapping[str, str]

    def run(self, folder: Path, *arguments: str, **more: str) -> Said:
        """Run in a folder; `more` are environment variables."""
        answer = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=folder,
            env={**self.env, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        return Said(answer.returncode, re.sub(r"\x1b\[[0-9;]*m", "", answer.stdout))

    def has_stack(self, project: str, stack: str) -> bool:
        """Whether the backend has it already; asking the CLI would take a second."""
        backend = Path(self.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
        return (backend / ".pulumi" / "stacks" / project / f"{stack}.json").is_file()

    def preview(self, folder: Path, stack: str = "dev") -> Said:
        """A preview with our policy pack."""
        return self.run(folder, "preview", "--stack", stack, "--policy-pack", str(ROOT / "policies"))
