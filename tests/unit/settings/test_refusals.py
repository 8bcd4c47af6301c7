"""Every refusal by its full text: one change to a sound configuration, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

DATA = Path(__file__).parent / "data"
# libyaml's loader where PyYAML was built with it: the same language, much faster.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@lru_cache
def _cases(name: str) -> list[Any]:
    return [
        pytest.param(case["change"], [text.strip() for text in case["problems"]], id=case["sentence"])
        for case in yaml.load((DATA / name).read_text(encoding="utf-8"), Loader=LOADER)
    ]


def _changed(
    config: dict[str, Any], changes: list[dict[str, Any]], put: Callable[..., None]
) -> dict[str, Any]:
    for change in changes:
        if change.get("remove"):
            inside: Any = config
            for part in change["at"][:-1]:
                inside = inside[part]
            del inside[change["at"][-1]]
        else:
            put(config, change["at"], change["write"])
    return config


@pytest.mark.parametrize(("changes", "told"), _cases("malformed.yaml"))
def test_a_value_that_can_not_work_is_refused_in_plain_words(
    changes: list[dict[str, Any]],
    told: list[str],
    sound: dict[str, Any],
    put: Callable[..., None],
    problems_of: Callable[..., list[str]],
) -> None:
    assert problems_of(_changed(sound, changes, put)) == told


@pytest.mark.parametrize(("changes", "told"), _cases("contradictions.yaml"))
def test_settings_that_contradict_each_other_are_refused_naming_both(
    changes: list[dict[str, Any]],
    told: list[str],
    sound: dict[str, Any],
    put: Callable[..., None],
    problems_of: Callable[..., list[str]],
) -> None:
    assert problems_of(_changed(sound, changes, put)) == told


@pytest.mark.parametrize(("changes", "told"), _cases("extra_values.yaml"))
def test_chart_values_that_leave_a_layer_without_its_one_owner_are_refused(
    changes: list[dict[str, Any]],
    told: list[str],
    sound: dict[str, Any],
    put: Callable[..., None],
    problems_of: Callable[..., list[str]],
) -> None:
    assert problems_of(_changed(sound, changes, put)) == told


@pytest.mark.parametrize("name", ["malformed.yaml", "contradictions.yaml", "extra_values.yaml"])
def test_every_case_tells_at_least_one_problem_and_a_fix(name: str) -> None:
    for case in _cases(name):
        told = case.values[1]
        assert told, case.id
        assert all("\n    Fix: " in text and text.startswith("holdfast:") for text in told), case.id
