"""Which runs an acceptance makes, with which settings, and which faults it leaves out and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from components.planning.quota import GPU, run_demand
from components.settings.quantity import parse
from components.settings.run import DEFAULT_COMMAND, RunSettings
from ops.acceptance.facts import FAULTS, REFERENCE, FaultKind, RunFact, Skipped
from ops.acceptance.recorder import ACCEPTANCE_LABEL

Controller = Literal["job", "jobset"]
Choice = Literal["job", "jobset", "both", "fit"]

ENVIRONMENT = "acceptance"
"""Value of holdfast.dev/environment on what is made here, so that no stack takes it for a run of its own."""
BOUNDED_CLASS = "rehearsal-rwx-bounded"
BOUNDED_SIZE = "64Mi"
DIGITS = "HOLDFAST_DIGITS_"
MOST_AT_ONCE = 2
ONLOOKER_PODS = 2
# The run ends by itself even if nobody is left to remove it, and then goes with the time it may stay.
DEADLINE_SECONDS = 1200
STAY_SECONDS = 600


@dataclass(frozen=True)
class Shape:
    """How a run is made for one fault, beside what all have in common.

    controllers: in which it can be made, the one that fits first.
    gpus_at_once: Pods of the run's size that it needs at the same time. nodes: nodes of the pool.
    rehearsal: only there. by_name: elsewhere only where it is asked for by name.
    bounded: on a volume of its own that is full at its size.
    result: it ends with one, which is compared with the reference's.
    """

    controllers: tuple[Controller, ...] = ("jobset", "job")
    step_seconds: float = 0.1
    checkpoint_every: int = 20
    save_seconds: float = 0.0
    fail_at_step: int = 0
    backoff_limit: int = 2
    env: Mapping[str, str] = None  # type: ignore[assignment]
    gpus_at_once: int = 1
    nodes: int = 1
    rehearsal: bool = False
    by_name: bool = False
    bounded: bool = False
    result: bool = True
    alone: bool = False
    """Nothing else runs meanwhile: it takes a node away from everybody."""


STEPS = 120
SEED = 0
SHAPES: dict[str, Shape] = {
    REFERENCE: Shape(step_seconds=0.05),
    # The plain Job first: its own delay is what a deletion and a crash are to be seen with.
    "pod-deletion": Shape(("job", "jobset")),
    "eviction": Shape(),
    "drain": Shape(nodes=2, by_name=True, alone=True),
    "kill-during-save": Shape(step_seconds=0.1, save_seconds=4.0, checkpoint_every=40),
    # The node is Unknown after 40 to 50 s, its Pod told to go 10 s later, removed 20 s after the taint; the
    # next one needs seconds to begin. The old process is to be at work through all of it.
    "zombie": Shape(step_seconds=0.9, checkpoint_every=5, nodes=2, rehearsal=True, alone=True),
    "corrupted-checkpoint": Shape(),
    # The last save holds the first attempt at its end long enough to be frozen there.
    "two-finishers": Shape(
        ("job",), step_seconds=0.07, save_seconds=4.0, checkpoint_every=40, gpus_at_once=2, rehearsal=True
    ),
    "volume-full": Shape(rehearsal=True, bounded=True, step_seconds=0.12),
    "many-preemptions": Shape(step_seconds=0.07, backoff_limit=1),
    "crash": Shape(("job", "jobset")),
    "always-crashes": Shape(step_seconds=0.05, fail_at_step=25, result=False),
    "bad-input": Shape(("job", "jobset"), env={f"{DIGITS}STEPS": "many"}, result=False),
    "no-progress": Shape(
        fail_at_step=5,
        backoff_limit=6,
        result=False,
        env={"HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS": "2"},
    ),
}


@dataclass(frozen=True)
class Planned:
    """One run that is made. `gpus_at_once` Pods of it may be there at the same time."""

    kind: FaultKind
    shape: Shape
    controller: Controller
    run: RunSettings
    fact: RunFact
    claim: str

    @property
    def title(self) -> str:
        letter = f"({self.kind.letter}) " if self.kind.letter else ""
        return f"{letter}{self.kind.slug}, {'JobSet' if self.controller == 'jobset' else 'Job'}"


@dataclass(frozen=True)
class Ground:
    """What the cluster gives. slots: Pods of the run's size that fit now; nodes: those with GPUs for one."""

    rehearsal: bool
    job_sets: bool
    bounded_class: bool
    nodes: int
    slots: int


