"""Whatever ends an acceptance, nothing of it stays on the cluster, and what was seen is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from components.settings.run import RunSettings
from components.settings.team import TeamSettings
from ops.acceptance import driver as drivers
from ops.acceptance import plan as plans
from ops.acceptance.cleanup import Cleanup, is_run_of
from ops.acceptance.cluster_faults import CORDON_NOTE, ClusterFaults, cordon_change, uncordon_change
from ops.acceptance.driver import Driver, at_once, next_to_run
from ops.acceptance.facts import Acceptance, dump, faults_named, load
from ops.acceptance.lab import Lab, Unexpected
from ops.acceptance.recorder import NotInTime, Stopped
from ops.acceptance.scenarios import pods
from ops.acceptance.undo import Undo
from ops.errors import OpsError
from tests.unit.ops.fake_cluster import NAMESPACE, FakeCluster

IMAGE = "docker.io/acme/trainer@sha256:" + "a" * 64
RUN = RunSettings.model_validate({"id": "run-001", "team": NAMESPACE, "pool": "gpu", "image": IMAGE})
STORAGE = {"storageClass": "rehearsal-rwx"}
TEAM = TeamSettings.model_validate({"name": NAMESPACE, "group": "g", "checkpointStorage": STORAGE})
GROUND = plans.Ground(rehearsal=True, job_sets=False, bounded_class=True, nodes=2, slots=2)


class Pool:
    """What of a node pool's plan is asked for."""

    node_selector = {"pool": "gpu"}
    tolerations: list[dict[str, Any]] = []
    runtime_class = None


class Quiet:
    """A progress that shows nothing."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, _title: str, _estimate: float | None = None) -> Any:
        return nullcontext(self)

    def note(self, _text: str) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(drivers, "TICK_SECONDS", 0.005)
    monkeypatch.setattr(drivers, "tool_version", lambda: "0")
    made = FakeCluster()
    made.node("gpu-0")
    made.node("gpu-1")
    made.pod("somebody", labels={"holdfast.dev/run": "run-001"})
    return made


Run = Callable[..., Acceptance]


@pytest.fixture
def run(cluster: FakeCluster) -> Run:
    def carry_out(deed: Callable[[Lab], None], words: str = "drain", reference: bool = False) -> Acceptance:
        found = plans.plan(faults_named(words.split()), frozenset(), "job", "k3v9", RUN, "claim", GROUND)
        found = plans.Plan(found.reference if reference else None, found.scenarios, found.skipped)
        team = TEAM.model_copy(
            update={"checkpoint_storage": TEAM.checkpoint_storage.model_copy(update={"claim_name": "claim"})}
        )
        made = Driver(
            api=cluster, acceptance="k3v9", stack="dev", environment="dev", rehearsal=True,  # type: ignore[arg-type]
            job_sets=False, team=team, pool=Pool(), base=RUN, plan=found, slots=2,  # type: ignore[arg-type]
            limit_seconds=30, progress=Quiet(), asked=[one.kind.slug for one in found.scenarios],  # type: ignore[arg-type]
            disturb=lambda _slug: deed,
        )  # fmt: skip
        deed.driver = made  # type: ignore[attr-defined]
        return made.run()

    return carry_out


def cordon(lab: Lab) -> None:
    """The beginning of a drain, as the scenario itself does it."""
    node = "gpu-0"
    lab.undo.later(f"the cordon of {node}", lambda: pods.void(lab.faults.uncordon(node)))
    lab.act("cordon", node, lambda: {"ours": lab.faults.cordon(node)})
    assert lab.api.get(f"/api/v1/nodes/{node}")["spec"]["unschedulable"] is True  # type: ignore[index]


def left(cluster: FakeCluster) -> list[str]:
    """Names of what has the acceptance's label."""
    return [
        item["metadata"]["name"]
        for item in cluster.objects.values()
        if "holdfast.dev/acceptance" in (item["metadata"].get("labels") or {})
    ]


def assert_nothing_is_left(cluster: FakeCluster) -> None:
    assert left(cluster) == []
    node = cluster.objects["/api/v1/nodes/gpu-0"]
    assert not node["spec"].get("unschedulable") and CORDON_NOTE not in node["metadata"]["annotations"]
    assert f"/api/v1/namespaces/{NAMESPACE}/pods/somebody" in cluster.objects, "others' Pods are not touched"
    removed = [command for command in cluster.executed if "rmtree" in command[2]]
    assert removed and removed[-1][4:] == ["accept-drain-k3v9j"], "its own directory, and no other"


