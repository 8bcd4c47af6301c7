"""`holdfast-run [--steps PATTERN] -- PROGRAM…`: PID 1 of the training container.

Sole owner of claim, exit code, last words and result.

result there already?  verify it, exit 0 without starting the program
claim a generation     the former one is fenced
deadline passed?       exit 78
N attempts, no step?   exit 77
run the program        signals passed on, heartbeat, stopped when fenced or at the deadline
it is done?            publish artifacts, commit the result, verify it, exit 0
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer.recovery import generation as generations
from trainer.recovery import result as results
from trainer.recovery.adoption import Adopted
from trainer.recovery.attempt import DIRECTORY, GENERATION
from trainer.recovery.checkpoints import newest_sealed_step, sealed_steps
from trainer.recovery.child import ENDING, WATCHED, Child
from trainer.recovery.deadline import Deadline
from trainer.recovery.deadline import of_run as deadline_of_run
from trainer.recovery.errors import BadInput, Superseded, Unverified
from trainer.recovery.events import emit, now
from trainer.recovery.exit_codes import ExitCode, verdict
from trainer.recovery.files import encode_json, replace_whole
from trainer.recovery.generation import Generation
from trainer.recovery.settings import Settings, read_settings, termination_log

USAGE = """usage: holdfast-run [OPTION…] -- PROGRAM ARGUMENT…

Makes PROGRAM a recoverable run: one writer, verified checkpoints, one committed result. Without options the program
uses the recovery library. For a program that writes its own checkpoints:

  --steps PATTERN       its checkpoints below {dir}, such as 'checkpoint-{step}' or 'epoch=*-step={step}.ckpt'
  --resume-with WORDS   appended where there is one to resume from, such as '--resume_from {checkpoint}'
  --marker NAME         a file that a checkpoint has when it is whole
  --artifact GLOB       final files below {dir} for the result; may be given several times
  --keep N              remove sealed checkpoints beyond the newest N

HOLDFAST_CHECKPOINT_DIR names the run's directory; docs/training-programs.md has the rest."""
TICK_SECONDS = 1.0
HEARTBEAT = "heartbeat.json"
SECONDS_FOR_LAST_WORDS = 1.0
LEAST_SECONDS_TO_SEAL = 0.5
LONGEST_LAST_WORDS = 4096  # bytes; the kubelet cuts what is longer


@dataclass(frozen=True)
class Ending:
    """How this Pod ends: exit code, step and generation (0 when unknown), one sentence."""

    code: int
    step: int
    generation: int
    message: str


def main(
    arguments: Sequence[str], received: Sequence[int] = (), environ: Mapping[str, str] = os.environ
) -> int:
    """Run and return the exit code. `received`: signals that came before this module was imported."""
    # From here on signals wait until the program runs and the loop asks for them: none falls between two
    # checks.
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    # Ignored, as some launchers leave it, the kernel would reap the program and nobody would know its code.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _open_standard_streams()
    if list(arguments[:1]) in (["--help"], ["-h"]):
        print(USAGE)
        return int(ExitCode.DONE)
    try:
        settings = read_settings(environ, arguments)
        ending = _supervise(settings, received, environ)
    except BadInput as error:
        ending = Ending(ExitCode.BAD_INPUT, 0, 0, str(error))
    except OSError as error:
        ending = Ending(ExitCode.FAULT, 0, 0, f"The checkpoint volume or the system failed: {error}.")
    except Exception as error:
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stderr)
        ending = Ending(ExitCode.FAULT, 0, 0, f"A bug in holdfast-run: {type(error).__name__}: {error}.")
    _last_words(ending, termination_log(environ))
    return int(ending.code)


def _supervise(settings: Settings, received: Sequence[int], environ: Mapping[str, str]) -> Ending:
    run_dir = settings.checkpoint_dir
    # First of all: a run that is done needs no volume that can be written.
    if (done := _finished_before(settings)) is not None:
        return done
    generations.prepare_run_dir(run_dir)
    if any(number in ENDING for number in received):
        return Ending(ExitCode.PREEMPTED, 0, 0, "SIGTERM arrived before anything was started.")
    try:
        generation = generations.claim(run_dir, settings.identity.fields())
    except Superseded as error:
        return Ending(ExitCode.SUPERSEDED, 0, 0, str(error))
    try:
        # Whoever was fenced just now may have committed while we claimed.
        return _finished_before(settings) or _run(settings, generation, environ)
    except Superseded as error:
        return _finished_before(settings) or Ending(ExitCode.SUPERSEDED, 0, generation.number, str(error))


