"""SIGTERM and SIGHUP end a verb as Ctrl-C does, so that no build and no engine goes on without it."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Terminated(KeyboardInterrupt):
    """Ctrl-C reaches the whole group of processes; this signal reached only us, so a child must be told."""


def answer_signals() -> None:
    """Raise Terminated in the main thread from now on. A signal that is ignored (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated
