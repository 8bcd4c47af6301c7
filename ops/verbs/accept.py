"""`accept`: proof on the stack's own cluster that its runs survive what happens to them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from components.planning.stack import StackPlan, plan_stack
from components.settings.run import RunSettings
from components.settings.stack import StackSettings
from ops import console
from ops.acceptance import plan as plans
from ops.acceptance.cleanup import Cleanup, others
from ops.acceptance.facts import FAULTS, Acceptance, FaultKind, dump, faults_named
from ops.acceptance.inspector import Inspector
from ops.acceptance.recorder import ACCEPTANCE_LABEL, JOB_SETS
from ops.acceptance.turn import Taken, give_back, holder, turn
from ops.acceptance.verdict import Outcome, Verdict
from ops.errors import OpsError, describe
from ops.exit_codes import ExitCode
from ops.stacks import ROOT, Stack, environment, run_names, settings, target
from rehearsal.progress import Progress

if TYPE_CHECKING:
    from ops.acceptance.driver import Driver
    from ops.acting import ActingKube

RESULTS = ROOT / "acceptance-results"
CODES = {
    Outcome.PASSED: ExitCode.OK,
    Outcome.FAILED: ExitCode.FAILED,
    Outcome.NOT_SHOWN: ExitCode.NOT_READY,
}
CLEAN_SECONDS = 600


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    run: str = ""
    only: str = ""
    faults: Sequence[str] = ()
    controller: plans.Choice = "fit"
    timeout: float = 1800.0
    yes: bool = False


@dataclass(frozen=True)
class Place:
    """The declared run that the acceptance's own are made after, and where it is."""

    settings: StackSettings
    plan: StackPlan
    run: RunSettings

    @property
    def team(self) -> Any:
        return next(team for team in self.settings.teams if team.name == self.run.team)

    @property
    def pool(self) -> Any:
        return next(pool for pool in self.plan.pools if pool.name == self.run.pool)


def accept(
    stack: Stack, wanted: Wanted, as_json: bool, output: Path | None, junit: Path | None, ctrf: Path | None
) -> ExitCode:
    """Make the faults, judge what was seen, and write the evidence."""
    from ops.acting import ActingKube

    asked, by_name = asked_for(wanted)
    env = environment(stack)
    place = find_place(stack, settings(stack, env), wanted.run)
    api = ActingKube(target(stack, env))
    driver = prepare(stack, place, api, wanted, asked, by_name)
    consent(stack, driver, wanted.yes)
    folder = output or RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{driver.acceptance}"
    make_folder(folder)  # now, not after the minutes in which what it is for is made
    try:
        with turn(api, driver.namespace, driver.acceptance, console.error):
            facts = driver.run()
    except Taken as taken:
        raise busy([taken.holder], driver.namespace, stack) from None
    code = publish(facts, folder, as_json, junit, ctrf)
    return ExitCode.INTERRUPTED if driver.interrupted else code


