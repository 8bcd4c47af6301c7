"""Pools that the stack only verifies: what it tells, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.cluster_resources import node_pool_membership as room
from components.cluster_resources.membership import NOTE
from components.cluster_resources.node_pool_membership import NodePoolMembershipProvider

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
BOTH = ["labels", "taint"]
PROPS: dict[str, Any] = {
    "kubeconfig": "/k",
    "context": "c",
    "cluster": "c",
    "owner": "holdfast/prod/gpu",
    "pool": "gpu",
    "selector": {"matchLabels": {"kind": "gpu"}},
    "labels": {"pool": "gpu"},
    "taint": TAINT,
}


@pytest.fixture(autouse=True)
def _nodes(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_node("gpu-0", {"kind": "gpu", "pool": "gpu"}, [dict(TAINT)])
    cluster.add_node("gpu-1", {"kind": "gpu", "pool": "gpu"}, [dict(TAINT)])
    monkeypatch.setattr(room, "connect", lambda kubeconfig, context: cluster)
    monkeypatch.setattr(room.time, "sleep", lambda seconds: None)


def up(verify: list[str], state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Check, then create or update; the new state."""
    provider = NodePoolMembershipProvider()
    checked = provider.check({}, {**PROPS, **({"verify": verify} if verify else {})})
    assert not checked.failures, checked.failures[0].reason
    return (
        provider.create(checked.inputs) if state is None else provider.update("id", state, checked.inputs)
    ).outs


def refusal(verify: list[str]) -> str:
    failures = NodePoolMembershipProvider().check({}, {**PROPS, "verify": verify}).failures
    assert len(failures) == 1
    return failures[0].reason


def test_nodes_that_have_everything_are_the_pool_and_nothing_is_written(cluster: Any) -> None:
    assert up(BOTH)["nodes"] == ["gpu-0", "gpu-1"]
    assert cluster.patches == []


def test_everything_that_the_nodes_lack_is_told_at_once_with_the_commands(cluster: Any) -> None:
    cluster.edit("gpu-0", lambda node: node["metadata"]["labels"].update(pool="cpu"))
    cluster.edit("gpu-1", lambda node: (node["metadata"]["labels"].pop("pool"), node["spec"].pop("taints")))
    assert refusal(BOTH) == (
        "Pool gpu is only verified (labels and taint), and its nodes are not what it says: gpu-0 has"
        " pool=cpu instead"
        " of pool=gpu; gpu-1 has no label pool=gpu and no taint dedicated=gpu:NoSchedule. Set it where the"
        " nodes come"
        " from, so that new ones have it too; for those that are there: `kubectl label node --overwrite"
        " gpu-0 pool=gpu"
        " && kubectl label node gpu-1 pool=gpu && kubectl taint node gpu-1 dedicated=gpu:NoSchedule`. Or let"
        " the stack"
        " do it: change: {labels: true, taint: true} of the pool in holdfast:nodePools."
    )


def test_a_taint_with_another_value_is_told_with_the_command_that_changes_it(cluster: Any) -> None:
    cluster.edit("gpu-0", lambda node: node["spec"].update(taints=[{**TAINT, "value": "db"}]))
    reason = refusal(BOTH)
    assert "gpu-0 has the taint dedicated=db:NoSchedule instead of dedicated=gpu:NoSchedule" in reason
    assert "kubectl taint node --overwrite gpu-0 dedicated=gpu:NoSchedule" in reason


@pytest.mark.parametrize(
    ("verify", "lost", "written"),
    [
        (["taint"], lambda node: node["metadata"]["labels"].pop("pool"), "labels"),
        (["labels"], lambda node: node["spec"].pop("taints"), "taints"),
    ],
)
def test_what_may_be_changed_is_changed_and_the_rest_only_looked_at(
    verify: list[str], lost: Any, written: str, cluster: Any
) -> None:
    cluster.edit("gpu-0", lost)
    up(verify)
    node = cluster.node("gpu-0")
    assert node["metadata"]["labels"]["pool"] == "gpu" and node["spec"]["taints"] == [TAINT]
    note = json.loads(node["metadata"]["annotations"][NOTE])
    assert bool(note["labels"]) is (written == "labels") and bool(note["taints"]) is (written == "taints")


def test_a_pool_that_becomes_a_verified_one_keeps_its_labels_and_taint_and_loses_the_note(
    cluster: Any,
) -> None:
    cluster.edit("gpu-0", lambda node: (node["metadata"]["labels"].pop("pool"), node["spec"].pop("taints")))
    state = up([])
    assert NOTE in cluster.node("gpu-0")["metadata"]["annotations"]
    state = up(BOTH, state)
    node = cluster.node("gpu-0")
    assert node["metadata"]["labels"]["pool"] == "gpu" and node["spec"]["taints"] == [TAINT]
    assert NOTE not in node["metadata"]["annotations"]
    NodePoolMembershipProvider().delete("id", state)
    assert cluster.node("gpu-0")["spec"]["taints"] == [TAINT]


def test_a_taint_that_becomes_a_verified_one_stays_when_the_pool_is_let_go(cluster: Any) -> None:
    cluster.edit("gpu-0", lambda node: (node["metadata"]["labels"].pop("pool"), node["spec"].pop("taints")))
    state = up(["taint"], up([]))
    assert json.loads(cluster.node("gpu-0")["metadata"]["annotations"][NOTE])["taints"] == []
    NodePoolMembershipProvider().delete("id", state)
    assert cluster.node("gpu-0")["spec"]["taints"] == [TAINT]
    assert "pool" not in cluster.node("gpu-0")["metadata"]["labels"]


def test_a_second_preview_of_a_verified_pool_is_empty_and_a_lost_taint_fails_it(cluster: Any) -> None:
    state, provider = up(BOTH), NodePoolMembershipProvider()
    checked = provider.check({}, {**PROPS, "verify": BOTH})
    assert provider.diff("id", state, checked.inputs).changes is False
    cluster.edit("gpu-1", lambda node: node["spec"].pop("taints"))
    assert "gpu-1 has no taint dedicated=gpu:NoSchedule" in refusal(BOTH)
    assert provider.read("id", state).outs["nodes"] == ["gpu-0"]


def test_nodes_that_another_stack_keeps_may_be_verified_by_this_one(cluster: Any) -> None:
    note = json.dumps({"owner": "infra/prod/gpu", "labels": {"pool": "gpu"}, "taints": [TAINT]})
    cluster.edit("gpu-0", lambda node: node["metadata"]["annotations"].update({NOTE: note}))
    assert up(BOTH)["nodes"] == ["gpu-0", "gpu-1"] and cluster.patches == []
