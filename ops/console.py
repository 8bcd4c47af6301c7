"""What a verb prints: its answer on standard output; progress and errors on standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rich.console import Console
from rich.table import Table


LOG_WIDTH = 200  # columns: a file has no width, and a digest in two pieces can not be searched for


def out() -> Console:
    """The console of a verb's answer. Made late, so that a test's captured stream is the one written to."""
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, soft_wrap=True, width=None if narrow else LOG_WIDTH)


def say(text: str = "") -> None:
    """One line of the answer, exactly as it is."""
    out().print(text, markup=False)


def error(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        text, markup=False, style="red" if sys.stderr.isatty() else ""
    )


def as_json(value: Any) -> None:
    """The answer for a program: one JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, default=str) + "\n")


def table(title: str, *columns: str) -> Table:
    """A plain table that stays readable in a log file."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, show_edge=False
    )
    for column in columns:
        made.add_column(column, overflow="fold")
    return made
