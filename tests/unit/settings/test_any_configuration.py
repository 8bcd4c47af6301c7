"""Whatever stands in the configuration: it loads, or every problem is a sentence. Never another exception."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.planning.outputs import stack_outputs
from components.planning.stack import plan_stack
from components.settings.loader import load_settings
from components.settings.problems import SettingsError

texts = st.one_of(
    st.sampled_from(
        ["", "true", "yes", "1.5", "16GB", "-1Gi", "4h", "${X}", "${", "a.b", "x:y@sha256:z", "/a:b", "٣"]
    ),
    st.text(max_size=8),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-2, 2**40), st.floats(), texts)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
keys = st.sampled_from(
    ["driver", "enabled", "devicePlugin", "daemonsets", "tolerations", "env", "volumes", "quota"]
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_configuration_with_anything_at_any_place_loads_or_is_refused_in_sentences(
    data: st.DataObject, sound: dict[str, Any], put: Callable[..., None]
) -> None:
    config = copy.deepcopy(sound)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(_paths(config))))
        inside: Any = config
        for part in path:
            inside = inside[part]
        if isinstance(inside, dict) and data.draw(st.booleans()):
            path = (*path, data.draw(st.one_of(keys, texts)))
        put(config, path, data.draw(anything))
    try:
        loaded = load_settings(config, {})
    except SettingsError as error:
        problems = error.problems
    else:
        stack_outputs(plan_stack(loaded))
        return
    assert problems
    assert all(problem.reason and problem.fix for problem in problems)
