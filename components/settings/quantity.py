"""Kubernetes quantities (`500m`, `16Gi`, `1e3`): their numbers, and the spelling that the API server returns.

Source: k8s.io/apimachinery/pkg/api/resource (quantity.go: the grammar and the canonical form).
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_GRAMMAR = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)


def is_quantity(text: str) -> bool:
    """Whether `text` follows the grammar of Kubernetes quantities."""
    return _GRAMMAR.fullmatch(text) is not None


def parse(text: str) -> Decimal:
    """The number in base units (cores, bytes, pieces). Raises ValueError if it is not a quantity."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    sign, number, exponent, suffix = match.groups()
    value = Decimal(number)
    if exponent:
        value = value.scaleb(int(exponent[1:]))
    elif suffix in _BINARY:
        value *= 2 ** _BINARY[suffix]
    else:
        value = value.scaleb(_DECIMAL[suffix or ""])
    # The API server keeps no fraction finer than a billionth and rounds away from zero.
    value = (
        value.quantize(Decimal("1e-9"), rounding=ROUND_CEILING)
        if value != value.to_integral_value()
        else value
    )
    return -value if sign == "-" else value


def canonical(text: str) -> str:
    """The spelling that the API server returns, so that a refresh shows no difference: `2048Mi` is `2Gi`."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    return spell(parse(text), binary=match.group(4) in _BINARY)


def spell(value: Decimal, *, binary: bool) -> str:
    """`value` in the largest unit that needs no fraction; `binary` chooses Ki, Mi, Gi over k, M, G."""
    if value == 0:
        return "0"
    # Below 1024 and for fractions, the canonical form is decimal even of a binary quantity.
    if binary and abs(value) >= 1024 and value == value.to_integral_value():
        whole, unit = int(value), ""
        for suffix in _BINARY:
            if whole % 1024:
                break
            whole, unit = whole // 1024, suffix
        return f"{whole}{unit}"
    suffixes = list(_DECIMAL)
    index = suffixes.index("n")
    scaled = value.scaleb(9).to_integral_value(rounding=ROUND_CEILING)
    while index + 1 < len(suffixes) and scaled % 1000 == 0:
        scaled /= 1000
        index += 1
    return f"{int(scaled)}{suffixes[index]}"
