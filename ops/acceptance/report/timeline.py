"""A scenario on a time axis: where each bar, mark and flag of its picture stands. Pure geometry, no markup.

Units are those of the picture's viewBox: WIDTH across, a row per attempt. Times count from the first Pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ops.acceptance.reading import Event, Life, Reading
from ops.acceptance.split import moment_of
from ops.acceptance.verdict import Split
from ops.acceptance.words import plain, seconds

WIDTH, LEFT, RIGHT = 1000, 152, 984
ROW, BAR, HEAD, FOOT = 46, 16, 40, 26
NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600)
MOST_TICKS = 10
FLAG = 17  # flags nearer to each other than this stand on two levels
NARROW = 52  # a segment narrower than this has no room for its name


@dataclass(frozen=True)
class Bar:
    x: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class Mark:
    """kind: checkpoint, failed, aside, restore, result, found."""

    x: float
    kind: str
    title: str
    label: str = ""


@dataclass(frozen=True)
class Row:
    y: float
    label: str
    note: str
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Flag:
    """One thing that was done: a line across all rows, and its number above them."""

    x: float
    level: int
    number: int
    title: str


@dataclass(frozen=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True)
class Timeline:
    width: int
    height: int
    rows: tuple[Row, ...]
    flags: tuple[Flag, ...]
    ticks: tuple[Tick, ...]
    title: str


@dataclass(frozen=True)
class Segment:
    x: float
    width: float
    name: str
    slug: str
    label: str
    title: str


@dataclass(frozen=True)
class SplitBar:
    """One recovery as a stacked bar."""

    segments: tuple[Segment, ...]
    total: str


class _Axis:
    """Moments to x."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        self.begin = begin
        self.span = max((end - begin).total_seconds(), 1.0)

    def x(self, at: datetime) -> float:
        share = min(1.0, max(0.0, (at - self.begin).total_seconds() / self.span))
        return round(LEFT + share * (RIGHT - LEFT), 1)

    def since(self, at: datetime) -> str:
        return seconds(max(0.0, (at - self.begin).total_seconds()))

    def ticks(self) -> tuple[Tick, ...]:
        step = next((each for each in NICE if self.span / each <= MOST_TICKS), self.span / MOST_TICKS)
        count = min(MOST_TICKS, int(self.span / step))
        width = (RIGHT - LEFT) * step / self.span
        return tuple(
            Tick(round(LEFT + number * width, 1), f"{number * step:g} s") for number in range(count + 1)
        )


def timeline(reading: Reading) -> Timeline | None:
    """The picture of a scenario; None where no Pod was seen."""
    begins = [at for life in reading.lives if (at := moment_of(reading, life, "created"))]
    if not begins:
        return None
    actions = [
        (action, reading.server_time(action.at)) for action in reading.fact.done if action.what != "create"
    ]
    ends = [at for life in reading.lives for at in _moments(reading, life)] + [at for _, at in actions]
    axis = _Axis(min([*begins, *(at for _, at in actions)]), max([*begins, *ends]))
    rows = tuple(_row(reading, life, axis, HEAD + number * ROW) for number, life in enumerate(reading.lives))
    return Timeline(
        width=WIDTH,
        height=HEAD + len(rows) * ROW + FOOT,
        rows=rows,
        flags=_flags(
            [(f"{axis.since(at)}: {action.what} {action.target}", axis.x(at)) for action, at in actions]
        ),
        ticks=axis.ticks(),
        title=f"{len(rows)} attempt{'s' * (len(rows) != 1)} in {axis.since(max([*begins, *ends]))}",
    )


def split_bars(splits: Iterable[Split]) -> tuple[SplitBar, ...]:
    """Stacked bars on one scale, the longest over the whole width."""
    known = list(splits)
    longest = max((split.seconds for split in known), default=0.0) or 1.0
    bars = []
    for split in known:
        segments, x = [], float(LEFT)
        for part in split.parts:
            if not part.seconds:
                continue
            width = part.seconds / longest * (RIGHT - LEFT)
            segments.append(
                Segment(
                    x=round(x, 1),
                    width=round(max(width, 0.5), 1),
                    name=part.name,
                    slug=part.name.replace(" ", "-"),
                    label=part.name if width >= max(NARROW, len(part.name) * 7) else "",
                    title=f"{part.name}: {seconds(part.seconds)}",
                )
            )
            x += width
        bars.append(SplitBar(tuple(segments), seconds(split.seconds)))
    return tuple(bars)


def _moments(reading: Reading, life: Life) -> list[datetime]:
    states = ("created", "scheduled", "started", "finished")
    found = [moment_of(reading, life, state) for state in states] + [event.at for event in life.events]
    return [at for at in found if at]


def _row(reading: Reading, life: Life, axis: _Axis, y: float) -> Row:
    created, started = moment_of(reading, life, "created"), moment_of(reading, life, "started")
    first = life.steps[0].at if life.steps else None
    last = life.steps[-1].at if life.steps else None
    known = _moments(reading, life)
    end = moment_of(reading, life, "finished") or max(known, default=None)
    spans = [
        ("waiting", "waits for its container", created, started or end),
        ("starting", "starts, imports, restores", started, first or end),
        ("training", "trains", first, last),
        ("stopping", "saves and stops", last, end),
    ]
    bars = tuple(
        Bar(
            axis.x(begin),
            max(0.5, round(axis.x(until) - axis.x(begin), 1)),
            kind,
            f"{title}: {_span(begin, until)}",
        )
        for kind, title, begin, until in spans
        if begin and until and until >= begin
    )
    code = "no code told" if life.fact.exit_code is None else f"exit code {life.fact.exit_code}"
    generation = f"generation {life.generation}" if life.generation else "no generation"
    return Row(
        y=y,
        label=f"{life.title}, {code}",
        note=plain(f"{generation}, {life.fact.node or 'no node'}", 30),
        bars=bars,
        marks=tuple(mark for event in life.events if (mark := _mark(event, axis))),
    )


def _span(begin: datetime, until: datetime) -> str:
    return seconds((until - begin).total_seconds())


def _mark(event: Event, axis: _Axis) -> Mark | None:
    if event.at is None:
        return None
    x, step = axis.x(event.at), event.step
    match event.name:
        case "checkpoint":
            return Mark(x, "checkpoint", f"checkpoint of step {step} at {axis.since(event.at)}")
        case "checkpoint-failed":
            return Mark(
                x, "failed", f"the save of step {step} failed at {axis.since(event.at)}", "save failed"
            )
        case "checkpoint-set-aside":
            return Mark(x, "aside", f"step {event.data.get('step')} set aside at {axis.since(event.at)}")
        case "restore":
            return Mark(x, "restore", f"restored step {step} at {axis.since(event.at)}", f"step {step}")
        case "result":
            ours = event.data.get("ours") is True
            said = "committed the result" if ours else "found the result"
            return Mark(x, "result" if ours else "found", f"{said} at {axis.since(event.at)}", "result")
    return None


def _flags(found: list[tuple[str, float]]) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    for number, (title, x) in enumerate(found, 1):
        level = 1 if flags and x - flags[-1].x < FLAG and flags[-1].level == 0 else 0
        flags.append(Flag(x, level, number, title))
    return tuple(flags)
