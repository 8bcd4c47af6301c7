"""The two environments to copy, Pulumi.prod-eks.yaml and Pulumi.prod-gke.yaml, through the real engine without an account."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import DIGEST
from tests.cli.engine import ROOT, Engine
from tests.cli.recorded import POLICIES, Project, Turn, project, refusals

STACKS = ("prod-eks", "prod-gke")
GOLDEN = yaml.safe_load((ROOT / "tests" / "unit" / "planning" / "data" / "ownership-golden.yaml").read_text())


def environment(text: str) -> dict[str, str]:
    """A value for every ${NAME} of a stack file."""
    image = f"registry.example.com/holdfast/trainer@{DIGEST}"
    names = set(re.findall(r"\$\{(\w+)\}", text))
    return {name: "/nowhere/kubeconfig" if name.endswith("KUBECONFIG") else image for name in names}


class Deployed:
    """One of the two stacks, made once for all tests of this file."""

    def __init__(self, made: Project, stack: str) -> None:
        self.project, self.stack = made, stack
        self.text = (ROOT / f"Pulumi.{stack}.yaml").read_text()
        self.config: dict[str, Any] = yaml.safe_load(self.text)["config"]
        self.more = environment(self.text)
        made.write(stack, self.text)
        self.up = self.run("up", "--yes", *POLICIES)

    def run(self, *arguments: str) -> Turn:
        return self.project.run(*arguments, stack=self.stack, **self.more)

    @property
    def profile(self) -> str:
        """The row that the program took for the pool, as it tells the policy pack."""
        (namespace,) = [
            labels["holdfast.dev/node-profile"]
            for inputs in self.up.of("Namespace").values()
            if "holdfast.dev/node-profile" in (labels := inputs["metadata"].get("labels", {}))
        ]
        return namespace


@pytest.fixture(scope="module", params=STACKS)
def deployed(
    request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    made = Deployed(project(tmp_path_factory.mktemp(request.param), engine), request.param)
    assert made.up.said.code == 0, made.up.said.text
    yield made


def test_an_update_makes_everything_and_the_pack_has_nothing_to_say(deployed: Deployed) -> None:
    text = deployed.up.said.text
    assert "[mandatory]" not in text and "[advisory]" not in text, text
    assert "Traceback" not in text
    for kind in ("Namespace", "Release", "Job" if deployed.up.of("Job") else "JobSet"):
        assert deployed.up.of(kind), kind


def test_the_operator_has_the_values_of_the_pool_s_row(deployed: Deployed) -> None:
    values = deployed.up.of("Release")["gpu-operator"]["values"]
    wanted = GOLDEN[deployed.profile]["values"]
    assert {key: values[key] for key in wanted} == wanted


def test_a_second_preview_finds_nothing_to_do(deployed: Deployed) -> None:
    again = deployed.run("preview", "--expect-no-changes", *POLICIES)
    assert again.said.code == 0, again.said.text


def test_the_saved_state_passes_the_pack_and_a_second_driver_in_it_does_not(deployed: Deployed) -> None:
    """`pulumi policy analyze`: the pack on what is deployed, with neither program nor provider."""
    sound = deployed.run("policy", "analyze", *POLICIES)
    assert sound.said.code == 0 and sound.asked == [], sound.said.text
    state = deployed.project.state(deployed.stack)
    changed = json.loads(json.dumps(state))
    for resource in changed["deployment"]["resources"]:
        if resource["type"] == "kubernetes:helm.sh/v3:Release" and resource["urn"].endswith("::gpu-operator"):
            for part in (resource["inputs"], resource["outputs"]):
                part["values"]["driver"]["enabled"] = True
    try:
        _import(deployed, changed)
        broken = deployed.run("policy", "analyze", *POLICIES)
        assert broken.said.code != 0
        assert (
            "node-profile-agreement" in refusals(broken.said) or "node-profile-agreement" in broken.said.text
        )
    finally:
        _import(deployed, state)


def _import(deployed: Deployed, state: Mapping[str, Any]) -> None:
    file = deployed.project.folder / "state.json"
    file.write_text(json.dumps(state))
    said = deployed.run("stack", "import", "--file", str(file)).said
    assert said.code == 0, said.text


def test_a_destroy_takes_the_nodes_and_leaves_the_checkpoints(deployed: Deployed, tmp_path: Path) -> None:
    """The last test of each stack: nothing of the cloud stays, and the claim is not deleted."""
    gone = deployed.run("destroy", "--yes")
    assert gone.said.code == 0, gone.said.text
    pools = {**deployed.up.of("NodeGroup"), **deployed.up.of("NodePool")}
    assert pools
    assert {**gone.of("NodeGroup", "delete"), **gone.of("NodePool", "delete")}.keys() == pools.keys()
    assert not gone.of("PersistentVolumeClaim", "delete")
