"""The evidence file: what its check finds, and what it says of files that are none."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.acceptance import evidence
from ops.acceptance.evidence import assemble, check, digest, verify, write_evidence
from ops.acceptance.judge import conclude
from ops.acceptance.verdict import Outcome
from tests.unit.ops.acceptance import stories

Doc = dict[str, Any]
HERE = Path("evidence.json")


@cache
def _text() -> str:
    """One scenario that ends at once and needs no reference, so that a check takes a millisecond."""
    facts = stories.acceptance(stories.scenario("bad-input"), references=[], asked=[])
    return json.dumps(assemble(facts, conclude(facts)))


def document() -> Doc:
    return json.loads(_text())


def checked(document: Any) -> evidence.Verified:
    return check(json.dumps(document).encode(), HERE)


def rehashed(document: Doc) -> Doc:
    """As a forger does it: every digest made anew."""
    digests = document["digests"]
    digests["parts"] = {pointer: digest(value) for pointer, _, value in evidence._parts(document["facts"])}
    digests["verdict"] = digest(document["verdict"])
    digests["document"] = evidence._document_digest(document)
    return document


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths of everything that is no filled object or list."""
    if isinstance(value, dict) and value:
        return [found for key in value for found in leaves(value[key], (*path, key))]
    if isinstance(value, list) and value:
        return [found for index, each in enumerate(value) for found in leaves(each, (*path, index))]
    return [path]


def put(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """The former value."""
    for part in path[:-1]:
        document = document[part]
    former, document[path[-1]] = document[path[-1]], value
    return former


LEAVES = leaves(json.loads(_text()))
OTHERS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.just([]), st.just({}), st.just({"a": [1]}),
)  # fmt: skip


def test_what_was_written_is_found_intact(tmp_path: Path) -> None:
    facts = stories.acceptance(*[stories.scenario(slug) for slug in ("zombie", "two-finishers", "bad-input")])
    paths = write_evidence(facts, conclude(facts), tmp_path / "new" / "folder")
    found = verify(paths.evidence)
    assert (found.problems, found.intact, found.judged, found.passed) == ((), True, True, True)
    assert found.sentence == (
        f"{paths.evidence} is unedited, and its verdict follows from its facts: passed."
    )
    assert found.verdict == conclude(facts)
    assert verify(paths.evidence.parent).passed, "a folder stands for the evidence in it"
    assert sorted(path.name for path in paths.evidence.parent.iterdir()) == [
        "ctrf.json", "evidence.json", "junit.xml", "report.html",
    ]  # fmt: skip


def test_the_same_facts_give_the_same_file() -> None:
    facts = stories.acceptance(stories.scenario("crash"))
    assert assemble(facts, conclude(facts)) == assemble(facts, conclude(facts))


@given(st.sampled_from(LEAVES), OTHERS)
def test_any_single_value_that_was_changed_is_found(path: tuple[str | int, ...], value: Any) -> None:
    edited = document()
    former = put(edited, path, value)
    if evidence.canonical(former) == evidence.canonical(value):
        return
    found = checked(edited)
    assert not found.intact
    assert found.problems


@given(st.sampled_from([path for path in LEAVES if path[0] == "facts"]), OTHERS)
def test_facts_that_were_edited_and_hashed_anew_never_break_the_check(
    path: tuple[str | int, ...], value: Any
) -> None:
    edited = document()
    put(edited, path, value)
    found = checked(rehashed(edited))
    assert "can not be judged" not in " ".join(found.problems)
    if found.intact:
        assert found.verdict is not None
        assert found.verdict.model_dump(mode="json") == edited["verdict"]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("facts", "image"), "other", "the head of the facts was edited"),
        (("facts", "scenarios", 0, "run", "steps"), 61, "(accept-bad-input-job), its head was edited"),
        (("facts", "scenarios", 0, "attempts", 0, "exit_code"), 0, "attempt 1 was edited"),
        (("facts", "scenarios", 0, "attempts", 0, "events", 0, "step"), 7, "the log of attempt 1 was edited"),
        (("facts", "scenarios", 0, "volume", "why"), "x", "(accept-bad-input-job), volume was edited"),
        (("facts", "scenarios", 0, "comparisons"), [1], "(accept-bad-input-job), comparisons was edited"),
        (("facts", "scenarios"), [], "the list of scenarios was edited"),
        (("verdict", "sentence"), "All is well.", "The verdict was edited"),
        (("digests", "verdict"), "00", "The verdict was edited"),
        (("digests", "document"), "00", "the digest of the whole does not fit"),
    ],
)  # fmt: skip
def test_the_part_that_was_edited_is_named(path: tuple[str | int, ...], value: Any, named: str) -> None:
    edited = document()
    put(edited, path, value)
    assert any(named in problem for problem in checked(edited).problems)


