"""Which runs an acceptance makes of a declared one, and what it leaves out, said fault by fault."""

from __future__ import annotations

from typing import Any

import pytest

from components.settings.run import RunSettings
from ops.acceptance import plan as plans
from ops.acceptance.facts import FAULTS, faults_named
from ops.acceptance.recorder import ACCEPTANCE_LABEL
from ops.errors import OpsError
from ops.stacks import Stack
from ops.verbs.accept import Wanted, asked_for, find_place, marked_by

IMAGE = "docker.io/acme/trainer@sha256:" + "a" * 64
RUN = RunSettings.model_validate(
    {
        "id": "run-001", "team": "t", "pool": "gpu", "image": IMAGE, "attempt": 4, "cancelled": True,
        "command": ["/bin/mine"], "args": ["x"], "labels": {"cost": "7"}, "requests": {"cpu": "2"},
        "env": {"TOKENIZERS": "1", "HOLDFAST_DIGITS_STEPS": "9"}, "secrets": [{"name": "token"}],
    }
)  # fmt: skip
REHEARSAL = plans.Ground(rehearsal=True, job_sets=True, bounded_class=True, nodes=2, slots=2)
ELSEWHERE = plans.Ground(rehearsal=False, job_sets=True, bounded_class=False, nodes=4, slots=4)


def made(
    ground: plans.Ground = REHEARSAL, choice: plans.Choice = "fit", words: str = "", by_name: str = ""
) -> plans.Plan:
    asked = faults_named(words.split()) if words else list(FAULTS)
    return plans.plan(asked, frozenset(by_name.split()), choice, "k3v9", RUN, "claim", ground)


def test_the_rehearsal_makes_every_fault_and_leaves_none_out() -> None:
    found = made()
    assert {one.kind.slug for one in found.scenarios} == {kind.slug for kind in FAULTS}
    assert found.skipped == () and found.reference is not None


def test_deletion_and_crash_are_made_with_the_plain_job_and_what_would_wait_with_a_jobset() -> None:
    controllers = {one.kind.slug: one.controller for one in made().scenarios}
    assert controllers["pod-deletion"] == controllers["crash"] == "job"
    assert controllers["many-preemptions"] == controllers["always-crashes"] == "jobset"


def test_what_takes_a_node_away_from_everybody_comes_last_and_alone() -> None:
    slugs = [one.kind.slug for one in made().scenarios]
    assert slugs[-2:] == ["drain", "zombie"]
    assert all(one.shape.alone for one in made().scenarios if one.kind.slug in ("drain", "zombie"))


def test_a_run_has_the_declared_one_s_image_and_resources_and_nothing_that_is_not_needed() -> None:
    run = made(words="pod-deletion").scenarios[0].run
    assert run.id == "accept-pod-deletion-k3v9j"
    assert (run.image, run.requests.cpu, run.attempt, run.cancelled) == (IMAGE, "2", 1, False)
    assert run.program_args[0] == "/app/train" and run.command[0] == "/app/holdfast-run"
    assert run.secrets == () and run.env["TOKENIZERS"] == "1" and run.env["HOLDFAST_DIGITS_STEPS"] == "120"
    assert run.labels == {"cost": "7", ACCEPTANCE_LABEL: "k3v9"}
    assert run.deadline_seconds == 1200, "it ends by itself should nobody be left to remove it"


def test_every_setting_of_a_made_run_is_one_that_the_settings_would_take() -> None:
    for one in [*made(choice="both").scenarios, made().reference]:
        assert one is not None
        RunSettings.model_validate(one.run.model_dump(by_alias=True, exclude_none=True))
        # `<jobset>-trainer-0-0-xxxxx` is the longest name that comes of it.
        assert len(one.run.job_name) + len("-trainer-0-0-xxxxx") <= 63


def test_ids_of_one_acceptance_differ_by_fault_and_controller() -> None:
    ids = [one.run.id for one in made(choice="both").scenarios]
    assert len(ids) == len(set(ids))


def test_elsewhere_what_disturbs_more_than_the_run_s_pod_is_left_out_and_said() -> None:
    found = made(ELSEWHERE)
    skipped = {one.fault: one for one in found.skipped}
    assert set(skipped) == {"drain", "zombie", "two-finishers", "volume-full"}
    assert "asked for by name" in skipped["drain"].reason
    assert skipped["drain"].what_to_do == "./holdfast accept --fault drain"
    assert "kubelet" in skipped["zombie"].reason