@dataclass(frozen=True)
class Plan:
    """`reference` is None where nothing of it ends with a result."""

    reference: Planned | None
    scenarios: tuple[Planned, ...]
    skipped: tuple[Skipped, ...]


def plan(
    asked: Sequence[FaultKind],
    by_name: frozenset[str],
    choice: Choice,
    acceptance: str,
    base: RunSettings,
    claim: str,
    ground: Ground,
) -> Plan:
    """The runs of an acceptance. `base`: the declared run whose image, resources and place they have.

    by_name: slugs that were asked for one by one, not by a letter and not by default.
    """
    scenarios: list[Planned] = []
    skipped: list[Skipped] = []
    for kind in asked:
        shape = SHAPES[kind.slug]
        if refusal := _refusal(kind, shape, kind.slug in by_name, ground):
            skipped.append(refusal)
            continue
        for controller in _controllers(shape, choice):
            if controller == "jobset" and not ground.job_sets:
                if choice == "fit" and "job" in shape.controllers:
                    controller = "job"  # its delay is longer, its proof the same
                else:
                    skipped.append(_no_job_sets(kind))
                    continue
            scenarios.append(planned(kind, shape, controller, acceptance, base, claim))
        if not _controllers(shape, choice):
            skipped.append(
                Skipped(
                    letter=kind.letter,
                    fault=kind.slug,
                    controller="jobset",
                    reason="It needs two plain Jobs of one run, and only JobSets were asked for.",
                    what_to_do=f"./holdfast accept --fault {kind.slug} --controller job",
                )
            )
    scenarios.sort(key=lambda one: (one.shape.alone, one.shape.gpus_at_once))
    reference = None
    if any(one.shape.result for one in scenarios):
        kind = FaultKind("", REFERENCE, "nothing disturbs it")
        controller: Controller = "job" if choice != "jobset" or not ground.job_sets else "jobset"
        reference = planned(kind, SHAPES[REFERENCE], controller, acceptance, base, claim)
    return Plan(reference, tuple(scenarios), tuple(skipped))


def planned(
    kind: FaultKind, shape: Shape, controller: Controller, acceptance: str, base: RunSettings, claim: str
) -> Planned:
    """One run: its settings, and the same as facts."""
    run_id = f"accept-{kind.slug}-{acceptance}{'s' if controller == 'jobset' else 'j'}"
    env = {
        f"{DIGITS}STEPS": str(STEPS),
        f"{DIGITS}CHECKPOINT_EVERY": str(shape.checkpoint_every),
        f"{DIGITS}SEED": str(SEED),
        f"{DIGITS}STEP_SECONDS": f"{shape.step_seconds:g}",
        **({f"{DIGITS}SAVE_SECONDS": f"{shape.save_seconds:g}"} if shape.save_seconds else {}),
        **({f"{DIGITS}FAIL_AT_STEP": str(shape.fail_at_step)} if shape.fail_at_step else {}),
        **(shape.env or {}),
    }
    kept = {name: value for name, value in base.env.items() if not name.startswith("HOLDFAST_")}
    run = base.model_copy(
        update={
            "id": run_id,
            "attempt": 1,
            "cancelled": False,
            "controller": controller,
            # The reference program, whatever the declared run's is: it can be told to be slow or to fail.
            "command": DEFAULT_COMMAND,
            "args": None,
            "env": {**kept, **env},
            "secrets": (),
            "volumes": (),
            "labels": {**base.labels, ACCEPTANCE_LABEL: acceptance},
            "backoff_limit": shape.backoff_limit,
            "deadline_seconds": min(base.deadline_seconds, DEADLINE_SECONDS),
            "keep_finished_seconds": STAY_SECONDS,
            "unreachable_seconds": min(base.unreachable_seconds, 10),
        }
    )
    fact = RunFact(
        steps=STEPS,
        checkpoint_every=shape.checkpoint_every,
        seed=SEED,
        step_seconds=shape.step_seconds,
        save_seconds=shape.save_seconds,
        fail_at_step=shape.fail_at_step,
        gpus=run.gpus,
        backoff_limit=run.backoff_limit,
        deadline_seconds=run.deadline_seconds,
        grace_seconds=run.grace_seconds,
        unreachable_seconds=run.unreachable_seconds,
        max_attempts_without_progress=int(env.get("HOLDFAST_MAX_ATTEMPTS_WITHOUT_PROGRESS", 5)),
        env=env,
    )
    own = f"accept-{acceptance}-{kind.slug}" if shape.bounded else claim
    return Planned(kind, shape, controller, run, fact, own)


