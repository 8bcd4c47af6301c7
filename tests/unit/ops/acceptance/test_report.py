"""The page, the files for CI, and the terminal: what they show, and that hostile words stay words."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from ops.acceptance.facts import Acceptance
from ops.acceptance.judge import conclude
from ops.acceptance.junit import ctrf, junit
from ops.acceptance.reading import read
from ops.acceptance.report import page
from ops.acceptance.report.timeline import LEFT, RIGHT, split_bars, timeline
from ops.acceptance.split import PARTS
from ops.acceptance.summary import sentences, summary
from ops.acceptance.verdict import Verdict
from ops.acceptance.words import number, percent, plain, seconds
from tests.unit.ops.acceptance import stories
from tests.unit.ops.acceptance.stories import events, scenario

Doc = dict[str, Any]
SKIPPED = {
    "letter": "g",
    "fault": "volume-full",
    "reason": "It fills a volume to its last byte.",
    "what_to_do": "./holdfast accept --fault volume-full",
}
HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e]]>[red]"


def concluded(*scenarios: Doc, **more: Any) -> tuple[Acceptance, Verdict]:
    facts = stories.acceptance(*scenarios, **more)
    return facts, conclude(facts)


def failed_run() -> Doc:
    story = scenario("pod-deletion")
    events(story, 1, "restore")[0]["step"] = 20
    return story


@cache
def mixed() -> tuple[Acceptance, Verdict]:
    """A passed, a failed, a not shown and a skipped one."""
    unread = {**scenario("zombie"), "volume": None}
    asked = ["crash", "pod-deletion", "zombie", "volume-full"]
    return concluded(scenario("crash", "jobset"), failed_run(), unread, skipped=[SKIPPED], asked=asked)


@cache
def mixed_page() -> str:
    return page(*mixed(), "abc123")


VOID = {"meta", "link", "br", "hr", "img", "input"}
DRAWN = {"rect", "line", "circle", "path", "use"}


class Page(HTMLParser):
    """Checks that every element is closed in its order, and keeps texts and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._take(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in DRAWN | VOID
        self._take(tag, attrs)

    def _take(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_is_well_formed_and_says_the_verdict_first() -> None:
    shown = Page(mixed_page())
    assert shown.open == []
    assert len(shown.ids) == len(set(shown.ids))
    start = shown.text[: shown.text.index("Cluster")]
    assert "Failed 1 of 3 faults passed. Failed: pod-deletion (job). Not shown: zombie (job). 1 skipped" in start
    assert "abc123" in shown.text
    assert "It fills a volume to its last byte." in shown.text
    assert "expected step 25, sealed last by generation 1; seen: step 20" in shown.text


def test_the_page_needs_nothing_but_itself() -> None:
    text = mixed_page()
    shown = Page(text)
    assert "script" not in shown.tags
    assert not {"src", "srcset", "data", "action", "onload", "onclick"} & {
        name for name, _ in shown.attributes
    }
    links = [value for name, value in shown.attributes if name == "href"]
    assert all(link.startswith("#") and link[1:] in shown.ids for link in links)
    assert not re.search(r"url\((?!#)|@import|https?://", text)
    assert "default-src 'none'" in text


def test_every_verdict_on_the_page_is_a_word_and_a_shape_besides_its_colour() -> None:
    text = mixed_page()
    for kind, shape, word in (
        ("passed", "good", "passed"),
        ("failed", "bad", "failed"),
        ("not-shown", "open", "not shown"),
        ("skipped", "skip", "skipped"),
        ("yes", "good", "holds"),
        ("no", "bad", "does not hold"),
    ):
        found = re.findall(rf'<span class="word {kind}">(.*?)</span>', text)
        assert found, kind
        assert all(f"#i-{shape}" in each and each.endswith(f" {word}") for each in found)


def test_the_page_has_light_dark_and_paper() -> None:
    text = mixed_page()
    for needed in ("prefers-color-scheme: dark", "@media print", 'name="viewport"', 'lang="en"'):
        assert needed in text


def hostile() -> tuple[Acceptance, Verdict]:
    """A program, a cluster and a person that write what would break a page, a terminal and XML."""
    story = failed_run()
    for name in ("fault", "title", "run_id"):
        story[name] = HOSTILE
    story["problems"] = [HOSTILE]
    story["done"][1].update(what=HOSTILE, target=HOSTILE, detail={"step": HOSTILE})
    attempt = story["attempts"][1]
    attempt.update(pod=HOSTILE, node=HOSTILE, log_sha256=HOSTILE)
    attempt["termination"] = {"message": HOSTILE, "code": 0}
    attempt["events"].append(
        {"event": "checkpoint-set-aside", "step": HOSTILE, "at": attempt["events"][-1]["at"]}
    )
    skipped = {name: HOSTILE for name in ("letter", "fault", "reason", "what_to_do")}
    crash = scenario("crash")
    crash["volume"]["inspect"]["result"]["problem"] = HOSTILE
    crash["volume"]["inspect"]["result"]["verified"] = False
    return concluded(
        story, crash, stack=HOSTILE, image=HOSTILE, tool_version=HOSTILE, id=HOSTILE, skipped=[skipped],
        problems=[HOSTILE], asked=[HOSTILE], cluster={"server_version": HOSTILE},
    )  # fmt: skip


def test_hostile_words_stay_words_on_the_page() -> None:
    text = page(*hostile(), "abc")
    shown = Page(text)
    assert "script" not in shown.tags
    assert not any(name.startswith("on") for name, _ in shown.attributes)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert shown.text.count("alert(1)") > 10, "they are shown, not dropped"


def test_hostile_words_stay_words_for_ci() -> None:
    facts, verdict = hostile()
    content = junit(facts, verdict)
    root = ElementTree.fromstring(content)
    assert not root.findall(".//script")
    assert b"\x1b" not in content
    assert "\x1b" not in json.dumps(ctrf(facts, verdict), ensure_ascii=False)


def test_hostile_words_stay_words_on_the_terminal() -> None:
    facts, verdict = hostile()
    console = Console(width=400, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary(facts, verdict))
    text = console.export_text() + "\n".join(sentences(facts, verdict))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]" in text


def test_a_timeline_has_bars_marks_and_flags_within_its_frame() -> None:
    _, scenarios = read(stories.acceptance(scenario("corrupted-checkpoint")))
    line = timeline(scenarios[0])
    assert line is not None
    assert [flag.title.split(": ")[1].split()[0] for flag in line.flags] == ["corrupt-and-kill"]
    first, second = line.rows
    assert first.label == "attempt 1, exit code 137"
    assert [bar.kind for bar in first.bars] == ["waiting", "starting", "training", "stopping"]
    assert [mark.kind for mark in second.marks][:2] == ["aside", "restore"]
    assert second.marks[1].label == "step 20"
    assert second.marks[-1].kind == "result"
    for row in line.rows:
        for bar in row.bars:
            assert LEFT <= bar.x <= bar.x + bar.width <= RIGHT + 1
        assert all(LEFT <= mark.x <= RIGHT for mark in row.marks)
    assert all(LEFT <= tick.x <= RIGHT for tick in line.ticks)


def test_a_run_without_a_pod_has_no_timeline() -> None:
    story = {**scenario("crash"), "attempts": []}
    _, scenarios = read(stories.acceptance(story))
    assert timeline(scenarios[0]) is None
    assert Page(page(*concluded(story), "abc")).open == []


def test_stacked_bars_share_one_scale() -> None:
    _, verdict = concluded(scenario("pod-deletion"), scenario("zombie"))
    splits = [each.split for run in verdict.scenarios for each in run.recoveries if each.split]
    short, long = split_bars(splits)
    assert long.segments[-1].x + long.segments[-1].width == pytest.approx(RIGHT, abs=1)
    width = sum(segment.width for segment in short.segments)
    assert width == pytest.approx((RIGHT - LEFT) * splits[0].seconds / splits[1].seconds, abs=3)


def test_junit_has_a_test_per_fault_with_failures_errors_and_skips() -> None:
    root = ElementTree.fromstring(junit(*mixed()))
    assert root.tag == "testsuites"
    (suite,) = root.findall("testsuite")
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "1", "errors": "1", "skipped": "1"}
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert list(cases) == [
        "(i) crash, jobset", "(a) pod-deletion, job", "(d) zombie, job", "reference, job", "(g) volume-full",
    ]  # fmt: skip
    failure = cases["(a) pod-deletion, job"].find("failure")
    assert failure is not None
    assert failure.get("message") == (
        "resume step of attempt 2: expected step 25, sealed last by generation 1; seen: step 20"
    )
    error = cases["(d) zombie, job"].find("error")
    assert error is not None
    assert error.get("type") == "not shown"
    skip = cases["(g) volume-full"].find("skipped")
    assert skip is not None
    assert skip.get("message") == "It fills a volume to its last byte. ./holdfast accept --fault volume-full"
    assert cases["(i) crash, jobset"].find("failure") is None


