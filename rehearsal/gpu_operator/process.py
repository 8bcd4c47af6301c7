"""What every program of the image does alike: end at once on SIGTERM, and speak in single lines."""

import signal
import sys
from types import FrameType


def end_on_signals() -> None:
    """End this process at once on SIGTERM and SIGINT.

    Call it before heavy imports: the first process of a container has no default action for SIGTERM, so until
    a handler exists the signal is lost and the Pod waits for its whole grace period.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def say(sentence: str) -> None:
    """Print one line to the container's log (kubectl adds the time)."""
    print(sentence, flush=True)


def give_up(sentence: str) -> SystemExit:
    """The exception to raise for a failure that a restart may heal; the sentence goes to stderr."""
    print(sentence, file=sys.stderr, flush=True)
    return SystemExit(1)
