"""Exceptions: a resource that a rule leaves alone until a date, for a reason that somebody wrote down.

They stand in the pack's configuration, below the rule that they are about. One that has run out, or that says
no reason or no date, excuses nothing and is an error of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

SETTING = "exceptions"
SCHEMA: dict[str, Any] = {
    "type": "array",
    "description": "Resources that the rule leaves alone until a date, each with the reason.",
    "items": {
        "type": "object",
        "properties": {
            "resource": {
                "type": "string",
                "description": "A name or URN; * stands for any text. Example: *:Job::legacy-*",
            },
            "reason": {"type": "string", "description": "Why, for whoever reads it next."},
            "expires": {"type": "string", "description": "The last day on which it holds, YYYY-MM-DD."},
        },
    },
}
_WHAT_TO_WRITE = '{"resource": "<name or URN, * for any text>", "reason": "<why>", "expires": "<YYYY-MM-DD>"}'


@dataclass(frozen=True)
class Exemption:
    """One exception in force or run out: `pattern` is of a name or URN, `expires` the last day that
    counts.
    """

    pattern: str
    reason: str
    expires: date

    def is_about(self, urn: str) -> bool:
        return fnmatchcase(urn, self.pattern) or fnmatchcase(urn.rsplit("::", 1)[-1], self.pattern)


@dataclass(frozen=True)
class Exemptions:
    """All exceptions of one rule. `problems` are the ones that excuse nothing, each in a sentence."""

    written: tuple[Exemption, ...] = ()
    problems: tuple[str, ...] = ()

    def excuse(self, urn: str, today: date) -> bool:
        return any(each.expires >= today and each.is_about(urn) for each in self.written)

    def run_out(self, today: date) -> Iterator[str]:
        for each in self.written:
            if each.expires < today:
                yield (
                    f"the exception for '{each.pattern}' expired on {each.expires.isoformat()}"
                    f" ({each.reason}). Correct the resource and remove the exception, or give it a new"
                    " date"
                )


def exemptions(config: Mapping[str, Any]) -> Exemptions:
    """The exceptions in a rule's configuration; never raises, whatever is written there."""
    given = config.get(SETTING)
    if given is None:
        return Exemptions()
    if not isinstance(given, Sequence) or isinstance(given, str):
        return Exemptions(problems=(f"{SETTING} is no list. Write [{_WHAT_TO_WRITE}]",))
    written, problems = [], []
    for index, one in enumerate(given):
        where = f"{SETTING}[{index}]"
        if not isinstance(one, Mapping):
            problems.append(f"{where} is no object. Write {_WHAT_TO_WRITE}")
            continue
        texts = {key: _text(one.get(key)) for key in ("resource", "reason", "expires")}
        missing = [key for key, text in texts.items() if not text]
        further = sorted(str(key) for key in one if key not in texts)
        if missing or further:
            parts = [f"says no {' and no '.join(missing)}"] if missing else []
            parts += [f"has {', '.join(further)}, which no exception has"] if further else []
            problems.append(f"{where} {' and '.join(parts)}, so it excuses nothing. Write {_WHAT_TO_WRITE}")
            continue
        day = _day(texts["expires"])
        if day is None:
            problems.append(
                f"{where}.expires is '{texts['expires']}', which is no date, so it excuses nothing. Write a"
                " day as YYYY-MM-DD"
            )
            continue
        written.append(Exemption(texts["resource"], texts["reason"], day))
    return Exemptions(tuple(written), tuple(problems))


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
