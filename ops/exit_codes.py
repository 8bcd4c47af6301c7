"""The one table of exit codes, for every verb. docs/cli.md shows it; a test holds the two together."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a verb's exit code means to a script."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_READY = 3
    UNAVAILABLE = 4
    INTERNAL = 70
    INTERRUPTED = 130


MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "done, or everything is well",
    ExitCode.FAILED: "a run, an update or a test failed",
    ExitCode.USAGE: "the command line or the stack's configuration can not be used; nothing was changed",
    ExitCode.NOT_READY: "something was not ready within its time, or is not ready now",
    ExitCode.UNAVAILABLE: "the machine, a program or the cluster that the verb needs is not there",
    ExitCode.INTERNAL: "a fault of Holdfast itself; HOLDFAST_DEBUG=1 shows the traceback",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
}
