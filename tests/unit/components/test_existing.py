"""Pools and operators that are there already in the whole program, against the recording engine.

Pools in a cloud: tests/processes/components, because a cloud's SDK takes seconds to import.
"""

from __future__ import annotations

from typing import Any


def test_a_verified_pool_writes_nothing_and_a_changed_kind_keeps_its_nodes(program: Any) -> None:
    run = program(lambda c: c["holdfast:nodePools"][0].update(kind="existing"))
    membership = run.one("NodePoolMembership")
    assert membership.parent == "ExistingGpuNodePool gpu"
    assert membership.inputs["verify"] == ["labels", "taint"]
    assert run.one("ExistingGpuNodePool").aliases == ("holdfast:nodepools:SelfManagedGpuNodePool",)


def test_the_reason_of_an_override_is_on_the_operators_namespace(program: Any) -> None:
    override = {"reason": "The rehearsal's image has another toolkit.", "layers": {"toolkit": "our image"}}
    run = program(lambda c: c["holdfast:nodePools"][0].update(override=override))
    metadata = run.one("Namespace", "gpu-operator").inputs["metadata"]
    assert metadata["annotations"] == {"holdfast.dev/ownership-override": override["reason"]}
    assert run.outputs["nodePools"]["gpu"]["override"] == override


def test_a_release_that_was_taken_over_keeps_its_name_and_its_objects_are_waited_for(program: Any) -> None:
    taken_over = {"namespace": "nvidia", "releaseName": "gpu-operator-1712345678"}
    run = program(lambda c: c["holdfast:gpuOperator"].update(taken_over))
    release = run.one("Release", "gpu-operator")
    assert (release.inputs["name"], release.inputs["namespace"]) == ("gpu-operator-1712345678", "nvidia")
    expectation = run.one("GpuReadiness").inputs["expectation"]
    assert expectation["deployments"] == ["gpu-operator"]  # whatever the release is called
    assert expectation["nfdDaemonSets"] == ["gpu-operator-1712345678-node-feature-discovery-worker"]


def test_an_operator_that_is_there_already_is_left_alone_and_waited_for(program: Any) -> None:
    run = program(
        lambda c: c.update({"holdfast:gpuOperator": {"install": "existing", "namespace": "nvidia"}})
    )
    made = {(r.kind, r.name) for r in run.resources if r.parent == "GpuOperator gpu-operator"}
    assert made == {("GpuReadiness", "gpu-operator-ready")}
    readiness = run.one("GpuReadiness")
    assert (readiness.inputs["namespace"], readiness.inputs["triggers"]) == ("nvidia", {})
    expectation = readiness.inputs["expectation"]
    # What its owner may have turned off is not asked for; what the pools' row needs is.
    assert expectation["daemonSets"] == ["nvidia-device-plugin-daemonset", "nvidia-operator-validator"]
    assert "nvidia-driver-daemonset" in expectation["absentDaemonSets"]
    assert expectation["nfdDaemonSets"] == []
    assert run.reaches(readiness, "NodePoolMembership", "gpu")
    assert run.reaches(run.one("Job"), "GpuReadiness", "gpu-operator-ready")
