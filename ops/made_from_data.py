"""Files of the project that are made from its data: printed, or with --write put where they belong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def main(target: Path, render: Callable[[], str]) -> None:
    """What `python -m` of a module that makes such a file does."""
    if "--write" in sys.argv[1:]:
        target.write_text(render(), encoding="utf-8")
    else:
        print(render(), end="")
