"""When a step that a program wrote by itself becomes a checkpoint, and when it does not."""

from __future__ import annotations

import errno
import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.recovery import Superseded, open_attempt
from trainer.recovery import adoption_sealing as sealing
from trainer.recovery import manifest as manifests
from trainer.recovery.adoption_options import Adoption, StepPattern
from trainer.recovery.adoption_sealing import Sealer, SealingThread
from trainer.recovery.checkpoints import CheckpointStore


class Program:
    """What a program would do below its directory, by hand, and a sealer that looks when it is told."""

    def __init__(self, run_dir: Path, pattern: str = "checkpoint-{step}", **options: Any) -> None:
        attempt = open_attempt(run_dir, environ={})
        self.store: CheckpointStore = attempt.store
        self.folder = self.store.work_dir / "program"
        self.folder.mkdir(exist_ok=True)
        self.sealer = Sealer(self.store, self.folder, Adoption(StepPattern.parse(pattern), **options))

    def save(self, step: int, text: str = "weights", name: str = "model.bin") -> Path:
        path = self.folder / f"checkpoint-{step}" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text} {step}")
        return path

    def look(self, times: int = 1) -> list[int]:
        for _ in range(times):
            self.sealer.look()
        return self.sealed()

    def sealed(self) -> list[int]:
        """Steps that verify, newest first."""
        for step in self.store.steps():
            folder = self.store.work_dir / f"step-{step}"
            manifests.verify(folder, manifests.read(folder))
        return self.store.steps()

    def content(self, step: int, name: str = "model.bin") -> str:
        return (self.store.work_dir / f"step-{step}" / f"checkpoint-{step}" / name).read_text()

    def temporary(self) -> list[str]:
        return [path.name for path in self.store.work_dir.glob("tmp-*")]


@pytest.fixture
def program(run_dir: Path) -> Program:
    return Program(run_dir)


def events(capfd: pytest.CaptureFixture[str], name: str) -> list[str]:
    return [line for line in capfd.readouterr().out.splitlines() if f'"event": "{name}"' in line]


def test_a_step_is_sealed_when_a_newer_one_appears(program: Program) -> None:
    program.save(10)
    assert program.look(9) == [], "nothing says that the program is done with it"
    program.save(20)
    assert program.look(1) == [10]
    assert program.content(10) == "weights 10"
    found = manifests.read(program.store.work_dir / "step-10")
    assert (found.step, found.run_id, found.cursor["path"]) == (10, "run-001", "checkpoint-10")
    assert program.look(9) == [10]


def test_a_sealed_step_takes_no_space_of_its_own(program: Program) -> None:
    path = program.save(10)
    program.save(20)
    program.look(3)
    assert path.samefile(program.store.work_dir / "step-10" / "checkpoint-10" / "model.bin")


def test_the_last_step_is_sealed_when_the_program_ended_and_no_save_was_cut_short(program: Program) -> None:
    program.save(10)
    program.look(3)
    program.save(20)
    program.sealer.look(ended=True, whole=True)
    assert program.sealed() == [20, 10], "without waiting for another look"
    assert program.temporary() == []


def test_the_last_step_of_a_program_that_was_killed_is_not_sealed(program: Program) -> None:
    program.save(10)
    program.look(5)
    program.save(20)
    program.look(5)
    program.sealer.look(ended=True, whole=False)
    assert program.sealed() == [10]
    assert program.temporary() == [], "what was hashed in advance is gone"


def test_a_step_that_is_still_written_is_not_sealed_although_a_newer_one_is_there(program: Program) -> None:
    program.save(10)
    program.save(20)
    for count in range(6):
        program.save(10, "x" * count)
        assert program.look() == []
    assert program.look(9) == [10]
    assert program.content(10) == "xxxxx 10"


