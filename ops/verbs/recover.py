"""`recover`: free a run whose node is dead, by Kubernetes' own way, and undo that when the node is back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import typer

from ops import console
from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.kube import RUN_LABEL
from ops.recover import (
    Situation,
    State,
    Verdict,
    judge,
    node_name,
    noted_run,
    ours_to_remove,
    still_out,
    stuck_pod,
    taint_change,
    untaint_change,
)
from ops.runs import Object, name_of
from ops.stacks import Stack, environment, run_names, target
from rehearsal.progress import Progress, Step

GONE_SECONDS = 120.0
"""Pod GC looks every 20 s (podgc's gcCheckPeriod); six times that is a fault of its own."""
NEXT_SECONDS = 900.0
"""A plain Job waits up to 600 s before the Pod after a failed one; then it is scheduled and started."""
TRIES = 5
INTERVAL_SECONDS = 1.0


class Api(Protocol):
    """What is needed of a cluster; ops.acting.ActingKube has it."""

    def get(self, path: str, **query: str) -> dict[str, Any] | None: ...
    def nodes(self) -> list[dict[str, Any]]: ...
    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...


@dataclass
class Recovery:
    """One run on one cluster. Every wait has a limit and says what it waits for."""

    api: Api
    run: str
    progress: Progress
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    done: list[str] = field(default_factory=list)
    """What was changed, in sentences."""

    def situation(self) -> Situation:
        pods = self._pods(labelSelector=f"{RUN_LABEL}={self.run}")
        pod = stuck_pod(pods)
        name = node_name(pod) if pod else ""
        node = self.api.get(f"/api/v1/nodes/{name}") if name else None
        return Situation(self.run, pods, node, self._pods(fieldSelector=f"spec.nodeName={name}"), self.now())

    def look(self) -> Verdict:
        return judge(self.situation())

    def take_out_of_service(self, node: str) -> None:
        """Apply the taint to that node only. Raises OpsError when the node is Ready by now."""

        def change(found: Object) -> dict[str, Any] | None:
            verdict = self.look()
            if verdict.state not in (State.STUCK, State.FREEING) or verdict.node != node:
                raise OpsError(f"It has changed meanwhile. {verdict.sentence}", code=ExitCode.NOT_READY)
            return taint_change(found, self.run, self.now())

        if self._change(node, change):
            self.done.append(f"Node {node} is marked out of service.")

    def bring_back(self, node: str) -> bool:
        """Take our taint off; False where it is not ours or gone already."""
        if changed := self._change(node, untaint_change):
            self.done.append(f"Node {node} is in service again: our taint is gone.")
        return changed

    def wait_for_next(self, stuck: str, gone_seconds: float, next_seconds: float) -> str:
        """Wait until the stuck Pod is gone and another one runs or has ended; that one's name."""
        with self.progress.step(f"Freeing run {self.run}", 20) as step:
            known = {name_of(pod) for pod in self._of_run()}
            self._wait(
                lambda: stuck in [name_of(pod) for pod in self._of_run()],
                f"Kubernetes to remove Pod {stuck}", gone_seconds, step,
            )  # fmt: skip
            self.done.append(f"Pod {stuck} is gone.")
            found: list[str] = []

            def none_runs() -> bool:
                found[:] = [
                    name_of(pod) for pod in self._of_run() if _runs(pod) and name_of(pod) not in known
                ]
                return not found

            self._wait(none_runs, "the next Pod to run", next_seconds, step)
        return found[-1]

    def wait_for_nodes(self, seconds: float) -> None:
        """Wait until every node that was marked for this run is back, and take our taint off each."""
        with self.progress.step("Waiting for the node to come back", None) as step:
            deadline = self.clock() + seconds
            while True:
                nodes = self.api.nodes()
                for node in ours_to_remove(nodes, self.run):
                    self.bring_back(name_of(node))
                out = [name_of(node) for node in still_out(nodes, self.run)]
                if not out:
                    return
                step.note(f"waiting for {', '.join(out)} to be Ready")
                if self.clock() >= deadline:
                    raise OpsError(
                        f"After {seconds:.0f} s node {', '.join(out)} was not back; its taint stays.",
                        f"Once it is: ./holdfast recover {self.run}",
                        ExitCode.NOT_READY,
                    )
                self.pause(INTERVAL_SECONDS)

    def _of_run(self) -> list[dict[str, Any]]:
        pods = self._pods(labelSelector=f"{RUN_LABEL}={self.run}")
        return sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))

    def _pods(self, **query: str) -> list[dict[str, Any]]:
        if query.get("fieldSelector") == "spec.nodeName=":
            return []
        return list((self.api.get("/api/v1/pods", **query) or {}).get("items") or [])

    def _wait(self, missing: Callable[[], bool], what: str, seconds: float, step: Step) -> None:
        deadline = self.clock() + seconds
        while missing():
            step.note(f"waiting for {what}")
            if self.clock() >= deadline:
                raise OpsError(
                    f"After {seconds:.0f} s this had not happened: {what}. The node stays out of service.",
                    f"./holdfast status says what the run waits for; ./holdfast recover {self.run} goes on.",
                    ExitCode.NOT_READY,
                )
            self.pause(INTERVAL_SECONDS)

    def _change(self, name: str, change: Callable[[Object], dict[str, Any] | None]) -> bool:
        """Read, decide, write with the version that was read; decided anew when somebody else was quicker."""
        from kubernetes.client.exceptions import ApiException

        for _ in range(TRIES):
            node = self.api.get(f"/api/v1/nodes/{name}")
            body = change(node) if node else None
            if body is None:
                return False
            try:
                self.api.patch(f"/api/v1/nodes/{name}", body)
                return True
            except ApiException as error:
                if error.status != 409:
                    raise
        raise OpsError(
            f"Node {name} was changed by others {TRIES} times in a row while its taint was to be written.",
            "Try again.",
            ExitCode.NOT_READY,
        )


