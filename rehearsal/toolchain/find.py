"""Programs that the machine already has, if their version fits."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from rehearsal.toolchain.programs import Program

Version = tuple[int, int, int]


def on_path(program: Program) -> Path | None:
    """The program on PATH, if it says a version that the table accepts."""
    place = shutil.which(program.name)
    if not place or not program.version_command:
        return None
    try:
        said = subprocess.run([place, *program.version_command], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = parse_version(said.stdout + said.stderr)
    wanted = parse_version(program.version)
    return Path(place) if version and wanted and fits(version, wanted, program.fits) else None


def parse_version(text: str) -> Version | None:
    """The first `1.2.3` or `v1.2.3` in a text."""
    match = re.search(r"\bv?(\d+)\.(\d+)\.(\d+)\b", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def fits(version: Version, wanted: Version, rule: str) -> bool:
    """`minor`: the same major and minor version; `major`: the same major version and not an older one."""
    if rule == "minor":
        return version[:2] == wanted[:2]
    return version[0] == wanted[0] and version >= wanted
