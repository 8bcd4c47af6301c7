"""`status`: nodes, operator, quotas and runs at one look, and what is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ops import console
from ops.exit_codes import ExitCode
from ops.kube import Kube
from ops.observe import observe, present
from ops.readiness import job_set_problems, operator_problems
from ops.runs import Object, Phase, RunView
from ops.stacks import Stack, cancelled_runs, environment, run_names, settings, target

GPU = "nvidia.com/gpu"
QUOTA_SELECTOR = "app.kubernetes.io/part-of=holdfast"


@dataclass(frozen=True)
class NodeView:
    """One node. `gpus` are whole devices: usable now, and found on the node."""

    name: str
    ready: bool
    schedulable: bool
    gpus_allocatable: int
    gpus_capacity: int
    taints: Sequence[str]


@dataclass(frozen=True)
class QuotaView:
    """One line of a team's quota, with the API's own quantities."""

    namespace: str
    quota: str
    resource: str
    used: str
    hard: str


@dataclass(frozen=True)
class Status:
    """Everything that `status` shows. `problems` are sentences; empty where all is well."""

    stack: str
    context: str
    version: str
    nodes: Sequence[NodeView]
    quotas: Sequence[QuotaView]
    runs: Sequence[RunView]
    not_made: Sequence[str] = ()
    cancelled: Sequence[str] = ()
    """Those of the declared runs that the stack's file calls cancelled."""
    problems: Sequence[str] = field(default_factory=tuple)


def status(stack: Stack, as_json: bool) -> ExitCode:
    """Exit code: a failed run leads, then anything not ready. A run at work or waiting is no fault."""
    found = gather(stack)
    if as_json:
        console.as_json(asdict(found))
    else:
        show(found)
    if any(run.phase is Phase.FAILED for run in found.runs):
        return ExitCode.FAILED
    return ExitCode.NOT_READY if found.problems else ExitCode.OK


def gather(stack: Stack) -> Status:
    env = environment(stack)
    problems: list[str] = []
    if stack.rehearsal:
        from rehearsal import cluster

        problems += [fault.sentence for fault in cluster.faults()]
    from components.planning.stack import plan_stack

    where, plan = target(stack, env), plan_stack(settings(stack, env))
    kube = Kube(where)
    raw = kube.nodes()
    nodes = [node_view(node) for node in raw]
    runs = [observe(kube, ref) for ref in present(kube, plan.environment)]
    problems += [f"Node {node.name} is not Ready." for node in nodes if not node.ready]
    problems += operator_problems(kube, plan, raw)
    problems += job_set_problems(kube, plan)
    made = {run.run for run in runs}
    return Status(
        stack=stack.name,
        context=where.context,
        version=kube.version(),
        nodes=nodes,
        quotas=quota_views(kube.quotas(QUOTA_SELECTOR)),
        runs=runs,
        not_made=[run for run in run_names(stack) if run not in made],
        cancelled=cancelled_runs(stack),
        problems=problems,
    )


def node_view(node: Object) -> NodeView:
    """One node as the API gives it."""
    state: Mapping[str, Any] = node.get("status") or {}
    spec: Mapping[str, Any] = node.get("spec") or {}
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in state.get("conditions") or [])
    return NodeView(
        name=node["metadata"]["name"],
        ready=ready,
        schedulable=not spec.get("unschedulable", False),
        gpus_allocatable=int((state.get("allocatable") or {}).get(GPU, 0)),
        gpus_capacity=int((state.get("capacity") or {}).get(GPU, 0)),
        taints=[taint_text(taint) for taint in spec.get("taints") or []],
    )


def taint_text(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def quota_views(quotas: Sequence[Object]) -> list[QuotaView]:
    """Used and hard of every resource of every quota, by namespace."""
    lines = []
    for quota in quotas:
        state = quota.get("status") or {}
        hard, used = state.get("hard") or {}, state.get("used") or {}
        meta = quota["metadata"]
        lines += [
            QuotaView(meta["namespace"], meta["name"], key, used.get(key, "0"), hard[key])
            for key in sorted(hard)
        ]
    return sorted(lines, key=lambda line: (line.namespace, line.quota, line.resource))


def show(found: Status) -> None:
    console.say(f"Stack {found.stack}, cluster {found.context}, Kubernetes {found.version}")
    console.say()
    nodes = console.table("Nodes", "name", "state", "GPUs usable/found", "taints")
    for node in found.nodes:
        state = ("Ready" if node.ready else "NotReady") + ("" if node.schedulable else ", cordoned")
        gpus = f"{node.gpus_allocatable}/{node.gpus_capacity}" if node.gpus_capacity else "-"
        nodes.add_row(node.name, state, gpus, ", ".join(node.taints) or "-")
    console.out().print(nodes)
    if found.quotas:
        console.say()
        quotas = console.table("Quotas", "namespace", "resource", "used", "of")
        for line in found.quotas:
            quotas.add_row(line.namespace, line.resource, line.used, line.hard)
        console.out().print(quotas)
    console.say()
    runs = console.table("Runs", "run", "phase", "attempt", "Pod", "node", "what it does or waits for")
    for run in found.runs:
        runs.add_row(run.run, run.phase, run.attempt, run.pod or "-", run.node or "-", run.sentence)
    for name in found.not_made:
        phase, sentence = (
            ("Cancelled", "its checkpoints stay; ./holdfast retry declares another attempt")
            if name in found.cancelled
            else ("-", "declared; no Job or JobSet (cleaned up after its time, or not up yet)")
        )
        runs.add_row(name, phase, *("-" for _ in range(3)), sentence)
    console.out().print(runs)
    console.say()
    if not found.problems:
        console.say("Nothing is wrong.")
    for problem in found.problems:
        console.say(f"Not as it should be: {problem}")