def recover(
    stack: Stack, run: str, yes: bool, as_json: bool, wait: bool, also: Sequence[str], timeout: float | None
) -> ExitCode:
    """Look, say the state, and with consent act. An earlier call's taint is removed once its node is back."""
    from ops.acting import ActingKube

    work = Recovery(ActingKube(target(stack, environment(stack))), run, Progress())
    return carry_out(work, stack, yes, as_json, wait, also, timeout)


def carry_out(
    work: Recovery,
    stack: Stack,
    yes: bool,
    as_json: bool,
    wait: bool,
    also: Sequence[str],
    timeout: float | None,
) -> ExitCode:
    verdict, after = work.look(), ""
    marked = any(noted_run(node) == work.run for node in work.api.nodes())
    if verdict.state is State.NO_POD and work.run not in run_names(stack) and not marked:
        raise OpsError(
            f"Stack {stack.name} has no run {work.run}, and the cluster no Pod of it.",
            f"Its runs: {', '.join(run_names(stack)) or 'none'}.",
            ExitCode.USAGE,
        )
    if not as_json:
        console.say(verdict.sentence)
    for node in ours_to_remove(work.api.nodes(), work.run):
        work.bring_back(name_of(node))
    if verdict.may_taint or verdict.state is State.FREEING:
        if verdict.may_taint:
            consent(verdict, yes, also)
            work.take_out_of_service(verdict.node)
        after = work.wait_for_next(verdict.pod, timeout or GONE_SECONDS, timeout or NEXT_SECONDS)
        work.done.append(f"Pod {after} carries run {work.run} on.")
    out = [name_of(node) for node in still_out(work.api.nodes(), work.run)]
    if out and wait:
        work.wait_for_nodes(timeout or NEXT_SECONDS)
        out = []
    if as_json:
        console.as_json(
            {"run": work.run, **asdict(verdict), "done": work.done, "next": after, "stillOut": out}
        )
    else:
        for sentence in work.done:
            console.say(sentence)
        for node in out:
            console.say(f"Node {node} keeps the taint until it is back. Then: ./holdfast recover {work.run}")
    return ExitCode.NOT_READY if verdict.state is State.DYING else ExitCode.OK


def consent(verdict: Verdict, yes: bool, also: Sequence[str]) -> None:
    """Raises OpsError where a Pod that nothing fences is not named, or nobody can confirm."""
    named = {word.strip() for word in also}
    open_questions = [pod for pod in verdict.unsafe if pod.split(" ")[0] not in named]
    if open_questions and (yes or not sys.stdin.isatty()):
        raise OpsError(
            f"Node {verdict.node} also has Pods that nothing would keep from going on after their removal: "
            f"{', '.join(open_questions)}.",
            "Make sure that the machine is off, or that they do no harm, and name each: "
            + " ".join(f"--also {pod.split(' ')[0]}" for pod in open_questions),
            ExitCode.USAGE,
        )
    if yes:
        return
    if not sys.stdin.isatty():
        raise OpsError(
            f"`recover` marks node {verdict.node} out of service, and nobody is here to confirm it.",
            "Run it with --yes.",
            ExitCode.USAGE,
        )
    for pod in verdict.unsafe:
        console.say(f"It also removes {pod}, which nothing keeps from going on.")
    typer.confirm(
        f"Mark node {verdict.node} out of service, so that Kubernetes removes its Pods?", abort=True, err=True
    )


def _runs(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Succeeded" or (phase == "Running" and not pod["metadata"].get("deletionTimestamp"))
