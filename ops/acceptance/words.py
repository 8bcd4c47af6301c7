"""Text of unknown origin made fit for a terminal, a page and XML, and numbers made fit for people. Pure."""

from __future__ import annotations

import re

# Control characters (XML 1.0 has no place for them, a terminal obeys them), lone surrogates, characters that
# turn the direction of text and so can make it read as something else, and those that are no characters.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
LONGEST = 2000


def plain(text: object, longest: int = LONGEST) -> str:
    """The text on one line at most `longest` characters long, with harmful characters shown as `\\u202e`."""
    words = " ".join(str(text).split("\n")).replace("\t", " ")
    words = _HARMFUL.sub(lambda match: f"\\u{ord(match[0]):04x}", words)
    return words if len(words) <= longest else words[: longest - 1] + "…"


def seconds(value: float | None) -> str:
    """`0.42 s`, `12.3 s`, `3 min 20 s`; a dash for what is not known."""
    if value is None:
        return "–"
    if value >= 99.95:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    return f"{value:.1f} s" if value >= 9.995 else f"{value:.2f} s"


def number(value: float | None, digits: int = 1) -> str:
    """A count as it is, another number with so many digits; a dash for what is not known."""
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.0f} %"
