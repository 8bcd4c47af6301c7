"""Errors that a person sees: a sentence and an exit code, never a traceback."""

from __future__ import annotations

import errno
import json

from ops.exit_codes import ExitCode
from rehearsal.errors import RehearsalError

UNWRITABLE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR)


class OpsError(Exception):
    """What went wrong, what to do about it, and the verb's exit code."""

    def __init__(self, problem: str, fix: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__("\n".join(part for part in (problem, fix) if part))
        self.problem = problem
        self.fix = fix
        self.code = code


def describe(error: BaseException) -> tuple[str, ExitCode]:
    """The sentence and the exit code of any exception that reached the top.

    Exceptions of optional rooms are told by their class names, so that `./holdfast env` need not import
    the Kubernetes client only to fail well.
    """
    if isinstance(error, OpsError):
        return str(error), error.code
    if isinstance(error, RehearsalError):
        return "\n".join(part for part in (error.problem, error.fix) if part), ExitCode.UNAVAILABLE
    if isinstance(error, KeyboardInterrupt):
        return "Stopped.", ExitCode.INTERRUPTED
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    if any(name.startswith(("components.settings", "components.planning")) for name in names):
        return str(error), ExitCode.USAGE
    if any(name.startswith("components.cluster_resources") for name in names):
        return str(error), ExitCode.UNAVAILABLE
    if "urllib3.exceptions.HTTPError" in names:
        return (
            f"The cluster's API server did not answer: {_short(error)}\n"
            "Look at `./holdfast status`; for another cluster check holdfast:cluster in the stack's file.",
            ExitCode.UNAVAILABLE,
        )
    if "kubernetes.client.exceptions.ApiException" in names:
        return _api_sentence(error), ExitCode.UNAVAILABLE
    if isinstance(error, PermissionError):
        return f"No permission for {error.filename}. Run the verb as the user who made it, or as root.", (
            ExitCode.UNAVAILABLE
        )
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        where = f" ({error.filename})" if error.filename else ""
        return (
            f"A file can not be written: {error.strerror}{where}.\n"
            "Make room there, or name other folders: HOLDFAST_STATE and HOLDFAST_CACHE (docs/cli.md), --output.",
            ExitCode.UNAVAILABLE,
        )
    return (
        f"Holdfast itself failed: {type(error).__name__}: {_short(error)}\n"
        "Run it again with HOLDFAST_DEBUG=1 for the traceback, and report it.",
        ExitCode.INTERNAL,
    )


def _api_sentence(error: BaseException) -> str:
    """The API server's own sentence, which names the user, the verb and the object."""
    try:
        message = json.loads(getattr(error, "body", "") or "{}").get("message", "")
    except (ValueError, AttributeError):
        message = ""
    status = getattr(error, "status", "?")
    said = message or getattr(error, "reason", "") or "no reason given"
    if status in (401, 403):
        fix = "The identity of the kubeconfig's context needs that right."
        return f"The API server refused ({status}): {said}\n{fix}"
    return f"The API server answered {status}: {said}"


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."