def test_a_verdict_that_was_edited_and_hashed_anew_does_not_follow_from_the_facts() -> None:
    edited = document()
    edited["verdict"]["scenarios"][0]["assertions"][0]["holds"] = "no"
    found = checked(rehashed(edited))
    assert found.problems == (
        "The verdict on bad-input (accept-bad-input-job), 'carried out' does not follow from the facts: "
        'the file says "no", the facts say "yes" (/verdict/scenarios/0/assertions/0/holds)',
    )


def test_facts_that_were_edited_and_hashed_anew_give_another_verdict() -> None:
    edited = document()
    edited["facts"]["scenarios"][0]["attempts"][0]["exit_code"] = 1
    found = checked(rehashed(edited))
    assert not found.intact
    assert any("'exit codes' does not follow from the facts" in problem for problem in found.problems)


def test_an_intact_evidence_of_a_failure_is_intact_and_has_not_passed() -> None:
    story = stories.scenario("bad-input")
    story["attempts"][0]["exit_code"] = 1
    facts = stories.acceptance(story)
    found = checked(assemble(facts, conclude(facts)))
    assert (found.intact, found.passed) == (True, False)
    assert found.verdict is not None
    assert found.verdict.outcome is Outcome.FAILED


def test_a_verdict_of_other_rules_is_not_accused_and_is_no_pass() -> None:
    edited = document()
    edited["verdict"]["rules"] = 99
    found = checked(rehashed(edited))
    assert not found.passed
    assert not found.judged
    assert "made by the rules 99" in found.problems[0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "is not text in UTF-8, so it is no evidence"),
        (b"<html>", "is not whole JSON (line 1, column 1: Expecting value)"),
        (b"[]", "is JSON, but no evidence of an acceptance: it has no format"),
        (b'{"format": 1}', "is JSON, but no evidence of an acceptance: it has no format"),
        (b'{"format": "junit"}', "is no evidence of an acceptance: 'junit' instead of 'holdfast.evidence/1'"),
        (b'{"format": "holdfast.evidence/2"}', "is an evidence of a format that this release does not know"),
        (b'{"format": "holdfast.acceptance/1"}', "has facts only, without verdict and digests"),
        (b'{"format": "holdfast.evidence/1"}', "has no facts, so it is no whole evidence"),
        (b'{"format": "holdfast.evidence/1", "format": "x"}', "a name stands twice in one object"),
        (b'{"format": NaN}', "NaN is no JSON number"),
        (b'{"a": 1e999}', "1e999 is too large for a number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON as an evidence has it"),
    ],
)
def test_a_file_that_is_no_evidence_is_told_in_a_sentence(content: bytes, sentence: str) -> None:
    found = check(content, HERE)
    assert not found.intact
    assert found.verdict is None
    assert found.sentence.startswith("evidence.json ")
    assert sentence in found.sentence


def test_a_file_that_is_cut_off_anywhere_is_told_so() -> None:
    whole = _text().encode()
    for length in range(1, len(whole) - 1, len(whole) // 20):
        found = check(whole[:length], HERE)
        assert not found.intact
        assert "whole JSON" in found.sentence


def test_facts_of_another_shape_are_told_with_their_place() -> None:
    edited = document()
    edited["facts"]["scenarios"][0]["surprise\x1b[31m"] = 1
    found = checked(rehashed(edited))
    assert found.problems == (
        "The facts are not of the format holdfast.acceptance/1: Extra inputs are not permitted "
        "(at /facts/scenarios/0/surprise\\u001b[31m)",
    )


def test_a_value_that_is_written_in_another_way_is_an_edit() -> None:
    """The number 7 as a text would be read as 7: digested as one thing and judged as another."""
    edited = document()
    edited["facts"]["scenarios"][0]["run"]["steps"] = "60"
    assert any(
        "not written as this format writes them" in problem for problem in checked(rehashed(edited)).problems
    )


def test_a_file_that_was_written_before_an_optional_field_was_added_is_intact() -> None:
    older = document()
    del older["facts"]["scenarios"][0]["problems"]
    assert checked(rehashed(older)).passed


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_times_at_the_ends_of_the_calendar_break_nothing(at: str) -> None:
    edited = document()
    edited["facts"]["scenarios"][0]["attempts"][0]["created_at"] = at
    edited["facts"]["scenarios"][0]["done"][0]["at"] = at
    edited["facts"]["cluster"]["clock_offset_seconds"] = -9e8
    assert not checked(rehashed(edited)).passed


def test_a_path_that_can_not_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    absent = verify(tmp_path / "none.json")
    assert absent.sentence == f"{tmp_path}/none.json can not be read: No such file or directory."
    assert verify(Path("/dev/null")).sentence == "/dev/null is not a file."


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = stories.acceptance(stories.scenario("bad-input"))
    (tmp_path / "evidence.json").write_text("the former one")

    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(evidence.os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_evidence(facts, conclude(facts), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]
    assert (tmp_path / "evidence.json").read_text() == "the former one"


def test_every_value_of_the_facts_is_in_a_part_that_has_a_digest() -> None:
    facts = document()["facts"]
    parts = evidence._parts(copy.deepcopy(facts))
    held = sum(len(leaves(value)) for _, _, value in parts)
    assert held >= len(leaves(facts))
