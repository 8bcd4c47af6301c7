"""The checkpoint protocol: whole or not at all, verified, and the last good one is never removed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.recovery import Attempt, CheckpointStore, SaveFailed, Superseded, Unverified
from trainer.recovery import manifest as manifests
from trainer.recovery.checkpoints import newest_sealed_step

Claim = Callable[[], Attempt]


def save(attempt: Attempt, step: int, text: str | None = None) -> Path:
    content = text or f"state {step}"
    return attempt.store.save(step, lambda folder: (folder / "state").write_text(content) and None).path


def test_a_saved_checkpoint_is_restored_with_its_step_cursor_and_generation(claim: Claim) -> None:
    first = claim()
    first.store.save(
        7,
        lambda folder: (folder / "state").write_text("x") and None,
        cursor={"epoch": 2},
        rng={"file": "state"},
        frameworks={"jax": "0.10.2"},
    )
    found = claim().store.restore()
    assert found is not None
    assert (found.step, found.manifest.generation, found.manifest.run_id) == (7, 1, "run-001")
    assert found.manifest.cursor == {"epoch": 2} and found.manifest.rng == {"file": "state"}
    assert found.manifest.frameworks == {"jax": "0.10.2"}
    assert (found.path / "state").read_text() == "x"


def test_without_a_checkpoint_there_is_nothing_to_restore(claim: Claim) -> None:
    assert claim().store.restore() is None


def test_a_large_file_is_hashed_in_chunks_and_a_flipped_bit_in_any_chunk_is_found(
    claim: Claim, run_dir: Path
) -> None:
    attempt = claim()
    store = CheckpointStore(attempt.generation, attempt.store.identity, chunk_bytes=1000)
    saved = store.save(1, lambda folder: (folder / "big").write_bytes(bytes(4500)) and None)
    assert len(saved.manifest.files[0].chunks) == 5
    for position in (0, 2500, 4499):
        content = bytearray(4500)
        content[position] = 1
        (saved.path / "big").write_bytes(content)
        with pytest.raises(Unverified, match=f"big differs from its hash in chunk {position // 1000}"):
            manifests.verify(saved.path, saved.manifest)


def test_files_in_folders_and_empty_files_are_part_of_a_checkpoint(claim: Claim) -> None:
    def write(folder: Path) -> None:
        (folder / "shards").mkdir()
        (folder / "shards" / "0.bin").write_bytes(b"abc")
        (folder / "empty").touch()

    saved = claim().store.save(1, write)
    assert {entry.path: entry.size for entry in saved.manifest.files} == {"shards/0.bin": 3, "empty": 0}
    manifests.verify(saved.path, saved.manifest)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "state").write_text("state X"),
        lambda folder: (folder / "state").write_text("short"),
        lambda folder: (folder / "state").unlink(),
        lambda folder: (folder / manifests.NAME).unlink(),
        lambda folder: (folder / manifests.NAME).write_text('{"step": 3}'),
        lambda folder: (folder / manifests.NAME).write_bytes((folder / manifests.NAME).read_bytes()[:100]),
    ],
    ids=["flipped", "truncated", "file missing", "no manifest", "foreign manifest", "half a manifest"],
)
def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_is_restored(
    claim: Claim, damage: Callable[[Path], object], capfd: pytest.CaptureFixture[str]
) -> None:
    attempt = claim()
    save(attempt, 1), save(attempt, 2), damage(save(attempt, 3))
    after = claim()
    found = after.store.restore()
    assert found is not None and found.step == 2
    assert after.store.steps() == [2]
    assert len(list((after.store.work_dir / "set-aside").iterdir())) == 1, "set aside, not deleted"
    assert '"event": "checkpoint-set-aside"' in capfd.readouterr().out


def test_an_edited_manifest_is_not_believed(claim: Claim) -> None:
    attempt = claim()
    save(attempt, 1)
    path = save(attempt, 2) / manifests.NAME
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "cursor": {"epoch": 99}}))
    found = claim().store.restore()
    assert found is not None and found.step == 1


def test_a_manifest_can_not_lead_the_reader_out_of_its_directory(claim: Claim, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    folder = save(claim(), 1)
    good = manifests.read(folder)
    entry = manifests.FileEntry("../../../../secret", 1, good.files[0].chunks)
    bad = manifests.Manifest(step=1, run_id="run-001", generation=1, files=(entry,))
    with pytest.raises(Unverified, match="outside of the checkpoint"):
        manifests.verify(folder, bad)


def test_a_directory_under_another_steps_name_is_not_a_checkpoint(claim: Claim) -> None:
    attempt = claim()
    save(attempt, 1)
    folder = save(attempt, 2)
    folder.rename(folder.with_name("step-9"))
    found = claim().store.restore()
    assert found is not None and found.step == 1


def test_all_checkpoints_damaged_means_a_start_from_nothing_and_all_are_kept_aside(claim: Claim) -> None:
    attempt = claim()
    for step in (1, 2):
        (save(attempt, step) / "state").write_text("bad")
    after = claim()
    assert after.store.restore() is None
    assert len(list((after.store.work_dir / "set-aside").iterdir())) == 2


def test_a_checkpoint_that_can_not_be_read_now_is_passed_over_and_left_in_place(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = claim()
    save(attempt, 1), save(attempt, 2)
    after = claim()
    real = manifests.verify

    def fails(folder: Path, manifest: manifests.Manifest) -> None:
        if manifest.step == 2:
            raise OSError(errno.EIO, "Input/output error")
        real(folder, manifest)

    monkeypatch.setattr(manifests, "verify", fails)
    found = after.store.restore()
    assert found is not None and found.step == 1
    assert after.store.steps() == [2, 1]


def test_a_save_of_a_step_that_is_there_and_good_keeps_the_one_that_is_there(claim: Claim) -> None:
    attempt = claim()
    save(attempt, 1, "first")
    save(attempt, 1, "second")
    assert (attempt.store.work_dir / "step-1" / "state").read_text() == "first"


def test_a_save_of_a_step_that_is_there_and_bad_sets_that_one_aside(claim: Claim) -> None:
    attempt = claim()
    (save(attempt, 1, "first") / "state").write_text("wrong")
    save(attempt, 1, "second")
    found = claim().store.restore()
    assert found is not None and (found.path / "state").read_text() == "second"


def test_the_two_newest_good_checkpoints_are_kept(claim: Claim) -> None:
    attempt = claim()
    for step in range(1, 6):
        save(attempt, step)
    assert attempt.store.steps() == [5, 4]


def test_retention_counts_only_checkpoints_that_are_known_to_be_good(claim: Claim) -> None:
    attempt = claim()
    save(attempt, 1), save(attempt, 2)
    (attempt.store.work_dir / "step-2" / "state").unlink()
    save(attempt, 3)
    assert attempt.store.steps() == [3, 2, 1], "step 1 is one of only two good ones"
    save(attempt, 4)
    assert attempt.store.steps() == [4, 3]


def test_retention_of_a_new_attempt_keeps_what_it_has_not_verified_itself(claim: Claim) -> None:
    attempt = claim()
    save(attempt, 1), save(attempt, 2)
    after = claim()
    save(after, 3)
    assert after.store.steps() == [3, 2, 1], "this attempt has verified none of the older ones"


def test_fewer_than_two_kept_checkpoints_is_refused(claim: Claim) -> None:
    attempt = claim()
    with pytest.raises(ValueError, match="at least 2 verified checkpoints are kept"):
        CheckpointStore(attempt.generation, {}, keep=1)


@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename", "write"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_save_harms_nothing_and_the_next_one_succeeds(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    attempt = claim()
    save(attempt, 1)

    def refuses(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuses)
        with pytest.raises(SaveFailed, match=os.strerror(number)):
            attempt.store.save(2, lambda folder: (folder / "state").touch())
    assert os.listdir(attempt.store.work_dir) == ["step-1"]
    save(attempt, 2)
    found = claim().store.restore()
    assert found is not None and found.step == 2


def test_a_failed_save_is_reported_to_a_training_loop_and_does_not_end_it(
    claim: Claim, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert claim().store.try_save(5, full) is None
    event = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert event["event"] == "checkpoint-failed" and event["step"] == 5
    assert "No space left on device (ENOSPC)" in event["reason"]


def test_a_save_is_announced_before_its_first_byte_and_told_with_its_digest(
    claim: Claim, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def write(folder: Path) -> None:
        said.extend(capfd.readouterr().out.splitlines())
        (folder / "state").write_text("x")

    saved = claim().store.save(3, write)
    assert [json.loads(line) | {"at": ""} for line in said] == [
        {"event": "checkpoint-begins", "at": "", "step": 3, "generation": 1}
    ]
    [event] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (event["event"], event["bytes"], event["seconds"]) == ("checkpoint", 1, event["blocked_seconds"])
    assert event["digest"] == saved.manifest.digest == manifests.read(saved.path).digest
    claim().store.restore()
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["digest"] == event["digest"]


def test_what_a_dead_attempt_left_half_done_is_removed_and_named(
    claim: Claim, capfd: pytest.CaptureFixture[str]
) -> None:
    dead = claim()
    save(dead, 1)
    assert "leftovers-removed" not in capfd.readouterr().out
    for name in ("tmp-step-3-b", "tmp-step-2-a"):
        (dead.store.work_dir / name).mkdir()
    after = claim()
    [event] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert event["event"] == "leftovers-removed" and event["generation"] == 2
    assert event["names"] == ["tmp-step-2-a", "tmp-step-3-b"]
    assert os.listdir(after.store.work_dir) == ["step-1"]


def test_a_bug_in_the_programs_own_writing_is_not_hidden_as_a_failed_save(claim: Claim) -> None:
    def broken(folder: Path) -> None:
        raise ZeroDivisionError

    attempt = claim()
    with pytest.raises(ZeroDivisionError):
        attempt.store.try_save(1, broken)
    assert os.listdir(attempt.store.work_dir) == []


def test_files_are_flushed_before_the_manifest_and_the_directory_before_the_rename(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = claim()
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def watched_fsync(descriptor: int) -> None:
        done.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name.split('-')[0]}")
        fsync(descriptor)

    def watched_rename(source: Path, target: Path) -> None:
        done.append(f"rename {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "rename", watched_rename)
    attempt.store.save(1, lambda folder: (folder / "state").touch())
    assert done == ["fsync state", "fsync manifest.json", "fsync tmp", "rename step-1", "fsync generation"]


def test_the_newest_sealed_step_is_told_without_reading_files(claim: Claim) -> None:
    attempt = claim()
    assert newest_sealed_step(attempt.store.work_dir) == 0
    save(attempt, 1), save(attempt, 2)
    (attempt.store.work_dir / "step-2" / "state").unlink()
    assert newest_sealed_step(attempt.store.work_dir) == 1
    assert newest_sealed_step(attempt.store.work_dir / "nowhere") == 0


def test_a_checkpoint_of_another_run_is_not_restored(claim: Claim) -> None:
    attempt = claim()
    other = CheckpointStore(attempt.generation, {"run_id": "run-002"})
    other.save(1, lambda folder: (folder / "state").touch())
    assert attempt.store.restore() is None


def test_a_symbolic_link_is_no_part_of_a_checkpoint(claim: Claim) -> None:
    with pytest.raises(ValueError, match="is a symbolic link"):
        claim().store.save(1, lambda folder: (folder / "state").symlink_to("/etc/hostname"))


def test_a_fenced_attempt_can_not_save(claim: Claim) -> None:
    zombie = claim()
    save(zombie, 1)
    claim()
    with pytest.raises(Superseded):
        save(zombie, 2)


def test_of_those_set_aside_the_newest_three_are_kept_and_the_others_removed_with_an_event(
    claim: Claim, capfd: pytest.CaptureFixture[str]
) -> None:
    for step in range(1, 6):  # an attempt each, whose one new checkpoint is bad
        attempt = claim()
        (save(attempt, step) / "state").write_text("bad")
        assert claim().store.restore() is None
    aside = claim().store.work_dir / "set-aside"
    (aside / "notes-of-a-person").touch()
    assert sorted(path.name[:7] for path in aside.iterdir()) == ["notes-o", "step-3-", "step-4-", "step-5-"]
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    removed = [name for event in events if event["event"] == "set-aside-removed" for name in event["names"]]
    assert [name[:7] for name in removed] == ["step-1-", "step-2-"]
    attempt = claim()
    (save(attempt, 1) / "state").write_text("bad")
    assert claim().store.restore() is None
    kept = sorted(path.name[:7] for path in (claim().store.work_dir / "set-aside").iterdir())
    assert kept == ["notes-o", "step-1-", "step-4-", "step-5-"], "newest by the attempt that set it aside"


def test_a_link_in_the_place_of_those_set_aside_leads_to_no_removal(claim: Claim, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    for number in range(5):
        (others / f"step-{number}-1-abcd").mkdir()
    attempt = claim()
    (save(attempt, 9) / "state").write_text("bad")
    (attempt.store.work_dir / "set-aside").symlink_to(others)
    assert claim().store.restore() is None
    assert len(list(others.glob("step-*-1-abcd"))) == 5
