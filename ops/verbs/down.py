"""`down`: end the rehearsal cluster and the Pulumi state that describes it; no other cluster, ever."""

from __future__ import annotations

import os
import sys

import typer

from ops import console
from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.stacks import Stack
from ops.verbs.test import state_dir_of_tests
from rehearsal.progress import Progress


def down(stack: Stack, yes: bool, tests: bool) -> ExitCode:
    """Remove every trace of the rehearsal (or, with `tests`, of the one that `./holdfast test` makes).

    State and cluster have one lifetime: with a state that still lists all, the next `up` would do nothing.
    """
    if not stack.rehearsal:
        raise OpsError(
            f"`down` ends the rehearsal cluster only, and stack {stack.name} is on another one.",
            f"To remove what that stack made, run `pulumi destroy --stack {stack.name}`.",
            ExitCode.USAGE,
        )
    if tests:
        os.environ["HOLDFAST_STATE"] = str(state_dir_of_tests())
    from rehearsal import cluster, state

    folder = state.state_dir()
    if not yes and folder.exists():
        _confirm(str(folder))
    cluster.down(Progress())
    console.say("The rehearsal cluster is gone. Built programs and images stay in the cache.")
    return ExitCode.OK


def _confirm(folder: str) -> None:
    if not sys.stdin.isatty():
        raise OpsError(
            "`down` removes the cluster, its runs and their checkpoints, and nobody is here to confirm it.",
            "Run `./holdfast down --yes`.",
            ExitCode.USAGE,
        )
    typer.confirm(
        f"Remove the rehearsal cluster with its runs and checkpoints ({folder})?", abort=True, err=True
    )
