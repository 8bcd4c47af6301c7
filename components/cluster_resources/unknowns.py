"""Values that the engine does not know yet at a preview."""

from __future__ import annotations

from typing import Any

from pulumi.runtime import rpc


def has_unknown(value: Any) -> bool:
    """True if `value` is unknown or holds an unknown at any depth."""
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_unknown(item) for item in value)
    return bool(value == rpc.UNKNOWN)
