"""Carries an acceptance out: makes its runs, disturbs each, records what it saw, and removes what it made."""

from __future__ import annotations

import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from components.planning.node_pools import NodePoolPlan
from components.settings.run import RunSettings
from components.settings.team import TeamSettings
from ops.acceptance import convert
from ops.acceptance.cleanup import Cleanup
from ops.acceptance.cluster_faults import ClusterFaults
from ops.acceptance.facts import Acceptance, ClusterFact, Comparison, Scenario, Skipped
from ops.acceptance.inspector import Inspector
from ops.acceptance.lab import Lab, Unexpected
from ops.acceptance.plan import MOST_AT_ONCE, Plan, Planned
from ops.acceptance.recorder import NotInTime, Recorder, Stopped, utc_now
from ops.acceptance.scenarios import fault
from ops.errors import OpsError, describe
from ops.exit_codes import ExitCode
from ops.stacks import ROOT
from rehearsal.progress import Progress

if TYPE_CHECKING:
    from ops.acting import ActingKube

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no word comes of it by chance
"""Of an acceptance's id, which ends the ids of its runs."""
UNDO_SECONDS = 180.0
TICK_SECONDS = 0.2


def new_id() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(4))


@dataclass
class Driver:
    """One acceptance on one cluster."""

    api: ActingKube
    acceptance: str
    stack: str
    environment: str
    rehearsal: bool
    job_sets: bool
    team: TeamSettings
    pool: NodePoolPlan
    base: RunSettings
    plan: Plan
    slots: int
    limit_seconds: float
    progress: Progress
    asked: Sequence[str] = ()
    disturb: Callable[[str], Callable[[Lab], None]] = fault
    """What is done for a slug."""
    _inspectors: dict[str, Inspector] = field(default_factory=dict)
    _finished: dict[str, Scenario] = field(default_factory=dict)
    _problems: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.namespace = self.team.namespace_name
        self.interrupted = False
        self.recorder = Recorder(self.api, self.namespace, self.acceptance, self.job_sets)
        self.faults = ClusterFaults(self.api, self.namespace, self.acceptance)
        self.cleanup = Cleanup(self.api, self.namespace, self.acceptance, self.job_sets)

    def run(self) -> Acceptance:
        """All scenarios, two at a time where there is room.

        Whatever happens, what was made is removed and what was seen is returned; `problems` says what is
        missing.
        """
        started = utc_now()
        cluster = self._cluster()
        with _signals(self._interrupt) as quiet:
            try:
                self.recorder.start()
                self._all()
                self._compare()
            except Stopped:
                pass
            except Exception as error:  # what was seen so far is worth more than a traceback
                self._problems.append(f"The acceptance was given up: {describe(error)[0].splitlines()[0]}")
            finally:
                quiet()  # from here on a signal would only leave things behind
                self._clean()
        self.recorder.stop()
        reference = self.plan.reference
        return Acceptance(
            tool_version=tool_version(),
            id=self.acceptance,
            stack=self.stack,
            environment=self.environment,
            cluster=cluster,
            image=self.base.image,
            started_at=started,
            ended_at=utc_now(),
            asked=list(self.asked),
            references=[self._finished[reference.run.id]]
            if reference and reference.run.id in self._finished
            else [],
            scenarios=[self._finished[p.run.id] for p in self.plan.scenarios if p.run.id in self._finished],
            skipped=[*self.plan.skipped, *self._not_reached()],
            problems=[*self._problems, *self.recorder.problems()],
        )

    # Scenarios, side by side

    def _all(self) -> None:
        waiting = [*([self.plan.reference] if self.plan.reference else []), *self.plan.scenarios]
        free = self.slots
        changed = threading.Condition()
        threads: list[threading.Thread] = []
        deadline = time.monotonic() + self.limit_seconds

        def work(one: Planned, taken: int) -> None:
            nonlocal free
            try:
                self._scenario(one)
            except Exception as error:  # a thread's error would be nobody's
                self._problems.append(f"{one.title}: {describe(error)[0].splitlines()[0]}")
            finally:
                with changed:
                    free += taken
                    changed.notify_all()

        try:
            with changed:
                while waiting:
                    chosen = next_to_run(waiting, free, self.slots)
                    if chosen is None:
                        changed.wait(TICK_SECONDS)
                    else:
                        waiting.remove(chosen)
                        taken = self.slots if chosen.shape.alone else chosen.shape.gpus_at_once
                        free -= taken
                        thread = threading.Thread(target=work, args=(chosen, taken), daemon=True)
                        threads.append(thread)
                        thread.start()
                    self._check_time(deadline)
            while any(thread.is_alive() for thread in threads):
                self._check_time(deadline)
                time.sleep(TICK_SECONDS)
        finally:
            # Each undoes its own; they have been woken by `stop` if the end is early.
            until = time.monotonic() + UNDO_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            if any(thread.is_alive() for thread in threads):
                self._problems.append(
                    "A scenario did not end in time; what it had changed may not be undone."
                )

    def _check_time(self, deadline: float) -> None:
        if self.recorder.stopped:
            raise Stopped
        if time.monotonic() > deadline:
            self._problems.append(
                f"The time was over (--timeout {self.limit_seconds:.0f}) before all was done."
            )
            self.recorder.stop()
            raise Stopped

    def _scenario(self, planned: Planned) -> None:
        started, completed = utc_now(), False
        with self.progress.step(planned.title) as step:
            lab = Lab(
                planned, self.api, self.recorder, self.faults, self._inspector(planned),
                self.team, self.pool, self.rehearsal, self.progress, step,
            )  # fmt: skip
            try:
                if planned.shape.bounded:
                    from ops.acceptance.scenarios.volume import claim_manifest

                    path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
                    self.api.create(path, claim_manifest(lab))
                step.note("waiting for the Pod that reads the volume")
                lab.inspector.ready()
                lab.create()
                self.disturb(planned.kind.slug)(lab)
                completed = True
            except Stopped:
                lab.problems.append("It was stopped before its end.")
            except (NotInTime, Unexpected) as error:
                lab.problems.append(str(error))
            except Exception as error:  # one scenario's failure is its own; the others go on
                lab.problems.append(describe(error)[0].replace("\n", " "))
            finally:
                step.note("undoing what was done")
                lab.problems += lab.undo.run()
            self._close(lab, started, completed)

    def _close(self, lab: Lab, started: Any, completed: bool) -> None:
        """The last look, the record, and the run's removal."""
        last = None if self.recorder.stopped else lab.snapshot("end")
        if last is not None:
            lab.snapshots.remove(last)
        planned = lab.planned
        reference = self.plan.reference
        compared = planned.shape.result and reference is not None and planned is not reference
        found = Scenario(
            letter=planned.kind.letter,
            fault=planned.kind.slug,
            title=planned.kind.title,
            controller=planned.controller,
            run_id=planned.run.id,
            reference=reference.run.id if compared and reference else "",
            namespace=self.namespace,
            run=planned.fact,
            started_at=started,
            ended_at=utc_now(),
            done=lab.done,
            attempts=self.recorder.attempts(planned.run.id),
            objects=self.recorder.objects(planned.run.id),
            volume=last,
            snapshots=sorted(lab.snapshots, key=lambda snapshot: snapshot.at),
            observations=lab.observations,
            watch=self.recorder.watched(planned.run.id),
            problems=lab.problems,
            completed=completed and last is not None,
        )
        with self._lock:
            self._finished[planned.run.id] = found
        for problem in lab.problems:
            self.progress.say(f"{planned.title}: {problem}")
        if not self.recorder.stopped:
            lab.step.note("removing its Job")
            self._problems += self.cleanup.workloads(planned.run.id)

    def _inspector(self, planned: Planned) -> Inspector:
        with self._lock:
            if planned.claim not in self._inspectors:
                self._inspectors[planned.claim] = Inspector(
                    self.api, self.acceptance, self.namespace, planned.claim, self.base, self.pool,
                    int(self.limit_seconds + UNDO_SECONDS), time.sleep,
                )  # fmt: skip
            return self._inspectors[planned.claim]

    # After them

    def _compare(self) -> None:
        """Each result's artifacts beside the reference's, while both are on the volume."""
        reference = self.plan.reference
        theirs = _artifacts(self._finished.get(reference.run.id)) if reference else {}
        for planned in self.plan.scenarios:
            found = self._finished.get(planned.run.id)
            if not found or not found.reference or not theirs:
                continue
            compared = [
                self._beside(planned, item, theirs.get(name), found.reference)
                for name, item in _artifacts(found).items()
            ]
            self._finished[planned.run.id] = found.model_copy(update={"comparisons": compared})

    def _beside(self, planned: Planned, ours: dict[str, Any], theirs: Any, reference: str) -> Comparison:
        if theirs is None:
            return Comparison(artifact=str(ours.get("name")), sha256=str(ours.get("sha256")),
                              problem="The reference has no such artifact.")  # fmt: skip
        try:
            return self._inspector(planned).compare(ours, theirs, planned.run.id, reference)
        except Exception as error:  # the hashes are there all the same
            return Comparison(
                artifact=str(ours.get("name")), sha256=str(ours.get("sha256")),
                reference_sha256=str(theirs.get("sha256")), problem=describe(error)[0].splitlines()[0],
            )  # fmt: skip

    def _clean(self) -> None:
        with self.progress.step("Removing what the acceptance made") as step:
            step.note("its Jobs and Pods")
            problems = self.cleanup.nodes()
            problems += self.cleanup.workloads()
            step.note("its directories on the volume")
            problems += self._directories()
            step.note("the Pods that read the volume")
            problems += self.cleanup.onlookers()
        self._problems += problems

    def _directories(self) -> list[str]:
        problems = []
        everything = [*([self.plan.reference] if self.plan.reference else []), *self.plan.scenarios]
        for claim, inspector in self._inspectors.items():
            mine = [planned.run.id for planned in everything if planned.claim == claim]
            if claim != self.team.checkpoint_storage.claim_name:
                continue  # a claim of its own goes as a whole
            try:
                problems += [told] if (told := inspector.remove(mine)) else []
            except Exception as error:  # told, so that the rest is removed all the same
                problems.append(f"Directories on {claim} were left: {describe(error)[0].splitlines()[0]}")
        return problems

    def _interrupt(self) -> None:
        self.interrupted = True
        self._problems.append("It was stopped by a signal.")
        self.progress.say("Stopping: what was changed is undone first.")
        self.recorder.stop()

    def _not_reached(self) -> list[Skipped]:
        return [
            Skipped(
                letter=planned.kind.letter,
                fault=planned.kind.slug,
                controller=planned.controller,
                reason="The acceptance ended before it was its turn.",
                what_to_do=f"./holdfast accept --fault {planned.kind.slug}",
                not_reached=True,
            )
            for planned in self.plan.scenarios
            if planned.run.id not in self._finished
        ]

    def _cluster(self) -> ClusterFact:
        return ClusterFact(
            server_version=self.api.version(),
            nodes=[convert.node(node) for node in self.api.nodes()],
            rehearsal=self.rehearsal,
            clock_offset_seconds=self.api.clock_offset(),
        )


