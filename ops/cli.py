"""The command line: one function per verb, which reads its options and calls the verb's module.

Modules are imported when their verb runs, so that `./holdfast env` starts in a fraction of a second.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ops import console
from ops.errors import describe
from ops.exit_codes import MEANING, ExitCode
from ops.interruption import answer_signals
from ops.stacks import DEFAULT_STACK, load_stack

EPILOG = "Exit codes: " + "; ".join(f"{int(code)} {text}" for code, text in MEANING.items()) + "."

app = typer.Typer(
    name="holdfast",
    help="GPU training on Kubernetes, declared with Pulumi; runs survive preemption.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

StackOption = Annotated[
    str, typer.Option("--stack", "-s", envvar="PULUMI_STACK", help="Which Pulumi.<stack>.yaml to work on.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RunArgument = Annotated[str, typer.Argument(help="The run's id, such as run-001.")]
PulumiArguments = Annotated[list[str] | None, typer.Argument(help="After `--`: options for pulumi itself.")]


@app.command()
def up(
    stack: StackOption = DEFAULT_STACK,
    timeout: Annotated[
        float | None,
        typer.Option(help="Follow the runs this many seconds at most. Default: each run's deadline."),
    ] = None,
    as_json: JsonOption = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not follow the runs.")] = False,
    arguments: PulumiArguments = None,
) -> int:
    """Bring the stack up and follow its runs.

    The rehearsal stack gets its cluster first. Ends when every run is over, with metrics and hashes.
    """
    from ops.verbs.up import up as verb

    return verb(load_stack(stack), timeout, as_json, detach, arguments or [])


@app.command()
def status(stack: StackOption = DEFAULT_STACK, as_json: JsonOption = False) -> int:
    """Show nodes, operator, quotas and runs."""
    from ops.verbs.status import status as verb

    return verb(load_stack(stack), as_json)


@app.command()
def logs(
    run: RunArgument,
    stack: StackOption = DEFAULT_STACK,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stream, over all Pods, until the run is over.")
    ] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="The Pod before the newest.")] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="All Pods of all attempts, oldest first.")
    ] = False,
) -> int:
    """Print what a run's Pods said."""
    from ops.verbs.logs import logs as verb

    return verb(load_stack(stack), run, follow, previous, every)


@app.command()
def preview(stack: StackOption = DEFAULT_STACK, arguments: PulumiArguments = None) -> int:
    """Show what up would change, with policies."""
    from ops.verbs.preview import preview as verb

    return verb(load_stack(stack), arguments or [])


@app.command()
def env(
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
    shell: Annotated[str, typer.Option(help="bash (also zsh and sh) or fish.")] = "",
) -> int:
    """Print the environment for pulumi and kubectl.

    Use it in a shell: eval "$(./holdfast env)"; in fish: ./holdfast env --shell fish | source
    """
    from ops.verbs.env import env as verb

    wanted = shell or ("fish" if os.environ.get("SHELL", "").endswith("/fish") else "bash")
    if wanted not in ("bash", "zsh", "sh", "fish"):
        raise typer.BadParameter(f"{wanted!r} is not a shell that it writes for: bash, zsh, sh, fish.")
    return verb(load_stack(stack), as_json, wanted)


@app.command()
def cancel(run: RunArgument, stack: StackOption = DEFAULT_STACK) -> int:
    """Declare a run cancelled.

    The next up removes its Job and leaves its checkpoints.
    """
    from ops.verbs.attempts import cancel as verb

    return verb(load_stack(stack), run)


@app.command()
def retry(
    run: RunArgument,
    stack: StackOption = DEFAULT_STACK,
    force: Annotated[
        bool, typer.Option("--force", help="Also where the run works, or has its result.")
    ] = False,
) -> int:
    """Declare another attempt of a failed run.

    The next up makes a new Job, which resumes from the last checkpoint.
    """
    from ops.verbs.attempts import retry as verb

    return verb(load_stack(stack), run, force)


