"""Looking at a run's directory claims nothing, changes nothing and never fails, whatever stands there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.recovery import Attempt
from trainer.recovery import generation as generations
from trainer.recovery import manifest as manifests
from trainer.recovery import result as results
from trainer.recovery.inspect import MOST_READS, inspect

Claim = Callable[[], Attempt]
CHECKOUT = Path(__file__).resolve().parents[3]


def save(attempt: Attempt, step: int) -> Path:
    return attempt.store.save(step, lambda folder: (folder / "state").write_text(f"{step}") and None).path


def complete(attempt: Attempt) -> None:
    attempt.artifact_path("model.txt").write_text("weights")
    attempt.finish(2, {"accuracy": 1.0}, ["model.txt"])
    outcome = results.read_outcome(attempt.generation)
    assert outcome is not None and results.commit(attempt.generation, outcome, attempt.store.identity)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-S", "-m", "trainer.recovery.inspect", *arguments]
    return subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True, timeout=20)


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), os.lstat(path).st_mtime_ns) for path in folder.rglob("*"))


def test_a_finished_run_is_told_whole_and_nothing_is_written(claim: Claim, run_dir: Path) -> None:
    save(claim(), 1)
    attempt = claim()
    found = attempt.store.restore()
    assert found is not None
    generations.record_start(attempt.generation, 1, attempt.store.identity)
    save(attempt, 2)
    (attempt.store.work_dir / "heartbeat.json").write_text('{"step": 2}')
    complete(attempt)
    before = listing(run_dir)
    told = inspect(run_dir, verify=True)
    assert listing(run_dir) == before
    assert [(c["generation"], c.get("start_step"), c["run_id"]) for c in told["claims"]] == [
        (1, None, "run-001"),
        (2, 1, "run-001"),
    ]
    [working] = told["working"]
    assert (working["generation"], working["temporary"], working["set_aside"]) == (2, [], [])
    names = ("step", "verified", "generation", "attempt", "problem")
    facts = [tuple(step[name] for name in names) for step in working["steps"]]
    assert facts == [(1, True, 1, 1, ""), (2, True, 2, 1, "")]
    assert working["steps"][0]["digest"] == json.loads((found.path / manifests.NAME).read_text())["digest"]
    assert working["steps"][0]["size"] == 1
    result = told["result"]
    assert (result["step"], result["verified"], result["problem"]) == (2, True, "")
    assert result["sha256"] == hashlib.sha256((run_dir / "result.json").read_bytes()).hexdigest()
    [artifact] = told["artifacts"]
    weights = hashlib.sha256(b"weights").hexdigest()
    assert (artifact["name"], artifact["sha256"], artifact["size"]) == ("model.txt", weights, 7)
    assert told["heartbeat"] == {"step": 2} and told["problems"] == [] and told["reads"] == 1


def test_without_verifying_nothing_is_said_to_be_verified(claim: Claim, run_dir: Path) -> None:
    attempt = claim()
    save(attempt, 2), complete(attempt)
    told = inspect(run_dir)
    assert told["working"][0]["steps"][0]["verified"] is None
    assert told["result"]["verified"] is None and told["artifacts"][0]["verified"] is None


def test_the_command_prints_one_object_also_for_a_directory_that_is_absent_or_empty(tmp_path: Path) -> None:
    for folder in (tmp_path / "absent", tmp_path):
        done = command(str(folder), "--verify")
        told = json.loads(done.stdout)
        assert (done.returncode, done.stderr, told["directory"]) == (0, "", str(folder))
        lists = ("claims", "working", "artifacts", "problems")
        assert {name: told[name] for name in lists} == {name: [] for name in lists}
        assert told["result"] is None and told["heartbeat"] is None


@pytest.mark.parametrize("arguments", [(), ("--verify",), ("a", "b"), ("--all", "a"), ("",)])
def test_wrong_arguments_end_with_2_and_say_what_is_wanted(arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert "One run's directory is wanted" in done.stderr and "usage:" in done.stderr


def test_a_damaged_checkpoint_is_told_with_its_problem_and_left_in_place(claim: Claim, run_dir: Path) -> None:
    attempt = claim()
    save(attempt, 1)
    (save(attempt, 2) / "state").write_text("X")
    (save(attempt, 3) / manifests.NAME).unlink()
    steps = inspect(run_dir, verify=True)["working"][0]["steps"]
    assert [(step["step"], step["verified"]) for step in steps] == [(2, False), (3, False)]
    assert steps[0]["problem"] == "state differs from its hash in chunk 0"
    assert steps[1]["problem"] == "manifest.json is missing" and steps[1]["digest"] is None
    assert attempt.store.steps() == [3, 2]


def test_what_an_attempt_left_behind_is_named(claim: Claim, run_dir: Path) -> None:
    attempt = claim()
    (save(attempt, 1) / "state").write_text("X")
    after = claim()
    assert after.store.restore() is None
    (after.store.work_dir / "tmp-step-9-half").mkdir()
    [working] = inspect(run_dir)["working"]
    assert working["temporary"] == ["tmp-step-9-half"]
    assert [name[:8] for name in working["set_aside"]] == ["step-1-2"]


HOSTILE: dict[str, Callable[[Path], object]] = {
    "run a file": lambda run: (run.rename(run.with_name("gone")), run.write_text("x")),
    "run a dangling link": lambda run: (run.rename(run.with_name("gone")), run.symlink_to("nowhere")),
    "run a loop of links": lambda run: (run.rename(run.with_name("gone")), run.symlink_to(run)),
    "claims a file": lambda run: (run.joinpath("claims").rename(run / "x"), (run / "claims").write_text("")),
    "claims a link": lambda run: (run.joinpath("claims").rename(run / "x"), (run / "claims").symlink_to("x")),
    "claim a pipe": lambda run: os.mkfifo(run / "claims" / "000009.json"),
    "claim a directory": lambda run: (run / "claims" / "000009.json").mkdir(),
    "claim not JSON": lambda run: (run / "claims" / "000001.json").write_text("{"),
    "claim not UTF-8": lambda run: (run / "claims" / "000001.json").write_bytes(b'"\xff"'),
    "claim a list": lambda run: (run / "claims" / "000001.json").write_text("[]"),
    "claim deep": lambda run: (run / "claims" / "000001.json").write_text('{"a":' * 500 + "1" + "}" * 500),
    "claim of no number": lambda run: (run / "claims" / "000001.json").write_text('{"a": NaN, "b": 1e999}'),
    "claim of a long number": lambda run: (run / "claims" / "000001.json").write_text("9" * 5000),
    "working a link": lambda run: (run / "generation-8").symlink_to("generation-1"),
    "working a file": lambda run: (run / "generation-8").write_text("x"),
    "step a pipe": lambda run: os.mkfifo(run / "generation-1" / "step-9"),
    "step a link": lambda run: (run / "generation-1" / "step-9").symlink_to("/"),
    "manifest a pipe": lambda run: (
        (run / "generation-1" / "step-9").mkdir(),
        os.mkfifo(run / "generation-1" / "step-9" / manifests.NAME),
    ),
    "set-aside a file": lambda run: (run / "generation-1" / "set-aside").write_text("x"),
    "heartbeat a directory": lambda run: (run / "generation-1" / "heartbeat.json").mkdir(),
    "heartbeat a number": lambda run: (run / "generation-1" / "heartbeat.json").write_text("7"),
    "result a link": lambda run: (run / "result.json").symlink_to("claims/000001.json"),
    "result a directory": lambda run: (run / "result.json").mkdir(),
    "result empty": lambda run: (run / "result.json").write_text(""),
    "result of nothing": lambda run: (run / "result.json").write_text("{}"),
    "artifacts a file": lambda run: (run / "artifacts").write_text("x"),
    "artifact a pipe": lambda run: (
        (run / "artifacts" / ("0" * 64)).mkdir(parents=True),
        os.mkfifo(run / "artifacts" / ("0" * 64) / "model"),
    ),
    "artifact of a wrong hash": lambda run: (
        (run / "artifacts" / ("0" * 64)).mkdir(parents=True),
        (run / "artifacts" / ("0" * 64) / "model").write_text("x"),
    ),
    "artifacts of another name": lambda run: (run / "artifacts" / "model").mkdir(parents=True),
}


def problems(told: Any) -> list[str]:
    """Every problem that is told, at whatever place."""
    if isinstance(told, dict):
        own = [told["problem"]] if told.get("problem") else []
        return [*own, *told.get("problems", []), *(p for part in told.values() for p in problems(part))]
    return [p for part in told for p in problems(part)] if isinstance(told, list) else []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE.keys())
def test_whatever_stands_there_is_told_and_the_good_checkpoint_with_it(
    claim: Claim, run_dir: Path, harm: Callable[[Path], object], request: pytest.FixtureRequest
) -> None:
    save(claim(), 1)
    harm(run_dir)
    told = inspect(run_dir, verify=True)
    name = request.node.callspec.id
    # A claim may say what it likes, and a run that is absent has not begun.
    if name not in ("claim of no number", "run a dangling link"):
        assert problems(told)
    if not name.startswith("run "):
        good = [step for work in told["working"] for step in work["steps"] if step["step"] == 1]
        assert [(step["verified"], step["problem"]) for step in good] == [(True, "")]


def test_numbers_that_json_does_not_have_are_printed_as_text(claim: Claim, run_dir: Path) -> None:
    claim()
    (run_dir / "claims" / "000001.json").write_text('{"loss": NaN}')
    [told] = json.loads(command(str(run_dir)).stdout, parse_constant=pytest.fail)["claims"]
    assert told == {"loss": "NaN", "generation": 1}


@pytest.mark.parametrize("call", ["listdir", "open"])
def test_what_this_user_may_not_read_is_a_problem_and_no_failure(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    attempt = claim()
    save(attempt, 1), complete(attempt)

    def refused(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refused)
        told = inspect(run_dir, verify=True)
    assert all("Permission denied (EACCES)" in problem for problem in problems(told)) and problems(told)


def test_a_takeover_while_it_is_read_is_read_again_and_said(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(claim(), 1)
    verify = manifests.verify

    def overtaken(folder: Path, manifest: manifests.Manifest) -> None:
        monkeypatch.setattr(manifests, "verify", verify)
        claim()
        verify(folder, manifest)

    monkeypatch.setattr(manifests, "verify", overtaken)
    told = inspect(run_dir, verify=True)
    assert [work["generation"] for work in told["working"]] == [2]
    assert [step["verified"] for step in told["working"][0]["steps"]] == [True]
    [said] = told["problems"]
    assert "generation-1" in said and "read again" in said and told["reads"] == 2


def test_a_directory_that_never_holds_still_is_told_as_it_was_seen_last(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(claim(), 1)
    verify = manifests.verify

    def overtaken(folder: Path, manifest: manifests.Manifest) -> None:
        claim()
        verify(folder, manifest)

    monkeypatch.setattr(manifests, "verify", overtaken)
    told = inspect(run_dir, verify=True)
    assert told["reads"] == MOST_READS == len(told["problems"])
    assert "this is what the last reading saw" in told["problems"][-1]
    assert told["working"][0]["steps"][0]["problem"] == "went away while it was read"
