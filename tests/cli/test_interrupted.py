"""An update that was killed is followed by one that works, without a hand on the state."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from ops.pulumi_cli import Pulumi
from ops.stacks import Stack
from tests.cli.engine import Engine, write_project

SLOW = "import pathlib, time; pathlib.Path('began').touch(); time.sleep(20)\n"


def hosts_of(engine: Engine) -> list[str]:
    """Process ids of the language hosts that were started under this engine's home."""
    home = f"PULUMI_HOME={engine.env['PULUMI_HOME']}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (process / name for name in ("cmdline", "environ"))
            if b"language_host.py" in command.read_bytes() and home in environment.read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:
            continue  # it has ended meanwhile
    return found


def test_the_lock_of_a_killed_update_does_not_stop_the_next_one(engine: Engine, tmp_path: Path) -> None:
    write_project(tmp_path, {"name": "killed"})
    (tmp_path / "__main__.py").write_text(SLOW)
    assert engine.run(tmp_path, "stack", "init", "interrupted").code == 0
    killed = subprocess.Popen(
        ["pulumi", "up", "--yes", "--skip-preview", "--stack", "interrupted", "--non-interactive"],
        cwd=tmp_path,
        env=dict(engine.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "began").exists():
        assert time.monotonic() < until and killed.poll() is None
        time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    while left := hosts_of(engine):
        assert time.monotonic() < until, f"language hosts {left} outlive their engine"
        time.sleep(0.1)
    (tmp_path / "__main__.py").write_text("")
    again = ("up", "--yes", "--skip-preview", "--stack", "interrupted")
    assert "currently locked by 1 lock" in engine.run(tmp_path, *again).text

    stack = Stack("interrupted", tmp_path / "Pulumi.interrupted.yaml", {})
    Pulumi(stack, engine.env, tmp_path).ensure_rehearsal_stack()
    said = engine.run(tmp_path, *again)
    assert said.code == 0, said.text