ENDS: list[tuple[BaseException | None, str]] = [
    (None, ""),
    (NotInTime("After 9 s this had not happened: x."), "After 9 s"),
    (Unexpected("It ended before."), "It ended before."),
    (OpsError("The exec failed."), "The exec failed."),
    (ZeroDivisionError("a bug"), "ZeroDivisionError"),
    (Stopped(), "It was stopped before its end."),
]


@pytest.mark.parametrize(("end", "words"), ENDS, ids=lambda value: type(value).__name__)
def test_every_way_out_undoes_the_cordon_and_removes_what_was_made(
    end: BaseException | None, words: str, run: Run, cluster: FakeCluster
) -> None:
    def deed(lab: Lab) -> None:
        cordon(lab)
        if end is not None:
            raise end

    facts = run(deed)
    assert_nothing_is_left(cluster)
    (scenario,) = facts.scenarios
    assert scenario.completed is (end is None)
    assert words in " ".join(scenario.problems)
    assert [action.what for action in scenario.done] == ["create", "cordon"]
    assert load(dump(facts)) == facts


def test_a_stop_in_the_middle_undoes_all_says_so_and_keeps_what_was_seen(
    run: Run, cluster: FakeCluster
) -> None:
    def deed(lab: Lab) -> None:
        cordon(lab)
        deed.driver._interrupt()  # type: ignore[attr-defined]
        lab.recorder.wait(lambda: None, "nothing that ever comes", 60)

    facts = run(deed, words="eviction drain")
    assert "It was stopped by a signal." in facts.problems
    assert not cluster.objects["/api/v1/nodes/gpu-0"]["spec"].get("unschedulable")
    assert left(cluster) == []
    assert {one.fault for one in facts.scenarios} | {one.fault for one in facts.skipped} == {
        "eviction",
        "drain",
    }


