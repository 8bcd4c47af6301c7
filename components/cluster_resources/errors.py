"""What a person reads when a cluster can not do what the stack asks: sentences, not stack traces."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ClusterProblem(Exception):
    """A state of the cluster that a person has to change. The text says what, where, and what to do."""

    def __init__(self, text: str, answer: str = "") -> None:
        super().__init__(text)
        self.answer = answer
        """The API server's own words, if it answered."""


class ClusterUnreachable(ClusterProblem):
    """The API server does not answer, or answers that it can not serve now. May pass by itself."""


class NodeConflict(ClusterProblem):
    """A node already carries something of somebody else in the place that we would write to."""


class ChangedMeanwhile(Exception):
    """The object changed between our read and our write (HTTP 409): read it again and decide again."""


def in_plain_words(method: Callable[P, R]) -> Callable[P, R]:
    """Make a provider method's `ClusterProblem` readable in Pulumi's output.

    pulumi.dynamic answers every exception with `traceback.format_exc()` (pulumi/dynamic/__main__.py).
    Python's own `sys.tracebacklimit = 0` leaves the sentence and drops the frames; any other exception keeps
    its full trace.
    """

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except ClusterProblem:
            _limit_traceback(0)
            raise
        except Exception:
            _limit_traceback(1000)
            raise

    return wrapper


def _limit_traceback(frames: int) -> None:
    if in_provider_process():
        sys.tracebacklimit = frames


def in_provider_process() -> bool:
    """True in the process that the engine starts as `python -m pulumi.dynamic`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "pulumi.dynamic.__main__"
