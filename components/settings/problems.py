"""Problems in the configuration, in sentences: which key, which value, why not, and what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

NAMESPACE = "holdfast"
"""Namespace of the configuration keys, whatever the project's name is: a copied project keeps its files."""
_LONGEST_VALUE = 80
_PRIVATE_NAME = re.compile(
    r"(password|passphrase|passwd|token|credential|apikey|api_key|privatekey|private_key)$", re.IGNORECASE
)
HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    key: str
    """Full path of the setting, such as `holdfast:runs[0].image`."""
    value: str | None
    """The value as it is shown; None if nothing stands there or it is not to be shown."""
    reason: str
    """Why the value can not work: a sentence without its final stop."""
    fix: str
    """What to write instead: a sentence without its final stop."""

    def __str__(self) -> str:
        shown = self.key if self.value is None else f"{self.key} = {self.value}"
        reason = re.sub(r"^[a-z](?=[a-z]*[ ,])", lambda match: match.group().upper(), self.reason)
        return f"{shown}\n    {_sentence(reason)}\n    Fix: {_sentence(self.fix)}"


class SettingsError(Exception):
    """The configuration can not work. Carries every problem, in the order of the configuration."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.problems)
        title = f"The stack's configuration has {count} problem{'' if count == 1 else 's'}:"
        return "\n\n".join([title, *(f"  {problem}".replace("\n", "\n  ") for problem in self.problems)])


def full_key(*path: str | int) -> str:
    """`full_key("runs", 0, "image")` is `holdfast:runs[0].image`. A key with a dot is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part) or not text:
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return f"{NAMESPACE}:{text}"


def show(value: Any, *path: str | int) -> str:
    """A value as JSON, shortened; hidden if it stands where a secret may stand."""
    if is_private(*path):
        return HIDDEN
    # Several lines or JSON are a file's content rather than a setting: a kubeconfig, a key.
    if isinstance(value, str) and ("\n" in value.strip() or value.lstrip().startswith("{")):
        return HIDDEN
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def kind_of(value: Any) -> str:
    """What YAML made of the value, in words."""
    if value is None:
        return "empty (null)"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a map" if isinstance(value, Mapping) else "a date"


def is_private(*path: str | int) -> bool:
    """Whether a secret may stand at this path: in variables, and under names such as `password`."""
    names = [part for part in path if isinstance(part, str)]
    return "env" in names[1:-1] or any(_PRIVATE_NAME.search(name) for name in names)


def hide(problem: Problem, raw: Any) -> Problem:
    """The problem without its value, also where reason and fix repeat parts of it."""

    def scrub(text: str) -> str:
        words = {str(raw), *re.findall(r"[A-Za-z0-9]{3,}", str(raw))} - {""}
        for word in sorted(words, key=len, reverse=True):
            text = re.sub(
                rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", HIDDEN, text, flags=re.IGNORECASE
            )
        return text

    fix = scrub(problem.fix).removesuffix(f': "{HIDDEN}"')
    return Problem(problem.key, HIDDEN, scrub(problem.reason), fix)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
