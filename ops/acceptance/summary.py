"""The verdict on a terminal: a row per fault, then what does not hold, in sentences."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from ops import console
from ops.acceptance.facts import Acceptance
from ops.acceptance.judge import failing, left_out
from ops.acceptance.verdict import Outcome, ScenarioVerdict, Verdict
from ops.acceptance.words import number, percent, plain, seconds

COLUMNS = (
    "",
    "fault",
    "by",
    "verdict",
    "Pods",
    "resumed at",
    "recovery",
    "steps lost",
    "GPU-s lost",
    "goodput",
)


def summary(facts: Acceptance, verdict: Verdict) -> Table:
    """Faults first, then skipped ones, then the references."""
    table = console.table("Acceptance", *COLUMNS)
    for column in table.columns[:4]:
        column.no_wrap = True
    for run in verdict.scenarios:
        _add(table, _row(run, run.fault))
    for each in left_out(facts):
        _add(table, [each.letter, each.fault, each.controller or "any", "skipped", *["–"] * 6])
    for slug in verdict.missing:
        _add(table, ["", slug, "", str(Outcome.NOT_SHOWN), *["–"] * 6])
    for run in verdict.references:
        _add(table, _row(run, "reference"))
    return table


def sentences(facts: Acceptance, verdict: Verdict) -> list[str]:
    """The verdict, then each assertion that does not hold or is not shown, then why faults were skipped."""
    said = [f"{verdict.outcome.capitalize()}. {verdict.sentence}"]
    for run in [*verdict.scenarios, *verdict.references]:
        said += [
            f"{run.fault}, {run.controller}: {each.name} "
            + ("does not hold" if each.holds == "no" else "is not shown")
            + f": expected {each.expected}; seen: {each.seen}."
            for each in failing(run)
        ]
    said += [f"{each.fault} was skipped: {each.reason} {each.what_to_do}" for each in left_out(facts)]
    said += list(facts.problems)
    return [plain(sentence) for sentence in said]


def _add(table: Table, cells: list[str]) -> None:
    table.add_row(*(Text(plain(cell)) for cell in cells))  # as text: a name may look like markup


def _row(run: ScenarioVerdict, name: str) -> list[str]:
    totals = run.totals
    return [
        run.letter,
        name,
        run.controller,
        str(run.outcome),
        str(totals.attempts),
        ", ".join(str(step) for step in totals.resume_steps) or "–",
        seconds(totals.recovery_seconds),
        number(totals.lost_steps),
        number(totals.lost_gpu_seconds),
        percent(totals.goodput),
    ]
