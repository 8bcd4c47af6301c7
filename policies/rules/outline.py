"""Reading the little YAML that a text in a ConfigMap has, as far as the rules need it.

The pack has the SDK's packages only. Keys, their nesting by indentation and plain values are enough here;
what is written in another way (JSON, flow style) gives no lines and therefore no violation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"(?P<indent> *)(?P<item>- +)?(?P<key>[\w./\-]+):(?: +(?P<value>[^#\n]*))?\s*(?:#.*)?")


@dataclass(frozen=True)
class Line:
    """One key: `path` has the keys above it and its own, `value` is "" where more lines follow."""

    path: tuple[str, ...]
    value: str


def outline(text: str) -> Iterator[Line]:
    """The keys of a text in YAML's block style, in order."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        indent = len(match["indent"]) + len(match["item"] or "")
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, match["key"]))
        yield Line(tuple(key for _, key in above), (match["value"] or "").strip().strip("'\""))
