"""Pools that somebody else runs: any platform's row, verified unless the configuration says more; and taints of theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from components.planning.stack import StackPlan

Plan = Callable[..., StackPlan]


@pytest.mark.parametrize(
    ("change", "verified"),
    [
        ({}, ("labels", "taint")),
        ({"labels": True}, ("taint",)),
        ({"taint": True}, ("labels",)),
        ({"labels": True, "taint": True}, ()),
    ],
)
def test_an_existing_pool_is_verified_where_it_may_not_be_changed(
    change: dict[str, bool], verified: tuple[str, ...], plan: Plan
) -> None:
    assert plan(pool={"kind": "existing", "change": change}).pools[0].verify == verified


def test_a_self_managed_pool_is_never_only_verified(plan: Plan) -> None:
    assert plan().pools[0].verify == ()


@pytest.mark.parametrize("profile", ["aks-image", "eks-al2023", "gke-cos-managed", "self-managed-driver"])
def test_an_existing_pool_may_be_of_any_platform_and_is_not_warned_of_its_cloud(
    profile: str, plan: Plan
) -> None:
    planned = plan(pool={"kind": "existing", "profile": profile})
    assert planned.pools[0].ownership.profile == profile and planned.operator is not None
    assert [
        warning for warning in planned.warnings if "labels and taints belong to the cloud" in warning
    ] == []


def test_on_gke_nodes_the_platforms_own_taint_is_tolerated_once(plan: Plan) -> None:
    gke = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    both = plan(pool={"kind": "existing", "profile": "gke-cos-managed"}).pools[0].tolerations
    assert [item["key"] for item in both] == ["dedicated", "nvidia.com/gpu"]
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    only = plan(pool={"kind": "existing", "profile": "gke-cos-managed", "taint": taint}).pools[0].tolerations
    assert only == [gke]


def test_a_training_pod_is_not_to_be_moved_for_a_fuller_node(plan: Plan) -> None:
    for controller in ("job", "jobset"):
        (run,) = plan(pool={"kind": "existing"}, run={"controller": controller}).runs
        spec = run.workload["spec"]
        template = (
            spec["replicatedJobs"][0]["template"]["spec"]["template"]
            if controller == "jobset"
            else spec["template"]
        )
        assert template["metadata"]["annotations"] == {
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "karpenter.sh/do-not-disrupt": "true",
        }


CILIUM = {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}


def test_operands_tolerate_a_startup_taint_and_jobs_wait_for_its_end(plan: Plan) -> None:
    planned = plan(pool={"startupTaints": [CILIUM]})
    assert planned.operator is not None
    tolerated = {"operator": "Equal", **CILIUM}
    assert tolerated in planned.operator.values["daemonsets"]["tolerations"]
    assert tolerated in planned.operator.values["node-feature-discovery"]["worker"]["tolerations"]
    pod = planned.runs[0].workload["spec"]["template"]["spec"]
    assert CILIUM["key"] not in [item["key"] for item in pod["tolerations"]]


def test_values_that_do_not_tolerate_a_startup_taint_are_warned_of(plan: Plan) -> None:
    only_ours = [{"key": "dedicated", "operator": "Exists"}]
    planned = plan(
        pool={"startupTaints": [CILIUM]}, operator={"extraValues": {"daemonsets": {"tolerations": only_ours}}}
    )
    (told,) = [warning for warning in planned.warnings if "does not tolerate" in warning]
    assert (
        "daemonsets.tolerations does not tolerate the taint node.cilium.io/agent-not-ready=true:NoExecute"
        in told
    )
