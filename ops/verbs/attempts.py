"""`cancel` and `retry`: declared in the stack's file, carried out by the next `up`.

A failed run is no difference for Pulumi: the Job or JobSet is there as declared. So a retry is a declared
attempt: a larger number makes a new one (neither can be changed).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ops import console
from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.kube import Kube
from ops.observe import observe, present
from ops.pulumi_cli import Pulumi
from ops.runs import Phase, RunView
from ops.stacks import Stack, environment, run_names, target


def cancel(stack: Stack, run: str) -> ExitCode:
    """Write `cancelled: true`. The Job or JobSet goes with the next `up`; the checkpoints stay."""
    index, declared = find(stack, run)
    if declared.get("cancelled") is True:
        console.say(f"Run {run} is cancelled already in {stack.file.name}.")
        return ExitCode.OK
    pulumi = Pulumi(stack, environment(stack))
    pulumi.set_config(f"holdfast:runs[{index}].cancelled", "true")
    console.say(
        f"{stack.file.name} now says that run {run} is cancelled; its checkpoints, and its result if it has one,"
        " stay on their volume."
    )
    console.say(f"Carry it out: ./holdfast up{_option(stack)}")
    return ExitCode.OK


def retry(stack: Stack, run: str, force: bool) -> ExitCode:
    """Write the next attempt number, unless the run works or has its result (`force`: all the same)."""
    index, declared = find(stack, run)
    env = environment(stack)
    if not force:
        kube = Kube(target(stack, env))
        view = next((observe(kube, ref) for ref in present(kube) if ref.run == run), None)
        refuse_needless(run, view, bool(declared.get("cancelled")))
    attempt = next_attempt(declared)
    pulumi = Pulumi(stack, env)
    pulumi.set_config(f"holdfast:runs[{index}].attempt", str(attempt))
    if declared.get("cancelled") is True:
        pulumi.set_config(f"holdfast:runs[{index}].cancelled", "false")
    console.say(
        f"{stack.file.name} now declares attempt {attempt} of run {run}; it resumes from the last checkpoint."
    )
    console.say(f"Carry it out: ./holdfast up{_option(stack)}")
    return ExitCode.OK


def find(stack: Stack, run: str) -> tuple[int, Mapping[str, Any]]:
    """The run's place in holdfast:runs and what is declared there."""
    runs = stack.config.get("holdfast:runs")
    for index, declared in enumerate(runs if isinstance(runs, list) else []):
        if isinstance(declared, Mapping) and str(declared.get("id")) == run:
            return index, declared
    raise OpsError(
        f"{stack.file.name} declares no run {run}.",
        f"Its runs: {', '.join(run_names(stack)) or 'none'}.",
        ExitCode.USAGE,
    )


def next_attempt(declared: Mapping[str, Any]) -> int:
    attempt = declared.get("attempt", 1)
    if not isinstance(attempt, int) or isinstance(attempt, bool):
        raise OpsError(
            f"The attempt of run {declared.get('id')} is {attempt!r}, and must be a whole number.",
            "Write a number in the stack's file, such as 1.",
            ExitCode.USAGE,
        )
    return attempt + 1


def refuse_needless(run: str, view: RunView | None, cancelled: bool) -> None:
    """A retry of a working run would replace it; one of a finished run would find its result and end."""
    if view is None or view.phase is Phase.FAILED or cancelled:
        return
    if view.phase is Phase.COMPLETE:
        raise OpsError(
            f"Run {run} is complete; another attempt would find its result and end at once.",
            "For a new training give it a new id, or use --force.",
            ExitCode.USAGE,
        )
    raise OpsError(
        f"Run {run} is not over ({view.phase}: {view.sentence}). A new attempt would replace it.",
        f"Wait for it, cancel it (./holdfast cancel {run}), or use --force.",
        ExitCode.USAGE,
    )


def _option(stack: Stack) -> str:
    return "" if stack.name == "dev" else f" --stack {stack.name}"
