"""What an upgrade changes, through the real engine: see docs/upgrades.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.cli.engine import ROOT, Engine
from tests.cli.recorded import COMMON, Project, Turn, project
from tests.cli.test_ownership_matrix import POOLS

pytestmark = pytest.mark.timeout(900)  # the first of them makes three stacks
Config = dict[str, Any]
Change = Callable[[Config], None]
ROWS = {"eks": "eks-al2023", "custom": "eks-ubuntu", "gke": "gke-cos-managed"}


def _pool(config: Config) -> dict[str, Any]:
    return config["holdfast:nodePools"][0]


def _ami(config: Config) -> None:
    _pool(config)["eks"]["releaseVersion"] = "1.34.2-20261128"


def _image(config: Config) -> None:
    _pool(config)["eks"]["imageId"] = "ami-0fedcba9876543210"


def _chart(config: Config) -> None:
    config["holdfast:gpuOperator"] = {"chart": {"version": "v26.7.1"}}


def _kubernetes(config: Config) -> None:
    _pool(config)["gke"]["version"] = "1.35.1-gke.1000000"


@pytest.fixture(scope="module")
def stacks(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Deployed stacks: nodes of EKS, of an image of one's own, and of GKE."""
    made = project(tmp_path_factory.mktemp("upgrades"), engine)
    for stack, row in ROWS.items():
        made.write(stack, _config(row))
        turn = made.run("up", "--yes", "--skip-preview", stack=stack)
        assert turn.said.code == 0, turn.said.text
    return made


def _config(row: str) -> Config:
    return {**deepcopy(dict(COMMON)), "holdfast:nodePools": [deepcopy(POOLS[row])]}


def _previewed(stacks: Project, stack: str, change: Change) -> Turn:
    config = _config(ROWS[stack])
    change(config)
    stacks.write(stack, config)
    return stacks.run("preview", "--diff", stack=stack)


def _kept(turn: Turn) -> bool:
    """Nothing would be deleted or replaced, by the preview's own count."""
    return not re.search(r"\d to (delete|replace)", turn.said.text)


def _differences(turn: Turn) -> Mapping[str, set[str]]:
    """operation -> kinds of resources that a real run would do it to."""
    found: dict[str, set[str]] = {}
    for call in turn.asked:
        if call.operation in ("create", "update", "delete"):
            found.setdefault(call.operation, set()).add(call.kind)
    return found


@pytest.mark.parametrize(
    ("stack", "change", "updated"),
    [
        ("eks", _ami, {"NodeGroup"}),
        ("custom", _image, {"LaunchTemplate", "NodeGroup"}),
        ("eks", _chart, {"Release"}),
        ("gke", _kubernetes, {"NodePool"}),
    ],
    ids=["the AMI's release", "another image", "the chart's version", "the nodes' Kubernetes version"],
)
def test_an_upgrade_is_an_update_in_place_of_what_it_is_about(
    stack: str, change: Change, updated: set[str], stacks: Project
) -> None:
    turn = _previewed(stacks, stack, change)
    assert turn.said.code == 0, turn.said.text
    assert _kept(turn), turn.said.text
    differences = _differences(turn)
    # What waits for the operator looks again after its upgrade.
    assert differences.pop("update") - {"GpuReadiness"} == updated, turn.said.text
    assert differences == {}


def test_how_many_nodes_there_are_now_is_left_to_the_autoscaler(stacks: Project) -> None:
    def more(config: Config) -> None:
        _pool(config)["eks"]["desiredSize"] = 3

    turn = _previewed(stacks, "eks", more)
    assert turn.said.code == 0 and _differences(turn) == {}, turn.said.text


@pytest.mark.parametrize("stack", ["eks", "gke"])
def test_a_renamed_pool_keeps_its_nodes_and_its_run(stack: str, stacks: Project) -> None:
    """`formerNames` makes aliases, and the pool in the cloud keeps its name: nothing is replaced, nothing new."""

    def rename(config: Config) -> None:
        _pool(config).update(name="inference", formerNames=["gpu"])
        config["holdfast:runs"][0]["pool"] = "inference"

    turn = _previewed(stacks, stack, rename)
    assert turn.said.code == 0, turn.said.text
    changed = {call.kind for call in turn.asked if call.operation in ("create", "update", "delete")}
    assert changed <= {"GpuReadiness"} and _kept(turn), turn.said.text


def test_without_its_former_name_a_renamed_pool_is_a_new_one(stacks: Project) -> None:
    def rename(config: Config) -> None:
        _pool(config)["name"] = "inference"
        config["holdfast:runs"][0]["pool"] = "inference"

    turn = _previewed(stacks, "eks", rename)
    assert "inference" in turn.of("NodeGroup"), turn.said.text


def test_a_stack_that_an_earlier_program_made_is_taken_over_as_it_is(
    engine: Engine, rehearsal_values: Mapping[str, str], tmp_path: Path
) -> None:
    """A component that gets another name or type says its former one, as an alias: without it this fails."""
    made = project(tmp_path / "earlier", engine)
    (made.folder / "tests").symlink_to(ROOT / "tests")  # where the JobSet chart of `rehearsal_values` is
    made.write("dev", (ROOT / "Pulumi.dev.yaml").read_text())
    # Saved with `pulumi stack export`; the code of the dynamic resources is cut out, it is no part of what they are.
    saved = Path(__file__).with_name("data") / "dev-before-cloud-pools.json"
    state = tmp_path / "state.json"
    named = saved.read_text().replace("::holdfast::", f"::{made.name}::")
    state.write_text(named.replace("Stack::holdfast-dev", f"Stack::{made.name}-dev"))
    imported = engine.run(made.folder, "stack", "import", "--stack", "dev", "--file", str(state))
    assert imported.code == 0, imported.text
    turn = made.run("preview", "--diff", stack="dev", **rehearsal_values)
    assert turn.said.code == 0, turn.said.text
    assert _differences(turn).keys() <= {"update"}, turn.said.text
    assert _kept(turn), turn.said.text
