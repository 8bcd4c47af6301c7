"""What a program that writes its own checkpoints finds when it starts, and what is committed when it ends."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from trainer.recovery import BadInput, Superseded, Unverified, open_attempt
from trainer.recovery import generation as generations
from trainer.recovery import manifest as manifests
from trainer.recovery.adoption import UNSEALED_KEPT, Adopted
from trainer.recovery.adoption_options import Adoption, StepPattern
from trainer.recovery.adoption_sealing import Sealer

IDENTITY = {"run_id": "run-001", "attempt": 1, "image": None}


class Run:
    """Attempt after attempt at a run, each prepared as the supervisor does it."""

    def __init__(self, run_dir: Path, pattern: str = "checkpoint-{step}", **options: Any) -> None:
        self.run_dir = run_dir
        self.adoption = Adoption(StepPattern.parse(pattern), **options)
        self.attempt()

    def attempt(self) -> Adopted:
        generations.prepare_run_dir(self.run_dir)
        self.adopted = Adopted(self.adoption, generations.claim(self.run_dir, IDENTITY), IDENTITY)
        self.adopted.prepare()
        return self.adopted

    @property
    def folder(self) -> Path:
        return self.adopted.folder

    def save(self, step: int, **files: str) -> Path:
        folder = self.folder / f"checkpoint-{step}"
        folder.mkdir(exist_ok=True)
        for name, text in (files or {"model": f"weights {step}", "optimizer": f"momenta {step}"}).items():
            (folder / name).write_text(text)
        return folder

    def seal(self, *steps: int, rest: str = "") -> None:
        """Save and seal those; then save one more that stays unsealed, if asked."""
        for step in steps:
            self.save(step)
        adopted = self.adopted
        Sealer(adopted.store, adopted.folder, self.adoption).look(ended=True, whole=True)
        if rest:
            self.save(int(rest))

    def there(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def aside(self) -> list[str]:
        folder = self.adopted.store.work_dir / "set-aside"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def newest(self) -> str | None:
        return self.adopted.newest.path if self.adopted.newest else None


@pytest.fixture
def run(run_dir: Path) -> Run:
    return Run(run_dir)


def told(capfd: pytest.CaptureFixture[str], name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [event for event in found if event["event"] == name]


def test_the_first_attempt_finds_an_empty_directory_and_nothing_to_resume_from(run: Run) -> None:
    assert run.there() == [] and run.newest() is None
    assert run.adopted.command(["train", "{dir}"]) == ["train", str(run.folder)]


def test_sealed_steps_stand_in_the_next_attempts_directory(run: Run) -> None:
    run.seal(10, 20)
    run.attempt()
    assert run.folder.parent.name == "generation-2"
    assert run.there() == ["checkpoint-10", "checkpoint-20"] and run.newest() == "checkpoint-20"
    assert (run.folder / "checkpoint-20" / "model").read_text() == "weights 20"


def test_an_unsealed_step_is_set_aside_because_the_framework_would_pick_it(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    run.seal(10, rest="20")
    capfd.readouterr()
    run.attempt()
    assert run.there() == ["checkpoint-10"] and run.newest() == "checkpoint-10"
    [event] = told(capfd, "checkpoint-set-aside")
    assert (event["step"], event["reason"]) == (
        20,
        "checkpoint-20 is not sealed: its attempt ended before it was known to be whole",
    )
    assert event["place"].startswith("set-aside/unsealed-checkpoint-20-2-")


def test_without_any_sealed_step_the_program_starts_from_nothing(run: Run) -> None:
    run.save(10)
    run.attempt()
    assert run.there() == [] and run.newest() is None


@pytest.mark.parametrize("change", ["content", "longer", "added", "removed", "folder", "link"])
def test_the_newest_step_that_changed_after_it_was_sealed_is_not_resumed_from_as_it_is(
    run: Run, change: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Written to in place, it has changed in the sealed one too, and the one before is used."""
    run.seal(10, 20)
    model = run.folder / "checkpoint-20" / "model"
    before = os.stat(model)
    if change == "content":  # same size, same time: only the hash tells
        model.write_text("WEIGHTS 20")
        os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "longer":
        model.write_text("weights 20 and more")
    elif change == "added":
        model.with_name("extra").write_text("x")
    elif change == "removed":
        model.unlink()
    elif change == "folder":
        model.unlink()
        model.mkdir()
    elif change == "link":
        model.rename(model.with_name("moved"))
        model.symlink_to("moved")
    capfd.readouterr()
    run.attempt()
    expected = "checkpoint-10" if change in ("content", "longer") else "checkpoint-20"
    assert run.newest() == expected
    newest = run.folder / expected
    assert sorted(path.name for path in newest.iterdir()) == ["model", "optimizer"]
    assert (newest / "model").read_text() == f"weights {expected[-2:]}"
    assert not (newest / "model").is_symlink()
    assert any(event["step"] == 20 for event in told(capfd, "checkpoint-set-aside"))


