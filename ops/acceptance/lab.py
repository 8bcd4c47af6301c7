"""One scenario's workplace: what its fault may do, what it may wait for, and the record of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from components.planning.node_pools import NodePoolPlan
from components.planning.run import workload_manifest
from components.settings.run import RunSettings
from components.settings.team import TeamSettings
from ops.acceptance import convert
from ops.acceptance.cluster_faults import ClusterFaults
from ops.acceptance.facts import Action, Json, Observation, Snapshot
from ops.acceptance.inspector import Inspector
from ops.acceptance.plan import ENVIRONMENT, Planned
from ops.acceptance.recorder import JOB_SETS, NotInTime, PodRecord, Recorder, utc_now
from ops.acceptance.undo import Undo
from ops.errors import describe
from rehearsal.progress import Progress, Step

if TYPE_CHECKING:
    from ops.acting import ActingKube

T = TypeVar("T")

FIRST_POD_SECONDS = 600.0  # a node may have to pull the image
NEXT_POD_SECONDS = 300.0  # the plain Job's delay after the fourth failure is 80 s
EVENT_SECONDS = 180.0
END_SECONDS = 420.0
LOG_SECONDS = 20.0
HOOK_SECONDS = 90.0
# A webhook refuses for some seconds after its Deployment is Ready.
WEBHOOK = "failed calling webhook"


class Unexpected(Exception):
    """The run did something that leaves no way to make the fault: a sentence."""


@dataclass
class Lab:
    """Everything that a scenario needs. Scenarios run side by side; each has a Lab of its own."""

    planned: Planned
    api: ActingKube
    recorder: Recorder
    faults: ClusterFaults
    inspector: Inspector
    team: TeamSettings
    pool: NodePoolPlan
    rehearsal: bool
    progress: Progress
    step: Step
    undo: Undo = field(default_factory=Undo)
    done: list[Action] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return self.planned.run.id

    # Doing

    def create(self, what: str = "create", attempt: int = 1) -> None:
        """Create the run's Job or JobSet; with another attempt number a second one beside it."""
        run = self.planned.run.model_copy(update={"attempt": attempt})
        manifest = self.manifest(run)
        base = JOB_SETS if manifest["kind"] == "JobSet" else "/apis/batch/v1"
        kind = "jobsets" if manifest["kind"] == "JobSet" else "jobs"
        path = f"{base}/namespaces/{self.team.namespace_name}/{kind}"
        self.act(what, run.job_name, lambda: self._create(path, manifest), kind=manifest["kind"])

    def manifest(self, run: RunSettings) -> dict[str, Any]:
        storage = self.team.checkpoint_storage.model_copy(update={"claim_name": self.planned.claim})
        team = self.team.model_copy(update={"checkpoint_storage": storage})
        return workload_manifest(run, team, self.pool, ENVIRONMENT)

    def act(self, what: str, target: str, deed: Callable[[], Json | None], **detail: Any) -> Json:
        """Do one thing and write down when, to whom, and with what answer. Its error is the scenario's."""
        at = utc_now()
        try:
            answer = deed() or {}
        except BaseException as error:
            self.done.append(
                Action(at=at, what=what, target=target, detail={**detail, "error": describe(error)[0]})
            )
            raise
        self.done.append(
            Action(at=at, done_at=utc_now(), what=what, target=target, detail={**detail, **answer})
        )
        return answer

    def delete(self, pod: PodRecord) -> None:
        self.act("delete-pod", pod.name, lambda: self.faults.delete_pod(pod.name), pod_uid=pod.uid)

    def evict(self, pod: PodRecord) -> None:
        self.act("evict", pod.name, lambda: self.faults.evict(pod.name), pod_uid=pod.uid, node=pod.node)

    def kill_program(self, pod: PodRecord) -> None:
        self.act("kill-program", pod.name, lambda: self.faults.kill_program(pod.name), pod_uid=pod.uid)

    def snapshot(self, why: str, avoid: str = "") -> Snapshot | None:
        """The volume now. One that could not be read is a problem, and no reason to give the fault up."""
        self.step.note(f"reading the volume ({why})")
        try:
            found = self.inspector.snapshot(self.run_id, why, avoid)
        except Exception as error:  # whatever kept it from being read is told in the facts
            self.problems.append(
                f"The volume could not be read ({why}): {describe(error)[0].splitlines()[0]}"
            )
            return None
        self.snapshots.append(found)
        return found

    def observe(self, what: str, **data: Any) -> None:
        self.observations.append(Observation(at=utc_now(), what=what, data=data))

    # Waiting

    def running(self, number: int) -> PodRecord:
        """The run's Pod of that number, from 1, once its container runs."""
        seconds = FIRST_POD_SECONDS if number == 1 else NEXT_POD_SECONDS

        def check() -> PodRecord | None:
            pods = self.recorder.pods(self.run_id)
            if len(pods) < number:
                return None
            pod = pods[number - 1]
            if pod.finished and not pod.running:
                raise Unexpected(f"Pod {number} of {self.run_id} ended before it was disturbed.")
            return pod if pod.running else None

        return self.until(check, f"Pod {number} to run", seconds)

    def event(self, pod: PodRecord, kind: str, count: int = 1, at_step: int | None = None) -> Json:
        """The Pod's `count`-th event of that kind; with `at_step`, of those of that step or a later one."""

        def check() -> Json | None:
            found = [e for e in pod.said(kind) if at_step is None or (e.get("step") or 0) >= at_step]
            if len(found) >= count:
                return found[count - 1]
            if pod.finished and not pod.reading:
                raise Unexpected(f"Pod {pod.name} ended before it had said `{kind}` {count} times.")
            return None

        where = f" at step {at_step}" if at_step else ""
        return self.until(check, f"{pod.name} to say {kind}{where}", EVENT_SECONDS)

    def until(self, check: Callable[[], T | None], what: str, seconds: float) -> T:
        """Wait; a run that is over meanwhile ends the wait, because nothing more can come."""
        over_since: list[float] = []

        def guarded() -> T | None:
            found = check()
            if found is None and self.is_over():
                over_since.append(time.monotonic())
                if time.monotonic() - over_since[0] > LOG_SECONDS:
                    raise Unexpected(f"Run {self.run_id} was over before this could happen: {what}.")
            return found

        return self.recorder.wait(guarded, what, seconds, self.step, self._state)

    def is_over(self) -> bool:
        """Every Job of the run (or its JobSet) is over."""
        kind = "JobSet" if self.planned.controller == "jobset" else "Job"
        found = self.recorder.workloads(self.run_id, kind)
        return bool(found) and all(convert.is_over(item) or gone for _, item, gone in found)

    def over(self) -> None:
        """Wait until the run is over and its Pods have said their last."""
        self.recorder.wait(self.is_over, "the run to end", END_SECONDS, self.step, self._state)

        def all_said() -> bool:
            return all(
                (pod.finished or pod.gone) and not pod.reading for pod in self.recorder.pods(self.run_id)
            )

        try:
            self.recorder.wait(all_said, "the last words", LOG_SECONDS, self.step)
        except NotInTime as error:
            self.problems.append(str(error))

    def in_background(self, work: Callable[[], None], every_seconds: float) -> None:
        """Repeat `work` until the scenario ends; an error of it is told once."""
        end = threading.Event()

        def loop() -> None:
            while not end.wait(every_seconds):
                try:
                    work()
                except Exception as error:  # it only looks; the scenario goes on without it
                    self.problems.append(describe(error)[0].splitlines()[0])
                    return

        threading.Thread(target=loop, daemon=True).start()
        self.undo.later("looking on", end.set)

    def _create(self, path: str, manifest: dict[str, Any]) -> Json:
        from kubernetes.client.exceptions import ApiException

        deadline = time.monotonic() + HOOK_SECONDS
        while True:
            try:
                made = self.api.create(path, manifest)
                return {"uid": made["metadata"]["uid"]}
            except ApiException as error:
                if WEBHOOK not in str(error.body) or time.monotonic() > deadline:
                    raise
                self.step.note("waiting for the webhook of JobSet to answer")
                self.recorder.pause(1.0)

    def _state(self) -> str:
        """What there was instead of what was waited for."""
        pods = self.recorder.pods(self.run_id)
        if not pods:
            refused = [
                seen.what for seen in self.recorder.watched(self.run_id) if "FailedCreate" in seen.what
            ]
            return refused[-1] if refused else "It has no Pod."
        pod = pods[-1]
        last = pod.events[-1] if pod.events else None
        said = f", its last event {last.get('event')} (step {last.get('step')})" if last else ""
        waiting = [
            c.message or c.reason for c in convert.conditions(pod.pod) if c.status == "False" and c.message
        ]
        phase = convert.at(pod.pod, "status", "phase")
        return f"Pod {pod.name} is {phase}{said}. {' '.join(waiting[:1])}".strip()
