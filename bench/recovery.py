"""What a preemption costs a run on the cluster of a stack: each recovery in parts, goodput, and submit to first step.

    python bench/recovery.py preemptions [--controller jobset|job] [--times N] [--stack dev] [--json]
    python bench/recovery.py goodput     [--minutes N]             one deletion of the Pod every minute
    python bench/recovery.py first-step                            from the request to the first step, for both controllers

`preemptions` deletes the run's Pod after each first checkpoint of an attempt (default: 20 times with a JobSet, 4 with a
plain Job), and compares each recovery with the start-up of the same program uninterrupted: its first Pod, from the Pod's
creation to its first step. `beyond` is what the preemption cost more than that and the plain Job's own delay of 10 s,
doubled each time. `steal` is the part of the processors that the host took away meanwhile, where this machine is
a virtual one: such a row measures the host. Exit code 1 where a recovery is beyond the limit (4 s with a JobSet, 3 s with a plain Job) or a run
does not end with its result.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.host import Steal  # noqa: E402
from ops import console  # noqa: E402
from ops.acceptance import plan as plans  # noqa: E402
from ops.acceptance.facts import Acceptance, FaultKind, Scenario  # noqa: E402
from ops.acceptance.lab import Lab  # noqa: E402
from ops.acceptance.reading import Reading, read  # noqa: E402
from ops.acceptance.scenarios.when import after_a_checkpoint  # noqa: E402
from ops.acceptance.split import PARTS, moment_of, recoveries_of, start_of, totals_of  # noqa: E402
from ops.stacks import environment, load_stack, settings, target  # noqa: E402

LIMITS = {"jobset": 4.0, "job": 3.0}
TIMES = {"jobset": 20, "job": 4}
STEPS_PER_ATTEMPT = 25
FIRST_DELAY, LONGEST_DELAY = 10.0, 600.0  # seconds: kubernetes, pkg/controller/job/job_controller.go

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Controller = Literal["jobset", "job"]
StackOption = Annotated[str, typer.Option("--stack", "-s")]
JsonOption = Annotated[bool, typer.Option("--json")]


def measure(stack_name: str, runs: list[tuple[str, Controller, plans.Shape, Callable[[Lab], None]]]) -> Acceptance:
    """Make the runs one after the other, by the machinery of `./holdfast accept`, and give what was seen."""
    from ops.acting import ActingKube
    from ops.verbs import accept

    stack = load_stack(stack_name)
    env = environment(stack)
    place = accept.find_place(stack, settings(stack, env), "")
    kind = FaultKind("", "many-preemptions", "measured")
    wanted = accept.Wanted("", "many-preemptions", [], "fit", 7200.0, True)
    driver = accept.prepare(stack, place, ActingKube(target(stack, env)), wanted, [kind], frozenset())
    planned, deeds = [], {}
    for slug, controller, shape, deed in runs:
        one = plans.planned(
            FaultKind("", slug, slug), shape, controller, driver.acceptance, place.run,
            place.team.checkpoint_storage.claim_name,
        )  # fmt: skip
        planned.append(one)
        deeds[slug] = deed
    driver.plan = plans.Plan(None, tuple(planned), ())
    driver.slots, driver.disturb = 1, deeds.__getitem__
    facts = driver.run()
    for problem in [*facts.problems, *(text for one in facts.scenarios for text in one.problems)]:
        console.error(problem)
    return facts


def reading_of(facts: Acceptance, slug: str) -> Reading:
    """One scenario as the acceptance's judge reads it. Exit code 1 where it did not come to its end."""
    found = next((one for one in read(facts)[1] if one.fact.fault == slug), None)
    if found is None or not completed(found.fact):
        console.error(f"The run of {slug} did not come to its end; nothing was measured.")
        raise typer.Exit(1)
    return found


def completed(fact: Scenario) -> bool:
    result = (fact.volume.inspect if fact.volume else {}).get("result")
    return fact.completed and isinstance(result, dict) and result.get("verified") is True


def shape(steps: int, step_seconds: float = 0.1, every: int = STEPS_PER_ATTEMPT) -> plans.Shape:
    return plans.Shape(
        ("jobset", "job"), step_seconds=step_seconds, checkpoint_every=every, backoff_limit=1,
        env={"HOLDFAST_DIGITS_STEPS": str(steps)},
    )  # fmt: skip


