"""The program as a child: own process group, signals passed on, all reaped, a bounded grace period."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trainer.recovery.errors import BadInput
from trainer.recovery.events import emit
from trainer.recovery.exit_codes import of_status

ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
WATCHED = frozenset({*ENDING, *PASSED_ON, signal.SIGCHLD})
# An ignored signal stays so in the program. Python ignores SIGPIPE and SIGXFSZ, nohup SIGHUP, and a shell
# SIGQUIT of what it starts in the background.
DEFAULTED = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
NOT_EXECUTABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC})
# After the grace period the kubelet kills everything; before that the last words must be written.
MARGIN_SECONDS = 5.0
REAPING_SECONDS = 1.0  # well below the margin: what can not be killed must not cost the last words
VANISHED = 1


@dataclass
class Child:
    """A started program. `run_to_end` is the supervisor's main loop."""

    pid: int
    grace_seconds: float
    sigterm_received: bool = False
    stopped_because: str | None = None
    expired: bool = False
    grace_ends_at: float | None = None  # on the monotonic clock, once the program was told to end
    _kill_at: float | None = field(default=None, repr=False)

    @classmethod
    def start(cls, program: Sequence[str], environ: Mapping[str, str], grace_seconds: float) -> Child:
        """Start the program, with WATCHED blocked here already. Raises BadInput when it can not be."""
        try:
            # Not subprocess: the signals blocked for our own waiting must not be blocked in the program.
            pid = os.posix_spawnp(
                program[0], list(program), dict(environ), setpgroup=0, setsigmask=[], setsigdef=DEFAULTED
            )
        except OSError as error:
            if error.errno not in NOT_EXECUTABLE:
                raise
            raise BadInput(
                f"The program {program[0]!r} can not be started ({error.strerror}): name an executable "
                "file in the image by its full path."
            ) from error
        return cls(pid, grace_seconds)

    def run_to_end(self, every_seconds: float, on_tick: Callable[[], str | None]) -> int:
        """Wait for the program to end; its exit code. `on_tick` returns a reason to stop it, or None.

        SIGTERM and SIGINT are passed on once and start the grace period, at whose end, less a margin for the
        last words, the whole process group is killed.
        """
        next_tick = time.monotonic()
        while True:
            received = signal.sigtimedwait(WATCHED, max(0.0, self._wake_at(next_tick) - time.monotonic()))
            if received is not None and received.si_signo in ENDING:
                self._begin_ending(received.si_signo)
            elif received is not None and received.si_signo in PASSED_ON:
                self._signal(received.si_signo)
            code = self._reap()
            if code is not None:
                self._end_others()
                self._note_pending()
                return code
            now = time.monotonic()
            if self._kill_at is not None and now >= self._kill_at:
                emit("signal", signal="SIGKILL", reason=self.stopped_because or "the grace period is over")
                self.kill_group()
                self._kill_at = None
            if now >= next_tick:
                next_tick = now + every_seconds
                reason = on_tick()
                if reason and not self.stopped_because:
                    self.stop(reason)

    def stop(self, reason: str, within_seconds: float = 2.0) -> None:
        """End a program that must not go on (fenced): SIGTERM, then SIGKILL soon."""
        self.stopped_because = reason
        self._kill_within(within_seconds)
        self._signal(signal.SIGTERM)

    def expire(self, reason: str) -> None:
        """End a program whose time is over as a preemption would: SIGTERM and the whole grace period."""
        if self.expired or self.sigterm_received or self.stopped_because:
            return  # it is ending already
        self.expired = True
        emit("signal", signal="SIGTERM", reason=reason, grace_seconds=self.grace_seconds)
        self._begin_grace()
        self._signal(signal.SIGTERM)

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _begin_ending(self, number: int) -> None:
        first = not self.sigterm_received
        self.sigterm_received = True
        if first:
            self._begin_grace()
            emit("signal", signal=signal.Signals(number).name, grace_seconds=self.grace_seconds)
        # A program may tell its workers itself: only it is signalled, not its group.
        self._signal(signal.SIGTERM)

    def _begin_grace(self) -> None:
        margin = min(MARGIN_SECONDS, self.grace_seconds * 0.2)
        self._kill_within(self.grace_seconds - margin)
        self.grace_ends_at = time.monotonic() + self.grace_seconds

    def _kill_within(self, seconds: float) -> None:
        """Whichever comes first: a fenced program gets no grace period because SIGTERM arrives too."""
        at = time.monotonic() + seconds
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    def _note_pending(self) -> None:
        """A node that shuts down signals every process at once: the program may end before we look."""
        while (received := signal.sigtimedwait(ENDING, 0)) is not None:
            self.sigterm_received = True
            emit("signal", signal=signal.Signals(received.si_signo).name, reason="the program had ended")

    def _end_others(self) -> None:
        """As PID 1: end and reap all that the program left behind, in groups of their own too.

        From here on nobody writes below the working directory: what is hashed stays as it is.
        """
        if os.getpid() != 1:
            return
        until = time.monotonic() + REAPING_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                time.sleep(0.01)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _wake_at(self, next_tick: float) -> float:
        return next_tick if self._kill_at is None else min(next_tick, self._kill_at)

    def _reap(self) -> int | None:
        """Reap whatever has ended, orphans too. The program's exit code once it is among them."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # Without any child ours has been reaped by somebody else: waiting on would be for ever.
                return VANISHED if code is None else code
            if pid == 0:
                return code
            if pid == self.pid:
                code = of_status(status)
                self.kill_group()  # workers that outlive it would go on writing
