"""`up`: bring the stack up, follow its runs until they are over, and show what they produced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from ops import console
from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.follow import Followed, exit_code, follow
from ops.kube import Kube
from ops.observe import declared, observe
from ops.pulumi_cli import Pulumi
from ops.runs import Phase, RunView, seconds_between
from ops.stacks import Stack, check, environment, target
from rehearsal.progress import Progress


def up(
    stack: Stack, timeout_seconds: float | None, as_json: bool, detach: bool, extra: Sequence[str]
) -> ExitCode:
    """The rehearsal stack gets its cluster first; any other stack is plain `pulumi up` on its own backend.

    Arguments after `--` go to `pulumi up`. With `detach` the runs are not followed.
    """
    check(stack)
    progress = Progress()
    if stack.rehearsal:
        from rehearsal import cluster

        cluster.up(progress)
    env = environment(stack)
    pulumi = Pulumi(stack, env)
    if stack.rehearsal:
        pulumi.ensure_rehearsal_stack()
    began = datetime.now(UTC)
    code = pulumi.up(extra, quiet_output=as_json)
    if code != 0:
        raise OpsError(
            f"`pulumi up` of stack {stack.name} ended with exit code {code}; what it printed above says why.",
            "Mend that and run `./holdfast up` again: it goes on from where this one ended.",
        )
    refs = declared(pulumi.outputs())
    if as_json and (detach or not refs):
        console.as_json({"runs": [asdict(ref) for ref in refs]})
        return ExitCode.OK
    if not refs:
        console.say("The stack is up. It declares no run.")
        return ExitCode.OK
    if detach:
        console.say("The stack is up. Its runs go on; `./holdfast status` shows them.")
        return ExitCode.OK
    kube = Kube(target(stack, env))
    followed = follow(
        lambda ref: observe(kube, ref),
        refs,
        progress,
        timeout_seconds,
        faults=_faults if stack.rehearsal else lambda: (),
    )
    if as_json:
        console.as_json({"runs": [{**asdict(item.view), "gaveUp": item.gave_up} for item in followed]})
    else:
        for item in followed:
            show(item, began)
        where_next(followed, stack)
    return exit_code(followed)


def _faults() -> list[str]:
    from rehearsal import cluster

    return [fault.sentence for fault in cluster.faults()]


def already_over(view: RunView, began: datetime) -> bool:
    """True where the run had ended before this `up` began: nothing was repeated."""
    seconds = seconds_between(view.ended, began)
    return view.phase is Phase.COMPLETE and seconds is not None and seconds > 0


def show(item: Followed, began: datetime) -> None:
    """One run's end, for a person."""
    view = item.view
    console.say()
    if view.phase is Phase.COMPLETE and already_over(view, began):
        console.say(f"Run {view.run} was complete already (since {view.ended}); nothing was repeated.")
    elif view.phase is Phase.COMPLETE:
        took = seconds_between(view.started, view.ended)
        console.say(f"Run {view.run} is complete" + (f" after {took:.0f} s." if took is not None else "."))
    else:
        console.say(item.gave_up or f"Run {view.run}: {view.phase}. {view.sentence}")
    result = view.result
    if result is None:
        if view.phase is Phase.COMPLETE:
            console.say("Its Pod and log are gone; the result is in result.json of its checkpoint directory.")
        return
    numbers = console.table("Result", "what", "value")
    if result.step is not None:
        numbers.add_row("step", str(result.step))
    for name, value in result.metrics.items():
        numbers.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    console.out().print(numbers)
    if result.artifacts:
        files = console.table("Artifacts", "file", "sha256")
        for name, digest in result.artifacts.items():
            files.add_row(name, digest)
        console.out().print(files)


def where_next(followed: Sequence[Followed], stack: Stack) -> None:
    """The commands that a person wants after this one."""
    option = "" if stack.name == "dev" else f" --stack {stack.name}"
    lines = []
    for item in followed:
        lines.append((f"./holdfast logs {item.view.run}{option}", "what the run said"))
        if item.view.phase is Phase.FAILED:
            lines.append((f"./holdfast retry {item.view.run}{option}", "declare another attempt, then up again"))
    lines.append((f"./holdfast status{option}", "nodes, operator, quotas and runs"))
    if stack.rehearsal:
        lines.append((f'eval "$(./holdfast env{option})"', "plain pulumi and kubectl on this cluster"))
        lines.append(("./holdfast down", "end the cluster and everything on it"))
    else:
        lines.append((f"pulumi stack output{option}", "owners of each layer, teams, runs"))
    width = max(len(command) for command, _ in lines)
    console.say()
    console.say("Next:")
    for command, meaning in lines:
        console.say(f"  {command:<{width}}  {meaning}")
