"""The plan of a whole stack and its outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from components.planning.outputs import stack_outputs
from components.planning.stack import StackPlan

Plan = Callable[..., StackPlan]


def test_outputs_name_the_owner_of_each_layer_with_its_reason(plan: Plan) -> None:
    pool = stack_outputs(plan())["nodePools"]["gpu"]
    assert {layer: owner["owner"] for layer, owner in pool["owners"].items()} == {
        "driver": "host",
        "toolkit": "host",
        "devicePlugin": "operator",
        "nfd": "operator",
    }
    assert all(owner["reason"] for owner in pool["owners"].values())
    assert (pool["labels"], pool["taint"], pool["gpusPerNode"]) == (
        {"pool": "gpu"},
        "dedicated=gpu:NoSchedule",
        2,
    )
    assert pool["runtimeClass"] == "nvidia"


def test_outputs_say_where_a_run_is_and_how_to_follow_it(plan: Plan) -> None:
    outputs = stack_outputs(plan())
    follow = "kubectl --context lab --namespace ml-batch logs --follow job/training-run-001"
    assert outputs["runs"]["run-001"] == {
        "namespace": "ml-batch",
        "controller": "job",
        "job": "training-run-001",
        "image": "docker.io/acme/trainer@sha256:" + "a" * 64,
        "checkpointDir": "/checkpoints/run-001",
        "claim": "training-checkpoints",
        "attempt": 1,
        "cancelled": False,
        "follow": follow,
    }
    assert outputs["next"] == ["./holdfast status", follow]


def test_a_cancelled_run_is_listed_with_nothing_to_follow(plan: Plan) -> None:
    outputs = stack_outputs(plan(run={"cancelled": True}))
    assert outputs["runs"]["run-001"]["follow"] is None
    assert outputs["next"] == ["./holdfast status"]


def test_outputs_tell_what_a_destroy_leaves_of_a_team(plan: Plan) -> None:
    assert stack_outputs(plan())["teams"]["ml-batch"]["checkpointsKeptOnDestroy"] is True


def test_outputs_are_plain_data_without_a_path_of_this_machine(plan: Plan) -> None:
    text = json.dumps(stack_outputs(plan()))
    assert "/home/ada" not in text


def test_the_cluster_of_the_plan_is_the_configured_one(plan: Plan) -> None:
    planned = plan()
    assert (planned.kubeconfig, planned.context, planned.cluster_identifier) == (
        "/home/ada/.kube/config",
        "lab",
        "lab",
    )


def test_a_pool_whose_nodes_bring_everything_gets_no_operator_and_says_that_it_is_experimental(
    plan: Plan,
) -> None:
    planned = plan(pool={"profile": "eks-bottlerocket"})
    assert planned.operator is None
    assert planned.warnings[0].startswith('nodePools "gpu": profile eks-bottlerocket is experimental. ')


def test_a_cloud_pool_that_the_stack_marks_itself_is_a_warning(plan: Plan) -> None:
    assert plan(pool={"profile": "eks-al2023"}).warnings == (
        (
            'nodePools "gpu": on EKS labels and taints belong to the cloud\'s node pool. A node that the'
            " cloud replaces has them again only after the next `pulumi up`."
        ),
    )


def test_named_nodes_and_selected_nodes_are_both_plans(plan: Plan) -> None:
    named = plan(pool={"selectNodes": {"names": ["gpu-0", "gpu-1"]}}).pools[0]
    assert (named.node_names, named.match_labels) == (("gpu-0", "gpu-1"), {})
    selected = plan().pools[0]
    assert (selected.node_names, selected.match_labels) == ((), {"rack": "a"})


def test_a_plan_does_not_share_its_maps_with_the_settings(plan: Plan) -> None:
    planned = plan()
    planned.runs[0].workload["spec"]["template"]["spec"]["nodeSelector"]["pool"] = "changed"
    assert planned.pools[0].node_selector == {"pool": "gpu"}


def test_settings_and_planning_import_neither_pulumi_nor_a_cluster_client(checkout: Path) -> None:
    program = (
        "import sys, components.settings.loader, components.planning.stack,"
        " components.planning.outputs;print(sorted({name.split('.')[0] for name in sys.modules} & {'pulumi',"
        " 'pulumi_kubernetes', 'kubernetes'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
