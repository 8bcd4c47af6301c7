"""Exit codes by which a Job's podFailurePolicy tells a preemption from a bug."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Codes with a meaning of their own; any other is a bug or a fault and counts against the retries."""

    DONE = 0  # result committed and verified
    FAULT = 1  # the supervisor itself failed, for example on an I/O error
    PREEMPTED = 75  # SIGTERM received, state is safe on the volume
    SUPERSEDED = 76  # a newer generation has taken over
    NO_PROGRESS = 77  # N attempts in a row started at the same step
    BAD_INPUT = 78  # retrying can not help


# Codes that a program may choose by itself and that mean the same whether or not SIGTERM had arrived.
FINAL = frozenset({ExitCode.SUPERSEDED, ExitCode.NO_PROGRESS, ExitCode.BAD_INPUT})


def of_status(status: int) -> int:
    """The exit code of a `waitpid` status: the program's own, or, as in shells, 128 + its last signal."""
    import os

    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def verdict(child: int, sigterm_received: bool, finished: bool) -> int:
    """The Pod's exit code for a program that ended with `child`; DONE means: go and commit the result.

    `finished`: the program handed over its outcome. A 0 after SIGTERM without it is a program that stopped
    early: passed on, it would complete the Job (https://github.com/kubernetes/kubernetes/issues/69785).
    """
    if child in FINAL:
        return child
    if child == 0 and (finished or not sigterm_received):
        return ExitCode.DONE
    if sigterm_received:
        # Whatever a program does on SIGTERM (save and leave, die of it, be killed at the end of the grace
        # period), sealed checkpoints are safe, and a preemption must not count as a failure.
        return ExitCode.PREEMPTED
    return child
