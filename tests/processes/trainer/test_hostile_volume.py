"""What a volume may hold or refuse: nothing on it is believed, and a volume that fails costs no progress."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.recovery import Attempt, CheckpointStore, SaveFailed, Superseded, Unverified, open_attempt
from trainer.recovery import generation as generations
from trainer.recovery import manifest as manifests
from trainer.recovery.checkpoints import newest_sealed_step
from trainer.recovery.files import replace_whole
from trainer.recovery.parallel import FLUSHES_AT_ONCE, MOST_THREADS, Workers

Claim = Callable[[], Attempt]


def save(attempt: Attempt, step: int) -> Path:
    return attempt.store.save(step, lambda folder: (folder / "state").write_text(f"{step}") and None).path


def rewrite(folder: Path, **changes: Any) -> None:
    """Change a manifest and make its digest fit, as somebody who means it would."""
    path = folder / manifests.NAME
    body = {**json.loads(path.read_text()), **changes}
    body.pop("digest")
    path.write_text(json.dumps({**body, "digest": manifests._digest(body)}))


def named(path: Any, size: Any = 1) -> list[dict[str, Any]]:
    return [{"path": path, "size": size, "chunks": ["0" * 64]}]


def nested(levels: int) -> Any:
    return json.loads('{"a":' * levels + "1" + "}" * levels)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    """The same content under the same name, but somewhere else."""
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def folder_link(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


def replace_folder(folder: Path, make: Callable[[Path], object]) -> None:
    folder.rename(folder.with_name("gone"))
    make(folder)


def sparse(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.truncate(1 << 40)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "manifest a pipe": lambda folder: pipe(folder / manifests.NAME),
    "manifest a link": lambda folder: link(folder / manifests.NAME),
    "manifest a directory": lambda folder: directory(folder / manifests.NAME),
    "manifest of a terabyte": lambda folder: sparse(folder / manifests.NAME),
    "manifest nested deeply": lambda folder: (folder / manifests.NAME).write_text("[" * 200_000),
    "manifest not UTF-8": lambda folder: (folder / manifests.NAME).write_bytes(b'{"digest": "\xff\xfe"}'),
    "manifest a list": lambda folder: (folder / manifests.NAME).write_text("[1]"),
    "manifest null": lambda folder: (folder / manifests.NAME).write_text("null"),
    "step a text": lambda folder: rewrite(folder, step="2"),
    "step true": lambda folder: rewrite(folder, step=True),
    "chunks of no bytes": lambda folder: rewrite(folder, chunk_bytes=0),
    "cursor a list": lambda folder: rewrite(folder, cursor=[1]),
    "files a number": lambda folder: rewrite(folder, files=7),
    "size a text": lambda folder: rewrite(folder, files=named("state", "1")),
    "path a number": lambda folder: rewrite(folder, files=named(1)),
    "path absolute": lambda folder: rewrite(folder, files=named("/etc/hostname")),
    "path with a zero": lambda folder: rewrite(folder, files=named("a\0b")),
    "path of half a character": lambda folder: rewrite(folder, files=named("\ud800")),
    "path too long": lambda folder: rewrite(folder, files=named("x" * 300)),
    "a chunk for each byte": lambda folder: rewrite(folder, chunk_bytes=1, files=named("state", 1 << 40)),
    "cursor nested deeply": lambda folder: rewrite(folder, cursor=nested(200)),
    "path upwards": lambda folder: rewrite(folder, files=named("../x")),
    "file a pipe": lambda folder: pipe(folder / "state"),
    "file a link": lambda folder: link(folder / "state"),
    "directory a link": folder_link,
    "directory empty": lambda folder: replace_folder(folder, lambda path: path.mkdir()),
    "directory a file": lambda folder: replace_folder(folder, lambda path: path.write_text("x")),
    "directory a dangling link": lambda folder: replace_folder(folder, lambda at: at.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_whatever_stands_in_for_a_checkpoint_is_set_aside_and_its_step_can_be_saved_again(
    claim: Claim, damage: Callable[[Path], object]
) -> None:
    attempt = claim()
    save(attempt, 1), damage(save(attempt, 2))
    assert newest_sealed_step(attempt.store.work_dir) in (1, 2)
    found = claim().store.restore()
    assert found is not None and found.step == 1
    after = claim()
    assert after.store.steps() == [1]
    save(after, 2)
    assert [path.name[:6] for path in (after.store.work_dir / "set-aside").iterdir()] == ["step-2"]


def test_files_that_no_manifest_names_are_no_part_of_a_checkpoint_and_do_no_harm(claim: Claim) -> None:
    folder = save(claim(), 1)
    (folder / "extra").write_text("x")
    os.mkfifo(folder / "extra-pipe")
    found = claim().store.restore()
    assert found is not None and [entry.path for entry in found.manifest.files] == ["state"]


@pytest.mark.parametrize("name", ["step-01", "step-٣", "step--1", "step-", "step-1.bak", "STEP-9"])
def test_a_directory_of_a_similar_name_is_left_alone(claim: Claim, name: str) -> None:
    attempt = claim()
    save(attempt, 1)
    (attempt.store.work_dir / name).mkdir()
    assert attempt.store.steps() == [1]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", ["generation-01", "generation-٣", "generation-7", "generation-x"])
@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["directory", "file"])
def test_a_foreign_name_beside_the_working_directory_does_not_stop_a_claim(
    claim: Claim, run_dir: Path, name: str, make: Callable[[Path], None]
) -> None:
    save(claim(), 1)
    if (name, make) == ("generation-7", Path.mkdir):
        (run_dir / "generation-1").rename(run_dir / name)  # claims have been lost, the directory not
        (run_dir / "claims" / "000001.json").unlink()
    else:
        make(run_dir / name)
    after = claim()
    found = after.store.restore()
    assert found is not None and found.step == 1 and after.generation.is_current()
    assert after.generation.number in (2, 8)


@pytest.mark.parametrize("content", ["[]", "7", '{"run_id": ["x"]}', '{"run_id": {"a": 1}}', "[" * 100_000])
def test_a_claim_that_says_nonsense_is_a_claim_without_content(
    claim: Claim, run_dir: Path, content: str
) -> None:
    claim()
    (run_dir / "claims" / "000001.json").write_text(content)
    assert claim().generation.number == 2


def test_two_first_attempts_at_once_both_find_a_whole_directory(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def slower(path: Path, *rest: int) -> None:
        if Path(path).name == "run-001":
            monkeypatch.setattr(os, "mkdir", mkdir)
            mkdir(path)  # by the other one, which has not come as far as its next call
        mkdir(path, *rest)

    monkeypatch.setattr(os, "mkdir", slower)
    assert open_attempt(run_dir, {}).generation.number == 1


def test_a_fenced_attempt_does_not_bring_its_directory_back_by_setting_one_aside(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = claim()
    save(zombie, 1), (save(zombie, 2) / "state").write_text("X")

    def overtaken(folder: Path, manifest: manifests.Manifest) -> None:
        monkeypatch.undo()
        claim()
        raise Unverified("read while it was overtaken")

    monkeypatch.setattr(manifests, "verify", overtaken)
    with pytest.raises(Superseded):
        zombie.store.restore()
    assert not (run_dir / "generation-1").exists()


def test_an_attempt_whose_directory_a_program_brought_back_is_still_fenced(claim: Claim) -> None:
    zombie = claim()
    claim()
    zombie.store.work_dir.mkdir()
    assert not zombie.generation.is_current()


def test_a_fenced_attempt_is_told_so_instead_of_starting_from_nothing(claim: Claim) -> None:
    zombie = claim()
    save(zombie, 1)
    claim()
    with pytest.raises(Superseded):
        zombie.store.restore()


def test_checkpoints_that_can_not_be_read_now_are_no_reason_to_start_from_nothing(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(claim(), 1)
    after = claim()

    def refused(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(manifests, "verify", refused)
        with pytest.raises(PermissionError):
            after.store.restore()
    assert after.store.restore() is not None


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """A volume on which names can be made, but no content."""
    real, state = os.write, {"full": False}

    def write(descriptor: int, content: bytes) -> int:
        if state["full"] and descriptor > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", write)
    return lambda value: state.update(full=value)


def test_a_full_volume_does_not_keep_the_next_attempt_from_removing_what_fills_it(
    claim: Claim, run_dir: Path, full: Callable[[bool], None]
) -> None:
    dead = claim()
    save(dead, 1)
    (dead.store.work_dir / "tmp-step-2-half").mkdir()
    full(True)
    after = claim()
    assert os.listdir(after.store.work_dir) == ["step-1"]
    generations.record_start(after.generation, 1, {"run_id": "run-001"})
    full(False)
    generations.record_start(after.generation, 1, {"run_id": "run-001"})
    record = generations.claims(run_dir)[2]
    assert (record["run_id"], record["start_step"]) == ("run-001", 1), "what the claim lacked is there now"


def test_a_full_volume_collects_no_leftovers_of_what_is_written_each_second(
    claim: Claim, full: Callable[[bool], None]
) -> None:
    work_dir = claim().store.work_dir
    full(True)
    for durable in (True, False):
        with pytest.raises(OSError, match="No space left"):
            replace_whole(work_dir / "heartbeat.json", b"{}", work_dir, durable)
    assert os.listdir(work_dir) == []


class FrameworkError(Exception):
    """What safetensors and PyTorch raise in place of an OSError."""


@pytest.mark.parametrize("kind", ["by its text", "by its cause", "by a probe"])
def test_a_frameworks_own_error_for_a_full_volume_is_a_failed_save(
    claim: Claim, full: Callable[[bool], None], kind: str
) -> None:
    def write(folder: Path) -> None:
        (folder / "state").write_text("half")
        if kind == "by its text":
            raise FrameworkError("Error while serializing: I/O error: No space left on device (os error 28)")
        if kind == "by its cause":
            raise FrameworkError("writer failed") from OSError(errno.EDQUOT, "Disk quota exceeded")
        full(True)
        raise FrameworkError("unexpected pos 64 vs 0")

    attempt = claim()
    with pytest.raises(SaveFailed, match="ENOSPC|EDQUOT"):
        attempt.store.save(1, write)
    full(False)
    save(attempt, 1)


def test_a_checkpoint_with_folders_is_flushed_at_every_level(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def write(folder: Path) -> None:
        (folder / "outer" / "inner").mkdir(parents=True)
        (folder / "outer" / "inner" / "file").touch()

    monkeypatch.setattr(os, "fsync", watched)
    claim().store.save(1, write)
    assert flushed.index("inner") < flushed.index("outer") < flushed.index("manifest.json")


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda folder: (folder / "shards").symlink_to("/etc"), "is a symbolic link"),
        (lambda folder: os.mkfifo(folder / "state"), "is a device, pipe or socket"),
        (lambda folder: (folder / "manifest.json").touch(), "has the manifest's name"),
    ],
)
def test_what_could_not_be_restored_is_refused_when_it_is_saved(
    claim: Claim, write: Callable[[Path], object], sentence: str
) -> None:
    attempt = claim()
    with pytest.raises(ValueError, match=sentence):
        attempt.store.save(1, write)  # type: ignore[arg-type]
    assert os.listdir(attempt.store.work_dir) == []


def test_a_directory_that_can_not_be_listed_fails_the_save_instead_of_being_left_out(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuses(path: Any) -> Any:
        if str(path).endswith("shards"):
            raise OSError(errno.EIO, "Input/output error")
        return scandir(path)

    def write(folder: Path) -> None:
        (folder / "shards").mkdir()
        (folder / "shards" / "0").touch()

    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(SaveFailed, match="EIO"):
        claim().store.save(1, write)


def test_a_cursor_that_could_not_be_read_back_is_refused_when_it_is_saved(claim: Claim) -> None:
    store: CheckpointStore = claim().store
    with pytest.raises(ValueError, match="manifest.json is nested too deeply"):
        store.save(1, lambda folder: None, cursor=nested(200))
    assert os.listdir(store.work_dir) == []


def test_a_cursor_with_numbers_for_keys_verifies_when_it_is_read(claim: Claim) -> None:
    store: CheckpointStore = claim().store
    store.save(1, lambda folder: (folder / "state").touch(), cursor={10: "a", 2: "b"})
    found = claim().store.restore()
    assert found is not None and found.manifest.cursor == {"10": "a", "2": "b"}


def test_threads_are_bounded_on_a_node_of_many_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 256)
    before = threading.active_count()
    (tmp_path / "state").write_bytes(bytes(1000))
    with Workers(files=1000, size=1000) as workers:
        hashed = workers.hash_chunks(tmp_path / "state", 1000, chunk_bytes=1)
        flushed = [workers.flush(tmp_path / "state") for _ in range(1000)]
        assert threading.active_count() - before <= MOST_THREADS + FLUSHES_AT_ONCE
    assert len({future.result() for future in hashed}) == 1 and flushed[-1].done()


def test_a_good_checkpoint_that_can_not_be_read_now_is_not_moved_away_for_a_new_one_of_its_step(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(claim(), 1)
    after = claim()

    def refused(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(manifests, "verify", refused)
        with pytest.raises(SaveFailed, match="EIO"):
            save(after, 1)
    assert os.listdir(after.store.work_dir) == ["step-1"]


@pytest.mark.parametrize("fails_at", ["listdir", "rename"])
def test_a_volume_that_fails_after_a_save_does_not_end_the_training(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    attempt = claim()
    save(attempt, 1), save(attempt, 2)
    fsync, flushed = os.fsync, []

    def refused(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if flushed[-1] == str(attempt.store.work_dir):  # the new one is in its place
            monkeypatch.setattr(os, fails_at, refused)

    monkeypatch.setattr(os, "fsync", watched)
    save(attempt, 3)
    monkeypatch.undo()
    assert attempt.store.steps() == [3, 2, 1]


def test_a_save_whose_writer_brings_a_fenced_directory_back_does_not_count(claim: Claim, run_dir: Path) -> None:
    zombie = claim()

    def overtaken(folder: Path) -> None:
        claim()
        folder.mkdir(parents=True)  # as many frameworks do, whatever they are told
        (folder / "state").touch()

    with pytest.raises(Superseded):
        zombie.store.save(1, overtaken)
    found = claim()
    assert found.store.restore() is None
    assert [path.name for path in run_dir.glob("generation-*")] == ["generation-3"]
