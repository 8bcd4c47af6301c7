"""The rehearsal's `pulumi` leaves tracked stack files without a salt."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehearsal.toolchain import SHIMS

BEFORE = "# kept\nconfig:\n  holdfast:environment: dev\n"
SALT = "encryptionsalt: v1:abc=:v1:def:ghi\n"


def start(folder: Path, script: str, fallback: str = "true") -> subprocess.Popen:
    real = folder / "real-pulumi"
    real.write_text(f"#!/bin/sh\n{script}\n")
    real.chmod(0o755)
    command = [sys.executable, "-I", "-S", str(SHIMS / "pulumi_command.py"), str(real), "up", "--yes"]
    environment = {**os.environ, "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": fallback}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_salt_that_the_engine_adds_is_taken_out_again(tmp_path, place):
    stack = tmp_path / "Pulumi.dev.yaml"
    stack.write_text(BEFORE)
    text = SALT + BEFORE if place == "before" else BEFORE + SALT
    (tmp_path / "new").write_text(text)
    assert start(tmp_path, "cp new Pulumi.dev.yaml").wait() == 0
    assert stack.read_text() == BEFORE


def test_other_changes_of_the_engine_stay(tmp_path):
    (tmp_path / "Pulumi.dev.yaml").write_text(BEFORE)
    (tmp_path / "new").write_text(SALT + BEFORE + "  holdfast:more: 1\n")
    assert start(tmp_path, "cp new Pulumi.dev.yaml").wait() == 0
    assert (tmp_path / "Pulumi.dev.yaml").read_text() == BEFORE + "  holdfast:more: 1\n"


def test_a_salt_that_was_there_before_stays(tmp_path):
    (tmp_path / "Pulumi.prod.yaml").write_text(SALT + BEFORE)
    assert start(tmp_path, "exit 0").wait() == 0
    assert (tmp_path / "Pulumi.prod.yaml").read_text() == SALT + BEFORE


def test_outside_the_rehearsal_nothing_is_touched(tmp_path):
    (tmp_path / "Pulumi.dev.yaml").write_text(BEFORE)
    (tmp_path / "new").write_text(SALT + BEFORE)
    assert start(tmp_path, "cp new Pulumi.dev.yaml", fallback="false").wait() == 0
    assert (tmp_path / "Pulumi.dev.yaml").read_text() == SALT + BEFORE


def test_arguments_output_and_exit_code_pass_through(tmp_path):
    child = start(tmp_path, 'echo "$@"; exit 3')
    assert child.communicate()[0] == "up --yes\n"
    assert child.returncode == 3


def test_a_terminate_signal_reaches_the_engine_and_its_end_is_waited_for(tmp_path):
    child = start(tmp_path, "trap 'echo saved; exit 9' TERM; echo up; while :; do sleep 0.05; done")
    assert child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGTERM)
    started = time.monotonic()
    assert child.communicate(timeout=10)[0] == "saved\n"
    assert child.returncode == 9
    assert time.monotonic() - started < 5
