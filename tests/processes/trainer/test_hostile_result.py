"""What may stand in for a result, an outcome or an artifact: none of it is believed or committed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.recovery import Attempt, Unverified
from trainer.recovery import result as results

Claim = Callable[[], Attempt]


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    """The same content under the same name, but somewhere else."""
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")



def finish(attempt: Attempt, metrics: dict[str, Any] | None = None) -> None:
    attempt.artifact_path("model").write_text("weights")
    attempt.finish(3, metrics or {}, ["model"])
    outcome = results.read_outcome(attempt.generation)
    assert outcome is not None
    results.commit(attempt.generation, outcome, attempt.store.identity)


RESULT_DAMAGE: dict[str, Callable[[Path], object]] = {
    "half": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "pipe": pipe,
    "link": link,
    "dangling": lambda path: path.unlink() or path.symlink_to("nowhere"),
    "step a text": lambda path: path.write_text(path.read_text().replace('"step": 3', '"step": "3"')),
    "path a number": lambda path: path.write_text(path.read_text().replace('"path": "', '"path": 1, "x": "')),
    "not UTF-8": lambda path: path.write_bytes(b"\xff{}"),
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("damage", RESULT_DAMAGE.values(), ids=RESULT_DAMAGE.keys())
def test_whatever_stands_in_for_a_result_is_not_believed(
    claim: Claim, run_dir: Path, damage: Callable[[Path], object]
) -> None:
    finish(claim())
    damage(run_dir / "result.json")
    with pytest.raises(Unverified):
        results.find(run_dir, patience=0)


@pytest.mark.parametrize("damage", [pipe, link, lambda path: path.unlink() or path.mkdir()])
def test_whatever_stands_in_for_an_artifact_is_not_believed(
    claim: Claim, run_dir: Path, damage: Callable[[Path], object]
) -> None:
    finish(claim())
    result = results.find(run_dir)
    assert result is not None
    damage(run_dir / result.artifacts[0].path)
    with pytest.raises(Unverified):
        results.verify(run_dir, result)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"steps": 3}',
        '{"step": "3"}',
        '{"step": 3, "metrics": []}',
        '{"step": 3, "artifacts": {"../model": "outcome/model"}}',
        '{"step": 3, "artifacts": {"model": "../../../etc/hostname"}}',
        '{"step": 3, "artifacts": {"model": "/etc/hostname"}}',
        '{"step": 3, "artifacts": {"model": 3}}',
    ],
)
def test_an_outcome_that_is_none_is_not_committed(claim: Claim, content: str) -> None:
    attempt = claim()
    (attempt.store.work_dir / "outcome.json").write_text(content)
    with pytest.raises(Unverified, match="outcome.json"):
        results.read_outcome(attempt.generation)


@pytest.mark.parametrize(
    "make",
    [lambda path: None, Path.mkdir, lambda path: path.symlink_to("/etc/hostname"), os.mkfifo],
    ids=["missing", "directory", "link", "pipe"],
)
def test_an_artifact_that_is_no_plain_file_is_neither_handed_over_nor_committed(
    claim: Claim, run_dir: Path, make: Callable[[Path], object]
) -> None:
    attempt = claim()
    make(attempt.artifact_path("model"))
    with pytest.raises(ValueError, match="is not a plain file"):
        attempt.finish(3, {}, ["model"])
    outcome = results.Outcome(3, {}, {"model": "outcome/model"})
    with pytest.raises(Unverified, match="is not a plain file"):
        results.commit(attempt.generation, outcome, attempt.store.identity)
    assert results.find(run_dir) is None


def test_a_loss_that_is_no_number_is_still_json_in_the_result(claim: Claim, run_dir: Path) -> None:
    finish(claim(), {"loss": float("nan"), "all": [float("inf"), 1.0]})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    content = json.loads((run_dir / "result.json").read_text(), parse_constant=refuse)
    assert content["metrics"] == {"loss": "NaN", "all": ["Infinity", 1.0]}


def test_without_hard_links_a_result_that_is_there_is_not_written_over(
    claim: Claim, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    attempt = claim()
    monkeypatch.setattr(os, "link", unsupported)
    (run_dir / "result.json").write_text("the other one's")
    finish(attempt)
    assert (run_dir / "result.json").read_text() == "the other one's"