def test_a_cluster_that_refuses_to_remove_is_told_and_the_rest_is_removed(
    run: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ops.acceptance import cleanup

    monkeypatch.setattr(cleanup, "GONE_SECONDS", 0.0)

    def deed(lab: Lab) -> None:
        cordon(lab)
        cluster.refuse.append(f"DELETE /apis/batch/v1/namespaces/{NAMESPACE}/jobs")

    facts = run(deed)
    assert any("no DELETE /apis/batch" in problem for problem in facts.problems)
    assert left(cluster) == ["training-accept-drain-k3v9j"]
    assert not cluster.objects["/api/v1/nodes/gpu-0"]["spec"].get("unschedulable")


def test_one_scenario_that_fails_leaves_the_others_alone(run: Run) -> None:
    def deed(lab: Lab) -> None:
        if lab.planned.kind.slug == "crash":
            raise Unexpected("no")

    facts = run(deed, words="crash eviction pod-deletion", reference=True)
    assert {one.fault: one.completed for one in facts.scenarios} == {
        "crash": False, "eviction": True, "pod-deletion": True,
    }  # fmt: skip
    assert facts.references[0].completed and facts.scenarios[0].reference == facts.references[0].run_id


def test_what_must_be_alone_never_meets_another(run: Run) -> None:
    there: set[str] = set()
    met: list[set[str]] = []
    lock = threading.Lock()

    def deed(lab: Lab) -> None:
        with lock:
            there.add(lab.planned.kind.slug)
            met.append(set(there))
        lab.recorder.pause(0.02)
        with lock:
            there.discard(lab.planned.kind.slug)

    run(deed, words="drain crash eviction")
    assert {"drain"} in met
    assert not any("drain" in group and len(group) > 1 for group in met)
    assert any(len(group) == 2 for group in met), "the others are side by side"


def test_the_objects_of_an_acceptance_pass_for_no_run_of_the_stack(run: Run, cluster: FakeCluster) -> None:
    seen: list[dict[str, Any]] = []

    def deed(lab: Lab) -> None:
        seen.extend(lab.api.jobs("holdfast.dev/acceptance"))

    run(deed)
    assert [job["metadata"]["labels"]["holdfast.dev/environment"] for job in seen] == ["acceptance"]
    template = seen[0]["spec"]["template"]
    assert template["metadata"]["labels"]["holdfast.dev/acceptance"] == "k3v9"


def test_a_cordon_of_somebody_else_is_neither_made_ours_nor_undone(cluster: FakeCluster) -> None:
    faults = ClusterFaults(cluster, NAMESPACE, "k3v9")  # type: ignore[arg-type]
    cluster.objects["/api/v1/nodes/gpu-0"]["spec"]["unschedulable"] = True
    assert faults.cordon("gpu-0") is False
    assert faults.uncordon("gpu-0") is False
    assert cluster.objects["/api/v1/nodes/gpu-0"]["spec"]["unschedulable"] is True


def test_a_cordon_carries_the_version_that_was_read_and_only_its_owner_undoes_it() -> None:
    node = {"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {}}
    change = cordon_change(node, "k3v9")
    assert change == {
        "metadata": {"resourceVersion": "7", "annotations": {CORDON_NOTE: "k3v9"}},
        "spec": {"unschedulable": True},
    }
    ours = {"metadata": {**node["metadata"], "annotations": {CORDON_NOTE: "k3v9"}}, "spec": {}}
    assert uncordon_change(ours, "other") is None
    assert uncordon_change(ours, "k3v9") is not None


def test_what_a_killed_acceptance_left_on_nodes_is_undone_by_its_id(cluster: FakeCluster) -> None:
    ClusterFaults(cluster, NAMESPACE, "dead").cordon("gpu-0")  # type: ignore[arg-type]
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    note = {"holdfast.dev/out-of-service": '{"run": "accept-zombie-deads"}'}
    cluster.node("gpu-1", taints=[taint], annotations=note)
    assert Cleanup(cluster, NAMESPACE, "live", False).nodes() == []
    assert cluster.objects["/api/v1/nodes/gpu-0"]["spec"]["unschedulable"] is True
    assert Cleanup(cluster, NAMESPACE, "dead", False).nodes() == []
    assert "unschedulable" not in cluster.objects["/api/v1/nodes/gpu-0"]["spec"]
    assert "taints" not in cluster.objects["/api/v1/nodes/gpu-1"]["spec"]


def test_a_run_is_known_to_be_of_an_acceptance_by_its_id() -> None:
    assert is_run_of("accept-drain-k3v9s", "k3v9") and is_run_of("accept-two-finishers-k3v9j", "k3v9")
    assert not is_run_of("accept-drain-k3v9s", "3v9") and not is_run_of("run-k3v9s", "k3v9")


def test_undoing_goes_backwards_and_one_that_fails_keeps_none_from_being_undone() -> None:
    undone: list[str] = []

    def failing() -> None:
        raise OpsError("It will not go.")

    undo = Undo()
    undo.later("one", lambda: undone.append("one"))
    undo.later("two", failing)
    now = undo.later("three", lambda: undone.append("three"))
    undo.later("four", lambda: undone.append("four"))
    now()
    now()
    assert undo.run() == ["Not undone: two. It will not go."]
    assert undone == ["three", "four", "one"]
    assert undo.run() == []


def test_what_could_not_be_undone_at_once_is_tried_again_at_the_end() -> None:
    tries: list[int] = []

    def second_time() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OpsError("Not yet.")

    undo = Undo()
    now = undo.later("it", second_time)
    with pytest.raises(OpsError):
        now()
    assert undo.run() == [] and len(tries) == 2


def test_the_first_that_fits_is_next() -> None:
    found = plans.plan(
        faults_named(["crash", "two-finishers", "drain"]), frozenset(), "job", "k", RUN, "c", GROUND
    )
    crash, two, drain = found.scenarios
    assert next_to_run([crash, two, drain], 1, 2) is crash
    assert next_to_run([two, drain], 1, 2) is None
    assert next_to_run([two, drain], 2, 2) is two
    assert next_to_run([drain], 1, 2) is None


def test_no_room_at_all_is_told_with_what_to_do() -> None:
    empty = plans.Plan(None, (), ())
    assert at_once(empty, 9) == 2
    with pytest.raises(OpsError, match="no room for a run"):
        at_once(empty, 0)
