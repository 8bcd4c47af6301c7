"""Which Debian archive the base comes from: the one that the host uses for that suite, or the default."""

from __future__ import annotations

from pathlib import Path


def debian_sources(suite: str, root: Path = Path("/")) -> list[str]:
    """One-line apt sources of the host for `suite` and its updates and security suites.

    Empty when the host has none (another release or distribution): mmdebstrap then uses Debian's own default
    archive. A site with a mirror has told apt about it, so nothing else has to be configured here.
    """
    folder = root / "etc/apt"
    lines: list[str] = []
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if path.suffix == ".list" and path.is_file():
            lines += _one_line_entries(path.read_text(), suite)
        elif path.suffix == ".sources" and path.is_file():
            lines += _deb822_entries(path.read_text(), suite)
    unique = list(dict.fromkeys(lines))
    return unique if any(_suite_of(line) == suite for line in unique) else []


def _matches(name: str, suite: str) -> bool:
    return name in (suite, f"{suite}-updates", f"{suite}-security")


def _suite_of(line: str) -> str:
    words = line.split("] ")[-1].removeprefix("deb ").split()
    return words[1]


def _one_line_entries(text: str, suite: str) -> list[str]:
    found = []
    for line in text.splitlines():
        plain = line.split("#")[0].strip()
        words = plain.split("]")[-1].removeprefix("deb ").split()
        if plain.startswith("deb ") and len(words) >= 3 and _matches(words[1], suite) and "main" in words[2:]:
            options = plain[plain.index("[") : plain.index("]") + 1] + " " if "[" in plain else ""
            found.append(f"deb {options}{words[0]} {words[1]} main")
    return found


def _deb822_entries(text: str, suite: str) -> list[str]:
    found = []
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        fields = {
            key.strip().lower(): value.strip() for key, _, value in (row.partition(":") for row in rows)
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        if "main" not in fields.get("components", "").split():
            continue
        signed = fields.get("signed-by", "")
        options = f"[signed-by={signed}] " if signed.startswith("/") else ""
        for address in fields.get("uris", "").split():
            for name in fields.get("suites", "").split():
                if _matches(name, suite):
                    found.append(f"deb {options}{address} {name} main")
    return found