def make_folder(folder: Path) -> None:
    """Raises OpsError where the evidence could not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OpsError(
            f"The evidence can not be written to {folder}: {error.strerror or error}.",
            "Name another folder with --output.",
            ExitCode.USAGE,
        ) from None


def publish(
    facts: Acceptance, folder: Path, as_json: bool, junit: Path | None, ctrf: Path | None
) -> ExitCode:
    """Write what was seen, what follows from it, and say both."""
    from ops.acceptance.evidence import write_evidence
    from ops.acceptance.judge import conclude

    raw = folder / "facts.json"
    raw.write_text(dump(facts))  # before anything judges them: they can not be had again
    try:
        verdict = conclude(facts)
        paths = write_evidence(facts, verdict, folder)
    except BaseException:
        console.error(f"What was seen is kept in {raw}.")
        raise
    raw.unlink()
    for wanted, made in ((junit, paths.junit), (ctrf, paths.ctrf)):
        if wanted is not None:
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made, wanted)
    if as_json:
        files = {name: str(getattr(paths, name)) for name in ("evidence", "report", "junit", "ctrf")}
        console.as_json({**verdict.model_dump(mode="json"), "problems": facts.problems, "files": files})
    else:
        show(verdict, facts)
        console.say(f"Evidence: {paths.evidence}")
        console.say(f"To read:  {paths.report}")
        console.say(f"Recheck:  ./holdfast accept --verify {paths.evidence}")
    return CODES[verdict.outcome]


def show(verdict: Verdict, facts: Acceptance) -> None:
    """Each fault in a line, the whole in a sentence, and what does not hold in more."""
    from ops.acceptance.summary import sentences, summary

    console.out().print(summary(facts, verdict))
    for sentence in sentences(facts, verdict):
        console.say(sentence)


def verify(file: Path, as_json: bool) -> ExitCode:
    """Recheck an evidence file: its digests, and that its verdict follows from its facts."""
    from ops.acceptance import evidence

    if not file.exists():
        raise OpsError(
            f"There is no file {file}.", "Name an evidence.json that `accept` wrote.", ExitCode.USAGE
        )
    found = evidence.verify(file)
    if as_json:
        verdict = found.verdict.model_dump(mode="json") if found.verdict else None
        console.as_json(
            {"file": str(found.path), "intact": found.intact, "judged": found.judged, "passed": found.passed,
             "sentence": found.sentence, "problems": list(found.problems), "verdict": verdict}
        )  # fmt: skip
    else:
        console.say(found.sentence)
        for problem in found.problems:
            if problem != found.sentence:  # of what is no evidence there is one thing to say
                console.say(problem)
        if found.verdict is not None and found.facts is not None:
            show(found.verdict, found.facts)
    return ExitCode.OK if found.passed else ExitCode.FAILED


def asked_for(wanted: Wanted) -> tuple[list[FaultKind], frozenset[str]]:
    """The faults, and the slugs of those that were named one by one."""
    words = [word.strip() for word in wanted.only.split(",") if word.strip()]
    named = [word.strip() for entry in wanted.faults for word in entry.split(",") if word.strip()]
    try:
        found = faults_named([*words, *named]) if words or named else list(FAULTS)
    except ValueError as error:
        raise OpsError(str(error), code=ExitCode.USAGE) from None
    slugs = {kind.slug for kind in FAULTS}
    return found, frozenset(word for word in [*words, *named] if word in slugs)


def find_place(stack: Stack, found: StackSettings, run: str) -> Place:
    """The run that --run names, else the stack's first."""
    names = run_names(stack)
    if not found.runs:
        raise OpsError(
            f"Stack {stack.name} declares no run to make the acceptance's own after.",
            "Declare one under holdfast:runs; its image, resources, team and pool are taken.",
            ExitCode.USAGE,
        )
    chosen = next((each for each in found.runs if not run or each.id == run), None)
    if chosen is None:
        raise OpsError(
            f"Stack {stack.name} declares no run {run}.", f"Its runs: {', '.join(names)}.", ExitCode.USAGE
        )
    return Place(found, plan_stack(found), chosen)


def prepare(
    stack: Stack,
    place: Place,
    api: ActingKube,
    wanted: Wanted,
    asked: Sequence[FaultKind],
    by_name: frozenset[str],
) -> Driver:
    """Look at the cluster and plan the runs. Nothing is changed yet."""
    from ops.acceptance.driver import Driver, at_once, new_id

    team, pool = place.team, place.pool
    refuse_another(api, team.namespace_name, stack)
    base = f"/api/v1/namespaces/{team.namespace_name}"
    claim = team.checkpoint_storage.claim_name
    if api.get(f"{base}/persistentvolumeclaims/{claim}") is None:
        raise OpsError(
            f"The claim {team.namespace_name}/{claim} is not on the cluster.",
            f"Bring the stack up first: ./holdfast up --stack {stack.name}",
            ExitCode.NOT_READY,
        )
    job_sets = api.get(JOB_SETS) is not None
    nodes = [node for node in api.nodes() if is_member(node, pool)]
    pods = [
        pod
        for node in nodes
        for pod in (
            api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node['metadata']['name']}") or {}
        ).get("items")
        or []
    ]
    quotas = (api.get(f"{base}/resourcequotas") or {}).get("items") or []
    usable, room = plans.slots(place.run, nodes, pods, quotas)
    ground = plans.Ground(
        rehearsal=stack.rehearsal,
        job_sets=job_sets,
        bounded_class=api.get(f"/apis/storage.k8s.io/v1/storageclasses/{plans.BOUNDED_CLASS}") is not None,
        nodes=usable,
        slots=room,
    )
    identity = new_id()
    plan = plans.plan(asked, by_name, wanted.controller, identity, place.run, claim, ground)
    return Driver(
        api=api,
        acceptance=identity,
        stack=stack.name,
        environment=place.settings.environment,
        rehearsal=stack.rehearsal,
        job_sets=job_sets,
        team=team,
        pool=pool,
        base=place.run,
        plan=plan,
        slots=at_once(plan, room) if plan.scenarios else 1,
        limit_seconds=wanted.timeout,
        progress=Progress(),
        asked=[kind.slug for kind in asked],
    )


def is_member(node: Mapping[str, Any], pool: Any) -> bool:
    """Whether a node has the labels and the taint that the pool's runs look for."""
    labels = node["metadata"].get("labels") or {}
    return pool.node_selector.items() <= labels.items()


def refuse_another(api: ActingKube, namespace: str, stack: Stack) -> None:
    """Two at once would take each other's GPUs, and one's dead node would be the other's too."""
    pods = (api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=ACCEPTANCE_LABEL) or {}).get(
        "items"
    )
    jobs = api.jobs(ACCEPTANCE_LABEL)
    mine = [job for job in jobs if job["metadata"].get("namespace") == namespace]
    if found := sorted({*others(pods or [], mine), holder(api, namespace)} - {""}):
        raise busy(found, namespace, stack)


