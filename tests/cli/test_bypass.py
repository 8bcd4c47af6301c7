"""Programs that never saw our planner, through the real engine and pack: refused, with the fix named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.engine import ROOT, Engine, Said, write_project

PROGRAMS = Path(__file__).with_name("programs")

# Program -> the rule that must refuse it, and words of the fix.
REFUSED = {
    "tag_image": ("image-by-digest", "@sha256:"),
    "read_write_once": ("checkpoint-claim", "ReadWriteMany"),
    "empty_dir": ("checkpoint-volume", "emptyDir"),
    "fractional_gpus": ("whole-gpus", "write a whole number"),
    "unequal_gpus": ("whole-gpus", "they must be equal"),
    "toleration_only": ("gpu-toleration-needs-gpu", "nvidia.com/gpu"),
    "second_driver": ("node-profile-agreement", "Set driver.enabled=false"),
    "second_device_plugin": ("single-gpu-stack-owner", "devicePlugin.enabled=false"),
}


def preview(engine: Engine, folder: Path, program: str) -> Said:
    write_project(folder, {"name": "somebody"})
    shutil.copy(PROGRAMS / "common.py", folder / "common.py")
    shutil.copy(PROGRAMS / f"{program}.py", folder / "__main__.py")
    rendered = folder / "rendered"
    rendered.mkdir()
    engine.run(folder, "stack", "init", program.replace("_", "-"))
    return engine.run(
        folder,
        "preview",
        "--stack",
        program.replace("_", "-"),
        "--policy-pack",
        str(ROOT / "policies"),
        RENDER_DIRECTORY=str(rendered),
    )


@pytest.mark.parametrize("program", REFUSED)
def test_a_program_that_bypasses_the_planner_is_refused(program: str, engine: Engine, tmp_path: Path) -> None:
    rule, words = REFUSED[program]
    said = preview(engine, tmp_path, program)
    assert said.code != 0, said.text
    refusal = rf"\[mandatory\].*  {rule}  \("  # in between stands the severity
    assert re.search(refusal, said.text) and words in said.text, said.text
    assert "Traceback" not in said.text


def test_a_sound_program_passes_the_pack(engine: Engine, tmp_path: Path) -> None:
    said = preview(engine, tmp_path, "sound")
    assert said.code == 0, said.text
    assert "[mandatory]" not in said.text


def test_every_program_of_the_folder_is_tried() -> None:
    programs = {path.stem for path in PROGRAMS.glob("*.py")} - {"common", "sound"}
    assert programs == set(REFUSED)
