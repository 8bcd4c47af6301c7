"""`${NAME}` in the configuration: what differs from machine to machine comes from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from components.settings.problems import Problem, full_key

Path = tuple[str | int, ...]

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Substitution:
    """Replaces references in one configuration and remembers where it could not."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[tuple[Path, Problem]] = []

    def apply(self, value: Any, path: Path) -> Any:
        """`value` with every reference in its texts replaced; `$${` stands for a literal `${`."""
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, Mapping):
            return {
                key: self.apply(item, (*path, key if isinstance(key, int) else str(key)))
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.apply(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def _text(self, text: str, path: Path) -> str:
        def replace(match: re.Match[str]) -> str:
            if match.group() == "$${":
                return "${"
            name = match.group(1)
            if not match.group().endswith("}") or not _NAME.fullmatch(name):
                self._refuse(
                    path,
                    f"{match.group()!r} is not a reference to an environment variable",
                    "write ${NAME} with letters, digits and '_', or $${ for a literal ${",
                )
                return ""
            found = self._environ.get(name, "")
            if not found:
                way = (
                    'run eval "$(./holdfast env)" in this shell'
                    if name.startswith("HOLDFAST_")
                    else f"export {name}"
                )
                self._refuse(
                    path, f"the environment variable {name} is not set", f"{way}, or write the value itself"
                )
            return found

        resolved = _REFERENCE.sub(replace, text)
        # Only the kubeconfig is a path on this machine; the provider would take the shell's ~ literally.
        if path == ("cluster", "kubeconfig") and resolved.startswith("~/") and self._environ.get("HOME"):
            resolved = self._environ["HOME"].rstrip("/") + resolved[1:]
        return resolved

    def _refuse(self, path: Path, reason: str, fix: str) -> None:
        # The parts around the reference may be private: the problem names the key, not the text.
        self.problems.append((path, Problem(full_key(*path), None, reason, fix)))