@pytest.mark.parametrize("change", ["content", "same size", "another file", "replaced", "removed file"])
def test_a_step_that_changes_between_hashing_and_sealing_stays_unsealed(
    program: Program, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = program.save(10)
    program.save(10, name="optimizer.bin")
    program.save(20)
    describe = manifests.describe_files
    changes: dict[str, Callable[[], Any]] = {
        "content": lambda: path.write_text("longer than before"),
        "same size": lambda: path.write_text("WEIGHTS 10"),
        "another file": lambda: program.save(10, name="scheduler.bin"),
        "replaced": lambda: (path.unlink(), path.write_text("weights 10")),
        "removed file": lambda: path.with_name("optimizer.bin").unlink(),
    }

    def described(folder: Path, chunk_bytes: int) -> Any:
        found = describe(folder, chunk_bytes)
        if changes.get(change) and "10" in folder.name:
            changes.pop(change)()
        return found

    monkeypatch.setattr(manifests, "describe_files", described)
    assert program.look(2) == []
    assert program.look(9) == [10], "once it stands still it is"


def test_a_step_that_changes_after_it_was_hashed_is_hashed_again(program: Program) -> None:
    path = program.save(10)
    program.look(3)
    assert len(program.temporary()) == 1, "it is hashed in advance"
    path.write_text("WEIGHTS 10")
    program.save(20)
    assert program.look(1) == []
    program.look(9)
    assert program.sealed() == [10] and program.content(10) == "WEIGHTS 10"


def test_a_step_that_the_program_removes_as_soon_as_it_has_the_next_is_sealed_all_the_same(
    program: Program,
) -> None:
    """As Lightning does by default (save_top_k=1)."""
    path = program.save(10)
    program.look(3)
    program.save(20)
    path.unlink()
    path.parent.rmdir()
    assert program.look() == [10]
    assert program.content(10) == "weights 10"


def test_one_that_was_written_to_before_it_was_removed_is_not(program: Program) -> None:
    path = program.save(10)
    program.look(3)
    path.write_text("WEIGHTS 10")
    program.save(20)
    path.unlink()
    path.parent.rmdir()
    assert program.look(5) == []
    assert program.temporary()[1:] == []


def test_a_step_that_the_program_takes_back_is_not_sealed(program: Program) -> None:
    path = program.save(10)
    program.look(3)
    path.unlink()
    path.parent.rmdir()
    program.look()
    program.save(20)
    assert program.look(5) == []


def test_a_step_that_gets_its_name_when_it_is_whole_is_not_seen_before(program: Program) -> None:
    """As Hugging Face did in some versions: `tmp-checkpoint-10`, then one rename."""
    building = program.folder / "tmp-checkpoint-10"
    building.mkdir()
    (building / "model.bin").write_text("half")
    program.save(5)
    assert program.look(4) == []
    (building / "model.bin").write_text("weights 10")
    building.rename(program.folder / "checkpoint-10")
    assert program.look(4) == [5]


def test_two_steps_that_appear_at_once_are_in_the_order_of_their_numbers(program: Program) -> None:
    program.save(9)
    program.save(10)
    assert program.look(3) == [9]


def test_old_steps_with_higher_numbers_do_not_make_a_new_one_finished(program: Program) -> None:
    """A program that begins anew instead of resuming writes step 10 while step 40 lies there."""
    program.save(40)
    program.look()
    program.save(10)
    assert program.look(9) == [40]
    program.save(20)
    assert program.look(1) == [40, 10]


def test_a_marker_seals_the_last_step_while_the_program_runs(run_dir: Path) -> None:
    program = Program(run_dir, marker="trainer_state.json")
    program.save(10)
    assert program.look(5) == []
    program.save(10, "{}", name="trainer_state.json")
    assert program.look(2) == [10]


@pytest.mark.parametrize("marker", [None, "", "folder", "link"])
def test_with_a_marker_no_step_is_sealed_without_it(
    run_dir: Path, tmp_path: Path, marker: str | None
) -> None:
    program = Program(run_dir, marker="done")
    place = program.save(10).with_name("done")
    if marker == "":
        place.touch()
    elif marker == "folder":
        place.mkdir()
    elif marker == "link":
        (tmp_path / "elsewhere").write_text("x")
        place.symlink_to(tmp_path / "elsewhere")
    program.save(20)
    program.look(9)
    program.sealer.look(ended=True, whole=True)
    assert program.sealed() == []


def test_with_its_marker_the_last_step_of_a_killed_program_is_sealed(run_dir: Path) -> None:
    program = Program(run_dir, marker="done")
    program.save(10, name="done")
    program.sealer.look(ended=True, whole=False)
    assert program.sealed() == [10]


def archive(path: Path, members: int = 3) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as made:
        for number in range(members):
            made.writestr(f"data/{number}", os.urandom(5000))
    return path


def test_a_whole_archive_is_sealed_while_the_program_runs(run_dir: Path) -> None:
    """What torch.save and Keras write has its directory at the end."""
    program = Program(run_dir, "model_{step}.pt")
    archive(program.folder / "model_1.pt")
    assert program.look(2) == [1]


def test_half_an_archive_is_never_sealed(run_dir: Path) -> None:
    program = Program(run_dir, "model_{step}.pt")
    path = archive(program.folder / "model_1.pt")
    for size in (path.stat().st_size - 1, 9000, 5):
        os.truncate(path, size)
        program.look(9)
    archive(program.folder / "model_2.pt")
    program.look(9)
    program.sealer.look(ended=True, whole=True)
    assert program.sealed() == [2]


def test_an_archive_with_a_comment_waits_for_the_next_step_as_other_files_do(run_dir: Path) -> None:
    program = Program(run_dir, "model_{step}.pt")
    with zipfile.ZipFile(archive(program.folder / "model_1.pt"), "a") as made:
        made.comment = b"made by hand"
    assert program.look(9) == []
    archive(program.folder / "model_2.pt")
    assert program.look(3) == [2, 1]


def test_a_step_written_anew_is_sealed_anew(program: Program) -> None:
    path = program.save(10)
    program.save(20)
    assert program.look(3) == [10]
    path.unlink()
    program.save(10, "retrained")
    assert program.look(9) == [10] and program.content(10) == "weights 10", "it may still be written"
    program.save(30)
    program.look(9)
    assert program.sealed() == [20, 10] and program.content(10) == "retrained 10"


def test_a_step_that_is_being_removed_never_replaces_the_sealed_one(program: Program) -> None:
    path = program.save(10)
    program.save(10, name="optimizer.bin")
    program.save(20)
    program.look(3)
    path.unlink()
    program.look(9)
    program.save(30)
    program.look(9)
    program.sealer.look(ended=True, whole=True)
    assert program.sealed() == [30, 20, 10]
    assert program.content(10) == "weights 10"


def test_what_the_program_removes_goes_but_for_the_newest_two(program: Program) -> None:
    for step in range(10, 60, 10):
        path = program.save(step)
        program.look(3)
        if step > 10:
            old = program.folder / f"checkpoint-{step - 10}"
            (old / "model.bin").unlink()
            old.rmdir()
    assert path.exists()
    program.sealer.look(ended=True, whole=True)
    assert program.sealed() == [50, 40]


def test_what_the_program_keeps_is_kept(program: Program) -> None:
    for step in range(10, 60, 10):
        program.save(step)
        program.look(3)
    assert program.sealed() == [40, 30, 20, 10]


def test_with_keep_older_steps_are_removed_for_the_program_too(run_dir: Path) -> None:
    program = Program(run_dir, keep=2)
    for step in range(10, 60, 10):
        program.save(step)
        program.look(3)
    assert program.sealed() == [40, 30]
    assert sorted(path.name for path in program.folder.iterdir()) == [f"checkpoint-{n}" for n in (30, 40, 50)]
    assert program.temporary()[1:] == []


def test_a_step_with_a_link_is_reported_once_and_not_sealed(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    (program.save(10).parent / "latest").symlink_to("model.bin")
    program.save(20)
    assert program.look(9) == []
    [told] = events(capfd, "checkpoint-failed")
    assert "checkpoint-10/latest is neither a plain file nor a directory" in told


def test_an_empty_step_is_none(program: Program) -> None:
    (program.folder / "checkpoint-10").mkdir()
    program.save(20)
    program.look(5)
    program.sealer.look(ended=True, whole=True)
    assert program.sealed() == [20]


def test_a_volume_without_hard_links_gets_copies(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refuse)
    path = program.save(10)
    program.save(20)
    assert program.look(3) == [10]
    assert not path.samefile(program.store.work_dir / "step-10" / "checkpoint-10" / "model.bin")
    path.write_text("changed")
    assert program.content(10) == "weights 10"


def test_a_full_volume_is_reported_and_tried_again_later(
    program: Program, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    program.save(10)
    program.save(20)
    with monkeypatch.context() as patch:
        patch.setattr(sealing, "write_new", full)
        assert program.look(9) == []
    [told] = events(capfd, "checkpoint-failed")
    assert "checkpoint-10 could not be sealed: No space left on device (ENOSPC)" in told
    monkeypatch.setattr(sealing, "RETRY_SECONDS", 0.0)
    assert program.look(2) == [], "not at once"
    program.sealer.look(ended=True, whole=False)
    assert program.sealed() == [10]


def test_a_fenced_sealer_changes_nothing(program: Program, run_dir: Path) -> None:
    program.save(10)
    program.look(3)
    program.save(20)
    newer = open_attempt(run_dir, environ={})
    before = sorted(os.listdir(newer.store.work_dir))
    with pytest.raises(Superseded):
        program.look()
    assert sorted(os.listdir(newer.store.work_dir)) == before
    assert newer.store.steps() == []


def test_a_fenced_sealer_whose_program_brings_its_directory_back_seals_nothing_that_counts(
    program: Program, run_dir: Path
) -> None:
    program.save(10)
    newer = open_attempt(run_dir, environ={})
    program.folder.mkdir(parents=True)
    program.save(10)
    program.save(20)
    program.look(5)
    assert newer.store.restore() is None


def test_plain_files_on_several_levels_are_steps_too(run_dir: Path) -> None:
    program = Program(run_dir, "lightning_logs/*/checkpoints/epoch=*-step={step}.ckpt")
    folder = program.folder / "lightning_logs" / "version_0" / "checkpoints"
    folder.mkdir(parents=True)
    for step in (10, 20):
        (folder / f"epoch={step // 10}-step={step}.ckpt").write_text(f"weights {step}")
    (folder / "last.ckpt").write_text("not a step")
    assert program.look(3) == [10]
    path = "lightning_logs/version_0/checkpoints/epoch=1-step=10.ckpt"
    assert (program.store.work_dir / "step-10" / path).read_text() == "weights 10"


# The thread


class SlowSealer:
    def __init__(self, error: Exception | None = None) -> None:
        self.go_on, self.error, self.looks = threading.Event(), error, 0

    def look(self, ended: bool = False, whole: bool = False) -> None:
        self.looks += 1
        if self.error is not None:
            raise self.error
        if ended:
            self.go_on.wait(20)


def test_a_last_look_that_takes_too_long_is_not_waited_for() -> None:
    sealer = SlowSealer()
    thread = SealingThread(sealer)  # type: ignore[arg-type]
    thread.start()
    assert not thread.finish(whole=True, within_seconds=0.2)
    sealer.go_on.set()


def test_without_a_limit_the_last_look_is_waited_for() -> None:
    sealer = SlowSealer()
    thread = SealingThread(sealer)  # type: ignore[arg-type]
    thread.start()
    threading.Timer(0.3, sealer.go_on.set).start()
    assert thread.finish(whole=True, within_seconds=None)


def test_a_bug_in_the_sealing_is_raised_and_never_ends_it_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "LOOK_SECONDS", 0.01)
    thread = SealingThread(SlowSealer(KeyError("a bug")))  # type: ignore[arg-type]
    thread.start()
    thread._thread.join(5)
    with pytest.raises(KeyError):
        thread.check()
    with pytest.raises(KeyError):
        thread.finish(whole=True, within_seconds=None)


def test_a_volume_that_fails_for_a_while_is_told_once_and_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sealing, "LOOK_SECONDS", 0.01)
    sealer = SlowSealer(OSError(errno.EIO, os.strerror(errno.EIO)))
    thread = SealingThread(sealer)  # type: ignore[arg-type]
    thread.start()
    while sealer.looks < 5:
        threading.Event().wait(0.01)
    sealer.error = None
    sealer.go_on.set()
    assert thread.finish(whole=True, within_seconds=5)
    assert len(events(capfd, "checkpoint-unreadable")) == 1
