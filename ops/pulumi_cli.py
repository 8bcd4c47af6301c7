"""The Pulumi program as a subprocess: which one, in which environment, on which stack."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.interruption import Terminated
from ops.stacks import ROOT, Stack

PACK = "policies"


class Pulumi:
    """Runs the engine for one stack. `env` is the whole environment, as ops.stacks.environment makes it."""

    def __init__(self, stack: Stack, env: Mapping[str, str], root: Path = ROOT) -> None:
        self.stack = stack
        self.root = root
        self.env = dict(env)
        # The policy pack names no virtual environment, so that it serves any project: with ours its packages are there.
        self.env.setdefault("PULUMI_PYTHON_CMD", sys.executable)
        self.program = _find(self.env)

    def stream(self, *arguments: str, quiet_output: bool = False) -> int:
        """Run with this terminal's input and output; the exit code. Ctrl-C is pulumi's to answer.

        With `quiet_output` all goes to standard error, so that standard output stays one JSON document.
        """
        output = sys.stderr if quiet_output else None
        process = subprocess.Popen([self.program, *arguments], cwd=self.root, env=self.env, stdout=output)
        interrupted = False
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt as error:
                # The terminal has sent Ctrl-C to pulumi too, which writes its state before it ends.
                interrupted = True
                if isinstance(error, Terminated):
                    process.terminate()
            else:
                if interrupted:
                    raise KeyboardInterrupt
                return code

    def capture(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments, "--non-interactive"],
            cwd=cwd or self.root,
            env=self.env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def ensure_rehearsal_stack(self) -> None:
        """Make the rehearsal's stack in its backend where it is missing, and select it for plain `pulumi`.

        `stack init` writes an `encryptionsalt` into the stack's file. It is run beside a copy of Pulumi.yaml,
        so that the tracked file stays as it is; the engine finds the key in the state instead, which is what
        PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER=true is for (pulumi#17236).
        """
        _make_folders(self.env)
        self._clear_dead_locks()
        if self.capture("stack", "select", self.stack.name).returncode == 0:
            return
        with tempfile.TemporaryDirectory(prefix="holdfast-init-") as scratch:
            shutil.copy(self.root / "Pulumi.yaml", scratch)
            made = self.capture("stack", "init", self.stack.name, cwd=Path(scratch))
        if made.returncode != 0 and "already exists" not in made.stderr:
            raise OpsError(f"The stack {self.stack.name} could not be made: {_said(made)}")
        selected = self.capture("stack", "select", self.stack.name)
        if selected.returncode != 0:
            raise OpsError(f"The stack {self.stack.name} could not be selected: {_said(selected)}")

    def _clear_dead_locks(self) -> None:
        """Free the stack of a pulumi that was killed here: its lock names a process that is gone.

        Only the rehearsal's local backend is looked at. A lock of a living process stays, and is named.
        """
        backend = self.env.get("PULUMI_BACKEND_URL", "")
        if not backend.startswith("file://"):
            return
        locks = Path(backend.removeprefix("file://"), ".pulumi", "locks").glob(f"**/{self.stack.name}/*.json")
        if any(_is_dead(lock) for lock in locks):
            freed = self.capture("cancel", "--yes", "--stack", self.stack.name)
            if freed.returncode != 0:
                raise OpsError(f"The lock of a killed update could not be removed: {_said(freed)}")

    def up(self, extra: Sequence[str] = (), quiet_output: bool = False) -> int:
        """With its preview: rules over the whole stack (two owners of one layer) are judged before anything is made."""
        # The outputs are one command away, and what the runs produced comes at the end: here they would bury both.
        return self.stream(
            "up", "--yes", "--suppress-outputs", *self._common(), *extra, quiet_output=quiet_output
        )

    def preview(self, extra: Sequence[str] = ()) -> int:
        return self.stream("preview", *self._common(), *extra)

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs as plain values; secrets stay hidden."""
        answer = self.capture("stack", "output", "--json", "--stack", self.stack.name)
        if answer.returncode != 0:
            raise OpsError(
                f"The outputs of stack {self.stack.name} can not be read: {_said(answer)}",
                code=ExitCode.UNAVAILABLE,
            )
        return json.loads(answer.stdout or "{}")

    def set_config(self, path: str, value: str) -> None:
        """Write one value at a path such as holdfast:runs[0].attempt into the stack's file."""
        answer = self.capture("config", "set", "--path", path, value, "--stack", self.stack.name)
        if answer.returncode != 0:
            raise OpsError(f"{path} could not be written to {self.stack.file.name}: {_said(answer)}")

    def _common(self) -> list[str]:
        return ["--stack", self.stack.name, "--policy-pack", str(self.root / PACK)]


def _is_dead(lock: Path) -> bool:
    """True where a lock is of this host and of a process that is not there any more."""
    try:
        held = json.loads(lock.read_text())
        if held["hostname"] != socket.gethostname():
            return False
        os.kill(int(held["pid"]), 0)
        # A killed process that nobody has waited for still answers to its number.
        return Path(f"/proc/{held['pid']}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError, IndexError):
        return False


def _make_folders(env: Mapping[str, str]) -> None:
    """The engine makes neither its home's parents nor the folder of a file:// backend."""
    backend = env.get("PULUMI_BACKEND_URL", "")
    for folder in (
        env.get("PULUMI_HOME", ""),
        backend.removeprefix("file://") if backend.startswith("file://") else "",
    ):
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)


def _find(env: dict[str, str]) -> str:
    """pulumi on the environment's PATH, else that of the toolchain's cache, then put last on PATH."""
    if found := shutil.which("pulumi", path=env.get("PATH", "")):
        return found
    from rehearsal import toolchain

    folder = toolchain.bin_dir()
    env["PATH"] = f"{env.get('PATH', '')}:{folder}"
    if found := shutil.which("pulumi", path=env["PATH"]):
        return found
    raise OpsError(
        "There is no pulumi on PATH, and none in the toolchain's cache.",
        "Install the Pulumi CLI, or run `./holdfast up` once, which fetches or builds it.",
        ExitCode.UNAVAILABLE,
    )


def _said(answer: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
    return (
        " ".join(line.removeprefix("error: ").strip() for line in lines[:4])
        or f"exit code {answer.returncode}"
    )
