"""What docs/training-programs.md says of programs that write their own checkpoints is what happens."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainer.recovery.adoption_options import OPTIONS, split_options

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Supervised

CHECKOUT = Path(__file__).resolve().parents[3]
PAGE = (CHECKOUT / "docs" / "training-programs.md").read_text()
SECTION = PAGE.partition("## Programs that write their own checkpoints\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)


def test_the_example_is_preempted_and_goes_on_from_its_newest_sealed_checkpoint(
    supervised: Supervised, tmp_path: Path
) -> None:
    [example] = [text for text in COMMANDS if "cat >" in text]
    example = example.replace("/tmp/", f"{tmp_path}/").replace("time.sleep(0.1)", "time.sleep(0.05)")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    command = ["/bin/sh", "-c", example]
    first = subprocess.Popen(command, cwd=CHECKOUT, env=environ, stdout=subprocess.PIPE, text=True)
    sealed = tmp_path / "checkpoints" / "theirs" / "generation-1"
    supervised.wait_for(lambda: list(sealed.glob("step-*")), "the first sealed checkpoint", seconds=60)
    [supervisor] = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(int(supervisor), signal.SIGINT)
    output, _ = first.communicate(timeout=60)
    assert "exit code 75" in output
    newest = max(int(path.name[5:]) for path in sealed.glob("step-*"))
    again = subprocess.run(command, cwd=CHECKOUT, env=environ, stdout=subprocess.PIPE, text=True, timeout=60)
    assert f"begins at step {newest}\n" in again.stdout
    assert "The result of step 60 was committed and verifies." in again.stdout
    assert "exit code 0" in again.stdout


@pytest.mark.parametrize("text", [text for text in COMMANDS if "cat >" not in text])
def test_every_other_command_is_one_that_holdfast_run_takes(text: str) -> None:
    name, *words = shlex.split(text.replace("\\\n", ""))
    adoption, program = split_options(words)
    assert name == "holdfast-run" and adoption is not None
    assert program[0] == "python3" and any("{dir}" in word for word in program)


def test_the_command_of_the_run_is_one_that_holdfast_run_takes() -> None:
    [command] = re.findall(r"command: \[/app/holdfast-run, (.*)\]", SECTION)
    [program] = re.findall(r"args: \[(.*)\]", SECTION)
    words = [word.strip().strip('"') for word in f"{command}, {program}".split(",")]
    adoption, found = split_options(words)
    assert adoption is not None and adoption.marker == "trainer_state.json"
    assert adoption.resume_with == ("--resume_from_checkpoint", "{checkpoint}")
    assert found[0] == "python3"


def test_every_option_has_its_line_on_the_page() -> None:
    assert [name for name in OPTIONS if f"| `{name} " not in SECTION] == []
