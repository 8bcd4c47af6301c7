"""A Pod's log and last words, read leniently: half lines and other people's text are no error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.pod_events import as_result, parse_line, parse_termination, summarise
from trainer.recovery.events import emit


def test_only_json_objects_with_an_event_are_events() -> None:
    assert parse_line('{"event": "step", "step": 3}') == {"event": "step", "step": 3}
    for other in ('{"step": 3}', "[1]", '{"event": "st', "plain text", "", '{"event": 7}'):
        assert parse_line(other) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=20))
def test_no_text_in_a_log_is_an_error(lines: list[str]) -> None:
    summarise(lines)


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=80))
def test_no_termination_message_is_an_error(text: str) -> None:
    assert isinstance(parse_termination(text), dict)


def test_a_failed_save_is_not_taken_for_a_checkpoint() -> None:
    log = [
        '{"event": "checkpoint", "step": 100}',
        '{"event": "checkpoint-failed", "step": 200, "reason": "No space left on device"}',
    ]
    found = summarise(log)
    assert (found.checkpoint, found.save_failed) == (100, "No space left on device")
    assert summarise([*log, '{"event": "checkpoint", "step": 300}']).save_failed == ""


def test_what_the_supervisor_prints_is_read_as_it_means_it(capfd: pytest.CaptureFixture[str]) -> None:
    """By the supervisor's own `emit`, so that neither side can change the form alone."""
    emit("start", step=40, generation=2, run_id="run-001")
    emit("restore", step=40, generation=2, saved_by_generation=1, bytes=9, seconds=0.1)
    emit("step", step=41, loss=0.5, seconds=0.01)
    emit("checkpoint", step=60, generation=2, bytes=9, seconds=0.1)
    emit("result", step=60, generation=2, metrics={"accuracy": 0.9}, artifacts={"model": "ab"}, ours=True)
    found = summarise(capfd.readouterr().out.splitlines())
    assert (found.step, found.checkpoint, found.restored) == (60, 60, 40)
    assert found.result is not None
    result = as_result(found.result)
    assert (result.metrics, result.artifacts, result.generation) == ({"accuracy": 0.9}, {"model": "ab"}, 2)


def test_a_true_in_place_of_a_step_is_not_a_number() -> None:
    assert summarise(['{"event": "step", "step": true}']).step is None


def test_words_that_are_not_json_become_the_message() -> None:
    assert parse_termination("killed by a bug") == {"message": "killed by a bug"}
    assert parse_termination(None) == {}


def test_artifacts_are_read_in_each_of_their_forms() -> None:
    assert as_result({"artifacts": {"a": "1"}}).artifacts == {"a": "1"}
    assert as_result({"artifacts": {"a": {"sha256": "1", "bytes": 9}}}).artifacts == {"a": "1"}
    assert as_result({"artifacts": [{"path": "a", "sha256": "1"}]}).artifacts == {"a": "1"}
