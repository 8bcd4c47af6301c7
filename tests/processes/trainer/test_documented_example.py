"""The example of docs/training-programs.md does what the page says."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.recovery import ExitCode

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Supervised

PAGE = Path(__file__).resolve().parents[3] / "docs" / "training-programs.md"


def test_the_example_is_preempted_goes_on_from_its_checkpoint_and_commits_once(
    supervised: Supervised, tmp_path: Path
) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = tmp_path / "my_train.py"
    program.write_text(example.replace("time.sleep(0.1)", "time.sleep(0.02)"))
    command = [sys.executable, "-S", str(program)]
    process = supervised.start(command)
    supervised.wait_for(lambda: list(supervised.run_dir.glob("*/step-10")), "the first checkpoint")
    process.send_signal(signal.SIGTERM)
    assert supervised.end(process) == ExitCode.PREEMPTED
    saved = max(event["step"] for event in supervised.events("checkpoint"))
    assert supervised.run(command) == ExitCode.DONE
    assert [event["step"] for event in supervised.events("restore")] == [saved]
    assert supervised.events("step")[0]["step"] == saved + 1
    [result] = supervised.events("result")
    assert result["metrics"] == {"total": sum(range(51))}
    assert supervised.run(command) == ExitCode.DONE
    assert supervised.events("step") == []
