"""A verb that is told to end takes what it started with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ops.exit_codes import ExitCode
from ops.verbs import test as verb

VERB = """
import sys
from ops import cli
from ops.pulumi_cli import Pulumi
from ops.stacks import Stack
from pathlib import Path
import ops.verbs.version as verb
verb.version = lambda: {work}
sys.exit(cli.main(["version"]))
"""
WORKS = {
    "a build": "__import__('rehearsal.toolchain.build')"
    ".toolchain.build._go(Path({program!r}), [], Path('/tmp'), {{}}, None)",
    "two builds at once": "__import__('rehearsal.cluster').cluster._programs("
    "__import__('rehearsal.progress').progress.Progress(), [], __import__('concurrent.futures').futures.ThreadPoolExecutor())",
    "the engine": "Pulumi(Stack('dev', Path('x'), {{}}), {{'PATH': {folder!r}}}, Path('/tmp')).stream('up')",
}
CHILDREN = {"two builds at once": 2}


def wait_until_written(path: Path, count: int) -> list[int]:
    until = time.monotonic() + 30
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < until, "the program was not started"
        time.sleep(0.05)
    return [int(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("work", WORKS)
def test_a_verb_that_is_told_to_end_leaves_no_process_behind(tmp_path, checkout, work, number):
    program = tmp_path / ("pulumi" if work == "the engine" else "go")
    asked = 'if [ "$1" = env ]; then echo go1.26.8; exit; fi'
    program.write_text(f"#!/bin/sh\n{asked}\necho $$ >> {tmp_path / 'pids'}\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    call = WORKS[work].format(program=str(program), folder=str(tmp_path))
    verb = subprocess.Popen(
        [sys.executable, "-c", VERB.format(work=call)],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "HOLDFAST_CACHE": str(tmp_path / "cache")},
        # Whoever started the tests may have had it ignored (nohup), which would stay so.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    children = wait_until_written(tmp_path / "pids", CHILDREN.get(work, 1))
    verb.send_signal(number)
    said, _ = verb.communicate(timeout=20)
    assert verb.returncode == ExitCode.INTERRUPTED, said
    assert "Stopped." in said
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_a_tier_in_the_background_ends_with_whoever_leaves(monkeypatch, tmp_path):
    monkeypatch.setattr(verb, "RESULTS", tmp_path)
    monkeypatch.setattr(verb, "_command", lambda *_: ["/bin/sh", "-c", f"echo $$ >> {tmp_path / 'pids'}; exec sleep 60"])
    with pytest.raises(KeyboardInterrupt), verb.Background() as background:
        running = background.begin(verb.Tier.CLI, [])
        (child,) = wait_until_written(tmp_path / "pids", 1)
        raise KeyboardInterrupt
    assert running.result(timeout=1).code != 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
