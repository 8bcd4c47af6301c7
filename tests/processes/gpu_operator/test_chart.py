"""The chart: honest about what it is, and true to the keys and defaults of the one that it stands in for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.gpu_operator import operands
from rehearsal.gpu_operator.controller import Controller

CHART = Path("rehearsal/charts/gpu-operator-rehearsal")
DATA = Path(__file__).parent / "data" / "gpu-operator-v26.7.0-values.tsv"


@pytest.fixture
def chart(checkout: Path) -> Path:
    return checkout / CHART


def flat(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from flat(value, f"{path}.{key}" if path else key)
    else:
        yield path, values


def real_chart() -> dict[str, Any]:
    rows = [line.split("\t") for line in DATA.read_text().splitlines() if not line.startswith("#")]
    return {key: json.loads(value) for key, value in rows}


def template(path: Path) -> list[dict[str, Any]]:
    """The template's documents with its actions taken out: enough for what is not computed."""
    text = re.sub(r"(?m)^\s*\{\{-? .*?\}\}$", "", path.read_text())
    return [one for one in yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "x", text)) if one]


def test_every_value_has_the_name_and_the_default_of_the_real_chart(chart: Path) -> None:
    ours = dict(flat(yaml.safe_load((chart / "values.yaml").read_text())))
    assert ours.pop("rehearsal.image") == ""
    assert ours == real_chart()


def test_it_says_that_it_is_a_stand_in(chart: Path) -> None:
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert (about["name"], about["version"]) == ("gpu-operator-rehearsal", "26.7.0-rehearsal.1")
    assert about["kubeVersion"] == ">= 1.30.0-0"
    assert "dependencies" not in about
    assert "not NVIDIA's" in about["description"]
    readme = (chart / "README.md").read_text()
    assert "It is not NVIDIA's chart" in readme
    assert "## Real" in readme and "## Simulated" in readme


def test_a_missing_image_and_one_by_tag_are_refused_in_a_sentence(chart: Path) -> None:
    helpers = (chart / "templates" / "_helpers.tpl").read_text()
    assert "rehearsal.image is empty, and the chart has no image of its own: %s" in helpers
    assert "rehearsal.image is %q, which can change under the same name: %s" in helpers
    for path in (chart / "templates").glob("*.yaml"):
        for line in path.read_text().splitlines():
            if line.strip().startswith("image:"):
                assert 'include "gpu-operator-rehearsal.image"' in line, path.name


def test_there_is_no_hook_and_everything_but_the_definition_goes_with_the_release(chart: Path) -> None:
    for path in (chart / "templates").iterdir():
        assert "helm.sh/hook" not in path.read_text(), path.name
        assert "resource-policy" not in path.read_text(), path.name
    assert [path.name for path in (chart / "crds").iterdir()] == ["clusterpolicies.nvidia.com.yaml"]


def test_the_definition_is_nvidias_by_group_version_and_kind_and_keeps_unknown_fields(chart: Path) -> None:
    crd = yaml.safe_load((chart / "crds" / "clusterpolicies.nvidia.com.yaml").read_text())
    assert (crd["spec"]["group"], crd["spec"]["names"]["kind"]) == ("nvidia.com", "ClusterPolicy")
    assert crd["spec"]["scope"] == "Cluster"
    (version,) = crd["spec"]["versions"]
    assert version["name"] == "v1"
    assert version["subresources"] == {"status": {}}
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["x-kubernetes-preserve-unknown-fields"] is True
    for one in spec["properties"].values():
        assert one["x-kubernetes-preserve-unknown-fields"] is True


def test_the_definition_takes_only_true_or_false_for_every_switch_of_the_controller(chart: Path) -> None:
    crd = yaml.safe_load((chart / "crds" / "clusterpolicies.nvidia.com.yaml").read_text())
    sections = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    switches = {one.section for one in operands.OPERANDS} - {"validator"} | {"cdi"}
    for name in switches:
        assert sections[name]["properties"]["enabled"] == {"type": "boolean"}, name


def test_every_section_that_the_controller_reads_reaches_the_cluster_policy(chart: Path) -> None:
    text = (chart / "templates" / "clusterpolicy.yaml").read_text()
    for name in {one.section for one in operands.OPERANDS} | {"daemonsets", "cdi"}:
        assert f'"{name}"' in text, name


def test_the_names_that_others_rely_on(chart: Path) -> None:
    (operator,) = template(chart / "templates" / "operator.yaml")
    assert (operator["kind"], operator["metadata"]["name"]) == ("Deployment", "gpu-operator")
    text = (chart / "templates" / "node-feature-discovery.yaml").read_text()
    assert "name: {{ .Release.Name }}-node-feature-discovery-worker" in text
    accounts = [one for one in template(chart / "templates" / "rbac.yaml") if one["kind"] == "ServiceAccount"]
    assert operands.NODE_AGENT in [one["metadata"]["name"] for one in accounts]


def test_the_operator_may_do_what_it_does_and_its_operands_need_no_more_than_nodes(
    chart: Path, api_server: Any
) -> None:
    """Every request of a controller's life is allowed by the chart's own roles."""
    documents = template(chart / "templates" / "rbac.yaml")
    roles = [one for one in documents if one["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles if role["metadata"]["name"] == "gpu-operator" for rule in role["rules"]]
    policy = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
    api_server.add_node("gpu-0", **{"feature.node.kubernetes.io/pci-10de.present": "true"})
    api_server.objects[policy] = {
        "metadata": {"name": "cluster-policy", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    }
    operator = Controller(api_server.client(), "gpu-operator", "image")
    operator.reconcile()
    api_server.objects[policy]["spec"] = {"driver": {"enabled": False}, "cdi": {"enabled": False}}
    operator.reconcile()
    needed = {needs(method, path) for method, path in api_server.requests}
    assert {verb for _, _, verb in needed} == {"list", "patch", "delete"}
    for group, resource, verb in needed:
        allowed = [
            rule
            for rule in rules
            if group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
        ]
        assert allowed, f"{verb} {resource} in group {group!r}"
    agents = [role for role in roles if role["metadata"]["name"] == operands.NODE_AGENT]
    assert [role["rules"] for role in agents] == [
        [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    ]


def needs(method: str, path: str) -> tuple[str, str, str]:
    """Group, resource and verb of a request, as the API server's authorizer sees it."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = f"{rest[0]}/{rest[2]}" if len(rest) == 3 else rest[0]
    verb = {"GET": "get" if len(rest) > 1 else "list", "PATCH": "patch", "DELETE": "delete"}[method]
    return group, resource, verb
