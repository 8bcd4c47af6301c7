"""`version`: this release, and the programs that it pins."""

from __future__ import annotations

import platform
import tomllib
from importlib import metadata

from ops import console
from ops.exit_codes import ExitCode
from ops.stacks import ROOT

PACKAGES = ("pulumi", "pulumi-kubernetes", "pulumi-policy", "pydantic", "kubernetes")


def version() -> ExitCode:
    from rehearsal.toolchain.programs import PROGRAMS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    console.say(f"holdfast {project['version']}, Python {platform.python_version()}")
    for name in PACKAGES:
        console.say(f"  {name} {metadata.version(name)} (Python package)")
    for program in PROGRAMS.values():
        console.say(f"  {program.name} {program.version}")
    return ExitCode.OK
