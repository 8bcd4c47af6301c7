"""Two processes of one run at a time: a zombie on a dead node, and two attempts that finish at once."""

from __future__ import annotations

from ops.acceptance import host
from ops.acceptance.lab import Lab
from ops.acceptance.recorder import NotInTime, PodRecord
from ops.acceptance.scenarios.when import after_a_checkpoint
from ops.recover import readiness
from ops.verbs.recover import Recovery

UNKNOWN_SECONDS = 120.0
DELETED_SECONDS = 60.0
FENCED_SECONDS = 60.0
BACK_SECONDS = 120.0


def zombie(lab: Lab) -> None:
    """The kubelet stops and the process lives on; `recover` frees the run; the old one meets the fence."""
    pod = after_a_checkpoint(lab)
    node = pod.node
    lab.inspector.ready(avoid=node)
    lab.snapshot("before-fault", avoid=node)
    start = lab.undo.later(f"the stopped kubelet of {node}", lambda: _start_kubelet(lab, node))
    recovery = Recovery(lab.api, lab.run_id, lab.progress, pause=lab.recorder.pause)
    taint_off = lab.undo.later(f"the taint of {node}", lambda: _untaint(lab, recovery, node))
    lab.in_background(lambda: _read_node_log(lab, pod), 0.5)
    lab.act("stop-kubelet", node, lambda: void(host.stop_kubelet(node)), pod_uid=pod.uid)
    lab.until(lambda: _silent(lab, node), f"node {node} to be Unknown", UNKNOWN_SECONDS)
    _observe_node(lab, node)
    lab.until(lambda: "deleting" in pod.seen or None, f"{pod.name} to be told to go", DELETED_SECONDS)
    verdict = recovery.look()
    lab.observe("recover-verdict", state=str(verdict.state), sentence=verdict.sentence, fenced=verdict.fenced,
                unsafe=list(verdict.unsafe), deletion_reason=verdict.deletion_reason)  # fmt: skip
    _observe_process(lab, pod)
    lab.act("add-taint", node, lambda: void(recovery.take_out_of_service(node)), taint="out-of-service")
    second = lab.running(2)
    _observe_process(lab, pod)
    lab.event(second, "start")
    _observe_process(lab, pod)
    lab.event(second, "restore")
    lab.snapshot("second-runs", avoid=node)
    _until_fenced(lab, pod)
    start()
    lab.until(lambda: _ready(lab, node), f"node {node} to be Ready again", BACK_SECONDS)
    taint_off()
    _observe_node(lab, node)
    lab.over()


def two_finishers(lab: Lab) -> None:
    """The first is frozen with all its steps done and no result; thawed when the second is as far."""
    first = lab.running(1)
    lab.event(first, "step", at_step=lab.planned.fact.steps)
    thaw = lab.undo.later(f"the freeze of {first.name}", lambda: _thaw(lab, first))
    lab.act(
        "freeze", first.name, lambda: {"pids": host.freeze(first.uid)}, pod_uid=first.uid, node=first.node
    )
    lab.snapshot("first-frozen")
    lab.create("create-second", attempt=2)
    second = lab.running(2)
    lab.event(second, "restore")
    lab.snapshot("second-restored")
    lab.event(second, "step", at_step=lab.planned.fact.steps)
    thaw()
    lab.over()


def void(_nothing: None) -> dict[str, object]:
    """The detail of a deed that answers nothing."""
    return {}


def _silent(lab: Lab, node: str) -> bool | None:
    return readiness(lab.recorder.node(node))[0] == "Unknown" or None


def _ready(lab: Lab, node: str) -> bool | None:
    return readiness(lab.recorder.node(node))[0] == "True" or None


def _start_kubelet(lab: Lab, node: str) -> None:
    lab.act("start-kubelet", node, lambda: void(host.start_kubelet(node)))


def _untaint(lab: Lab, recovery: Recovery, node: str) -> None:
    lab.act("remove-taint", node, lambda: {"ours": recovery.bring_back(node)}, taint="out-of-service")


def _thaw(lab: Lab, pod: PodRecord) -> None:
    lab.act("thaw", pod.name, lambda: {"pids": host.thaw(pod.uid)}, pod_uid=pod.uid, node=pod.node)


def _until_fenced(lab: Lab, pod: PodRecord) -> None:
    """Until the old process has met the fence and said so; that it did not is told, and for the judge."""
    try:
        lab.until(lambda: pod.said("superseded") or pod.said("end") or None,
                  "the old process to meet the fence", FENCED_SECONDS)  # fmt: skip
        lab.until(lambda: (not host.alive(pod.uid)) or None, "the old process to end", FENCED_SECONDS)
    except NotInTime as error:
        lab.problems.append(str(error))
    _observe_process(lab, pod)


def _observe_process(lab: Lab, pod: PodRecord) -> None:
    pids = host.alive(pod.uid)
    lab.observe("process-alive", pod=pod.name, uid=pod.uid, node=pod.node, pids=pids, alive=bool(pids),
                kubelet=host.kubelet_runs(pod.node))  # fmt: skip


def _observe_node(lab: Lab, node: str) -> None:
    found = lab.recorder.node(node)
    ready, since = readiness(found)
    taints = (found.get("spec") or {}).get("taints") or []
    lab.observe("node-state", node=node, ready=ready, since=since, taints=taints)


def _read_node_log(lab: Lab, pod: PodRecord) -> None:
    lab.recorder.give_log(pod.uid, host.node_log(pod.node, lab.team.namespace_name, pod.name, pod.uid))
