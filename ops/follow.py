"""Follow runs until each is over: what happens, what it waits for, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ops.errors import OpsError, describe
from ops.exit_codes import ExitCode
from ops.observe import RunRef
from ops.runs import Phase, RunView
from rehearsal.progress import Progress, Step

INTERVAL_SECONDS = 2.0
SLACK_SECONDS = 120.0
"""Time for the Job controller to act on a deadline that has passed."""
DEFAULT_LIMIT_SECONDS = 14_400.0
BLIND_SECONDS = 60.0
"""How long the API server may be out of reach before following ends."""


@dataclass(frozen=True)
class Followed:
    """The last view of a run and, where following gave up, the sentence that says why."""

    view: RunView
    gave_up: str = ""


def milestones(before: RunView | None, now: RunView) -> list[str]:
    """What is worth a line of its own between two looks: a new phase, Pod or first save, not each step."""
    said = []
    if before is not None and before.pod and now.pod and before.pod != now.pod:
        said.append(f"{now.run}: a new Pod, {now.pod}, after {before.pod}")
    if before is not None and now.restarts > before.restarts:
        said.append(f"{now.run}: restart {now.restarts} by JobSet, {now.counted_restarts} counted")
    waits_for_else = before is not None and now.phase is Phase.WAITING and before.sentence != now.sentence
    if before is None or before.phase != now.phase or waits_for_else:
        where = f" on {now.node}" if now.node and now.phase in (Phase.STARTING, Phase.RUNNING) else ""
        said.append(f"{now.run}: {now.phase}{where}: {now.sentence}")
    elif now.checkpoint is not None and before.checkpoint is None:
        said.append(f"{now.run}: first checkpoint, at step {now.checkpoint}")
    return said


def follow(
    look: Callable[[RunRef], RunView],
    refs: Sequence[RunRef],
    progress: Progress,
    timeout_seconds: float | None = None,
    *,
    faults: Callable[[], Sequence[str]] = lambda: (),
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[Followed]:
    """Look at every run until it is over or its limit has passed.

    `look` is one observation of one run; `faults` names what is known to be broken when a look fails. The
    limit is `timeout_seconds`, else each run's own deadline. Raises OpsError after a minute of silence.
    """
    started = clock()
    last: dict[RunRef, RunView] = {}
    gave_up: dict[RunRef, str] = {}
    blind_since: float | None = None
    with progress.step(_title(refs)) as step:
        while True:
            try:
                for ref in refs:
                    if ref not in gave_up and not (ref in last and last[ref].over):
                        last[ref] = _look(look, ref, last.get(ref), progress)
                blind_since = None
            except Exception as error:
                blind_since = blind_since if blind_since is not None else clock()
                _blind(error, clock() - blind_since, faults, step)
            else:
                for ref, view in last.items():
                    limit = (
                        timeout_seconds
                        or float(view.deadline_seconds or DEFAULT_LIMIT_SECONDS) + SLACK_SECONDS
                    )
                    if not view.over and clock() - started >= limit:
                        gave_up[ref] = (
                            f"{view.run} was not over after {limit:.0f} s. {view.phase}: {view.sentence}"
                        )
                step.note(_note(last, gave_up))
                if all(ref in gave_up or last[ref].over for ref in refs):
                    return [Followed(last[ref], gave_up.get(ref, "")) for ref in refs]
            pause(INTERVAL_SECONDS)


def exit_code(followed: Sequence[Followed]) -> ExitCode:
    """A failed run leads; then one that is not over; else all is well."""
    if any(item.view.phase is Phase.FAILED for item in followed):
        return ExitCode.FAILED
    return ExitCode.NOT_READY if any(item.gave_up for item in followed) else ExitCode.OK


def _look(
    look: Callable[[RunRef], RunView], ref: RunRef, before: RunView | None, progress: Progress
) -> RunView:
    view = look(ref)
    for line in milestones(before, view):
        progress.say(line)
    return view


def _blind(error: Exception, seconds: float, faults: Callable[[], Sequence[str]], step: Step) -> None:
    """A look that failed for the network's sake is tried again; anything else is told at once."""
    sentence, code = describe(error)
    if code is not ExitCode.UNAVAILABLE or isinstance(error, OpsError):
        raise error
    broken = "; ".join(faults())
    if seconds > BLIND_SECONDS or broken:
        raise OpsError(broken or sentence, "Look at `./holdfast status`.", ExitCode.UNAVAILABLE) from error
    step.note(f"the API server does not answer, for {seconds:.0f} s now")


def _title(refs: Sequence[RunRef]) -> str:
    return f"Following {refs[0].run}" if len(refs) == 1 else f"Following {len(refs)} runs"


def _note(last: Mapping[RunRef, RunView], gave_up: Mapping[RunRef, str]) -> str:
    open_runs = [view for ref, view in last.items() if not view.over and ref not in gave_up]
    if len(open_runs) == 1:
        return f"{open_runs[0].phase}: {open_runs[0].sentence}"
    return "; ".join(f"{view.run} {view.phase}" for view in open_runs)
