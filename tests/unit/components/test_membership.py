"""Which elements of a node are ours: pure decisions, no cluster."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from components.cluster_resources.errors import NodeConflict
from components.cluster_resources.membership import NOTE, Membership, join, leave, selects

OURS = Membership(
    "holdfast/dev/gpu", "gpu", {"pool": "gpu"}, {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
)
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
CORDON = {
    "key": "node.kubernetes.io/unschedulable",
    "effect": "NoSchedule",
    "timeAdded": "2026-01-01T00:00:00Z",
}


def node(
    labels: dict[str, str] | None = None, taints: list[dict[str, str]] | None = None, **more: Any
) -> dict[str, Any]:
    made = {
        "metadata": {"name": "gpu-0", "resourceVersion": "7", "labels": labels or {}, "annotations": {}},
        "spec": {"taints": taints or [], **more},
    }
    return made


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, as the API server applies it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        result[key] = merged(result.get(key), value)
    return {key: value for key, value in result.items() if value is not None}


def after(live: dict[str, Any], change: Any) -> dict[str, Any]:
    assert change is not None
    return merged(copy.deepcopy(live), change.patch)


def test_a_bare_node_gets_label_taint_and_note_under_its_resource_version() -> None:
    live = node({"zone": "a"})
    change = join(live, OURS)
    joined = after(live, change)
    assert change.patch["metadata"]["resourceVersion"] == "7"
    assert joined["metadata"]["labels"] == {"zone": "a", "pool": "gpu"}
    assert joined["spec"]["taints"] == [TAINT]
    assert change.what == ("set label pool=gpu", "set taint dedicated=gpu:NoSchedule")


def test_a_member_needs_no_write() -> None:
    live = node()
    assert join(after(live, join(live, OURS)), OURS) is None


def test_other_labels_taints_and_a_cordon_survive_joining_and_leaving() -> None:
    other = {"key": "team", "value": "x", "effect": "NoExecute"}
    live = node({"zone": "a"}, [CORDON, other], unschedulable=True)
    joined = after(live, join(live, OURS))
    assert joined["spec"]["taints"] == [CORDON, other, TAINT]
    assert joined["spec"]["unschedulable"] is True
    assert after(joined, leave(joined, OURS.owner)) == live


def test_the_patch_never_names_the_cordon_field() -> None:
    change = join(node(unschedulable=True), OURS)
    assert change is not None and set(change.patch["spec"]) == {"taints"}


def test_the_same_key_with_another_effect_is_another_taint() -> None:
    evict = {"key": "dedicated", "value": "gpu", "effect": "NoExecute"}
    live = node(taints=[evict])
    joined = after(live, join(live, OURS))
    assert joined["spec"]["taints"] == [evict, TAINT]
    assert after(joined, leave(joined, OURS.owner))["spec"]["taints"] == [evict]


def test_another_value_of_the_taint_is_a_conflict_and_not_overwritten() -> None:
    theirs = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    with pytest.raises(
        NodeConflict, match=r"gpu-0 has the taint dedicated=db:NoSchedule, which is not ours"
    ) as error:
        join(node(taints=[theirs]), OURS)
    assert "kubectl taint node gpu-0 dedicated:NoSchedule-" in str(error.value)


def test_another_value_of_the_label_is_a_conflict_and_not_overwritten() -> None:
    with pytest.raises(NodeConflict, match=r"gpu-0 has the label pool=cpu, which is not ours.*pool=gpu"):
        join(node({"pool": "cpu"}), OURS)


def test_what_was_there_before_us_stays_after_us() -> None:
    live = node({"pool": "gpu"}, [TAINT])
    joined = after(live, join(live, OURS))
    assert json.loads(joined["metadata"]["annotations"][NOTE]) == {
        "owner": OURS.owner,
        "labels": {},
        "taints": [],
    }
    assert after(joined, leave(joined, OURS.owner)) == live


def test_a_lost_taint_is_set_again() -> None:
    joined = after(node(), join(node(), OURS))
    joined["spec"]["taints"] = [CORDON]
    assert after(joined, join(joined, OURS))["spec"]["taints"] == [CORDON, TAINT]


def test_a_changed_configuration_replaces_what_is_ours() -> None:
    joined = after(node(taints=[CORDON]), join(node(taints=[CORDON]), OURS))
    new = Membership(
        OURS.owner, "gpu", {"tier": "a100"}, {"key": "dedicated", "value": "a100", "effect": "NoSchedule"}
    )
    moved = after(joined, join(joined, new))
    assert moved["metadata"]["labels"] == {"tier": "a100"}
    assert moved["spec"]["taints"] == [CORDON, {"key": "dedicated", "value": "a100", "effect": "NoSchedule"}]
    assert join(moved, new) is None


def test_a_label_that_somebody_changed_since_is_not_taken_back() -> None:
    joined = after(node(), join(node(), OURS))
    joined["metadata"]["labels"]["pool"] = "cpu"
    left = after(joined, leave(joined, OURS.owner))
    assert left["metadata"]["labels"] == {"pool": "cpu"}
    assert NOTE not in left["metadata"]["annotations"]


def test_a_taint_that_somebody_changed_since_is_not_taken_back() -> None:
    joined = after(node(), join(node(), OURS))
    joined["spec"]["taints"][0]["value"] = "db"
    left = after(joined, leave(joined, OURS.owner))
    assert left["spec"]["taints"] == [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]


def test_a_node_of_another_pool_is_a_conflict() -> None:
    joined = after(node(), join(node(), OURS))
    with pytest.raises(
        NodeConflict, match=r"belongs to holdfast/dev/gpu already, so pool big .* can not take it"
    ):
        join(joined, Membership("holdfast/dev/big", "big", OURS.labels, OURS.taint))


def test_only_its_holder_lets_a_node_go() -> None:
    joined = after(node(), join(node(), OURS))
    assert leave(joined, "holdfast/prod/gpu") is None


def test_an_unreadable_note_is_named_with_its_way_out() -> None:
    live = node()
    live["metadata"]["annotations"][NOTE] = "{"
    with pytest.raises(NodeConflict, match=r"kubectl annotate node gpu-0 holdfast.dev/node-pool-"):
        join(live, OURS)


def test_a_taint_without_value_matches_one_with_an_empty_value() -> None:
    bare = Membership(OURS.owner, "gpu", {}, {"key": "gpu", "value": "", "effect": "NoSchedule"})
    live = node(taints=[{"key": "gpu", "effect": "NoSchedule"}])
    assert "spec" not in join(live, bare).patch


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ({"matchLabels": {"zone": "a"}}, True),
        ({"matchLabels": {"zone": "a", "rack": "1"}}, False),
        ({"names": ["gpu-0"]}, True),
        ({"names": ["gpu-1"]}, False),
    ],
)
def test_a_selector_takes_nodes_by_all_its_labels_or_by_name(selector: dict[str, Any], taken: bool) -> None:
    assert selects(selector, node({"zone": "a"})) is taken
