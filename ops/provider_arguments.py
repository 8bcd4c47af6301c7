"""components/planning/data/provider-arguments.json, made from the installed provider SDKs.

The program refuses an argument that a provider does not have before anything is created, and the SDKs are
far too slow to import for that. So their argument trees are kept as data.

python -m ops.provider_arguments          prints it
python -m ops.provider_arguments --write  writes the file; a test fails while it is out of date
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any

from ops.made_from_data import main

TARGET = Path(__file__).resolve().parents[1] / "components" / "planning" / "data" / "provider-arguments.json"

RESOURCES: Mapping[str, tuple[str, str, str, str]] = {
    "gcp:container/nodePool:NodePool": ("pulumi_gcp", "container", "node_pool.py", "NodePoolArgs"),
    "aws:eks/nodeGroup:NodeGroup": ("pulumi_aws", "eks", "node_group.py", "NodeGroupArgs"),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        "pulumi_aws",
        "ec2",
        "launch_template.py",
        "LaunchTemplateArgs",
    ),
}
"""Type token -> SDK package, its module, the file of the resource, and the class of its arguments."""

_SCALARS = {"str": "text", "int": "whole", "float": "number", "bool": "flag"}


def render() -> str:
    """The whole file."""
    versions = {package: metadata.version(package) for package in sorted({r[0] for r in RESOURCES.values()})}
    trees = {token: _tree(*where) for token, where in RESOURCES.items()}
    return json.dumps({"madeFrom": versions, "resources": trees}, indent=1) + "\n"


def _tree(package: str, module: str, file: str, root: str) -> dict[str, Any]:
    found = util.find_spec(package)
    assert found and found.submodule_search_locations, f"{package} is not installed"
    folder = Path(found.submodule_search_locations[0]) / module
    classes = {
        node.name: node
        for name in (file, "_inputs.py")
        for node in ast.parse((folder / name).read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Args")
    }
    return _fields(root, classes)


def _fields(name: str, classes: Mapping[str, ast.ClassDef]) -> dict[str, Any]:
    """The arguments of one class by their names in the provider's schema: its getters."""
    return {
        provider_name: _kind(node.returns, classes)
        for node in classes[name].body
        if isinstance(node, ast.FunctionDef) and (provider_name := _getter(node)) and node.returns
    }


def _getter(node: ast.FunctionDef) -> str | None:
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        if ast.unparse(call.func if call else decorator) == "pulumi.getter":
            names = (
                [ast.literal_eval(word.value) for word in call.keywords if word.arg == "name"] if call else []
            )
            return str(names[0]) if names else node.name
    return None


def _kind(annotation: ast.expr, classes: Mapping[str, ast.ClassDef]) -> Any:
    """A type of the SDK as data: a word, a list of one kind, `{"*": kind}` for a map, or named arguments."""
    if isinstance(annotation, ast.Constant):
        return _fields(str(annotation.value), classes)
    if isinstance(annotation, ast.Attribute):
        return _SCALARS.get(annotation.attr, "any")
    if isinstance(annotation, ast.Subscript):
        outer = ast.unparse(annotation.value).rsplit(".", 1)[-1]
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if outer in ("Input", "Optional"):
            return _kind(inner[0], classes)
        if outer == "Sequence":
            return [_kind(inner[0], classes)]
        if outer == "Mapping":
            return {"*": _kind(inner[1], classes)}
        if outer == "Union":
            # An enumeration or its text.
            return "text"
    return "any"


if __name__ == "__main__":
    main(TARGET, render)
