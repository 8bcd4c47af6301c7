"""What other people put on a node survives everything that the stack does; what the stack put there goes with it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rehearsal.api import core
from rehearsal.provisioner import volumes_dir
from tests.rehearsal.helpers import NAMESPACE, Project, events_of, is_complete, pods_of, steps, wait_for

NODE = "gpu-1"
OURS = ("dedicated", "gpu", "NoSchedule")
THEIRS = ("example.com/maintenance", "soon", "PreferNoSchedule")
JOB = "training-run-001"


@dataclass(frozen=True)
class Seen:
    """A node at one moment."""

    labels: dict[str, str]
    taints: set[tuple[str, str | None, str]]
    cordoned: bool


def look(node: str = NODE) -> Seen:
    found = core().read_node(node)
    taints = {(taint.key, taint.value, taint.effect) for taint in found.spec.taints or []}
    return Seen(dict(found.metadata.labels), taints, bool(found.spec.unschedulable))


@pytest.fixture(scope="module")
def project(tmp_path_factory, shell):
    return Project(tmp_path_factory.mktemp("project"), shell)


@pytest.fixture(scope="module")
def seen(project, kubectl):
    """The node and the run's result after each command of a stack's life, with other people's marks on the node."""
    project.up()
    wait_for("the run is complete", lambda: is_complete(JOB), seconds=150)
    result = volumes_dir() / NAMESPACE / "training-checkpoints" / "run-001" / "result.json"
    kubectl("label", "node", NODE, "example.com/rack=r7")
    kubectl("taint", "node", NODE, f"{THEIRS[0]}={THEIRS[1]}:{THEIRS[2]}")
    kubectl("cordon", NODE)
    moments, results = {}, {"first up": result.read_bytes()}
    try:
        for name, command in (
            ("refresh", lambda: project.pulumi("refresh", "--yes", "--skip-preview")),
            ("second up", project.up),
            ("destroy", lambda: project.pulumi("destroy", "--yes", "--skip-preview")),
            ("up after destroy", project.up),
        ):
            command()
            moments[name] = look()
            results[name] = result.read_bytes()
            if name == "destroy":
                moments["destroy, other node"] = look("gpu-0")
    finally:
        kubectl("uncordon", NODE)
        kubectl("taint", "node", NODE, f"{THEIRS[0]}-")
        kubectl("label", "node", NODE, "example.com/rack-")
    return moments, results


@pytest.mark.parametrize("command", ["refresh", "second up", "destroy", "up after destroy"])
def test_another_s_label_taint_and_cordon_survive(seen, command):
    node = seen[0][command]
    assert node.labels["example.com/rack"] == "r7"
    assert THEIRS in node.taints
    assert node.cordoned


@pytest.mark.parametrize("command", ["refresh", "second up", "up after destroy"])
def test_the_pool_s_own_label_and_taint_are_there(seen, command):
    node = seen[0][command]
    assert OURS in node.taints
    assert node.labels["pool"] == "gpu"


@pytest.mark.parametrize("node", ["destroy", "destroy, other node"])
def test_the_pool_s_own_label_and_taint_are_gone_after_the_destroy(seen, node):
    assert OURS not in seen[0][node].taints
    assert "pool" not in seen[0][node].labels


def test_a_destroyed_team_s_checkpoints_are_found_again_by_the_next_up(seen):
    assert len(set(seen[1].values())) == 1, "the committed result was touched"
    wait_for("the run found its result", lambda: is_complete(JOB))
    assert steps(events_of(pods_of(JOB)[-1].metadata.name), "step") == []


def test_a_taint_that_somebody_removed_comes_back_with_the_next_up(seen, project, kubectl):
    kubectl("taint", "node", "gpu-0", "dedicated=gpu:NoSchedule-")
    project.up()
    assert OURS in look("gpu-0").taints
    project.pulumi("preview", "--expect-no-changes")
