"""The pool's dynamic resource as the engine drives it, against a cluster in memory."""

from __future__ import annotations

import base64
from typing import Any

import pulumi
import pytest
from pulumi.dynamic.dynamic import serialize_provider

from components.cluster_resources import node_pool_membership as room
from components.cluster_resources.errors import ClusterProblem
from components.cluster_resources.node_pool_membership import NodePoolMembershipProvider

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
PROPS: dict[str, Any] = {
    "kubeconfig": "/k",
    "context": "c",
    "cluster": "c",
    "owner": "holdfast/dev/gpu",
    "pool": "gpu",
    "selector": {"matchLabels": {"kind": "gpu"}},
    "labels": {"pool": "gpu"},
    "taint": TAINT,
}


@pytest.fixture(autouse=True)
def _two_gpu_nodes(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_node("system-0", {"kind": "system"})
    cluster.add_node("gpu-0", {"kind": "gpu"})
    cluster.add_node("gpu-1", {"kind": "gpu"})
    monkeypatch.setattr(room, "connect", lambda kubeconfig, context: cluster)
    monkeypatch.setattr(room.time, "sleep", lambda seconds: None)


class Engine:
    """What the engine does with one resource: check, diff, then create, update, or nothing."""

    def __init__(self) -> None:
        self.provider, self.state = NodePoolMembershipProvider(), None

    def preview(self, props: dict[str, Any]) -> bool:
        """True if something would change."""
        checked = self.provider.check({}, dict(props))
        assert not checked.failures, checked.failures[0].reason
        return self.state is None or bool(self.provider.diff("id", self.state, checked.inputs).changes)

    def up(self, props: dict[str, Any]) -> bool:
        changed = self.preview(props)
        inputs = self.provider.check({}, dict(props)).inputs
        if self.state is None:
            self.state = self.provider.create(inputs).outs
        elif changed:
            self.state = self.provider.update("id", self.state, inputs).outs
        return changed

    def refresh(self) -> None:
        self.state = self.provider.read("id", self.state).outs

    def failure(self, props: dict[str, Any]) -> str:
        failures = self.provider.check({}, dict(props)).failures
        assert len(failures) == 1
        return failures[0].reason


def taints(cluster: Any, name: str) -> list[dict[str, str]]:
    return cluster.node(name)["spec"].get("taints") or []


def test_up_marks_the_pools_nodes_and_no_other(cluster: Any) -> None:
    engine = Engine()
    engine.up(PROPS)
    assert engine.state["nodes"] == ["gpu-0", "gpu-1"]
    assert taints(cluster, "gpu-0") == taints(cluster, "gpu-1") == [TAINT]
    assert taints(cluster, "system-0") == [] and "pool" not in cluster.node("system-0")["metadata"]["labels"]


def test_a_second_preview_is_empty() -> None:
    engine = Engine()
    engine.up(PROPS)
    assert engine.preview(PROPS) is False


def test_a_second_preview_is_empty_after_a_refresh_too() -> None:
    engine = Engine()
    engine.up(PROPS)
    engine.refresh()
    assert engine.preview(PROPS) is False


def test_a_node_that_joins_later_is_marked_by_the_next_plain_up(cluster: Any) -> None:
    engine = Engine()
    engine.up(PROPS)
    cluster.add_node("gpu-2", {"kind": "gpu"})
    assert engine.up(PROPS) is True
    assert taints(cluster, "gpu-2") == [TAINT] and engine.state["nodes"] == ["gpu-0", "gpu-1", "gpu-2"]
    assert engine.preview(PROPS) is False


def test_a_preview_says_in_words_what_it_will_do(cluster: Any) -> None:
    inputs = NodePoolMembershipProvider().check({}, dict(PROPS)).inputs
    assert inputs["changes"][0] == "gpu-0: set label pool=gpu, set taint dedicated=gpu:NoSchedule"


def test_a_lost_taint_is_seen_by_a_refresh_and_healed(cluster: Any) -> None:
    engine = Engine()
    engine.up(PROPS)
    cluster.edit("gpu-1", lambda node: node["spec"].pop("taints"))
    engine.refresh()
    assert engine.state["nodes"] == ["gpu-0"]
    engine.up(PROPS)
    assert taints(cluster, "gpu-1") == [TAINT] and engine.state["nodes"] == ["gpu-0", "gpu-1"]


def test_a_lost_taint_is_healed_by_a_plain_up(cluster: Any) -> None:
    engine = Engine()
    engine.up(PROPS)
    cluster.edit("gpu-1", lambda node: node["spec"].pop("taints"))
    assert engine.up(PROPS) is True and taints(cluster, "gpu-1") == [TAINT]


def test_a_node_that_leaves_the_selection_is_let_go(cluster: Any) -> None:
    engine = Engine()
    engine.up(PROPS)
    cluster.edit("gpu-1", lambda node: node["metadata"]["labels"].update(kind="system"))
    assert engine.up(PROPS) is True
    assert taints(cluster, "gpu-1") == [] and engine.state["nodes"] == ["gpu-0"]


def test_a_node_that_vanished_is_no_member_any_more_and_no_error(cluster: Any) -> None:
    engine = Engine()
    engine.up(PROPS)
    del cluster.objects["/api/v1/nodes/gpu-1"]
    assert engine.up(PROPS) is True and engine.state["nodes"] == ["gpu-0"]


def test_destroy_takes_ours_and_leaves_the_rest(cluster: Any) -> None:
    other = {"key": "maintenance", "value": "now", "effect": "NoSchedule"}
    engine = Engine()
    engine.up(PROPS)
    cluster.edit(
        "gpu-0", lambda node: (node["spec"]["taints"].append(other), node["spec"].update(unschedulable=True))
    )
    engine.provider.delete("id", engine.state)
    assert taints(cluster, "gpu-0") == [other] and cluster.node("gpu-0")["spec"]["unschedulable"] is True
    assert cluster.node("gpu-0")["metadata"]["labels"] == {"kind": "gpu"}
    assert cluster.node("gpu-0")["metadata"]["annotations"] == {}


def test_destroy_of_a_node_that_vanishes_meanwhile_is_no_error(cluster: Any) -> None:
    engine = Engine()
    engine.up(PROPS)
    cluster.before_patch = lambda path: cluster.objects.pop("/api/v1/nodes/gpu-0", None)
    engine.provider.delete("id", engine.state)
    assert taints(cluster, "gpu-1") == []


def test_a_write_of_somebody_else_in_between_is_kept(cluster: Any) -> None:
    other = {"key": "maintenance", "effect": "NoSchedule"}

    def somebody(path: str) -> None:
        cluster.before_patch = lambda path: None
        cluster.edit("gpu-0", lambda node: node["spec"].update(taints=[other]))

    cluster.before_patch = somebody
    Engine().up(PROPS)
    assert taints(cluster, "gpu-0") == [other, TAINT]


def test_a_node_that_never_holds_still_is_given_up_with_a_sentence(cluster: Any) -> None:
    cluster.before_patch = lambda path: cluster.edit(path.rsplit("/", 1)[1], lambda node: None)
    with pytest.raises(ClusterProblem, match=r"Node gpu-0 was changed by somebody else at each of \d+ tries"):
        Engine().up(PROPS)


def test_a_half_finished_up_forgets_nothing(cluster: Any) -> None:
    """A create that failed leaves no state; what it did is still ours."""
    engine = Engine()
    engine.up(PROPS)
    engine.state = None
    engine.up(PROPS)
    engine.provider.delete("id", engine.state)
    assert taints(cluster, "gpu-0") == []


def test_a_conflict_fails_the_preview_and_nothing_is_written(cluster: Any) -> None:
    cluster.edit("gpu-1", lambda node: node["spec"].update(taints=[{**TAINT, "value": "db"}]))
    assert "gpu-1 has the taint dedicated=db:NoSchedule, which is not ours" in Engine().failure(PROPS)
    assert cluster.patches == []


def test_a_selector_that_takes_no_node_is_refused_with_the_command_that_helps(cluster: Any) -> None:
    reason = Engine().failure({**PROPS, "selector": {"matchLabels": {"kind": "tpu"}}})
    assert "Pool gpu has no node" in reason and "kubectl label node NAME kind=tpu" in reason


def test_a_name_that_is_no_node_is_refused_with_the_names_that_are() -> None:
    reason = Engine().failure({**PROPS, "selector": {"names": ["gpu-0", "gpu-9"]}})
    assert "does not have: gpu-9. It has: gpu-0, gpu-1, system-0" in reason


def test_an_unreachable_cluster_fails_the_preview_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(kubeconfig: str, context: str) -> None:
        raise ClusterProblem("The cluster can not be reached.")

    monkeypatch.setattr(room, "connect", unreachable)
    assert Engine().failure(PROPS) == "The cluster can not be reached."


def test_a_cluster_that_is_not_made_yet_is_no_failure_at_preview() -> None:
    checked = NodePoolMembershipProvider().check({}, {**PROPS, "kubeconfig": pulumi.UNKNOWN})
    assert not checked.failures and "nodes" not in checked.inputs


def test_another_cluster_replaces_and_another_path_to_it_only_updates() -> None:
    engine = Engine()
    engine.up(PROPS)
    other = engine.provider.diff("id", engine.state, {**engine.state, "cluster": "d"})
    path = engine.provider.diff("id", engine.state, {**engine.state, "kubeconfig": "/elsewhere"})
    assert (other.replaces, other.delete_before_replace) == (["cluster"], True)
    assert (path.changes, path.replaces) == (True, [])


def test_the_provider_is_stored_by_reference_so_that_the_state_stays_small_and_stable() -> None:
    stored = serialize_provider(NodePoolMembershipProvider())
    assert len(base64.b64decode(stored)) < 160
    assert stored == serialize_provider(NodePoolMembershipProvider())
