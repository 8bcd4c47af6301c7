"""The ownership table: which layer of the GPU stack belongs to whom, per node profile."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLE_FILE = Path(__file__).resolve().parent.parent / "ownership.json"
OPERATOR = "operator"


@dataclass(frozen=True)
class Profile:
    """One row: `owners` by layer (None: nobody), `values` of the chart, `reject` the whole refusal."""

    name: str
    title: str
    status: str
    owners: Mapping[str, str | None]
    values: Mapping[str, Any]
    reason: str
    reject: str | None


@cache
def profiles() -> Mapping[str, Profile]:
    """All rows by name, as `ownership.json` has them."""
    rows = json.loads(TABLE_FILE.read_text(encoding="utf-8"))["profiles"]
    return {
        name: Profile(
            name=name,
            title=row["title"],
            status=row["status"],
            owners=row["owners"],
            values=row["values"],
            reason=row["reason"],
            reject=row["reject"],
        )
        for name, row in rows.items()
    }


def unknown_profile(name: str) -> str:
    """What to say about a profile name that is not in the table."""
    close = difflib.get_close_matches(name, profiles(), n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return (
        f"node profile '{name}' is not in the ownership table; {hint}Known profiles:"
        f" {', '.join(sorted(profiles()))}"
    )


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of nested chart values; lists are values."""
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted, value