def faults_by_default() -> list[FaultKind]:
    return list(FAULTS)


def slots(
    run: RunSettings, nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]],
    quotas: Sequence[Mapping[str, Any]],
) -> tuple[int, int]:  # fmt: skip
    """(nodes of the pool with free GPUs for the run, Pods of its size that fit now).

    nodes: the pool's; pods: on them; quotas: of the namespace. Two small Pods of ours are reckoned with.
    """
    usable, fitting = 0, 0
    for node in nodes:
        if (node.get("spec") or {}).get("unschedulable"):
            continue
        name = node["metadata"]["name"]
        free = _gpus((node.get("status") or {}).get("allocatable")) - sum(
            _gpus((container.get("resources") or {}).get("requests"))
            for pod in pods
            if (pod.get("spec") or {}).get("nodeName") == name
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            for container in pod["spec"].get("containers") or []
        )
        usable += free >= run.gpus
        fitting += max(0, free) // run.gpus
    demand = run_demand(run)
    onlookers = {"pods": Decimal(ONLOOKER_PODS), "limits.cpu": Decimal(ONLOOKER_PODS)}
    for quota in quotas:
        status = quota.get("status") or {}
        for key, hard in (status.get("hard") or {}).items():
            if key in demand and demand[key] > 0:
                left = parse(str(hard)) - parse(str((status.get("used") or {}).get(key, "0")))
                fitting = min(fitting, int((left - onlookers.get(key, Decimal(0))) // demand[key]))
    return usable, max(0, fitting)


def _gpus(resources: Mapping[str, Any] | None) -> int:
    return int((resources or {}).get(GPU, 0))


def _controllers(shape: Shape, choice: Choice) -> tuple[Controller, ...]:
    if choice == "fit":
        return shape.controllers[:1]
    if choice == "both":
        return shape.controllers
    return (choice,) if choice in shape.controllers else ()


def _refusal(kind: FaultKind, shape: Shape, by_name: bool, ground: Ground) -> Skipped | None:
    def because(reason: str, what_to_do: str) -> Skipped:
        return Skipped(letter=kind.letter, fault=kind.slug, reason=reason, what_to_do=what_to_do)

    if shape.rehearsal and not ground.rehearsal:
        reason = {
            "zombie": "It stops the kubelet of a node, which only the rehearsal's machine may do.",
            "volume-full": "It fills a volume to its last byte, which only a volume of its own may be.",
            "two-finishers": "It freezes an attempt just before it commits, which only its node can do: "
            "elsewhere the first attempt is fenced as soon as the second one starts.",
        }[kind.slug]
        return because(reason, f"On the rehearsal: ./holdfast accept --stack dev --fault {kind.slug}")
    if shape.by_name and not ground.rehearsal and not by_name:
        return because(
            "It disturbs more than the run's own Pod, so it is done only where it is asked for by name.",
            f"./holdfast accept --fault {kind.slug}",
        )
    if shape.bounded and not ground.bounded_class:
        return because(
            f"The cluster has no StorageClass {BOUNDED_CLASS}, whose volumes are full at their size.",
            "Bring the rehearsal up anew: ./holdfast up",
        )
    if ground.nodes < shape.nodes:
        return because(
            f"It needs {shape.nodes} nodes of the pool with free GPUs, and there are {ground.nodes}.",
            "Free a node, or add one to the pool.",
        )
    if ground.slots < shape.gpus_at_once:
        return because(
            f"It needs {shape.gpus_at_once} Pods of the run's size at once, and GPUs and quota leave "
            f"room for {ground.slots}.",
            "Free GPUs, or raise the team's quota.",
        )
    return None


def _no_job_sets(kind: FaultKind) -> Skipped:
    return Skipped(
        letter=kind.letter,
        fault=kind.slug,
        controller="jobset",
        reason="The cluster has no JobSet controller.",
        what_to_do="Let the stack install it (holdfast:jobSet), or use --controller job.",
    )