def test_a_fault_that_was_not_made_is_an_error_for_ci() -> None:
    facts, verdict = concluded(scenario("crash"), asked=["crash", "zombie"])
    root = ElementTree.fromstring(junit(facts, verdict))
    assert root.get("errors") == "1"
    assert [test["status"] for test in ctrf(facts, verdict)["results"]["tests"]] == [
        "passed",
        "passed",
        "failed",
    ]


# By https://github.com/ctrf-io/ctrf/blob/main/schema/ctrf.schema.json, which takes no other names.
CTRF_NAMES = {
    "": {"reportFormat", "specVersion", "generatedBy", "results"},
    "results": {"tool", "summary", "tests", "environment"},
    "summary": {"tests", "passed", "failed", "skipped", "pending", "other", "suites", "start", "stop"},
    "test": {
        "name", "status", "duration", "start", "suite", "message", "trace", "rawStatus", "type", "steps",
        "extra",
    },
}  # fmt: skip


def test_ctrf_has_the_shape_of_its_schema() -> None:
    report = ctrf(*mixed())
    assert (report["reportFormat"], report["specVersion"]) == ("CTRF", "0.1.0")
    results = report["results"]
    assert set(report) == CTRF_NAMES[""]
    assert set(results) == CTRF_NAMES["results"]
    assert set(results["summary"]) == CTRF_NAMES["summary"]
    assert all(type(value) is int for value in results["summary"].values())
    for test in results["tests"]:
        assert set(test) <= CTRF_NAMES["test"]
        assert test["status"] in ("passed", "failed", "skipped")
        assert test["name"] and type(test["duration"]) is int and isinstance(test["suite"], list)
        assert all(set(step) == {"name", "status"} for step in test.get("steps", []))
    summary = results["summary"]
    assert [summary[name] for name in ("tests", "passed", "failed", "skipped")] == [5, 2, 2, 1]
    assert [test.get("rawStatus") for test in results["tests"]] == [
        "passed",
        "failed",
        "not shown",
        "passed",
        None,
    ]


