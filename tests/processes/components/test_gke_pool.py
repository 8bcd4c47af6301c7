"""A pool on GKE in the whole program, against the recording engine: Pulumi.prod-gke.yaml as it is.

Not among the unit tests, because Google's SDK alone takes seconds to import.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.policies import test_our_own_program as pack
from tests.processes.components.tracked import tracked
from tests.unit.components import conftest as components

# The program is run as the components' unit tests run it.
program = components.program
_as_prod_gke = tracked("prod-gke")


@pytest.fixture(scope="module")
def prod(program: Any) -> Any:
    """One run of the program with Pulumi.prod-gke.yaml for all tests that only look."""
    return program(_as_prod_gke)


def test_the_pool_is_one_node_pool_of_the_provider_with_the_planned_arguments(prod: Any) -> None:
    pool = prod.one("NodePool")
    assert (pool.type, pool.parent) == ("gcp:container/nodePool:NodePool", "GkeGpuNodePool h100")
    assert pool.inputs["nodeConfig"]["guestAccelerators"] == [
        {
            "type": "nvidia-h100-80gb",
            "count": 8,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
        }
    ]
    # Nested arguments that are passed on stand beside ours, by the provider's own names.
    assert pool.inputs["nodeConfig"]["shieldedInstanceConfig"] == {
        "enableSecureBoot": True,
        "enableIntegrityMonitoring": True,
    }
    assert pool.inputs["networkConfig"] == {"enablePrivateNodes": True}
    assert [r for r in prod.resources if r.kind == "NodePoolMembership"] == []


def test_how_many_nodes_there_are_is_the_autoscalers_business(prod: Any) -> None:
    pool = prod.one("NodePool")
    assert pool.inputs["autoscaling"]["totalMaxNodeCount"] == 4
    assert pool.ignored == frozenset({"initialNodeCount", "nodeCount"})
    assert pool.delete_before_replace


def test_its_nodes_are_found_by_their_labels_and_the_operator_comes_after_it(prod: Any) -> None:
    (pool,) = prod.one("GpuReadiness").inputs["expectation"]["pools"]
    assert (pool["matchLabels"], pool["minNodes"], pool["gpusPerNode"]) == ({"pool": "h100"}, 1, 8)
    assert "nodes" not in pool
    assert prod.reaches(prod.one("Release", "gpu-operator"), "NodePool", "h100")


def test_the_operators_namespace_has_a_quota_for_critical_pods_before_the_release(prod: Any) -> None:
    quota = prod.one("ResourceQuota", "gpu-operator-critical-pods")
    metadata = quota.inputs["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("critical-pods", "gpu-operator")
    assert quota.inputs["spec"] == {
        "hard": {"pods": str(4 * 16 + 50)},
        "scopeSelector": {
            "matchExpressions": [
                {
                    "operator": "In",
                    "scopeName": "PriorityClass",
                    "values": ["system-node-critical", "system-cluster-critical"],
                }
            ]
        },
    }
    assert prod.reaches(prod.one("Release", "gpu-operator"), "ResourceQuota", "gpu-operator-critical-pods")


def test_a_renamed_pool_is_the_former_one(program: Any) -> None:
    def renamed(config: dict[str, Any]) -> None:
        _as_prod_gke(config)
        config["holdfast:nodePools"][0].update(name="big", formerNames=["h100"])
        config["holdfast:runs"][0]["pool"] = "big"

    run = program(renamed)
    assert run.one("GkeGpuNodePool").aliases == ("h100",)
    assert run.one("NodePool").inputs["name"] == "h100"


NOT_GKES = {"accelerator": {"driver": "INSTALLATION_DISABLED"}, "defaultDevicePlugin": False}


@pytest.mark.parametrize(
    ("gke", "pool", "preview"),
    [
        ({}, {}, True),
        ({**NOT_GKES, "driverInstaller": True}, {}, False),
        ({**NOT_GKES, "imageType": "UBUNTU_CONTAINERD"}, {}, False),
        ({"spot": True}, {}, False),
        (
            {},
            {
                "startupTaints": [
                    {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}
                ]
            },
            False,
        ),
        (
            {},
            {
                "override": {
                    "reason": "The platform team's own toolkit DaemonSet.",
                    "layers": {"toolkit": "ours"},
                }
            },
            False,
        ),
    ],
    ids=["at a preview", "Google's installer", "Ubuntu", "Spot", "a startup taint", "an override"],
)
def test_the_policy_pack_has_nothing_to_say_of_a_pool_on_gke(
    gke: dict[str, Any], pool: dict[str, Any], preview: bool, program: Any
) -> None:
    def change(config: dict[str, Any]) -> None:
        _as_prod_gke(config)
        config["holdfast:nodePools"][0]["gke"].update(gke)
        if gke.get("spot"):
            del config["holdfast:nodePools"][0]["gke"]["reservation"]
        config["holdfast:nodePools"][0].update(pool)

    assert pack._said(program(change, preview=preview)) == []