@app.command()
def preemptions(
    controller: Annotated[Controller, typer.Option()] = "jobset",
    times: Annotated[int | None, typer.Option(min=1)] = None,
    stack: StackOption = "dev",
    as_json: JsonOption = False,
) -> None:
    """Many preemptions of one run."""
    count = times or TIMES[controller]

    def deed(lab: Lab) -> None:
        for number in range(1, count + 1):
            lab.delete(after_a_checkpoint(lab, number))
        lab.running(count + 1)
        lab.over()

    # Each attempt needs room for a checkpoint of its own and the steps until it is gone.
    steps = STEPS_PER_ATTEMPT * 3 * (count + 1)
    with Steal() as steal:
        facts = measure(stack, [("preemptions", controller, shape(steps), deed)])
    reading = reading_of(facts, "preemptions")
    start, found = start_of(reading), recoveries_of(reading)
    if start is None or len(found) != count or any(each.split is None for each in found):
        console.error(f"Of {count} preemptions only {len(found)} were seen whole.")
        raise typer.Exit(1)
    rows = []
    for number, each in enumerate(found, 1):
        assert each.split is not None
        begins = datetime.fromisoformat(each.split.begins)
        delay = 0.0 if controller == "jobset" else min(LONGEST_DELAY, FIRST_DELAY * 2 ** (number - 1))
        rows.append(
            {
                "preemption": number,
                "seconds": each.split.seconds,
                "controller_delay": delay,
                "beyond": round(each.split.seconds - delay - start.seconds, 2),
                "steal_percent": steal.percent(begins, begins + timedelta(seconds=each.split.seconds)),
                "lost_steps": each.lost_steps,
                "parts": {part.name: part.seconds for part in each.split.parts},
            }
        )
    worst = max(row["beyond"] for row in rows)
    holds = worst <= LIMITS[controller]
    if as_json:
        console.as_json(
            {"controller": controller, "start_seconds": start.seconds, "recoveries": rows,
             "worst_beyond": worst, "limit": LIMITS[controller], "holds": holds}
        )  # fmt: skip
    else:
        show_recoveries(controller, start.seconds, rows)
        console.say(f"Worst: {worst:.1f} s beyond the start-up (limit {LIMITS[controller]:g} s).")
    raise typer.Exit(0 if holds else 1)


def show_recoveries(controller: str, start: float, rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"{controller}: start-up of the program uninterrupted {start:.1f} s")
    for name in ("n", "seconds", "delay", "beyond", "steal", *PARTS):
        table.add_column(name, justify="right")
    for row in rows:
        parts = [row["parts"].get(name) for name in PARTS]
        table.add_row(
            str(row["preemption"]), f"{row['seconds']:.1f}", f"{row['controller_delay']:.0f}", f"{row['beyond']:.1f}",
            "-" if row["steal_percent"] is None else f"{row['steal_percent']:.0f} %",
            *("-" if part is None else f"{part:.1f}" for part in parts),
        )  # fmt: skip
    console.out().print(table)


@app.command()
def goodput(
    minutes: Annotated[int, typer.Option(min=2)] = 5,
    controller: Annotated[Controller, typer.Option()] = "jobset",
    stack: StackOption = "dev",
    as_json: JsonOption = False,
) -> None:
    """The useful part of the time with a preemption every minute."""

    def deed(lab: Lab) -> None:
        lab.running(1)
        for number in range(1, minutes):
            lab.recorder.pause(60.0)
            lab.delete(lab.running(number))
        lab.over()

    # At the pace of a step in 0.1 s the run's own work fills the minutes, less what the preemptions take.
    facts = measure(stack, [("goodput", controller, shape(minutes * 500, every=50), deed)])
    reading = reading_of(facts, "goodput")
    found = recoveries_of(reading)
    totals = totals_of(reading, found)
    seconds = [each.split.seconds for each in found if each.split]
    outcome = {
        "controller": controller,
        "preemptions": len(found),
        "wall_seconds": totals.wall_seconds,
        "useful_seconds": totals.useful_seconds,
        "goodput": totals.goodput,
        "lost_steps": totals.lost_steps,
        "median_recovery_seconds": round(statistics.median(seconds), 2) if seconds else None,
    }
    show(outcome, as_json)


@app.command("first-step")
def first_step(stack: StackOption = "dev", as_json: JsonOption = False) -> None:
    """From the request that makes the run to its first step."""

    def deed(lab: Lab) -> None:
        lab.over()

    both: list[Controller] = ["job", "jobset"]
    facts = measure(stack, [(f"first-{each}", each, shape(50), deed) for each in both])
    outcome = {}
    for each in both:
        reading = reading_of(facts, f"first-{each}")
        start = start_of(reading)
        [(action, _), *_] = reading.actions("create")
        created = moment_of(reading, reading.lives[0], "created")
        if start is None or created is None:
            console.error(f"The first step of the {each} was not seen.")
            raise typer.Exit(1)
        submit = max(0.0, (created - reading.server_time(action.at)).total_seconds())
        parts = {"submit": round(submit, 2), **{part.name: part.seconds for part in start.parts}}
        outcome[each] = {"seconds": round(submit + start.seconds, 2), **parts}
    if as_json:
        console.as_json(outcome)
        return
    table = Table()
    names = ["seconds", "submit", *PARTS[2:]]
    for name in ("controller", *names):
        table.add_column(name, justify="right")
    for each, row in outcome.items():
        table.add_row(each, *(f"{row[name]:.2f}" if row.get(name) is not None else "-" for name in names))
    console.out().print(table)


def show(outcome: dict[str, Any], as_json: bool) -> None:
    if as_json:
        console.as_json(outcome)
        return
    table = Table("figure", "value")
    for name, value in outcome.items():
        table.add_row(name, json.dumps(value))
    console.out().print(table)


if __name__ == "__main__":
    app()
