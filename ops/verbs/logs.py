"""`logs`: what a run's Pods said, over all its Pods, oldest first where asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from ops import console
from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.kube import RUN_LABEL, Kube
from ops.observe import RunRef, observe, present
from ops.runs import Object, name_of, oldest_first, terminated
from ops.stacks import Stack, cancelled_runs, environment, run_names, target

START_LIMIT_SECONDS = 600.0


def logs(stack: Stack, run: str, follow: bool, previous: bool, every: bool) -> ExitCode:
    """Print the newest Pod's log; `previous`: the Pod before it; `every`: all Pods of all attempts.

    `follow` goes on to the next Pod after a preemption, until the run is over.
    """
    kube = Kube(target(stack, environment(stack)))
    ref = find_run(kube, stack, run)
    pods = oldest_first(kube.pods(ref.namespace, f"{RUN_LABEL}={run}"))
    if follow and not pods:  # a Job takes its time to make the next one after a preemption
        return _follow(kube, ref, None)
    chosen = choose(pods, run, previous, every)
    several = len(chosen) > 1 or follow
    for pod in chosen[:-1] if follow else chosen:
        _print_whole(kube, ref, pod, several)
    return _follow(kube, ref, chosen[-1]) if follow else ExitCode.OK


def find_run(kube: Kube, stack: Stack, run: str) -> RunRef:
    """The run's newest Job or JobSet on the cluster. Error: no such run, or none on the cluster now."""
    found = [ref for ref in present(kube) if ref.run == run]
    if found:
        return found[0]
    declared = run_names(stack)
    if run in declared:
        raise OpsError(
            f"Run {run} is declared, and the cluster has no Job or JobSet of it.",
            f"It is declared cancelled; another attempt: ./holdfast retry {run}"
            if run in cancelled_runs(stack)
            else "It was deleted after its time, or `./holdfast up` has not made it yet.",
            ExitCode.NOT_READY,
        )
    raise OpsError(
        f"Stack {stack.name} has no run {run}.", f"Its runs: {', '.join(declared) or 'none'}.", ExitCode.USAGE
    )


def choose(pods: Sequence[Object], run: str, previous: bool, every: bool) -> list[Object]:
    """Which Pods' logs were asked for. `pods` oldest first; errors where there are none, or none before."""
    if not pods:
        raise OpsError(
            f"Run {run} has no Pod now.", "`./holdfast status` says what it waits for.", ExitCode.NOT_READY
        )
    if every:
        return list(pods)
    if previous:
        if len(pods) < 2:
            raise OpsError(
                f"The cluster has one Pod of run {run} only; there is no previous one.",
                "A JobSet's restart deletes the Pod before it, and the log with it.",
                ExitCode.USAGE,
            )
        return [pods[-2]]
    return [pods[-1]]


def _print_whole(kube: Kube, ref: RunRef, pod: Object, heading: bool) -> None:
    if heading:
        _head(pod)
    sys.stdout.write(kube.log(ref.namespace, name_of(pod)))
    sys.stdout.flush()


def _head(pod: Object) -> None:
    ended = terminated(pod)
    how = f", exit code {ended['exitCode']}" if "exitCode" in ended else ""
    node = (pod.get("spec") or {}).get("nodeName", "no node")
    console.error(f"== {name_of(pod)} on {node}{how}")


def _follow(kube: Kube, ref: RunRef, pod: Object | None) -> ExitCode:
    """Stream this Pod, or the first that comes, then the ones after it, until the run is over."""
    from kubernetes.client.exceptions import ApiException

    seen = ""
    waited, said = time.monotonic(), ""
    while True:
        name = name_of(pod) if pod else ""
        phase = (pod.get("status") or {}).get("phase") if pod else "Pending"
        if pod and name != seen and phase != "Pending":
            seen = name
            _head(pod)
            try:
                for line in kube.follow_log(ref.namespace, name):
                    print(line, flush=True)
            except ApiException as error:
                if error.status != 404:  # the Pod was deleted between two looks
                    raise
            waited = time.monotonic()
        view = observe(kube, ref)
        if view.over:
            return ExitCode.OK
        if view.sentence != said:
            said = view.sentence
            console.error(f"-- {view.phase}: {view.sentence}")
        if time.monotonic() - waited > START_LIMIT_SECONDS:
            raise OpsError(
                f"No new Pod of run {ref.run} started within {START_LIMIT_SECONDS:.0f} s. {view.sentence}",
                code=ExitCode.NOT_READY,
            )
        time.sleep(1.0)
        pod = (oldest_first(kube.pods(ref.namespace, f"{RUN_LABEL}={ref.run}")) or [pod])[-1]  # type: ignore[list-item]
