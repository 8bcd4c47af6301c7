"""Events for machines: one JSON object per line on standard output, each with a name and a UTC time."""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from typing import Any

from trainer.recovery.files import finite

STDOUT = 1


def now() -> str:
    """UTC, ISO 8601, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def emit(event: str, **fields: Any) -> None:
    """Print one event, for example `{"event": "checkpoint", "at": "…", "step": 20}`.

    One write per line, because supervisor and program share the stream. A closed stream never ends a
    training.
    """
    content = finite({"event": event, "at": now(), **fields})
    line = json.dumps(content, separators=(", ", ": "), default=str) + "\n"
    with contextlib.suppress(OSError):
        os.write(STDOUT, line.encode())