@pytest.mark.parametrize("in_place", [True, False])
def test_an_older_step_that_changed_is_set_aside_too(run: Run, in_place: bool) -> None:
    run.seal(10, 20)
    model = run.folder / "checkpoint-10" / "model"
    if not in_place:
        model.unlink()
    model.write_text("WEIGHTS 10")
    run.attempt()
    assert run.there() == ["checkpoint-20"]
    assert run.adopted.store.steps() == ([20] if in_place else [20, 10])


def test_an_older_step_that_was_only_touched_stays(run: Run) -> None:
    run.seal(10, 20)
    os.utime(run.folder / "checkpoint-10" / "model")
    run.attempt()
    assert run.there() == ["checkpoint-10", "checkpoint-20"] and run.aside() == []


def test_the_newest_sealed_step_that_the_program_had_removed_is_put_back(run: Run) -> None:
    """Killed between the removal of the former step and the end of the save of the next."""
    run.seal(10)
    former = run.folder / "checkpoint-10"
    (former / "inner").mkdir()
    run.save(20)
    for path in (former / "model", former / "optimizer"):
        path.unlink()
    (former / "inner").rmdir()
    former.rmdir()
    run.attempt()
    assert run.there() == ["checkpoint-10"]
    assert (run.folder / "checkpoint-10" / "model").read_text() == "weights 10"


def test_a_step_on_several_levels_is_put_back_where_it_was(run_dir: Path) -> None:
    run = Run(run_dir, "logs/*/step={step}.ckpt")
    path = run.folder / "logs" / "version_0" / "step=10.ckpt"
    path.parent.mkdir(parents=True)
    path.write_text("weights 10")
    run.seal()
    path.unlink()
    path.parent.rmdir()
    run.attempt()
    assert run.newest() == "logs/version_0/step=10.ckpt"
    assert (run.folder / "logs/version_0/step=10.ckpt").read_text() == "weights 10"


def test_older_steps_that_the_program_removed_stay_removed(run: Run) -> None:
    run.seal(10, 20)
    for path in sorted((run.folder / "checkpoint-10").iterdir()):
        path.unlink()
    (run.folder / "checkpoint-10").rmdir()
    run.attempt()
    assert run.there() == ["checkpoint-20"]
    assert run.adopted.store.steps() == [20, 10], "but the newest two are kept for the case that one is bad"


def test_a_bad_sealed_step_gives_way_to_the_one_before_which_is_put_back(run: Run) -> None:
    run.seal(10, 20)
    for path in sorted((run.folder / "checkpoint-10").iterdir()):
        path.unlink()
    (run.folder / "checkpoint-10").rmdir()
    (run.folder / "checkpoint-20" / "optimizer").write_text("torn")
    run.attempt()
    assert run.there() == ["checkpoint-10"] and run.newest() == "checkpoint-10"
    assert (run.folder / "checkpoint-10" / "optimizer").read_text() == "momenta 10"


def test_a_program_is_not_started_beside_an_unsealed_step_that_can_not_be_moved(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.seal(10, rest="20")
    rename = os.rename

    def refuse(source: Any, target: Any) -> None:
        if Path(source).name == "checkpoint-20":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="Permission denied"):
        run.attempt()


def test_unsealed_steps_do_not_fill_the_volume_attempt_after_attempt(run: Run) -> None:
    run.seal(10)
    for step in range(20, 20 + UNSEALED_KEPT + 3):
        run.save(step)
        run.attempt()
    names = [name.split("-")[2] for name in run.aside()]
    assert names == [str(step) for step in range(23, 23 + UNSEALED_KEPT)]


def test_another_programs_files_are_left_alone(run: Run) -> None:
    run.seal(10)
    for name in ("tmp-checkpoint-20", "logs", "checkpoint-best"):
        (run.folder / name).mkdir()
    run.attempt()
    assert run.there() == ["checkpoint-10", "checkpoint-best", "logs", "tmp-checkpoint-20"]


