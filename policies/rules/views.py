"""Reading properties that may be missing, null, of the wrong shape, or unknown at preview.

The policy SDK hands properties over in proxies that raise `UnknownValueError` on every touch of an unknown
value, even by `in` or `items()`, and a rule that raises anything else breaks the whole preview. A `View` is a
cursor over such properties that never raises. What a rule needed and could not read is collected in
`Unknowns`, so that the rule can say so after it has reported all that is already certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulumi_policy.proxy import UnknownValueError


class _Unknown:
    """The one value that stands for everything that is not known yet."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN = _Unknown()


@dataclass
class Unknowns:
    """The paths that a rule asked for and that are not known yet, in order, each once."""

    paths: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        if path not in self.paths:
            self.paths.append(path)


class View:
    """A read-only cursor: `view["spec"]["containers"]` works whatever is there.

    `value()`, `text()`, `elements()` and `keys()` note an unknown; `peek()`, `unknown` and `exists` do not.
    """

    __slots__ = ("_above", "_key", "_raw", "_unknowns")

    def __init__(
        self,
        raw: Any,
        unknowns: Unknowns | None = None,
        key: str | int = "",
        above: View | None = None,
    ) -> None:
        self._raw = raw
        self._unknowns = unknowns if unknowns is not None else Unknowns()
        self._key = key
        self._above = above

    def __getitem__(self, key: str | int) -> View:
        if self._raw is UNKNOWN:
            return self
        return View(self._child(key), self._unknowns, key, self)

    @property
    def path(self) -> str:
        """Where this is, as `spec.containers[0].image`. Made when asked for: rules walk far more than they
        say.
        """
        above = self._above.path if self._above is not None else ""
        if isinstance(self._key, int):
            return f"{above}[{self._key}]"
        return f"{above}.{self._key}" if above and self._key else f"{above}{self._key}"

    def over(self, raw: Any) -> View:
        """A view of other properties in the same place."""
        return View(raw, self._unknowns, self._key, self._above)

    def _child(self, key: str | int) -> Any:
        fits = (isinstance(key, str) and isinstance(self._raw, Mapping)) or (
            isinstance(key, int) and _is_list(self._raw)
        )
        if not fits:
            return None
        try:
            return self._raw[key]
        except UnknownValueError:
            return UNKNOWN
        except (KeyError, IndexError):
            return None

    @property
    def unknown(self) -> bool:
        return self._raw is UNKNOWN

    @property
    def exists(self) -> bool:
        """True when there is something, known or not, other than null."""
        return self._raw is not None

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._raw, Mapping)

    @property
    def is_list(self) -> bool:
        return _is_list(self._raw)

    def note(self) -> None:
        """Records that the rule can not decide without this value."""
        self._unknowns.add(self.path)

    def peek(self) -> Any:
        """The raw value, or None when it is missing or unknown."""
        return None if self._raw is UNKNOWN else self._raw

    def value(self) -> Any:
        """The raw value, or None when it is missing or unknown; an unknown is noted."""
        if self._raw is UNKNOWN:
            self.note()
            return None
        return self._raw

    def text(self) -> str | None:
        """The value when it is a string, else None; an unknown is noted."""
        value = self.value()
        return value if isinstance(value, str) else None

    def peek_text(self) -> str | None:
        value = self.peek()
        return value if isinstance(value, str) else None

    def elements(self) -> list[View]:
        """The elements of a list, each of which may be unknown itself; an unknown list is noted and empty."""
        if self._raw is UNKNOWN:
            self.note()
        return self.peek_elements()

    def peek_elements(self) -> list[View]:
        return [self[index] for index in range(len(self._raw))] if _is_list(self._raw) else []

    def keys(self) -> list[str]:
        """The keys of a mapping; an unknown mapping is noted and has none."""
        if self._raw is UNKNOWN:
            self.note()
        return self.peek_keys()

    def peek_keys(self) -> list[str]:
        return [key for key in self._raw if isinstance(key, str)] if isinstance(self._raw, Mapping) else []


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
