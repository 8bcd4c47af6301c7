"""The argument trees that the program knows are those of the SDKs that it runs with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "components" / "planning" / "data" / "provider-arguments.json"


def test_the_argument_trees_are_what_the_installed_sdks_say() -> None:
    command = [sys.executable, "-m", "ops.provider_arguments"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert DATA.read_text(encoding="utf-8") == made, "run: .venv/bin/python -m ops.provider_arguments --write"
