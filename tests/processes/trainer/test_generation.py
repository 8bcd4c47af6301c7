"""One writer: a new claim fences the former one by path, and what was saved stays readable."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.recovery import Attempt, BadInput, Superseded, open_attempt
from trainer.recovery import generation as generations
from trainer.recovery.generation import Generation
from trainer.recovery.retention import retain

Claim = Callable[[], Attempt]


def write(folder: Path) -> None:
    (folder / "state").write_text("x")


def test_each_claim_is_the_next_generation_and_says_who_claimed(run_dir: Path) -> None:
    environ = {"HOLDFAST_RUN_ID": "run-001", "HOLDFAST_POD_NAME": "pod-a", "HOLDFAST_ATTEMPT": "2"}
    assert [open_attempt(run_dir, environ).generation.number for _ in range(3)] == [1, 2, 3]
    record = generations.claims(run_dir)[3]
    assert (record["pod"], record["attempt"], record["run_id"]) == ("pod-a", 2, "run-001")


def test_checkpoints_of_every_former_generation_stay_readable(claim: Claim) -> None:
    for step in (1, 2):
        claim().store.save(step, write)
    after = claim()
    assert after.store.steps() == [2, 1]
    found = after.store.restore()
    assert found is not None and (found.step, found.manifest.generation) == (2, 2)


def test_a_zombie_in_the_middle_of_a_save_can_not_finish_it(claim: Claim) -> None:
    zombie = claim()
    zombie.store.save(1, write)

    def paused(folder: Path) -> None:
        write(folder)
        claim()  # the node was lost; another attempt has taken over while this one was paused

    with pytest.raises(Superseded):
        zombie.store.save(2, paused)
    after = claim()
    assert after.store.steps() == [1]


def test_a_zombie_can_not_remove_finish_or_record_anything(claim: Claim) -> None:
    zombie = claim()
    for step in (1, 2):
        zombie.store.save(step, write)
    after = claim()
    assert zombie.store.steps() == []
    with pytest.raises(Superseded):
        retain(zombie.generation, [2, 1], {2, 1}, keep=0)
    with pytest.raises(Superseded):
        zombie.artifact_path("model")
    with pytest.raises(Superseded):
        zombie.finish(2, {}, [])
    with pytest.raises(Superseded):
        generations.record_start(zombie.generation, 1, {})
    assert after.store.steps() == [2, 1]


def test_temporary_directories_and_outcomes_of_dead_attempts_are_removed(claim: Claim) -> None:
    dead = claim()
    dead.store.save(1, write)
    (dead.store.work_dir / "tmp-step-2-abc").mkdir()
    (dead.store.work_dir / "tmp-step-2-abc" / "state").write_text("half")
    dead.artifact_path("model").write_text("old")
    dead.finish(1, {}, ["model"])
    after = claim()
    assert os.listdir(after.store.work_dir) == ["step-1"]


def test_many_claimants_at_once_end_with_one_current_generation(run_dir: Path) -> None:
    generations.prepare_run_dir(run_dir)
    claimed: list[Generation] = []
    overtaken: list[Superseded] = []

    def contend() -> None:
        for _ in range(5):
            try:
                claimed.append(generations.claim(run_dir, {"run_id": "run-001"}))
            except Superseded as error:
                overtaken.append(error)

    threads = [threading.Thread(target=contend) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) + len(overtaken) == 30
    assert len({generation.number for generation in claimed}) == len(claimed), "no number is claimed twice"
    current = [generation for generation in claimed if generation.is_current()]
    assert [generation.number for generation in current] == [30]
    assert [name for name in os.listdir(run_dir) if name.startswith("generation-")] == ["generation-30"]


def test_a_claimant_that_makes_its_directory_late_finds_that_it_was_overtaken(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generations.prepare_run_dir(run_dir)
    mkdir = os.mkdir

    def late(path: Path, *rest: int) -> None:
        if Path(path).name == "generation-1":
            monkeypatch.setattr(os, "mkdir", mkdir)
            generations.claim(run_dir, {"run_id": "run-001"})
        mkdir(path, *rest)

    monkeypatch.setattr(os, "mkdir", late)
    with pytest.raises(Superseded):
        generations.claim(run_dir, {"run_id": "run-001"})


def test_a_directory_that_a_fenced_program_brings_back_is_never_read(claim: Claim, run_dir: Path) -> None:
    claim().store.save(1, write)
    second = claim()
    second.store.save(2, write)
    stray = run_dir / "generation-1" / "step-9"
    stray.mkdir(parents=True)
    third = claim()
    assert third.store.steps() == [2, 1]
    assert not (run_dir / "generation-1").exists()


def test_a_directory_of_another_run_is_refused(run_dir: Path) -> None:
    open_attempt(run_dir, {"HOLDFAST_RUN_ID": "run-001"})
    with pytest.raises(BadInput, match="belongs to the run 'run-001', not to 'run-002'"):
        open_attempt(run_dir, {"HOLDFAST_RUN_ID": "run-002"})


def test_a_missing_volume_is_told_with_its_mount_path(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"because .*nowhere does not exist: mount the checkpoint volume there"
    ):
        generations.prepare_run_dir(tmp_path / "nowhere" / "run-001")


@pytest.mark.parametrize("refused", ["run-001", "claims"])
def test_a_volume_that_refuses_this_user_is_told_with_directory_and_both_uids(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    mkdir = os.mkdir

    def refuses(path: Path, *rest: int) -> None:
        if Path(path).name == refused:
            raise PermissionError(errno.EACCES, "Permission denied")
        mkdir(path, *rest)

    monkeypatch.setattr(os, "mkdir", refuses)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(
        BadInput,
        match=r"can not be written by uid 4711 and gid .* belongs to uid \d+ and gid \d+ with mode 7",
    ):
        generations.prepare_run_dir(run_dir)


def test_a_directory_without_write_permission_is_found_before_anything_is_claimed(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    with pytest.raises(BadInput, match="give the directory .* that uid and gid"):
        generations.prepare_run_dir(run_dir)


def test_attempts_that_start_at_the_same_step_are_counted_until_one_gets_further(run_dir: Path) -> None:
    generations.prepare_run_dir(run_dir)
    counts = []
    for start in (0, 0, 5, 5, 5):
        generation = generations.claim(run_dir, {"run_id": "run-001", "attempt": 1})
        counts.append(generations.attempts_without_progress(generation, start, attempt=1))
        generations.record_start(generation, start, {})
    assert counts == [0, 1, 0, 1, 2]
    declared = generations.claim(run_dir, {"run_id": "run-001", "attempt": 2})
    assert generations.attempts_without_progress(declared, 5, attempt=2) == 0, "a declared retry starts anew"


def test_a_damaged_claim_still_counts_as_a_claim(claim: Claim, run_dir: Path) -> None:
    claim()
    (run_dir / "claims" / "000001.json").write_text("")
    assert claim().generation.number == 2
    assert json.loads((run_dir / "claims" / "000002.json").read_text())["generation"] == 2


def test_the_program_must_use_the_directory_that_the_supervisor_guards(run_dir: Path, tmp_path: Path) -> None:
    environ = {"HOLDFAST_GENERATION": "1", "HOLDFAST_CHECKPOINT_DIR": str(run_dir)}
    with pytest.raises(BadInput, match="give both the same directory"):
        open_attempt(tmp_path / "elsewhere", environ)


@pytest.mark.parametrize("put", [True, False])
def test_a_step_whose_attempt_died_while_it_was_replaced_is_brought_back(claim: Claim, put: bool) -> None:
    store = claim().store
    folder = store.save(1, write).path
    folder.rename(folder.with_name("tmp-former-1-0a1b2c3d"))
    if put:
        store.save(1, lambda target: (target / "state").write_text("newer") and None)
    found = claim().store.restore()
    assert found is not None and (found.path / "state").read_text() == ("newer" if put else "x")
    assert sorted(path.name for path in found.path.parent.iterdir()) == ["step-1"]
