"""`holdfast-run -- PROGRAM…`: PID 1 of the training container, sole owner of claim, exit code, last words and
result.

result there already?  verify it, exit 0 without starting the program
claim a generation     the former one is fenced
N attempts, no step?   exit 77
run the program        signals passed on, heartbeat, stopped when fenced
it is done?            publish artifacts, commit the result, verify it, exit 0
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.recovery import generation as generations
from trainer.recovery import result as results
from trainer.recovery.attempt import DIRECTORY, GENERATION
from trainer.recovery.checkpoints import newest_sealed_step
from trainer.recovery.child import ENDING, WATCHED, Child
from trainer.recovery.errors import BadInput, Superseded, Unverified
from trainer.recovery.events import emit, now
from trainer.recovery.exit_codes import ExitCode, verdict
from trainer.recovery.files import encode_json, replace_whole
from trainer.recovery.generation import Generation
from trainer.recovery.settings import Settings, read_settings, termination_log

TICK_SECONDS = 1.0
HEARTBEAT = "heartbeat.json"
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
    try:
        settings = read_settings(environ, arguments)
        ending = _supervise(settings, received, environ)
    except BadInput as error:
        ending = Ending(ExitCode.BAD_INPUT, 0, 0, str(error))
    except OSError as error:
        ending = Ending(ExitCode.FAULT, 0, 0, f"The checkpoint volume failed: {error}.")
    _last_words(ending, termination_log(environ))
    return int(ending.code)


def _supervise(settings: Settings, received: Sequence[int], environ: Mapping[str, str]) -> Ending:
    run_dir = settings.checkpoint_dir
    generations.prepare_run_dir(run_dir)
    if (done := _finished_before(run_dir)) is not None:
        return done
    if any(number in ENDING for number in received):
        return Ending(ExitCode.PREEMPTED, 0, 0, "SIGTERM arrived before anything was started.")
    try:
        generation = generations.claim(run_dir, settings.identity.fields())
    except Superseded as error:
        return Ending(ExitCode.SUPERSEDED, 0, 0, str(error))
    try:
        # Whoever was fenced just now may have committed while we claimed.
        return _finished_before(run_dir) or _run(settings, generation, environ)
    except Superseded as error:
        return _finished_before(run_dir) or Ending(ExitCode.SUPERSEDED, 0, generation.number, str(error))


def _finished_before(run_dir: Path) -> Ending | None:
    """The ending for a run whose result is there already; None when there is none."""
    try:
        result = results.find(run_dir)
        if result is None:
            return None
        results.verify(run_dir, result)
    except Unverified as error:
        message = (
            f"{run_dir / generations.RESULT} does not verify: {error}. Retrying can not help: look at it, "
            "and move "
            "it and the artifacts away if the run is to be done again."
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
    idle = generations.attempts_without_progress(generation, start, settings.identity.attempt)
    generations.record_start(generation, start)
    limit = settings.max_attempts_without_progress
    if idle >= limit:
        message = (
            f"{idle} attempts in a row started at step {start} and none saved a later one: read their logs, "
            "mend the "
            "cause, and declare a retry (the run's attempt + 1)."
        )
        return Ending(ExitCode.NO_PROGRESS, start, generation.number, message)
    emit("start", step=start, generation=generation.number, **settings.identity.fields())
    variables = {**environ, GENERATION: str(generation.number), DIRECTORY: str(settings.checkpoint_dir)}
    child = Child.start(settings.program, variables, settings.grace_seconds)
    code = child.run_to_end(TICK_SECONDS, lambda: _tick(generation, child))
    step = newest_sealed_step(generation.work_dir)
    generation.check_current()
    return _conclude(settings, generation, child, code, step)


def _tick(generation: Generation, child: Child) -> str | None:
    """Write the heartbeat, for the doctor only. Returns a reason to stop once another has taken over."""
    beat = {
        "at": now(),
        "generation": generation.number,
        "step": newest_sealed_step(generation.work_dir),
        "pid": child.pid,
        "sigterm": child.sigterm_received,
    }
    with contextlib.suppress(OSError):  # a full volume stops no training, and a missing heartbeat is seen
        replace_whole(
            generation.work_dir / HEARTBEAT, encode_json(beat), scratch=generation.work_dir, durable=False
        )
    return None if generation.is_current() else "a newer generation has taken over"


def _conclude(settings: Settings, generation: Generation, child: Child, code: int, step: int) -> Ending:
    outcome = results.read_outcome(generation)
    decided = verdict(code, child.sigterm_received, outcome is not None)
    if decided == ExitCode.DONE:
        return _commit(settings, generation, outcome or results.Outcome(step))
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
    ours = results.commit(generation, outcome, settings.identity.fields())
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
        if len(content) > LONGEST_LAST_WORDS:
            words["message"] = ending.message[: LONGEST_LAST_WORDS // 4]
            content = json.dumps(words).encode()
        with contextlib.suppress(OSError):
            log.write_bytes(content)
