"""The policy pack has nothing to say of our own program: no refusal, and no rule that could not decide."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from tests.policies.conftest import Example, Judge
from tests.unit.components import conftest as components

# The program is run as the components' tests run it.
dev, program = components.dev, components.program


def _as_sent(value: Any) -> Any:
    """Inputs as the engine sends them: unknowns are one text."""
    if isinstance(value, pulumi.output.Unknown):
        return Judge.unknown
    if isinstance(value, dict):
        return {key: _as_sent(item) for key, item in value.items()}
    return [_as_sent(item) for item in value] if isinstance(value, list) else value


def _said(run: Any) -> list[tuple[str, str]]:
    judge = Judge()
    resources = [
        Example(
            resource.type,
            _as_sent(resource.inputs),
            resource.name,
            provider="cluster" if resource.type.startswith("kubernetes:") else "",
            provider_props={"context": "lab"},
        )
        for resource in run.resources
    ]
    verdicts = [judge.resource(r.type, r.props, r.name) for r in resources] + [judge.stack(*resources)]
    return [said for verdict in verdicts for said in verdict.violations + verdict.advisories]


def test_the_pack_is_silent_at_an_update(dev: Any) -> None:
    assert _said(dev) == []


def test_the_pack_is_silent_at_the_first_preview(program: Any) -> None:
    assert _said(program(preview=True)) == []


@pytest.mark.parametrize("profile", ["self-managed-driver", "self-managed-bare", "gke-cos-installer"])
def test_the_pack_is_silent_on_other_nodes(program: Any, profile: str) -> None:
    def change(config: dict[str, Any]) -> None:
        config["holdfast:nodePools"][0]["profile"] = profile

    assert _said(program(change)) == []


def _by_job_set(config: dict[str, Any]) -> None:
    config["holdfast:runs"][0]["controller"] = "jobset"
    config["holdfast:jobSet"] = {"install": "existing"}


@pytest.mark.parametrize("preview", [False, True])
def test_the_pack_is_silent_about_a_run_by_job_set_also_on_nodes_that_go(program: Any, preview: bool) -> None:
    def change(config: dict[str, Any]) -> None:
        _by_job_set(config)
        config["holdfast:nodePools"][0]["spot"] = True

    assert _said(program(change, preview=preview)) == []


def test_the_pack_knows_our_own_label_of_nodes_that_go(program: Any) -> None:
    run = program(lambda config: config["holdfast:nodePools"][0].update(spot=True))
    ((rule, message),) = _said(run)
    assert rule == "spot-without-delay" and "holdfast.dev/spot=true" in message


def test_the_pack_sees_what_a_job_set_of_ours_must_not_lose(program: Any) -> None:
    run = program(_by_job_set)
    spec = run.one("JobSet").inputs["spec"]
    spec["failurePolicy"]["rules"] = []
    spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "a:v1"
    assert {rule for rule, _ in _said(run)} == {"preemption-not-counted", "image-by-digest"}


def test_the_pack_is_not_silent_by_accident(program: Any) -> None:
    run = program()
    run.one("Release", "gpu-operator").inputs["values"]["driver"]["enabled"] = True
    run.one("Job").inputs["spec"]["template"]["spec"]["containers"][0]["image"] = "docker.io/acme/a:v1"
    run.one("PersistentVolumeClaim").inputs["spec"]["accessModes"] = ["ReadWriteOnce"]
    assert {rule for rule, _ in _said(run)} == {
        "node-profile-agreement",
        "image-by-digest",
        "checkpoint-claim",
    }
