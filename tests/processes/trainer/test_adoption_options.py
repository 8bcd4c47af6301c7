"""The options of `holdfast-run --steps`: every mistake is one sentence, and what the program is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainer.recovery import BadInput, ExitCode
from trainer.recovery.adoption_options import Adoption, Step, StepPattern, split_options

if TYPE_CHECKING:
    from tests.processes.trainer.conftest import Here, Supervised


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--steps", "checkpoint-*"], "--steps is 'checkpoint-*', which needs {step} exactly once"),
        (["--steps", "{step}/model_{step}"], "which needs {step} exactly once"),
        (
            ["--steps", "/out/checkpoint-{step}"],
            "'/out/checkpoint-{step}', an absolute path, but every attempt",
        ),
        (["--steps", "../checkpoint-{step}"], "write a path below {dir}, without empty parts, '.' and '..'"),
        (["--steps", "a//checkpoint-{step}"], "without empty parts"),
        (["--steps", "checkpoint-{step}/"], "without empty parts"),
        (["--steps", "{dir}/checkpoint-{step}"], "is below {dir} already: write 'checkpoint-{step}'"),
        (["--steps", "epoch={epoch}-step={step}"], "where '{epoch}' is no placeholder: only {step} is one"),
        (["--steps", "{step}}"], "is no placeholder"),
        (["--steps", "**/checkpoint-{step}"], "where ** is not offered: write one * for each level"),
        (["--steps", ""], "which needs {step} exactly once"),
        (["--steps"], "--steps has no value: write `holdfast-run --steps 'checkpoint-{step}' -- PROGRAM"),
        (["--steps", "a-{step}", "--steps", "b-{step}"], "--steps is given twice, 'a-{step}' and 'b-{step}'"),
        (["--steps", "a-{step}", "--keep", "1"], "--keep is '1': write a whole number of at least 2"),
        (["--steps", "a-{step}", "--keep=many"], "--keep is 'many': write a whole number"),
        (["--steps", "a-{step}", "--artifact", "/tmp/x"], "--artifact is '/tmp/x', an absolute path"),
        (["--steps", "a-{step}", "--artifact", "../x"], "--artifact is '../x': write a path below {dir}"),
        (
            ["--steps", "a-{step}", "--marker", "a/b"],
            "--marker is 'a/b': name the file that the program writes",
        ),
        (["--steps", "a-{step}", "--resume-with", "--from '{checkpoint}"], "can not be split into words"),
        (["--keep", "3"], "--keep is for a program whose checkpoints --steps names"),
        (["--step", "a-{step}"], "holdfast-run has no option '--step': it has --steps, --resume-with"),
        (["--verbose"], "the program's own options come after `--`"),
    ],
)
def test_a_mistake_names_the_option_the_value_and_the_fix(options: list[str], sentence: str) -> None:
    with pytest.raises(BadInput) as raised:
        split_options([*options, "--", "train", "{dir}"])
    assert sentence in str(raised.value)
    assert str(raised.value).endswith(".")


def test_a_program_that_is_not_told_its_directory_is_refused() -> None:
    with pytest.raises(BadInput, match="No argument of the program holds {dir}"):
        split_options(["--steps", "a-{step}", "--", "train", "--out", "/checkpoints"])


def test_a_checkpoint_among_the_programs_own_arguments_is_refused() -> None:
    with pytest.raises(BadInput, match="'--resume={checkpoint}' holds {checkpoint}, which the first attempt"):
        split_options(["--steps", "a-{step}", "--", "train", "{dir}", "--resume={checkpoint}"])


def test_a_mistake_ends_with_78_and_the_program_is_not_started(
    supervised: Supervised, tmp_path: Path
) -> None:
    program = ["/bin/sh", "-c", f"touch {tmp_path}/started", "{dir}"]
    assert supervised.run(program, options=["--steps", "checkpoint"]) == ExitCode.BAD_INPUT
    assert "--steps is 'checkpoint', which needs {step}" in supervised.last_words()["message"]
    assert not (tmp_path / "started").exists()


def test_without_options_nothing_of_the_program_is_changed(here: Here, tmp_path: Path) -> None:
    assert here.start(["/bin/sh", "-c", 'echo "$1" > "$2"', "sh", "{dir}", f"{tmp_path}/told"]) == 0
    assert (tmp_path / "told").read_text() == "{dir}\n"


def test_the_options_are_read_in_both_forms_and_end_where_the_program_begins() -> None:
    adoption, program = split_options(
        [
            "--steps=a-{step}",
            "--artifact",
            "x",
            "--artifact=y*",
            "--keep",
            "3",
            "train",
            "{dir}",
            "--steps",
            "9",
        ]
    )
    assert adoption is not None
    assert (adoption.steps.text, adoption.artifacts, adoption.keep) == ("a-{step}", ("x", "y*"), 3)
    assert program == ["train", "{dir}", "--steps", "9"]


def test_the_words_to_resume_with_are_there_only_with_a_step() -> None:
    adoption, program = split_options(
        [
            "--steps=a-{step}",
            "--resume-with",
            "--from {checkpoint} --epoch={step} --log '{dir}/two words'",
            "--",
            "train",
            "--out={dir}",
            '{"json": {}}',
        ]
    )
    assert adoption is not None
    folder = Path("/checkpoints/run/generation-7/program")
    own = ["train", f"--out={folder}", '{"json": {}}']
    assert adoption.command(program, folder, None) == own
    resumed = ["--from", f"{folder}/a-0012", "--epoch=12", "--log", f"{folder}/two words"]
    assert adoption.command(program, folder, Step(12, "a-0012")) == [*own, *resumed]


@pytest.mark.parametrize(
    ("pattern", "name", "step"),
    [
        ("checkpoint-{step}", "checkpoint-100", 100),
        ("checkpoint-{step}", "tmp-checkpoint-100", None),
        ("checkpoint-{step}", "checkpoint-100.tmp", None),
        ("checkpoint-{step}", "checkpoint-", None),
        ("checkpoint-{step}", "checkpoint--1", None),
        ("checkpoint-{step}", "checkpoint-١٢", None),
        ("checkpoint-{step}", "checkpoint-100\n", None),
        ("model_{step}.keras", "model_007.keras", 7),
        ("model_{step}.keras", "model_007Xkeras", None),
        ("epoch=*-step={step}.ckpt", "epoch=3-step=100.ckpt", 100),
        ("epoch=*-step={step}.ckpt", "epoch=3-step=100-v1.ckpt", None),
        ("*{step}", "model120", 120),
        ("{step}*", "120-model", 120),
        ("*-{step}", ".hidden-3", None),
        ("?-{step}", "a-3", 3),
        ("[ab]-{step}", "a-3", None),
        ("[ab]-{step}", "[ab]-3", 3),
        ("{step}", "1" * 19, None),
    ],
)
def test_a_pattern_finds_the_step_in_a_name(
    tmp_path: Path, pattern: str, name: str, step: int | None
) -> None:
    (tmp_path / name).touch()
    found = StepPattern.parse(pattern).find(tmp_path)
    assert found == ([] if step is None else [Step(step, name)])


def test_a_pattern_of_several_levels_finds_no_more_and_no_less(tmp_path: Path) -> None:
    for path in (
        "logs/v0/ckpt/step=5.ckpt",
        "logs/v1/ckpt/step=7.ckpt",
        "logs/v1/step=8.ckpt",
        "step=9.ckpt",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "logs" / "latest").symlink_to("v1")
    found = StepPattern.parse("logs/*/ckpt/step={step}.ckpt").find(tmp_path)
    assert found == [Step(5, "logs/v0/ckpt/step=5.ckpt"), Step(7, "logs/v1/ckpt/step=7.ckpt")]


def test_a_step_in_the_name_of_a_directory_above_is_found(tmp_path: Path) -> None:
    (tmp_path / "step_12").mkdir()
    (tmp_path / "step_12" / "model.bin").touch()
    assert StepPattern.parse("step_{step}/model.bin").find(tmp_path) == [Step(12, "step_12/model.bin")]


def test_a_directory_that_is_gone_is_no_directory_without_steps(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StepPattern.parse("a-{step}").find(tmp_path / "gone")


def test_adoption_is_a_plain_value() -> None:
    assert Adoption(StepPattern.parse("a-{step}")) == Adoption(StepPattern.parse("a-{step}"))
