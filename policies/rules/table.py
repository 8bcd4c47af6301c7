"""The ownership table: which layer of the GPU stack belongs to whom, per node profile."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLE_FILE = Path(__file__).resolve().parent.parent / "ownership.json"
OPERATOR = "operator"


@dataclass(frozen=True)
class Profile:
    """One row: `owners` by layer (None: nobody), `values` of the chart, `reject` the whole refusal, and
    `nodes`: what a cloud's node pool must be for the row (empty: no pool's resource shows it).
    """

    name: str
    title: str
    status: str
    owners: Mapping[str, str | None]
    values: Mapping[str, Any]
    reason: str
    reject: str | None
    nodes: Mapping[str, Any]


@cache
def profiles() -> Mapping[str, Profile]:
    """All rows by name, as `ownership.json` has them."""
    rows = json.loads(TABLE_FILE.read_text(encoding="utf-8"))["profiles"]
    return {
        name: Profile(
            name=name,
            title=row["title"],
            status=row["status"],
            owners=row["owners"],
            values=row["values"],
            reason=row["reason"],
            reject=row["reject"],
            nodes=row.get("nodes", {}),
        )
        for name, row in rows.items()
    }


def eks_profile(ami_type: str) -> str | None:
    """The row of an EKS node group's amiType; None for CUSTOM, whose image may hold anything, and others.

    The FIPS variants bring what the plain ones bring.
    """
    rows, plain = profiles().items(), ami_type.removesuffix("_FIPS")
    found = (name for name, row in rows if plain in row.nodes.get("amiTypes", ()))
    return None if ami_type == "CUSTOM" else next(found, None)


def gke_profile(image: str, driver: str, default_device_plugin: bool, driver_installer: bool) -> str | None:
    """The row of a GKE pool: imageType, gpuDriverVersion, whether GKE's device plugin runs there, and whether
    Google's driver installer does. None: the table has no such row.
    """
    facts = {
        "defaultDevicePlugin": default_device_plugin,
        "driverInstaller": driver_installer,
    }
    for name, row in profiles().items():
        nodes = row.nodes
        if image in nodes.get("imageTypes", ()) and driver in nodes.get("gpuDriverVersions", ()):
            if all(nodes.get(key, value) == value for key, value in facts.items()):
                return name
    return None


def unknown_profile(name: str) -> str:
    """What to say about a profile name that is not in the table."""
    close = difflib.get_close_matches(name, profiles(), n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return (
        f"node profile '{name}' is not in the ownership table; {hint}Known profiles:"
        f" {', '.join(sorted(profiles()))}"
    )


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of nested chart values; lists are values."""
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted, value
