"""A run on a dead node: what state it is in, what may be done, and that it is never more than that."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer

from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.recover import (
    NOTE,
    TAINT,
    Situation,
    State,
    Verdict,
    is_fenced,
    judge,
    ours_to_remove,
    taint_change,
    unsafe_on,
    untaint_change,
)
from ops.stacks import Stack
from ops.verbs.recover import Recovery, carry_out, consent
from tests.unit.ops.fake_cluster import FakeCluster

NOW = datetime(2026, 1, 2, 3, 2, tzinfo=UTC)
DELETED = {"deletionTimestamp": "2026-01-02T03:01:30Z"}
DISRUPTED = {
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]
}
STACK = Stack("dev", Path("Pulumi.dev.yaml"), {"holdfast:runs": [{"id": "run-001"}]})


class Quiet:
    """A progress that shows nothing."""

    def step(self, _title: str, _estimate: float | None = None) -> Any:
        return nullcontext(self)

    def note(self, _text: str) -> None:
        """Nothing."""


def dead_node(**pod: Any) -> FakeCluster:
    cluster = FakeCluster()
    cluster.node("gpu-0", ready="Unknown")
    cluster.node("gpu-1")
    cluster.pod("p-1", meta=DELETED, status=DISRUPTED, **pod)
    return cluster


def recovery(cluster: FakeCluster, pause: Any = None) -> Recovery:
    ticks = iter(range(100_000))
    return Recovery(
        cluster, "run-001", Quiet(),  # type: ignore[arg-type]
        now=lambda: NOW, clock=lambda: float(next(ticks)), pause=pause or (lambda _seconds: None),
    )  # fmt: skip


def look(cluster: FakeCluster) -> Verdict:
    return recovery(cluster).look()


def test_a_terminating_pod_on_a_silent_node_is_stuck_and_may_be_freed() -> None:
    found = look(dead_node())
    assert (found.state, found.may_taint, found.fenced, found.unsafe) == (State.STUCK, True, True, ())
    assert found.sentence == (
        "Node gpu-0 is silent (Ready is Unknown) since 2026-01-02T03:00:00Z, for 120 s. Pod p-1 is "
        "Terminating (DisruptionTarget: DeletionByTaintManager), and nobody confirms that it ended, so no new "
        "one is made. "
        "Its process may go on; the generation fence keeps it from the checkpoints and the result."
    )


def test_nothing_is_done_while_the_node_is_ready() -> None:
    cluster = dead_node()
    cluster.node("gpu-0", ready="True")
    found = look(cluster)
    assert (found.state, found.may_taint) == (State.HEALTHY, False)
    with pytest.raises(OpsError, match="changed meanwhile.*gpu-0 is Ready"):
        recovery(cluster).take_out_of_service("gpu-0")
    assert cluster.log == []


def test_a_pod_that_is_not_told_to_go_yet_is_waited_for_with_its_toleration_named() -> None:
    cluster = FakeCluster()
    cluster.node("gpu-0", ready="Unknown")
    tolerations = [{"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 10}]
    cluster.pod("p-1", spec={"tolerations": tolerations})
    found = look(cluster)
    assert (found.state, found.may_taint) == (State.DYING, False)
    assert "Kubernetes tells it to go after 10 s of that." in found.sentence


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        ([], State.NO_POD),
        ([{"phase": "Succeeded"}], State.OVER),
        ([{"phase": "Pending", "node": ""}], State.NO_NODE),
        ([{"node": "gone"}], State.NODE_GONE),
    ],
)
def test_a_run_that_no_dead_node_holds_is_left_alone(pods: list[dict[str, Any]], state: State) -> None:
    cluster = FakeCluster()
    for number, pod in enumerate(pods):
        cluster.pod(f"p-{number}", **pod)
    found = look(cluster)
    assert (found.state, found.may_taint) == (state, False)


def test_an_older_finished_pod_does_not_hide_the_stuck_one() -> None:
    cluster = dead_node()
    cluster.pod("p-2", phase="Failed", born="2026-01-02T03:05:00Z")
    assert look(cluster).pod == "p-1"


def test_pods_without_a_fence_are_named_and_those_of_the_node_itself_are_not() -> None:
    cluster = FakeCluster()
    cluster.pod("run")
    cluster.pod("other-run", labels={"holdfast.dev/run": "run-002"})
    cluster.pod("no-supervisor", labels={"holdfast.dev/run": "run-003"}, command=["python3", "train.py"])
    cluster.pod("agent", labels={}, meta={"ownerReferences": [{"kind": "DaemonSet"}]})
    cluster.pod("static", labels={}, meta={"annotations": {"kubernetes.io/config.mirror": "x"}})
    cluster.pod("web", labels={}, meta={"ownerReferences": [{"kind": "ReplicaSet"}]}, command=["/web"])
    cluster.pod("bare", labels={}, command=[])
    cluster.pod("done", labels={}, phase="Succeeded")
    assert unsafe_on((cluster.get("/api/v1/pods") or {})["items"]) == [
        "ml-batch/bare (no owner)",
        "ml-batch/no-supervisor (no owner)",
        "ml-batch/web (ReplicaSet)",
    ]


def test_a_run_without_the_supervisor_is_not_called_fenced() -> None:
    found = look(dead_node(command=["python3", "train.py"]))
    assert not found.fenced and found.unsafe == ("ml-batch/p-1 (no owner)",)
    assert "nothing would fence it" in found.sentence
    assert not is_fenced({"spec": {"containers": []}})


def test_the_taint_is_added_to_those_of_others_with_the_version_that_was_read() -> None:
    node = {
        "metadata": {"name": "n", "resourceVersion": "7"},
        "spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]},
    }
    change = taint_change(node, "run-001", NOW)
    assert change is not None
    assert change["metadata"]["resourceVersion"] == "7"
    assert change["spec"]["taints"] == [*node["spec"]["taints"], TAINT]
    assert json.loads(change["metadata"]["annotations"][NOTE])["run"] == "run-001"


def test_somebody_else_s_taint_is_neither_added_again_nor_removed() -> None:
    node = {"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": [dict(TAINT)]}}
    assert taint_change(node, "run-001", NOW) is None
    assert untaint_change(node) is None
    assert ours_to_remove([node]) == []


def test_a_write_that_somebody_was_quicker_than_is_decided_anew() -> None:
    cluster = dead_node()
    cluster.conflicts = 2
    recovery(cluster).take_out_of_service("gpu-0")
    taints = cluster.objects["/api/v1/nodes/gpu-0"]["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["dedicated", TAINT["key"]]
    cluster.conflicts = 99
    with pytest.raises(OpsError, match="changed by others 5 times"):
        recovery(cluster).bring_back("gpu-0")


def kubernetes_removes(cluster: FakeCluster, after: int) -> Any:
    """A `pause` in which Pod GC does its work, and then the controller and the scheduler do theirs."""
    calls = [0]

    def pause(_seconds: float) -> None:
        calls[0] += 1
        if calls[0] == after:
            cluster.delete("/api/v1/namespaces/ml-batch/pods/p-1")
        if calls[0] == after + 2:
            cluster.pod("p-2", node="gpu-1", born="2026-01-02T03:05:00Z")

    return pause


def test_recover_taints_only_that_node_waits_for_the_next_pod_and_never_deletes_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = dead_node()
    work = recovery(cluster, kubernetes_removes(cluster, after=3))
    code = carry_out(work, STACK, yes=True, as_json=False, wait=False, also=[], timeout=None)
    out = capsys.readouterr().out
    assert code is ExitCode.OK
    assert "Pod p-2 carries run run-001 on." in out and "./holdfast recover run-001" in out
    assert cluster.log == ["patch gpu-0", "delete p-1"], "the deletion is the fake Pod GC's"
    assert all(
        taint["key"] != TAINT["key"] for taint in cluster.objects["/api/v1/nodes/gpu-1"]["spec"]["taints"]
    )


def test_a_second_call_takes_our_taint_off_once_the_node_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = dead_node()
    carry_out(recovery(cluster, kubernetes_removes(cluster, 1)), STACK, True, True, False, [], None)
    node = cluster.objects["/api/v1/nodes/gpu-0"]
    node["status"]["conditions"][0]["status"] = "True"
    capsys.readouterr()
    carry_out(recovery(cluster), STACK, True, True, False, [], None)
    told = json.loads(capsys.readouterr().out)
    assert told["done"] == ["Node gpu-0 is in service again: our taint is gone."]
    after = cluster.objects["/api/v1/nodes/gpu-0"]
    assert [taint["key"] for taint in after["spec"]["taints"]] == ["dedicated"]
    assert NOTE not in after["metadata"]["annotations"]


def test_waiting_for_a_node_that_stays_away_ends_and_says_that_the_taint_stays() -> None:
    cluster = dead_node()
    work = recovery(cluster, kubernetes_removes(cluster, 1))
    with pytest.raises(OpsError, match="node gpu-0 was not back; its taint stays") as caught:
        carry_out(work, STACK, True, True, True, [], 50)
    assert caught.value.code is ExitCode.NOT_READY


def test_a_pod_that_kubernetes_does_not_remove_ends_the_wait_in_a_sentence() -> None:
    with pytest.raises(OpsError, match="had not happened: Kubernetes to remove Pod p-1"):
        carry_out(recovery(dead_node()), STACK, True, True, False, [], 30)


STUCK = Verdict(State.STUCK, "s", "p-1", "ml-batch", "gpu-0", may_taint=True, unsafe=("a/web (ReplicaSet)",))


def test_a_pod_without_a_fence_must_be_named_even_with_yes() -> None:
    with pytest.raises(OpsError, match="--also a/web") as caught:
        consent(STUCK, yes=True, also=[])
    assert caught.value.code is ExitCode.USAGE
    consent(STUCK, yes=True, also=["a/web"])


def test_nobody_at_the_terminal_is_told_to_use_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(OpsError, match="nobody is here to confirm") as caught:
        consent(STUCK, yes=False, also=["a/web"])
    assert caught.value.code is ExitCode.USAGE


def test_a_person_who_says_no_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(typer, "confirm", lambda *_args, **_options: (_ for _ in ()).throw(typer.Abort()))
    with pytest.raises(typer.Abort):
        consent(STUCK, yes=False, also=[])


def test_a_run_that_neither_stack_nor_cluster_knows_is_a_usage_error() -> None:
    work = recovery(FakeCluster())
    work.run = "run-009"
    with pytest.raises(OpsError, match="has no run run-009") as caught:
        carry_out(work, STACK, True, False, False, [], None)
    assert caught.value.code is ExitCode.USAGE


def test_a_run_that_was_removed_since_still_gives_its_node_back(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = dead_node()
    work = recovery(cluster)
    work.take_out_of_service("gpu-0")
    node = cluster.objects["/api/v1/nodes/gpu-0"]
    node["status"]["conditions"][0]["status"] = "True"
    cluster.objects = {"/api/v1/nodes/gpu-0": node}
    carry_out(work, Stack("dev", Path("Pulumi.dev.yaml"), {}), True, False, False, [], None)
    assert "in service again" in capsys.readouterr().out
    left = cluster.objects["/api/v1/nodes/gpu-0"]["spec"]["taints"]
    assert [taint["key"] for taint in left] == ["dedicated"]


def test_judging_needs_no_cluster() -> None:
    assert judge(Situation("run-001", [], None, [], NOW)).state is State.NO_POD
