"""Providers that make nothing and record everything: a program and its policies run through the real engine without an account.

`plugins(folder)` writes one executable per package; a project's Pulumi.yaml names the folder:

    plugins:
      providers:
        - {name: aws, path: FOLDER}

The engine takes a project's own plugins before any other (pulumi, sdk/go/common/workspace/plugins.go, getPluginInfoAndPath), whatever
version the program's SDK asks for. What was asked is in the file that the environment names as HOLDFAST_RECORDING: see `read`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.state import write_atomically

RECORDING = "HOLDFAST_RECORDING"
PACKAGES = ("aws", "gcp", "kubernetes", "pulumi-python")
"""The packages of our program; `pulumi-python` is what runs its dynamic resources."""
PROVIDER = Path(__file__).with_name("provider.py")


@dataclass(frozen=True)
class Recorded:
    """One call of the engine about one resource."""

    operation: str
    """check, diff, create, update, read, delete, invoke."""
    type: str
    """Type of the resource, or the function's token."""
    name: str
    """Logical name of the resource; empty for a function."""
    inputs: dict[str, Any]
    """As the engine sent them, secrets in the clear; what is not known at a preview is `UNKNOWN`."""
    preview: bool

    @property
    def kind(self) -> str:
        """The last part of the type, such as NodeGroup."""
        return self.type.rsplit(":", 1)[-1]


def plugins(folder: Path, packages: Iterable[str] = PACKAGES) -> list[dict[str, str]]:
    """Write the executables into `folder`; the answer is `plugins.providers` of a Pulumi.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for package in packages:
        line = f'exec "{sys.executable}" -u "{PROVIDER}" --package={package} "$@"'
        write_atomically(folder / f"pulumi-resource-{package}", f"#!/bin/sh\n{line}\n", mode=0o755)
        found.append({"name": package, "path": str(folder)})
    return found


def read(recording: Path) -> list[Recorded]:
    """What was recorded, in order; nothing if no provider was asked."""
    if not recording.exists():
        return []
    return [Recorded(**json.loads(line)) for line in recording.read_text(encoding="utf-8").splitlines()]