def test_a_drain_asked_for_by_name_is_made_elsewhere_and_a_zombie_is_not() -> None:
    found = made(ELSEWHERE, words="drain zombie", by_name="drain zombie")
    assert [one.kind.slug for one in found.scenarios] == ["drain"]
    assert [one.fault for one in found.skipped] == ["zombie"]


@pytest.mark.parametrize(
    ("ground", "slug", "reason"),
    [
        (plans.Ground(True, True, True, nodes=1, slots=1), "drain", "It needs 2 nodes of the pool"),
        (plans.Ground(True, True, True, nodes=1, slots=1), "two-finishers", "It needs 2 Pods"),
        (plans.Ground(True, True, False, nodes=2, slots=2), "volume-full", "The cluster has no StorageClass"),
    ],
)
def test_what_the_cluster_has_no_room_for_is_said(ground: plans.Ground, slug: str, reason: str) -> None:
    found = made(ground, words=slug)
    assert found.scenarios == () and found.skipped[0].reason.startswith(reason)
    assert found.skipped[0].what_to_do


def test_without_jobset_the_plain_job_stands_in_unless_jobset_was_asked_for() -> None:
    ground = plans.Ground(True, False, True, nodes=2, slots=2)
    assert made(ground, words="eviction").scenarios[0].controller == "job"
    asked = made(ground, "jobset", "eviction")
    assert asked.scenarios == () and asked.skipped[0].reason == "The cluster has no JobSet controller."


def test_two_jobs_of_one_run_can_not_be_jobsets_and_that_is_said() -> None:
    found = made(choice="jobset", words="two-finishers")
    assert found.scenarios == () and "only JobSets were asked for" in found.skipped[0].reason


def test_there_is_no_reference_where_no_run_ends_with_a_result() -> None:
    assert made(words="bad-input always-crashes no-progress").reference is None
    assert made(words="bad-input crash").reference is not None


def test_the_volume_that_is_filled_is_its_own() -> None:
    assert made(words="volume-full").scenarios[0].claim == "accept-k3v9-volume-full"
    assert made(words="crash").scenarios[0].claim == "claim"


def node(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
    }


def pod(where: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    container = {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    return {"spec": {"nodeName": where, "containers": [container]}, "status": {"phase": phase}}


def test_room_is_what_nodes_and_quota_have_left() -> None:
    nodes = [node("a", 2), node("b", 2), node("c", 4, unschedulable=True)]
    assert plans.slots(RUN, nodes, [], []) == (2, 4)
    assert plans.slots(RUN, nodes, [pod("a", 2), pod("b", 1), pod("b", 1, "Succeeded")], []) == (1, 1)
    hard = {"requests.nvidia.com/gpu": "2", "pods": "10", "limits.memory": "128Gi"}
    quota = {"status": {"hard": hard, "used": {"requests.nvidia.com/gpu": "1", "pods": "1"}}}
    assert plans.slots(RUN, nodes, [], [quota]) == (2, 1)
    full = {"status": {"hard": hard, "used": {"requests.nvidia.com/gpu": "2"}}}
    assert plans.slots(RUN, nodes, [], [full]) == (2, 0)


def test_letters_and_names_are_told_apart_because_only_a_name_allows_a_drain() -> None:
    kinds, by_name = asked_for(Wanted(only="a, b"))
    assert [kind.slug for kind in kinds] == ["pod-deletion", "eviction", "drain"] and by_name == frozenset()
    kinds, by_name = asked_for(Wanted(only="a", faults=["drain"]))
    assert [kind.slug for kind in kinds] == ["pod-deletion", "drain"] and by_name == {"drain"}


def test_a_fault_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(OpsError, match="'draining' is no fault.*pod-deletion, eviction, drain"):
        asked_for(Wanted(faults=["draining"]))


def test_a_run_that_is_not_declared_is_named_with_those_that_are(tmp_path: Any) -> None:
    class Declared:
        runs = (RUN,)

    stack = Stack("dev", tmp_path, {"holdfast:runs": [{"id": "run-001"}]})
    with pytest.raises(OpsError, match="declares no run run-9.\nIts runs: run-001"):
        find_place(stack, Declared(), "run-9")  # type: ignore[arg-type]


def test_a_killed_acceptance_is_known_by_what_it_marked() -> None:
    nodes = [
        {"metadata": {"annotations": {"holdfast.dev/acceptance-cordon": "aaaa"}}},
        {"metadata": {"annotations": {"holdfast.dev/out-of-service": '{"run": "accept-zombie-bbbbs"}'}}},
        {"metadata": {"annotations": {"holdfast.dev/out-of-service": '{"run": "run-001"}'}}},
        {"metadata": {}},
    ]
    assert marked_by(nodes) == {"aaaa", "bbbb"}
