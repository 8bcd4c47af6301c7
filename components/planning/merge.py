"""Merging chart values the way Helm does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

Path = tuple[str, ...]
MISSING = object()


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`: maps key by key, everything else, lists too, replaced whole. Neither is changed.

    A null stays in the result: to Helm it removes the chart's own default.
    """
    merged = {key: deepcopy(value) for key, value in base.items()}
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = (
            deep_merge(below, value)
            if isinstance(below, dict) and isinstance(value, Mapping)
            else deepcopy(value)
        )
    return merged


def leaves(values: Mapping[str, Any], prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is not a map with keys, with its path."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def at(values: Any, path: Path, default: Any = None) -> Any:
    """The value at `path`; `default` if the path leads nowhere."""
    for key in path:
        if not isinstance(values, Mapping) or key not in values:
            return default
        values = values[key]
    return values


def stated(values: Mapping[str, Any], path: Path) -> Path | None:
    """The longest beginning of `path` whose value is really given in `values`; None if nothing of it is."""
    found: Path = ()
    current: Any = values
    for key in path:
        if not isinstance(current, Mapping) or key not in current:
            # A map that does not mention the key leaves it alone.
            return None if isinstance(current, Mapping) else found or None
        current = current[key]
        found = (*found, key)
    return found