@app.command()
def accept(
    stack: StackOption = DEFAULT_STACK,
    run: Annotated[
        str,
        typer.Option(
            "--run", help="The declared run whose image and resources are taken. Default: the first."
        ),
    ] = "",
    only: Annotated[str, typer.Option("--only", help="Letters or names of faults, such as a,e,drain.")] = "",
    faults: Annotated[
        list[str] | None, typer.Option("--fault", help="One fault by name; may be given several times.")
    ] = None,
    controller: Annotated[
        str, typer.Option("--controller", help="fit (what suits each fault), job, jobset or both.")
    ] = "fit",
    as_json: JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder of the evidence. Default: one below acceptance-results/."
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write a JUnit file.")] = None,
    ctrf: Annotated[Path | None, typer.Option("--ctrf", help="Also write a CTRF file.")] = None,
    verify: Annotated[
        Path | None, typer.Option("--verify", help="Recheck this evidence file instead; needs no cluster.")
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what a killed acceptance left instead.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds for all of it.")] = 1800.0,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, on a cluster that is not the rehearsal.")
    ] = False,
) -> int:
    """Prove that runs survive faults, on runs of its own.

    Makes runs after a declared one, disturbs each, checks that it went on where it was and ended with the
    same weights as one that nobody disturbed, writes the evidence, and removes what it made.
    """
    from ops.verbs import accept as verb

    if verify is not None and clean:
        raise typer.BadParameter("--verify and --clean are different things to do: give one of them.")
    if verify is not None:
        return verb.verify(verify, as_json)
    if controller not in ("fit", "job", "jobset", "both"):
        raise typer.BadParameter(f"{controller!r} is not a controller: write fit, job, jobset or both.")
    if timeout <= 0:
        raise typer.BadParameter(f"--timeout is {timeout:g}: write seconds, such as 1800.")
    wanted = verb.Wanted(run, only, faults or [], controller, timeout, yes)  # type: ignore[arg-type]
    if clean:
        return verb.clean(load_stack(stack), wanted)
    return verb.accept(load_stack(stack), wanted, as_json, output, junit, ctrf)


@app.command()
def recover(
    run: RunArgument,
    stack: StackOption = DEFAULT_STACK,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until the node is back, and take the taint off.")
    ] = False,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--also", help="NAMESPACE/POD on that node that may go too; may be given several times."
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds of each wait. Default: what Kubernetes may take.")
    ] = None,
) -> int:
    """Free a run whose node is dead.

    Says what state the run is in. Once confirmed, marks the dead node out of service, so that Kubernetes
    removes its Pods and makes the next one. Called again when the node is back, takes that mark off.
    """
    from ops.verbs.recover import recover as verb

    if timeout is not None and timeout <= 0:
        raise typer.BadParameter(f"--timeout is {timeout:g}: write seconds, such as 300.")
    return verb(load_stack(stack), run, yes, as_json, wait, also or [], timeout)


@app.command()
def test(
    tier: Annotated[
        str, typer.Option("--tier", "-t", help="unit, policies, processes, cli, rehearsal or all.")
    ] = "all",
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the test cluster up for the next time.")
    ] = False,
    arguments: Annotated[list[str] | None, typer.Argument(help="After `--`: options for pytest.")] = None,
) -> int:
    """Run the tests, tier by tier.

    The rehearsal tier makes a cluster of its own and ends it.
    """
    from ops.verbs.test import Tier
    from ops.verbs.test import test as verb

    if tier not in list(Tier):
        raise typer.BadParameter(f"{tier!r} is not a tier: {', '.join(Tier)}.")
    return verb(Tier(tier), keep, arguments or [])


@app.command()
def down(
    stack: StackOption = DEFAULT_STACK,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    tests: Annotated[bool, typer.Option("--tests", help="The cluster of `./holdfast test` instead.")] = False,
) -> int:
    """End the rehearsal cluster.

    Its runs, checkpoints and Pulumi state go with it; caches, .venv and installed packages stay. No other
    cluster is ever touched.
    """
    from ops.verbs.down import down as verb

    return verb(load_stack(stack), yes, tests)


@app.command()
def version() -> int:
    """Print the versions of everything pinned."""
    from ops.verbs.version import version as verb

    return verb()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Whatever fails is told in sentences on standard error."""
    answer_signals()
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(app)
    try:
        code = command.main(words, prog_name="holdfast", standalone_mode=False)
        if code == ExitCode.INTERRUPTED:  # Typer makes Ctrl-C this code, and says nothing
            console.error("Stopped.")
        return int(code or 0)
    except BrokenPipeError:
        # The reader (head, less) has gone; keep the interpreter from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
    except (KeyboardInterrupt, Exception) as error:
        return _tell(error)


def _tell(error: BaseException) -> int:
    # Typer carries its own copy of click, whose classes have no public name: told by what they offer.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        error.show() if hasattr(error, "show") else console.error(error.format_message())
        return int(ExitCode.USAGE)
    if isinstance(error, typer.Abort):
        error = KeyboardInterrupt()
    sentence, code = describe(error)
    console.error(sentence)
    if code is ExitCode.INTERNAL and os.environ.get("HOLDFAST_DEBUG"):
        traceback.print_exception(error)
    return int(code)
