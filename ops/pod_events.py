"""What a training Pod says: its log's one-line JSON objects, and its termination message. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LogSummary:
    """The newest facts in a Pod's log. Steps are optimiser steps; None where the log has not said."""

    step: int | None = None
    checkpoint: int | None = None
    restored: int | None = None
    total_steps: int | None = None
    save_failed: str = ""
    result: Mapping[str, Any] | None = None
    last_text: str = ""


@dataclass(frozen=True)
class Result:
    """A committed result as a person wants to see it: numbers, files by hash, and how far the run went."""

    step: int | None
    generation: int | None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)


def parse_line(line: str) -> dict[str, Any] | None:
    """The event in a log line, or None for any other text (a framework's warning, half a line)."""
    text = line.strip()
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("event"), str) else None


def summarise(lines: Iterable[str]) -> LogSummary:
    """Read a log, oldest line first, into its newest facts."""
    step = checkpoint = restored = total = None
    result: Mapping[str, Any] | None = None
    save_failed = last_text = ""
    for line in lines:
        event = parse_line(line)
        if event is None:
            last_text = line.strip() or last_text
            continue
        kind, number = event["event"], _whole(event.get("step"))
        total = _whole(event.get("steps")) or _whole(event.get("total_steps")) or total
        if kind == "result":
            result = event
        elif kind == "checkpoint":
            checkpoint = number if number is not None else checkpoint
            save_failed = ""
        elif kind == "checkpoint-failed":
            save_failed = str(event.get("reason", "")) or "no reason given"
        elif kind == "restore":
            restored = number if number is not None else restored
        if number is not None and kind in ("step", "checkpoint", "restore", "stopped", "result"):
            step = number
    return LogSummary(step, checkpoint, restored, total, save_failed, result, last_text)


def parse_termination(message: str | None) -> dict[str, Any]:
    """The termination message: the supervisor's JSON object, or {'message': text} for anyone else's words."""
    text = (message or "").strip()
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {"message": text}
    return value if isinstance(value, dict) else {"message": text}


def as_result(event: Mapping[str, Any]) -> Result:
    """A result event or a termination message of a finished run.

    Artifacts come as {name: hash}, {name: {"sha256": hash}} or [{"name": …, "sha256": …}].
    """
    body: Mapping[str, Any] = event
    if isinstance(event.get("result"), Mapping):
        body = {**event, **event["result"]}
    raw = body.get("artifacts") or {}
    pairs: dict[str, str] = {}
    if isinstance(raw, Mapping):
        for name, value in raw.items():
            pairs[str(name)] = str(value.get("sha256", value) if isinstance(value, Mapping) else value)
    else:
        for item in raw:
            if isinstance(item, Mapping):
                pairs[str(item.get("name") or item.get("path"))] = str(item.get("sha256") or item.get("hash"))
    metrics = body.get("metrics")
    return Result(
        step=_whole(body.get("step")),
        generation=_whole(body.get("generation")),
        metrics=dict(metrics) if isinstance(metrics, Mapping) else {},
        artifacts=pairs,
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
