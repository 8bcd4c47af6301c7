"""Reading the little YAML that a text in a ConfigMap has, as far as the rules need it.

The pack has the SDK's packages only. Keys, their nesting and plain values are enough here: by indentation, or
in brackets that take one line, or all of the text as in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"(?P<indent> *)(?P<item>- +)?(?P<key>[\w./\-]+):(?: +(?P<value>[^#\n]*))?\s*(?:#.*)?")

_TOKEN = re.compile(r"""[{}\[\],:]|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s{}\[\],:"'][^{}\[\],:\n]*""")


@dataclass(frozen=True)
class Line:
    """One key: `path` has the keys above it and its own, `value` is "" where more lines follow."""

    path: tuple[str, ...]
    value: str


def outline(text: str) -> Iterator[Line]:
    """The keys of a text in YAML, in order."""
    if re.match(r"\s*\{(?!\{)", text):
        yield from _in_brackets(text, ())
        return
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        indent = len(match["indent"]) + len(match["item"] or "")
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, match["key"]))
        path, value = tuple(key for _, key in above), (match["value"] or "").strip()
        if value.startswith(("{", "[")):
            yield Line(path, "")
            yield from _in_brackets(value, path)
        else:
            yield Line(path, value.strip("'\""))


def _in_brackets(text: str, above: tuple[str, ...]) -> Iterator[Line]:
    """The keys of a text in JSON or in YAML's flow style."""
    paths, key, word = [above], "", ""
    for token in _TOKEN.findall(text):
        if token == ":":
            key, word = word, ""
        elif token in "{[":
            path = (*paths[-1], key) if key else paths[-1]
            if key:
                yield Line(path, "")
            paths.append(path)
            key = word = ""
        elif token in ",]}":
            if key:
                yield Line((*paths[-1], key), word)
            key = word = ""
            if token != "," and len(paths) > 1:
                paths.pop()
        else:
            word = token.strip().strip("'\"")
