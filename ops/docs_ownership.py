"""docs/ownership.md, made from the one table: policies/ownership.json.

python -m ops.docs_ownership          prints it
python -m ops.docs_ownership --write  writes the file; a test fails while it is out of date
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ops.made_from_data import main
from ops.stacks import ROOT

TABLE = ROOT / "policies" / "ownership.json"
TARGET = ROOT / "docs" / "ownership.md"
LAYERS = {
    "driver": "driver",
    "toolkit": "container toolkit",
    "devicePlugin": "device plugin",
    "nfd": "Node Feature Discovery",
}
OWNERS = {"operator": "GPU Operator", None: "nobody"}
SETTINGS = {
    "runtimeClass": "RuntimeClass of Jobs",
    "cdi": "CDI",
    "validator": "validator",
    "migManager": "MIG manager",
}
NODES = {
    "amiTypes": "AMI type",
    "imageTypes": "image type",
    "gpuDriverVersions": "GPU driver version",
    "defaultDevicePlugin": "GKE's device plugin",
    "driverInstaller": "Google's driver installer",
}
HEAD = """# Who owns what on a GPU node

<!-- Made by `python -m ops.docs_ownership --write` from policies/ownership.json. Change the table, not this file. -->

Driver, container toolkit, device plugin and Node Feature Discovery have exactly one owner each on every GPU node. Who that is depends on
what the node's image and platform bring. One table, [policies/ownership.json](../policies/ownership.json), says it for every kind of node:
the planner takes chart values, tolerations and the Jobs' RuntimeClass from it, and the [policy pack](policies.md) judges any program by it.

A pool of kind `eks` or `gke` has the profile that follows from its AMI type, or from its image, driver version, label and installer. A pool of
kind `self-managed` or `existing` names its profile, because no resource shows what a node's image has. One GPU Operator has one setting for
all nodes: pools that need different ones are refused together, with both names.

A profile of status *reject* can not work; what is refused, and what to write instead, is its whole section.

"""


def render() -> str:
    """The whole page."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    rows = table["profiles"]
    return HEAD + _matrix(rows) + "".join(_section(name, row, table["sources"]) for name, row in rows.items())


def source_link(source: str, addresses: Mapping[str, str]) -> str:
    """A source of the table as a Markdown link; KeyError if the table has no address for it."""
    if profile := re.fullmatch(r"profile ([a-z0-9-]+)", source):
        return f"[{source}](#{profile[1]})"
    if issue := re.fullmatch(r"([\w-]+)#(\d+)", source):
        return f"[{source}]({addresses[issue[1]]}{issue[2]})"
    return f"[{source}]({addresses[source]})"


def _matrix(rows: Mapping[str, Any]) -> str:
    lines = [
        "| profile | status | " + " | ".join(LAYERS.values()) + " | RuntimeClass of Jobs |",
        "|---" * 7 + "|",
    ]
    for name, row in rows.items():
        owners = [_owner(row["owners"][layer]) for layer in LAYERS]
        runtime = "" if row["status"] == "reject" else _code(row["runtimeClass"])
        lines.append(f"| [{name}](#{name}) | {row['status']} | {' | '.join(owners)} | {runtime} |")
    return "\n".join(lines) + "\n"


def _section(name: str, row: Mapping[str, Any], addresses: Mapping[str, str]) -> str:
    parts = [f"\n## {name}\n", f"{row['title']}.\n", f"{row['reason']}\n"]
    if nodes := list(_nodes(row["nodes"])):
        parts.append(f"Nodes: {'; '.join(nodes)}.\n")
    if row["status"] == "reject":
        parts.append(f"**Refused:** {row['reject']}\n")
    else:
        parts.append(_installation(row))
        parts.append(_settings(row, addresses))
    links = ", ".join(source_link(source, addresses) for source in row["sources"])
    parts.append(f"Sources: {links}.\n")
    return "\n".join(parts)


def _nodes(nodes: Mapping[str, Any]) -> Iterator[str]:
    for key, title in NODES.items():
        if key in nodes:
            value = nodes[key]
            words = (
                " or ".join(f"`{item}`" for item in value)
                if isinstance(value, list)
                else ("yes" if value else "no")
            )
            yield f"{title} {words}"


def _installation(row: Mapping[str, Any]) -> str:
    values = yaml.safe_dump(row["values"], sort_keys=False).rstrip()
    if not row["installOperator"]:
        intro = "By default no GPU Operator is installed for these nodes. Where one is there for other reasons, these values keep its hands off:"
    else:
        intro = "Values of the GPU Operator that follow:"
    return f"{intro}\n\n```yaml\n{values}\n```\n"


def _settings(row: Mapping[str, Any], addresses: Mapping[str, str]) -> str:
    lines = ["| setting | value | why | source |", "|---|---|---|---|"]
    for key, title in SETTINGS.items():
        item = row["settings"][key]
        links = ", ".join(source_link(source, addresses) for source in item["sources"])
        lines.append(f"| {title} | {_value(key, row)} | {item['why']} | {links} |")
    return "\n".join(lines) + "\n"


def _value(key: str, row: Mapping[str, Any]) -> str:
    if key == "runtimeClass":
        return _code(row["runtimeClass"])
    if key == "validator":
        return ", ".join(
            f"`{item['name']}={item['value']}`" for item in row["values"]["validator"]["plugin"]["env"]
        )
    enabled = row["values"].get(key, {}).get("enabled")
    return {True: "on", False: "off", None: "the chart's default: on"}[enabled]


def _owner(owner: str | None) -> str:
    return OWNERS.get(owner) or str(owner)


def _code(value: str | None) -> str:
    return f"`{value}`" if value else "none"


if __name__ == "__main__":
    main(TARGET, render)
