"""The evidence as one page that a person reads: self-contained HTML, no script, nothing from a network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ops.acceptance.facts import Acceptance, Scenario
from ops.acceptance.judge import failing, left_out
from ops.acceptance.reading import Reading, read
from ops.acceptance.report.timeline import SplitBar, Timeline, split_bars, timeline
from ops.acceptance.split import PARTS
from ops.acceptance.verdict import Assertion, Outcome, Recovery, ScenarioVerdict, Verdict
from ops.acceptance.words import number, percent, plain, seconds

FOLDER = Path(__file__).parent
# A word beside each icon, and an icon beside each word: colour is never alone.
_ICONS = {
    "passed": "good",
    "yes": "good",
    "failed": "bad",
    "no": "bad",
    "not shown": "open",
    "skipped": "skip",
}
_WORDS = {
    "passed": "passed",
    "failed": "failed",
    "not shown": "not shown",
    "skipped": "skipped",
    "yes": "holds",
    "no": "does not hold",
}


@dataclass(frozen=True)
class Shown:
    """One scenario with all that its section shows."""

    fact: Scenario
    verdict: ScenarioVerdict
    reading: Reading
    timeline: Timeline | None
    bars: tuple[SplitBar, ...]
    recoveries: tuple[Recovery, ...]
    """Those with a bar, in the same order."""
    bad: tuple[Assertion, ...]

    @property
    def passed(self) -> bool:
        return self.verdict.outcome is Outcome.PASSED


def page(facts: Acceptance, verdict: Verdict, digest: str) -> str:
    """The page's text. `digest`: of the evidence's document, which ties the page to the file."""
    references, scenarios = read(facts)
    template = _environment().get_template("page.html.j2")
    return template.render(
        facts=facts,
        verdict=verdict,
        digest=digest,
        scenarios=[_shown(*pair) for pair in zip(scenarios, verdict.scenarios, strict=True)],
        references=[_shown(*pair) for pair in zip(references, verdict.references, strict=True)],
        parts=PARTS,
        skipped=left_out(facts),
        css=Markup((FOLDER / "page.css").read_text()),
    )


def _shown(reading: Reading, verdict: ScenarioVerdict) -> Shown:
    recoveries = tuple(each for each in verdict.recoveries if each.split)
    return Shown(
        fact=reading.fact,
        verdict=verdict,
        reading=reading,
        timeline=timeline(reading),
        bars=split_bars(each.split for each in recoveries if each.split),
        recoveries=recoveries,
        bad=tuple(failing(verdict)),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "seconds": seconds,
        "number": number,
        "percent": percent,
        "upper_first": lambda text: text[:1].upper() + text[1:],
        "kind": lambda controller: {"job": "Job", "jobset": "JobSet"}.get(controller, "any"),
    }
    environment.globals |= {"icons": _ICONS, "words": _WORDS}
    return environment


def _harmless(value: Any) -> Any:
    """What is put into the page: our own markup as it is, everything else without harmful characters."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else plain(value)
