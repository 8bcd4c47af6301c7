"""Merging chart values: the laws that make the merged result judgeable."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from components.planning.merge import at, deep_merge, leaves, stated

names = st.sampled_from(["driver", "enabled", "env", "x"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.lists(st.integers(0, 3), max_size=2))
values = st.dictionaries(
    names,
    st.recursive(scalars, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8),
    max_size=3,
)


@settings(max_examples=40)
@given(values, values)
def test_what_lies_on_top_wins_wherever_it_says_something(base: dict[str, Any], over: dict[str, Any]) -> None:
    merged = deep_merge(base, over)
    for path, value in leaves(over):
        if value != {}:
            assert at(merged, path, "nothing") == value


@settings(max_examples=40)
@given(values, values)
def test_what_lies_below_stays_where_nothing_is_said(base: dict[str, Any], over: dict[str, Any]) -> None:
    merged = deep_merge(base, over)
    for path, value in leaves(base):
        if stated(over, path) is None:
            assert at(merged, path, "nothing") == value


@settings(max_examples=40)
@given(values)
def test_merging_with_nothing_or_with_itself_changes_nothing(base: dict[str, Any]) -> None:
    assert deep_merge(base, {}) == base
    assert deep_merge({}, base) == base
    assert deep_merge(base, base) == base


@settings(max_examples=40)
@given(values, values)
def test_merging_changes_neither_side(base: dict[str, Any], over: dict[str, Any]) -> None:
    before = copy.deepcopy((base, over))
    merged = deep_merge(base, over)
    merged["driver"] = "changed"
    assert (base, over) == before


def test_a_list_is_replaced_whole_and_a_null_stays() -> None:
    base = {"daemonsets": {"tolerations": [1, 2]}, "driver": {"enabled": False}}
    over = {"daemonsets": {"tolerations": [3]}, "driver": None}
    assert deep_merge(base, over) == {"daemonsets": {"tolerations": [3]}, "driver": None}


def test_what_is_stated_is_the_longest_path_that_is_really_given() -> None:
    assert stated({"driver": {"enabled": True}}, ("driver", "enabled")) == ("driver", "enabled")
    assert stated({"driver": None}, ("driver", "enabled")) == ("driver",)
    assert stated({"driver": {"version": "1"}}, ("driver", "enabled")) is None
    assert stated({}, ("driver", "enabled")) is None
