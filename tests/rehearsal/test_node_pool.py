"""What other people put on a node survives everything that the stack does; what the stack put there goes with it."""

from __future__ import annotations

import pytest

from rehearsal.api import core

NODE = "gpu-1"
THEIRS = {"key": "example.com/maintenance", "value": "soon", "effect": "PreferNoSchedule"}


def taints(node: str = NODE) -> set[tuple[str, str | None, str]]:
    found = core().read_node(node).spec.taints or []
    return {(taint.key, taint.value, taint.effect) for taint in found}


def assert_theirs_is_there() -> None:
    node = core().read_node(NODE)
    assert node.metadata.labels["example.com/rack"] == "r7"
    assert (THEIRS["key"], THEIRS["value"], THEIRS["effect"]) in taints()
    assert node.spec.unschedulable is True


@pytest.fixture
def other_people_on_the_node(kubectl):
    kubectl("label", "node", NODE, "example.com/rack=r7")
    kubectl("taint", "node", NODE, f"{THEIRS['key']}={THEIRS['value']}:{THEIRS['effect']}")
    kubectl("cordon", NODE)
    yield
    kubectl("uncordon", NODE)
    kubectl("taint", "node", NODE, f"{THEIRS['key']}-")
    kubectl("label", "node", NODE, "example.com/rack-")


def test_other_labels_taints_and_a_cordon_survive_up_refresh_a_second_up_and_destroy(
    project, other_people_on_the_node
):
    project.up()
    assert_theirs_is_there()
    project.pulumi("refresh", "--yes", "--skip-preview")
    assert_theirs_is_there()
    project.up()
    assert_theirs_is_there()
    assert ("dedicated", "gpu", "NoSchedule") in taints()
    project.pulumi("destroy", "--yes", "--skip-preview")
    assert_theirs_is_there()
    for name in ("gpu-0", NODE):
        assert ("dedicated", "gpu", "NoSchedule") not in taints(name)
        assert "pool" not in core().read_node(name).metadata.labels


def test_a_destroyed_team_s_checkpoints_are_found_again_by_the_next_up(project):
    from rehearsal.provisioner import volumes_dir
    from tests.rehearsal.helpers import NAMESPACE, events_of, is_complete, pods_of, steps, wait_for

    project.up()
    wait_for("the run is complete", lambda: is_complete("training-run-001"))
    result = volumes_dir() / NAMESPACE / "training-checkpoints" / "run-001" / "result.json"
    before = result.read_bytes()
    project.pulumi("destroy", "--yes", "--skip-preview")
    assert result.read_bytes() == before
    project.up()
    wait_for("the run found its result", lambda: is_complete("training-run-001"))
    assert steps(events_of(pods_of("training-run-001")[-1].metadata.name), "step") == []
    assert result.read_bytes() == before


def test_a_taint_that_somebody_removed_comes_back_with_the_next_up(project, kubectl):
    project.up()
    kubectl("taint", "node", "gpu-0", "dedicated=gpu:NoSchedule-")
    project.up()
    assert ("dedicated", "gpu", "NoSchedule") in taints("gpu-0")
    project.pulumi("preview", "--expect-no-changes")
