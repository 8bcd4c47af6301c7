"""`preview`: the engine's own preview of the stack, with the policy pack."""

from __future__ import annotations

from collections.abc import Sequence

from ops.exit_codes import ExitCode
from ops.pulumi_cli import Pulumi
from ops.stacks import Stack, check, environment


def preview(stack: Stack, extra: Sequence[str]) -> ExitCode:
    """Arguments after `--` go to `pulumi preview` as they are."""
    check(stack)
    pulumi = Pulumi(stack, environment(stack))
    if stack.rehearsal:
        pulumi.ensure_rehearsal_stack()
    return ExitCode.OK if pulumi.preview(extra) == 0 else ExitCode.FAILED
