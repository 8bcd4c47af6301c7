"""Arguments that a site passes on to a provider's resource: known ones only, and none that is decided here.

The argument trees are data (data/provider-arguments.json, made by ops/provider_arguments.py from the SDKs),
so that nothing has to import an SDK to know them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from components.settings.consistency import Told, told
from components.settings.explain import closest, needs_list, needs_map
from components.settings.problems import kind_of
from components.settings.substitution import Path as SettingPath

DATA = Path(__file__).resolve().parent / "data" / "provider-arguments.json"

Decided = Mapping[tuple[str, ...], tuple[str, str]]
"""Path of an argument, without list indexes -> why it can not be passed on, and what to write instead."""

_SCALARS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "text"),
    "whole": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "flag": ((bool,), "true or false"),
}


@lru_cache(maxsize=1)
def _data() -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return data


def arguments_of(resource: str) -> Mapping[str, Any]:
    """The argument tree of a resource, such as `gcp:container/nodePool:NodePool`; KeyError for another
    one."""
    tree: Mapping[str, Any] = _data()["resources"][resource]
    return tree


def made_from() -> Mapping[str, str]:
    """SDK package -> the version that the trees were made from."""
    versions: Mapping[str, str] = _data()["madeFrom"]
    return versions


def problems(resource: str, given: Mapping[str, Any], path: SettingPath, decided: Decided) -> Iterator[Told]:
    """Every argument that the provider does not have, has another kind, or is decided elsewhere.

    `path`: where `given` stands in the configuration.
    """
    yield from _arguments(arguments_of(resource), given, path, (), decided)


def keyword_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the SDK's resource class takes them: Python's spelling on top, the rest as it is."""
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower(): value for key, value in arguments.items()}


def _arguments(
    known: Mapping[str, Any],
    given: Mapping[str, Any],
    path: SettingPath,
    names: tuple[str, ...],
    decided: Decided,
) -> Iterator[Told]:
    free = known.get("*")
    for key, value in given.items():
        here: SettingPath = (*path, str(key))
        inner = (*names, str(key))
        if inner in decided:
            reason, fix = decided[inner]
            yield told(here, None if isinstance(value, (Mapping, list)) else value, reason, fix)
        elif free is None and key not in known:
            meant = closest(str(key), known)
            fix = (
                f"did you mean {meant}? Otherwise remove it"
                if meant
                else f"remove it; there are {', '.join(known)}"
            )
            yield told(here, None, "the provider has no such argument", fix)
        else:
            yield from _value(known[key] if free is None else free, value, here, inner, decided)


def _value(
    kind: Any, value: Any, path: SettingPath, names: tuple[str, ...], decided: Decided
) -> Iterator[Told]:
    if value is None:
        yield told(path, None, "it is empty (null)", "write a value, or remove the key")
    elif isinstance(kind, Mapping):
        if isinstance(value, Mapping):
            yield from _arguments(kind, value, path, names, decided)
        else:
            yield told(path, value if not isinstance(value, list) else None, *needs_map(value))
    elif isinstance(kind, list):
        if not isinstance(value, list):
            yield told(path, None if isinstance(value, Mapping) else value, *needs_list(value))
            return
        for index, item in enumerate(value):
            yield from _value(kind[0], item, (*path, index), names, decided)
    elif kind in _SCALARS:
        types, words = _SCALARS[kind]
        # A boolean is an int to Python, and no number to a provider.
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "flag"):
            shown = None if isinstance(value, (Mapping, list)) else value
            fix = (
                f'put it in quotes: "{str(value).lower()}"'
                if kind == "text" and shown is not None
                else f"write {words}"
            )
            yield told(path, shown, f"it is {kind_of(value)}, and {words} is needed", fix)
