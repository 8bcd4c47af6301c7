"""A pool on EKS in the whole program, against the recording engine: Pulumi.prod-eks.yaml as it is.

Not among the unit tests, because AWS' SDK alone takes seconds to import.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.components.tracked import tracked
from tests.unit.components import conftest as components

# The program is run as the components' unit tests run it.
program = components.program
_as_prod_eks = tracked("prod-eks")


@pytest.fixture(scope="module")
def prod(program: Any) -> Any:
    """One run of the program with Pulumi.prod-eks.yaml for all tests that only look."""
    return program(_as_prod_eks)


def test_the_pool_is_a_node_group_with_a_launch_template_of_its_own(prod: Any) -> None:
    group, template = prod.one("NodeGroup"), prod.one("LaunchTemplate")
    assert (group.type, group.parent) == ("aws:eks/nodeGroup:NodeGroup", "EksGpuNodePool h100")
    assert (template.type, template.parent) == (
        "aws:ec2/launchTemplate:LaunchTemplate",
        "EksGpuNodePool h100",
    )
    # A number in text, as EKS wants it; $Latest would never renew a node.
    assert group.inputs["launchTemplate"] == {"id": "h100-id", "version": "7"}
    assert group.inputs["releaseVersion"] == "1.34.2-20261120"
    assert group.inputs["capacityType"] == "CAPACITY_BLOCK"
    assert len(template.inputs["networkInterfaces"]) == 33
    assert [r for r in prod.resources if r.kind == "NodePoolMembership"] == []


def test_how_many_nodes_there_are_is_the_autoscalers_business(prod: Any) -> None:
    group = prod.one("NodeGroup")
    assert group.ignored == frozenset({"scalingConfig.desiredSize"})
    assert group.delete_before_replace


def test_its_nodes_are_found_by_their_labels_and_the_operator_comes_after_them(prod: Any) -> None:
    (pool,) = prod.one("GpuReadiness").inputs["expectation"]["pools"]
    assert pool == {
        "name": "h100",
        "matchLabels": {"pool": "h100"},
        "minNodes": 0,
        "gpusPerNode": 8,
        "taint": {"key": "dedicated", "value": "h100", "effect": "NoSchedule"},
    }
    assert prod.reaches(prod.one("Release", "gpu-operator"), "NodeGroup", "h100")
    assert prod.reaches(prod.one("JobSet"), "NodeGroup", "h100")


def test_labels_taint_and_tolerations_are_the_same_ones_everywhere(prod: Any) -> None:
    group, values = prod.one("NodeGroup").inputs, prod.one("Release", "gpu-operator").inputs["values"]
    toleration = {"key": "dedicated", "operator": "Equal", "value": "h100", "effect": "NoSchedule"}
    assert group["labels"] == {"pool": "h100"}
    assert group["taints"] == [{"key": "dedicated", "value": "h100", "effect": "NO_SCHEDULE"}]
    assert toleration in values["daemonsets"]["tolerations"]
    assert toleration in values["node-feature-discovery"]["worker"]["tolerations"]
    assert (values["driver"]["enabled"], values["toolkit"]["enabled"]) == (False, False)


def test_a_renamed_pool_keeps_its_nodes(prod: Any, program: Any) -> None:
    def rename(config: dict[str, Any]) -> None:
        _as_prod_eks(config)
        config["holdfast:nodePools"][0].update(name="blocks", formerNames=["h100"])
        config["holdfast:runs"][0]["pool"] = "blocks"

    run = program(rename)
    assert run.one("EksGpuNodePool").aliases == ("h100",)
    for kind in ("NodeGroup", "LaunchTemplate"):
        now, before = dict(run.one(kind).inputs), dict(prod.one(kind).inputs)
        # The mock engine makes ids from names; a real one keeps the template and with it its id.
        assert {**now, "launchTemplate": None} == {**before, "launchTemplate": None}
