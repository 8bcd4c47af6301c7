"""Kubernetes quantities, as far as counting GPUs needs them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, TypeGuard

_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,2})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether the engine sent a number; in Python a boolean is one too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse(value: Any) -> Decimal | None:
    """The quantity as a number, or None when Kubernetes would not accept it as a quantity.

    Numbers arrive as floats from the engine (1 is 1.0); a boolean is no number here.
    """
    if is_number(value):
        number = Decimal(str(value))
        return number if number.is_finite() else None
    if not isinstance(value, str):
        return None
    match = _FORM.fullmatch(value)
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    scale = Decimal(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""]
    return Decimal(digits) * scale


def show(value: Any) -> str:
    """The value as a person wrote it: 1.0 from the engine is 1."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
