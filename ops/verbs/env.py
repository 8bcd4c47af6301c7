"""`env`: what a shell needs for plain pulumi and kubectl on the stack's cluster, with the policy pack on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ops import console
from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.stacks import Stack
from rehearsal.progress import Progress


def env(stack: Stack, as_json: bool, shell: str) -> ExitCode:
    if not stack.rehearsal:
        raise OpsError(
            f"Stack {stack.name} is not on the rehearsal cluster, so it has no environment of its own.",
            "Its backend and credentials are your shell's: see docs/environments.md.",
            ExitCode.USAGE,
        )
    from rehearsal import cluster, toolchain

    values = cluster.environment()
    # No other verb needs kubectl, so it is fetched or built when a person asks for a shell that has it.
    toolchain.link(toolchain.ensure(["kubectl"], Progress()))
    if as_json:
        console.as_json(values)
    else:
        print(render(values, shell))
    return ExitCode.OK


def render(values: Mapping[str, str], shell: str) -> str:
    """Lines for `eval`, every value quoted for that shell."""
    if shell == "fish":
        return "\n".join(_fish(name, value) for name, value in sorted(values.items()))
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(values.items()))


def _fish(name: str, value: str) -> str:
    # In fish's single quotes only \ and ' are special. PATH is a list there, one word per folder.
    words = value.split(":") if name == "PATH" else [value]
    quoted = " ".join("'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'" for word in words)
    return f"set -gx {name} {quoted};"