def busy(found: Sequence[str], namespace: str, stack: Stack) -> OpsError:
    option = "" if stack.name == "dev" else f" --stack {stack.name}"
    return OpsError(
        f"Another acceptance ({', '.join(found)}) is at work in {namespace}, or was killed there.",
        f"Wait for it; or remove what it left: ./holdfast accept{option} --clean",
        ExitCode.NOT_READY,
    )


def consent(stack: Stack, driver: Driver, yes: bool) -> None:
    """Say what will be done. A cluster that is not the rehearsal is asked for, unless --yes."""
    plan = driver.plan
    for skipped in plan.skipped:
        controller = f", {skipped.controller}" if skipped.controller else ""
        driver.progress.say(
            f"Left out: ({skipped.letter}) {skipped.fault}{controller}. {skipped.reason} {skipped.what_to_do}"
        )
    if not plan.scenarios:
        raise OpsError(
            "None of the faults that were asked for can be made here; see above.", code=ExitCode.NOT_READY
        )
    words = ", ".join(planned.title for planned in plan.scenarios)
    driver.progress.say(
        f"Acceptance {driver.acceptance}: {len(plan.scenarios)} faults, {driver.slots} at a time: {words}."
    )
    if stack.rehearsal or yes:
        return
    where = f"namespace {driver.namespace} of stack {stack.name}, {driver.base.gpus} GPU(s) each"
    if not sys.stdin.isatty():
        raise OpsError(
            f"`accept` makes and disturbs runs of its own in {where}, and nobody is here to confirm it.",
            "Run it with --yes.",
            ExitCode.USAGE,
        )
    typer.confirm(
        f"Make and disturb these runs in {where}? They are removed at the end.", abort=True, err=True
    )


def clean(stack: Stack, wanted: Wanted) -> ExitCode:
    """Remove what killed acceptances left in the team's namespace, and undo what they marked."""
    from ops.acting import ActingKube

    env = environment(stack)
    place = find_place(stack, settings(stack, env), wanted.run)
    api, namespace = ActingKube(target(stack, env)), place.team.namespace_name
    if stack.rehearsal:
        from ops.acceptance import host

        for node in host.silent_nodes():  # else nobody confirms that their Pods have ended
            host.start_kubelet(node)
    selector = {"labelSelector": ACCEPTANCE_LABEL}
    pods = (api.get(f"/api/v1/namespaces/{namespace}/pods", **selector) or {}).get("items") or []
    jobs = [job for job in api.jobs(ACCEPTANCE_LABEL) if job["metadata"].get("namespace") == namespace]
    marked = marked_by(api.nodes())
    found = sorted({*others(pods, jobs), *marked, holder(api, namespace)} - {""})
    if not found:
        console.say(f"Nothing of an acceptance is left in {namespace}.")
        return ExitCode.OK
    problems: list[str] = []
    for identity in found:
        with Progress().step(f"Removing what acceptance {identity} left"):
            problems += clear(api, place, identity)
        console.say(f"Acceptance {identity}: its runs, Pods, claims and directories are removed.")
    for problem in problems:
        console.error(problem)
    return ExitCode.FAILED if problems else ExitCode.OK


def clear(api: ActingKube, place: Place, identity: str) -> list[str]:
    """Remove all of one acceptance; sentences about what is left."""
    import time

    namespace, claim = place.team.namespace_name, place.team.checkpoint_storage.claim_name
    cleanup = Cleanup(api, namespace, identity, api.get(JOB_SETS) is not None)
    problems = [*cleanup.nodes(), *cleanup.workloads()]
    problems += cleanup.onlookers()  # those of the killed one: ours would have the same name
    inspector = Inspector(api, identity, namespace, claim, place.run, place.pool, CLEAN_SECONDS, time.sleep)
    try:
        told = inspector.remove([f"accept-*-{identity}[js]"])
        problems += [told] if told else []
    except Exception as error:  # told, so that the rest is removed all the same
        problems.append(f"Directories on {claim} were left: {describe(error)[0].splitlines()[0]}")
    problems += cleanup.onlookers()
    return problems or give_back(api, namespace, identity)  # while it has its turn, `--clean` finds it again


def marked_by(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Ids of acceptances whose cordon or taint is on a node."""
    from ops.acceptance.cluster_faults import CORDON_NOTE
    from ops.recover import noted_run

    found = {str((node["metadata"].get("annotations") or {}).get(CORDON_NOTE, "")) for node in nodes}
    runs = {noted_run(node) for node in nodes}
    # accept-<fault>-<id><j|s>
    found |= {run.rsplit("-", 1)[-1][:-1] for run in runs if run.startswith("accept-")}
    return found - {""}
