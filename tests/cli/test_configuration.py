"""Malformed configurations through the real engine: clear errors, and never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli.engine import ROOT, Engine

STACK = (ROOT / "Pulumi.dev.yaml").read_text()
RUNS = STACK[STACK.index("  holdfast:runs:") :]
TAG = "docker.io/holdfast/trainer:latest"

# What is written wrong in Pulumi.dev.yaml, and what the person must be told: the key, the value, and a fix.
CASES = {
    "an image by tag": ("${HOLDFAST_TRAINER_IMAGE}", TAG, ("holdfast:runs[0].image", TAG, "@sha256:")),
    "a misspelt key": (
        "gpusPerNode: 1",
        "gpuPerNode: 1",
        ("nodePools[0].gpuPerNode", "did you mean gpusPerNode?"),
    ),
    "a misspelt section": (
        "holdfast:teams",
        "holdfast:team",
        ("holdfast:team", "did you mean holdfast:teams?"),
    ),
    "a text for a number": (
        "attempt: 1",
        "attempt: one",
        ("holdfast:runs[0].attempt", '"one"', "whole number"),
    ),
    "a fractional GPU": ("gpusPerNode: 1", "gpusPerNode: 0.5", ("holdfast:nodePools[0].gpusPerNode", "0.5")),
    "an unknown profile": (
        "profile: rehearsal",
        "profile: rehersal",
        ("holdfast:nodePools[0].profile", "rehearsal"),
    ),
    "a team that is not there": (
        "team: ml-batch",
        "team: ml-bach",
        ("holdfast:runs[0].team", '"ml-bach"', "ml-batch"),
    ),
    "a pool that is not there": (
        "pool: gpu\n      image",
        "pool: cpu\n      image",
        ("holdfast:runs[0].pool", '"cpu"'),
    ),
    "an unset variable": (
        "${HOLDFAST_KUBECONFIG}",
        "${HOLDFAST_NOWHERE}",
        ("HOLDFAST_NOWHERE", "./holdfast env"),
    ),
    "a list that is a text": (RUNS, "  holdfast:runs: run-001\n", ("holdfast:runs", "a list is needed")),
    "a section with nothing below it": (RUNS, "  holdfast:runs:\n", ("holdfast:runs", "or write []")),
    "a chart without a version": (
        "      version: 26.7.0-rehearsal.1\n",
        "",
        ("holdfast:gpuOperator.chart", "version"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_configuration_is_told_without_a_traceback(
    case: str, engine: Engine, project: Callable[[str], Path], rehearsal_values: Mapping[str, str]
) -> None:
    right, wrong, words = CASES[case]
    assert right in STACK
    said = engine.run(
        project(STACK.replace(right, wrong, 1)), "preview", "--stack", "dev", **rehearsal_values
    )
    assert said.code != 0
    assert all(word in said.text for word in words), said.text
    assert "The stack's configuration has" in said.text
    assert "Traceback" not in said.text and 'File "' not in said.text, said.text


def test_all_problems_of_a_file_are_told_at_once(
    engine: Engine, project: Callable[[str], Path], rehearsal_values: Mapping[str, str]
) -> None:
    text = STACK.replace("attempt: 1", "attempt: one").replace("${HOLDFAST_TRAINER_IMAGE}", TAG)
    said = engine.run(project(text), "preview", "--stack", "dev", **rehearsal_values)
    assert "The stack's configuration has 2 problems" in said.text


def test_a_stack_made_beside_a_copy_works_without_a_salt_in_its_file(
    engine: Engine, project: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER (pulumi#17236): the key is found in the state."""
    from ops.pulumi_cli import Pulumi
    from ops.stacks import load_stack

    folder = project(STACK)
    assert engine.run(folder, "stack", "rm", "dev", "--yes", "--force", "--preserve-config").code == 0
    pulumi = Pulumi(load_stack("dev", folder), dict(engine.env), folder)
    pulumi.ensure_rehearsal_stack()
    pulumi.ensure_rehearsal_stack()
    assert pulumi.outputs() == {}
    assert (folder / "Pulumi.dev.yaml").read_text() == STACK


def test_retry_and_cancel_change_their_own_lines_only_and_keep_the_comments(
    engine: Engine, project: Callable[[str], Path]
) -> None:
    from ops.pulumi_cli import Pulumi
    from ops.stacks import load_stack

    folder = project(STACK)
    pulumi = Pulumi(load_stack("dev", folder), dict(engine.env), folder)
    pulumi.set_config("holdfast:runs[0].attempt", "2")
    assert (folder / "Pulumi.dev.yaml").read_text() == STACK.replace("attempt: 1", "attempt: 2")
    pulumi.set_config("holdfast:runs[0].cancelled", "true")
    text = (folder / "Pulumi.dev.yaml").read_text()
    assert "      cancelled: true\n" in text and "# Two cores and a small data set" in text
    run = load_stack("dev", folder).config["holdfast:runs"][0]
    assert (run["attempt"], run["cancelled"]) == (2, True)