def test_the_terminal_has_a_row_per_fault_and_a_sentence_per_failure() -> None:
    facts, verdict = mixed()
    table = summary(facts, verdict)
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    rows = list(zip(*cells, strict=True))
    assert rows[0][:6] == ("i", "crash", "jobset", "passed", "2", "20")
    assert rows[3] == ("g", "volume-full", "any", "skipped", "–", "–", "–", "–", "–", "–")
    said = sentences(facts, verdict)
    assert said[0].startswith("Failed. 1 of 3 faults passed.")
    assert (
        "pod-deletion, job: resume step of attempt 2 does not hold: "
        "expected step 25, sealed last by generation 1; seen: step 20." in said
    )
    assert any(line.startswith("zombie, job: result verifies is not shown") for line in said)
    assert said[-1].startswith("volume-full was skipped: It fills a volume")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (seconds(None), "–"), (seconds(0.424), "0.42 s"), (seconds(9.996), "10.0 s"),
        (seconds(99.96), "1 min 40 s"),
        (seconds(200.4), "3 min 20 s"), (number(None), "–"), (number(7), "7"), (number(7.26), "7.3"),
        (percent(0.264), "26 %"), (plain("a\nb\tc"), "a b c"), (plain("\ud800\u202e"), "\\ud800\\u202e"),
        (plain("abcdef", 4), "abc…"),
    ],
)  # fmt: skip
def test_words_and_numbers_are_fit_for_people(shown: str, text: str) -> None:
    assert shown == text


def test_the_page_for_users_explains_every_assertion_and_every_part_of_a_recovery(checkout: Path) -> None:
    words = (checkout / "docs" / "acceptance.md").read_text()
    verdict = conclude(stories.acceptance(*[scenario(slug) for slug in stories.SLUGS]))
    names = {
        re.sub(r"attempt \d+$", "attempt N", each.name)
        for run in verdict.scenarios
        for each in run.assertions
    }
    assert [name for name in sorted(names) if name not in words] == []
    assert [part for part in PARTS if f"| {part} |" not in words] == []
