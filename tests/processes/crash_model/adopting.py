"""The same for a program that writes its own checkpoints: they are sealed as they stand, and put back."""

from __future__ import annotations

from pathlib import Path

from tests.processes.crash_model.protocol import (
    Content,
    Note,
    Offered,
    Restored,
    Saved,
    Scenario,
    claim,
    finish,
    read_files,
    write_files,
)
from trainer.recovery import Attempt
from trainer.recovery.adoption import FOLDER, Adopted
from trainer.recovery.adoption_options import Adoption, StepPattern
from trainer.recovery.adoption_sealing import QUIET_LOOKS, Sealer

ADOPTION = Adoption(StepPattern.parse("checkpoint-{step}"), keep=2)


def written_at(step: int) -> Content:
    """What the program writes at a step, below its directory."""
    return {f"checkpoint-{step}/model": f"weights of step {step}".encode().ljust(40, b".")}


def prepare(attempt: Attempt, note: Note) -> tuple[int, Sealer]:
    """Bring the program's directory in order: the step that it goes on from, 0 for none."""
    adopted = Adopted(ADOPTION, attempt.generation, attempt.store.identity)
    adopted.prepare()
    assert adopted._thread is not None
    step = adopted.newest.number if adopted.newest else 0
    note(Restored(step))
    return step, adopted._thread._sealer  # looks are taken here, not by a clock


def found_by_the_program(attempt: Attempt, step: int) -> Content:
    """The newest step as the program itself will find it."""
    folder = f"checkpoint-{step}"
    found = read_files(attempt.store.work_dir / FOLDER / folder)
    return {f"{folder}/{path}": content for path, content in found.items()}


def trains(attempt: Attempt, note: Note) -> None:
    """Two more steps. A step is told once it is sealed: when the next one appears, or the program ended."""
    began, sealer = prepare(attempt, note)
    for step in (began + 1, began + 2):
        writes(attempt, step, written_at(step), sealer, note)
        if step - 1 > began:
            _tell(attempt, step - 1, note)
    sealer.look(ended=True, whole=True)
    _tell(attempt, began + 2, note)


def writes(attempt: Attempt, step: int, content: Content, sealer: Sealer, note: Note) -> None:
    note(Offered(step, content))
    write_files(attempt.store.work_dir / FOLDER, content)
    for _ in range(QUIET_LOOKS + 1):
        sealer.look()


def writes_anew(run_dir: Path, note: Note) -> None:
    """The program replaces a step that is sealed, and ends."""
    attempt = claim(run_dir, note)
    step, sealer = prepare(attempt, note)
    content = {path: b"another try".ljust(50, b"!") for path in written_at(step)}
    for path in content:
        (attempt.store.work_dir / FOLDER / path).unlink()
    writes(attempt, step, content, sealer, note)
    sealer.look(ended=True, whole=True)
    note(Saved(step, content))


def _tell(attempt: Attempt, step: int, note: Note) -> None:
    if step in attempt.store.steps():
        note(Saved(step, written_at(step)))


def trained_before(run_dir: Path, note: Note) -> None:
    trains(claim(run_dir, note), note)


def trains_and_ends(run_dir: Path, note: Note) -> None:
    attempt = claim(run_dir, note)
    trains(attempt, note)
    finish(attempt, note)


def resumed(run_dir: Path, note: Note) -> None:
    trains(claim(run_dir, note), note)


ADOPTED: tuple[Scenario, ...] = (
    Scenario("a program that saves by itself", trains_and_ends),
    Scenario("a program that saves by itself, resumed", resumed, trained_before),
    Scenario("a program that writes a step anew", writes_anew, trained_before),
)