def _open_standard_streams() -> None:
    """Closed ones would be taken by the next file that is opened, and events written into that file."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one


def _finished_before(settings: Settings) -> Ending | None:
    """The ending for a run whose result is there already; None when there is none. Raises BadInput."""
    run_dir, run_id = settings.checkpoint_dir, settings.identity.run_id
    try:
        result = results.find(run_dir)
        if result is None:
            return None
        if result.run_id != run_id:
            raise BadInput(
                f"{run_dir / generations.RESULT} is the result of the run {result.run_id!r}, not of "
                f"{run_id!r}: give each run a directory of its own."
            )
        results.verify(run_dir, result)
        results.settle(run_dir)
    except Unverified as error:
        message = (
            f"{run_dir / generations.RESULT} does not verify: {error}. Retrying can not help: look at it, "
            "and move it and the artifacts away if the run is to be done again."
        )
        return Ending(ExitCode.BAD_INPUT, 0, 0, message)
    _tell_result(result, found=True)
    message = (
        f"The result of step {result.step}, committed by generation {result.generation}, "
        "was there and verifies."
    )
    return Ending(ExitCode.DONE, result.step, result.generation, message)


def _run(settings: Settings, generation: Generation, environ: Mapping[str, str]) -> Ending:
    start = newest_sealed_step(generation.work_dir)
    deadline = deadline_of_run(generation, settings.identity.attempt, settings.deadline_seconds)
    if deadline is not None and deadline.has_passed():
        return Ending(ExitCode.BAD_INPUT, start, generation.number, deadline.sentence(start))
    adopted = None
    if settings.adoption is not None:
        adopted = Adopted(settings.adoption, generation, settings.identity.fields())
        adopted.prepare()
        start = newest_sealed_step(generation.work_dir)
        if signal.sigpending() & set(ENDING):
            message = "SIGTERM arrived while the checkpoints were verified; the program was not started."
            return Ending(ExitCode.PREEMPTED, start, generation.number, message)
    idle = generations.attempts_without_progress(generation, start, settings.identity.attempt)
    generations.record_start(generation, start, settings.identity.fields())
    limit = settings.max_attempts_without_progress
    if idle >= limit:
        message = (
            f"{idle} attempts in a row started at step {start} and none saved a later one: read their logs, "
            "mend the cause, and declare a retry (the run's attempt + 1)."
        )
        return Ending(ExitCode.NO_PROGRESS, start, generation.number, message)
    emit("start", step=start, generation=generation.number, **settings.identity.fields())
    variables = {**environ, GENERATION: str(generation.number), DIRECTORY: str(settings.checkpoint_dir)}
    program = adopted.command(settings.program) if adopted else settings.program
    child = Child.start(program, variables, settings.grace_seconds)
    try:
        if adopted:
            adopted.start_sealing()
        code = child.run_to_end(TICK_SECONDS, _Pulse(generation, child, deadline, adopted).tick)
    except BaseException:
        child.kill_group()  # nobody would watch it any more
        raise
    try:
        generation.check_current()
        if adopted:
            adopted.finish(code, child.sigterm_received or child.expired, _time_left(child))
        return _conclude(settings, generation, child, code, deadline, adopted)
    except OSError as error:
        if not child.sigterm_received:
            raise
        # What was sealed is safe, whatever the volume says at this moment: a preemption stays one.
        message = f"Preempted, and the newest checkpoint can not be told because the volume failed: {error}."
        return Ending(ExitCode.PREEMPTED, start, generation.number, message)


def _time_left(child: Child) -> float | None:
    """Seconds until the last words must be written; None for a program that ended by itself."""
    if child.grace_ends_at is None:
        return None
    return max(LEAST_SECONDS_TO_SEAL, child.grace_ends_at - time.monotonic() - SECONDS_FOR_LAST_WORDS)


@dataclass
class _Pulse:
    """What is done each second while the program runs."""

    generation: Generation
    child: Child
    deadline: Deadline | None = None
    adopted: Adopted | None = None
    _seen: list[int] = field(default_factory=list)
    _step: int = 0

    def tick(self) -> str | None:
        """Write the heartbeat, for the doctor only. Returns a reason to stop once another has taken over."""
        if self.deadline is not None and self.deadline.has_passed():
            self.child.expire("the run's deadline has passed")
        if self.adopted is not None:
            self.adopted.check()
        # A volume that is full or fails for a while stops no training, and a missing heartbeat is seen.
        with contextlib.suppress(OSError):
            if not self.generation.is_current():
                return "a newer generation has taken over"
            self._write()
        return None

    def _write(self) -> None:
        work_dir = self.generation.work_dir
        if (steps := sealed_steps(work_dir)) != self._seen:  # looked at once: many files cost many calls
            self._seen, self._step = steps, newest_sealed_step(work_dir)
        beat = {
            "at": now(),
            "generation": self.generation.number,
            "step": self._step,
            "pid": self.child.pid,
            "sigterm": self.child.sigterm_received,
        }
        replace_whole(work_dir / HEARTBEAT, encode_json(beat), scratch=work_dir, durable=False)


def _conclude(
    settings: Settings,
    generation: Generation,
    child: Child,
    code: int,
    deadline: Deadline | None,
    adopted: Adopted | None,
) -> Ending:
    step = newest_sealed_step(generation.work_dir)
    try:
        outcome = results.read_outcome(generation)
    except Unverified as error:
        message = f"What {settings.program[0]} handed over can not be used: {error}."
        return Ending(ExitCode.FAULT, step, generation.number, message)
    decided = verdict(code, child.sigterm_received or child.expired, outcome is not None)
    if decided == ExitCode.DONE:
        try:
            outcome = outcome or (adopted.outcome() if adopted else results.Outcome(step))
        except BadInput as error:
            return Ending(ExitCode.BAD_INPUT, step, generation.number, str(error))
        except Unverified as error:
            return Ending(ExitCode.FAULT, step, generation.number, f"Nothing was committed: {error}.")
        return _commit(settings, generation, outcome)
    if decided == ExitCode.PREEMPTED and child.expired and deadline is not None:
        return Ending(ExitCode.BAD_INPUT, step, generation.number, deadline.sentence(step))
    return Ending(decided, step, generation.number, _sentence(decided, code, step, settings))


def _sentence(decided: int, code: int, step: int, settings: Settings) -> str:
    how = f"was ended by {_signal_name(code)}" if code > 128 else f"ended with code {code}"
    program = settings.program[0]
    match decided:
        case ExitCode.PREEMPTED:
            return f"Preempted: {program} {how}, and the newest checkpoint on the volume is step {step}."
        case ExitCode.SUPERSEDED:
            return f"Superseded: {program} found that a newer generation had taken over."
        case ExitCode.NO_PROGRESS:
            return f"{program} stopped because it makes no progress."
        case ExitCode.BAD_INPUT:
            return f"{program} refused its input or configuration (its log says why); retrying can not help."
    return f"{program} {how}; the newest checkpoint is step {step}."


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return f"signal {code - 128}"


def _commit(settings: Settings, generation: Generation, outcome: results.Outcome) -> Ending:
    try:
        ours = results.commit(generation, outcome, settings.identity.fields())
    except Unverified as error:
        return Ending(ExitCode.FAULT, outcome.step, generation.number, f"Nothing was committed: {error}.")
    result = results.find(settings.checkpoint_dir)
    if result is None:
        raise OSError(f"{settings.checkpoint_dir / generations.RESULT} vanished after it was committed")
    try:
        results.verify(settings.checkpoint_dir, result)
    except Unverified as error:
        return Ending(
            ExitCode.FAULT, result.step, generation.number, f"The committed result does not verify: {error}."
        )
    _tell_result(result, ours=ours)
    who = "was committed" if ours else f"had been committed by generation {result.generation}, was found"
    return Ending(
        ExitCode.DONE, result.step, generation.number, f"The result of step {result.step} {who} and verifies."
    )


def _tell_result(result: results.Result, **how: bool) -> None:
    """The line that a follower reads: the same numbers and hashes, whoever committed them."""
    hashes = {artifact.name: artifact.sha256 for artifact in result.artifacts}
    emit(
        "result",
        step=result.step,
        generation=result.generation,
        metrics=result.metrics,
        artifacts=hashes,
        **how,
    )


def _last_words(ending: Ending, log: Path | None) -> None:
    """Tell the ending on standard output and in the termination message, which `kubectl describe` shows."""
    words = {
        "code": int(ending.code),
        "step": ending.step,
        "generation": ending.generation,
        "message": ending.message,
    }
    emit("end", **words)
    if log is not None:
        content = json.dumps(words).encode()
        while len(content) > LONGEST_LAST_WORDS:  # a character takes up to twelve bytes
            message = str(words["message"])
            words["message"] = message[: len(message) * 3 // 4]
            content = json.dumps(words).encode()
        with contextlib.suppress(OSError):
            log.write_bytes(content)