def test_a_link_under_a_steps_name_is_set_aside(run: Run, tmp_path: Path) -> None:
    run.seal(10)
    (run.folder / "checkpoint-30").symlink_to(tmp_path)
    run.attempt()
    assert run.there() == ["checkpoint-10"]
    assert tmp_path.is_dir()


def test_a_run_whose_checkpoints_the_library_saved_is_refused(run_dir: Path) -> None:
    store = open_attempt(run_dir, environ={}).store
    store.save(5, lambda folder: (folder / "state").write_text("x") and None)
    with pytest.raises(BadInput, match=r"was not sealed by `holdfast-run --steps`"):
        Run(run_dir)


@pytest.mark.parametrize("path", ["../../outside", "/etc/passwd", "a/../../b", "", 7, None, "a\0b"])
def test_a_manifest_that_leads_out_of_the_directory_is_refused(run: Run, path: Any) -> None:
    run.seal(10)
    place = run.adopted.store.work_dir / "step-10" / manifests.NAME
    found = manifests.read(place.parent)
    forged = manifests.Manifest(10, "run-001", 1, found.files, cursor={**found.cursor, "path": path})
    place.write_bytes(forged.encode())
    with pytest.raises(BadInput):
        run.attempt()


def test_a_fenced_attempt_does_not_bring_its_directory_back(run: Run) -> None:
    run.seal(10, rest="20")
    fenced = run.adopted
    run.attempt()
    with pytest.raises(Superseded):
        fenced.prepare()
    assert not fenced.folder.exists()


# The result


def test_the_newest_steps_files_are_the_artifacts(run: Run) -> None:
    run.seal(10, 20)
    outcome = run.adopted.outcome()
    assert outcome.step == 20
    assert outcome.artifacts == {
        "model": "step-20/checkpoint-20/model",
        "optimizer": "step-20/checkpoint-20/optimizer",
    }


def test_the_artifacts_that_were_asked_for_are_found_below_the_directory(
    run_dir: Path, tmp_path: Path
) -> None:
    run = Run(run_dir, artifacts=("final", "*.json", "logs/**/loss.csv"))
    run.seal(10)
    for path in (
        "final/model.bin",
        "final/tokenizer/vocab",
        "metrics.json",
        "logs/a/loss.csv",
        "logs/b/loss.csv",
    ):
        (run.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (run.folder / path).write_text(path)
    (run.folder / "final" / "outside").symlink_to(tmp_path)
    outcome = run.adopted.outcome()
    assert outcome.step == 10
    assert outcome.artifacts == {
        "model.bin": "program/final/model.bin",
        "vocab": "program/final/tokenizer/vocab",
        "metrics.json": "program/metrics.json",
        "logs__a__loss.csv": "program/logs/a/loss.csv",
        "logs__b__loss.csv": "program/logs/b/loss.csv",
    }


def test_an_artifact_that_fits_nothing_is_a_sentence_that_names_what_is_there(run_dir: Path) -> None:
    run = Run(run_dir, artifacts=("final/*.bin",))
    run.seal(10)
    with pytest.raises(BadInput) as raised:
        run.adopted.outcome()
    assert str(raised.value) == (
        "The program ended with 0, but no file below {dir} fits --artifact 'final/*.bin' (there is "
        "checkpoint-10): correct the pattern, or let the program write the file."
    )


def test_an_older_step_never_passes_for_the_result_of_a_newest_that_could_not_be_sealed(run: Run) -> None:
    run.seal(10)
    (run.save(20) / "latest").symlink_to("model")
    run.seal()
    with pytest.raises(Unverified, match="checkpoint-20, the newest step, was not sealed"):
        run.adopted.outcome()


def test_a_marker_that_no_step_has_is_a_sentence(run_dir: Path) -> None:
    run = Run(run_dir, marker="state.json")
    run.seal(10)
    with pytest.raises(BadInput, match=r"checkpoint-10 has no 'state\.json', which --marker names"):
        run.adopted.outcome()


def test_the_result_of_a_program_that_removed_its_directory_is_what_was_sealed(run: Run) -> None:
    run.seal(10)
    shutil.rmtree(run.folder)
    run.seal()
    assert set(run.adopted.outcome().artifacts) == {"model", "optimizer"}


def test_a_pattern_that_no_step_fits_is_a_sentence_that_names_what_is_there(run: Run) -> None:
    (run.folder / "ckpt-10").mkdir()
    with pytest.raises(BadInput) as raised:
        run.adopted.outcome()
    assert "nothing below {dir} fits --steps 'checkpoint-{step}' (there is ckpt-10)" in str(raised.value)
