"""The way out of the table: what an override changes, and how it is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from components.planning.outputs import stack_outputs
from components.planning.stack import StackPlan
from components.settings.problems import SettingsError

Plan = Callable[..., StackPlan]
REASON = "Our image brings another toolkit, agreed with the platform team on 12 May."


def _override(**layers: str) -> dict[str, Any]:
    return {"override": {"reason": REASON, "layers": layers}}


def test_a_layer_that_is_not_the_operators_is_switched_off_and_leaves_no_class_without_a_handler(
    plan: Plan,
) -> None:
    planned = plan(pool={"profile": "self-managed-bare", **_override(toolkit="our image")})
    assert planned.operator is not None
    values = planned.operator.values
    assert (values["driver"], values["toolkit"], values["cdi"]) == (
        {"enabled": True},
        {"enabled": False},
        {"enabled": False},
    )
    assert planned.operator.expectation.runtime_classes == ("nvidia",)
    assert "nvidia-container-toolkit-daemonset" in planned.operator.expectation.absent_daemonsets


def test_nodes_that_bring_everything_get_an_operator_for_the_layer_that_is_given_to_it(plan: Plan) -> None:
    assert plan(pool={"profile": "eks-bottlerocket"}).operator is None
    operator = plan(pool={"profile": "eks-bottlerocket", **_override(devicePlugin="operator")}).operator
    assert operator is not None and operator.values["devicePlugin"] == {"enabled": True}


def test_what_the_operator_brings_by_an_override_brings_its_labels_and_its_handler_too(plan: Plan) -> None:
    layers = {"toolkit": "operator", "devicePlugin": "operator"}
    (pool,) = plan(pool={"profile": "eks-bottlerocket", **_override(**layers)}).pools
    assert pool.ownership.owner("nfd") == "operator"
    # The operator's plugin names devices in a variable that only the toolkit's handler reads.
    assert pool.runtime_class == "nvidia"


def test_the_reason_is_in_the_outputs_the_warnings_and_on_the_namespace(plan: Plan) -> None:
    planned = plan(pool={"profile": "self-managed-bare", **_override(toolkit="our image")})
    pool = stack_outputs(planned)["nodePools"]["gpu"]
    assert pool["override"] == {"reason": REASON, "layers": {"toolkit": "our image"}}
    assert pool["owners"]["toolkit"] == {
        "owner": "our image",
        "reason": "The pool's override says so, where the table's row self-managed-bare has the GPU"
        " Operator: " + REASON,
    }
    assert (
        pool["owners"]["driver"]["owner"] == "operator" and REASON not in pool["owners"]["driver"]["reason"]
    )
    assert (
        'nodePools "gpu": its override sets the table\'s row self-managed-bare aside (container toolkit: our'
        " image)."
        f" The reason given: {REASON}"
    ) in planned.warnings
    operator = planned.operator
    assert operator is not None
    assert operator.namespace_annotations == {"holdfast.dev/ownership-override": REASON}
    # Nodes that are not what the row says are not called by its name.
    assert "holdfast.dev/node-profile" not in operator.namespace_labels


def test_without_an_override_nothing_speaks_of_one(plan: Plan) -> None:
    planned = plan()
    assert "override" not in stack_outputs(planned)["nodePools"]["gpu"]
    assert planned.operator is not None and planned.operator.namespace_annotations == {}


def test_an_override_that_is_another_row_of_the_table_is_sent_there(plan: Plan) -> None:
    with pytest.raises(SettingsError) as caught:
        plan(pool=_override(toolkit="operator"))
    (problem,) = caught.value.problems
    assert (problem.key, problem.fix) == (
        "holdfast:nodePools[0].override",
        "write profile: self-managed-driver and remove override",
    )


def test_two_pools_of_one_row_can_not_share_an_operator_when_one_sets_it_aside(plan: Plan) -> None:
    other = {
        "name": "big",
        "profile": "self-managed-driver-toolkit",
        "selectNodes": {"names": ["big-0"]},
        "gpusPerNode": 8,
        "labels": {"pool": "big"},
        **_override(devicePlugin="our DaemonSet"),
    }
    with pytest.raises(SettingsError) as caught:
        plan(more_pools=(other,))
    (problem,) = caught.value.problems
    assert problem.key == "holdfast:nodePools[1].profile"
    assert 'pool "big" and pool "gpu"' in problem.reason
    assert "device plugin: our DaemonSet and the GPU Operator" in problem.reason


def test_an_override_does_not_lift_what_the_table_refuses(plan: Plan) -> None:
    with pytest.raises(SettingsError) as caught:
        plan(pool={"profile": "gke-cos-no-driver", **_override(driver="our DaemonSet")})
    assert [problem.key for problem in caught.value.problems] == ["holdfast:nodePools[0].profile"]