def next_to_run(waiting: Sequence[Planned], free: int, slots: int) -> Planned | None:
    """The first that fits into the free slots; one that must be alone needs all of them."""
    for planned in waiting:
        if (slots if planned.shape.alone else planned.shape.gpus_at_once) <= free:
            return planned
    return None


def at_once(plan: Plan, room: int) -> int:
    """How many Pods of the runs' size may be there at the same time."""
    most = max([MOST_AT_ONCE, *(planned.shape.gpus_at_once for planned in plan.scenarios)])
    if room < 1:
        raise OpsError(
            "There is no room for a run: the pool's GPUs or the team's quota are used up.",
            "./holdfast status shows both. Free a GPU, or raise the quota.",
            ExitCode.NOT_READY,
        )
    return min(most, room)


def tool_version() -> str:
    """Of the checkout, `git describe`; else what pyproject.toml says."""
    import tomllib

    described = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--tags"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    return f"{version} ({described.stdout.strip()})" if described.returncode == 0 else version


def _artifacts(scenario: Scenario | None) -> dict[str, dict[str, Any]]:
    """The result's artifacts by name, as result.json has them."""
    result = scenario.volume.inspect.get("result") if scenario and scenario.volume else None
    found = result.get("artifacts") if isinstance(result, dict) else None
    return {str(item.get("name")): item for item in found or [] if isinstance(item, dict)}


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """SIGINT, SIGTERM and SIGHUP end the acceptance in order. Yields what has them ignored from then on."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in numbers}

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
