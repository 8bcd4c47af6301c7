"""The verdict for CI: JUnit XML, and CTRF as JSON. One test per fault and controller, and one per reference.

JUnit as Jenkins and GitLab read it (jenkins-junit.xsd), CTRF 0.1.0 by ctrf-io/ctrf's schema/ctrf.schema.json.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from ops.acceptance.facts import Acceptance, Scenario, Skipped
from ops.acceptance.judge import failing, left_out
from ops.acceptance.verdict import Assertion, Holds, Outcome, ScenarioVerdict, Verdict
from ops.acceptance.words import plain

SUITE = "holdfast accept"
CTRF_VERSION = "0.1.0"


def junit(facts: Acceptance, verdict: Verdict) -> bytes:
    """One `testsuite`. What does not hold is a failure; what is not shown is an error, and no pass either."""
    tests = _tests(facts, verdict)
    counts = {
        "tests": str(len(tests) + len(left_out(facts)) + len(verdict.missing)),
        "failures": str(sum(run.outcome is Outcome.FAILED for run, _ in tests)),
        "errors": str(sum(run.outcome is Outcome.NOT_SHOWN for run, _ in tests) + len(verdict.missing)),
        "skipped": str(len(left_out(facts))),
        "time": f"{_duration(facts.started_at, facts.ended_at):.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    stamp = facts.started_at.isoformat(timespec="seconds")
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, "timestamp": stamp, **counts})
    known = {
        "stack": facts.stack,
        "cluster": facts.cluster.server_version,
        "image": facts.image,
        "acceptance": facts.id,
    }
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in known.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": plain(value)})
    for run, fact in tests:
        case = _case(suite, _name(run.letter, run.fault, run.controller), fact)
        bad = failing(run)
        if bad:
            kind = "failure" if run.outcome is Outcome.FAILED else "error"
            told = ElementTree.SubElement(case, kind, {"message": _line(bad[0]), "type": run.outcome})
            told.text = "\n".join(_line(each) for each in bad)
        out = ElementTree.SubElement(case, "system-out")
        out.text = "\n".join(f"{each.holds}: {_line(each)}" for each in run.assertions)
    for each in left_out(facts):
        case = _case(suite, _name(each.letter, each.fault, each.controller), None)
        ElementTree.SubElement(case, "skipped", {"message": _why(each)})
    for slug in verdict.missing:
        case = _case(suite, plain(slug), None)
        ElementTree.SubElement(case, "error", {"message": _MISSING, "type": Outcome.NOT_SHOWN})
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def ctrf(facts: Acceptance, verdict: Verdict) -> dict[str, Any]:
    """A CTRF document. It knows no `not shown`: that is `failed`, with the word in `rawStatus`."""
    tests = [_ctrf_test(run, fact) for run, fact in _tests(facts, verdict)]
    tests += [
        {
            "name": _name(each.letter, each.fault, each.controller),
            "status": "skipped",
            "duration": 0,
            "suite": [SUITE],
            "message": _why(each),
        }
        for each in left_out(facts)
    ]
    tests += [
        {
            "name": plain(slug) or "?",
            "status": "failed",
            "duration": 0,
            "suite": [SUITE],
            "message": _MISSING,
            "rawStatus": str(Outcome.NOT_SHOWN),
        }
        for slug in verdict.missing
    ]
    count = {
        status: sum(test["status"] == status for test in tests) for status in ("passed", "failed", "skipped")
    }
    start = _milliseconds(facts.started_at)
    return {
        "reportFormat": "CTRF",
        "specVersion": CTRF_VERSION,
        "generatedBy": SUITE,
        "results": {
            "tool": {"name": SUITE, "version": plain(facts.tool_version)},
            "summary": {
                "tests": len(tests),
                **count,
                "pending": 0,
                "other": 0,
                "suites": 1,
                "start": start,
                "stop": _milliseconds(facts.ended_at) if facts.ended_at else start,
            },
            "tests": tests,
            "environment": {
                "appName": "holdfast",
                "appVersion": plain(facts.tool_version),
                "testEnvironment": plain(f"{facts.stack}, Kubernetes {facts.cluster.server_version}"),
                "extra": {"image": plain(facts.image), "acceptance": plain(facts.id)},
            },
        },
    }


_MISSING = "Asked for and not made."


def _tests(facts: Acceptance, verdict: Verdict) -> list[tuple[ScenarioVerdict, Scenario]]:
    return [
        *zip(verdict.scenarios, facts.scenarios, strict=True),
        *zip(verdict.references, facts.references, strict=True),
    ]


def _ctrf_test(run: ScenarioVerdict, fact: Scenario) -> dict[str, Any]:
    bad = failing(run)
    status = "passed" if run.outcome is Outcome.PASSED else "failed"
    test: dict[str, Any] = {
        "name": _name(run.letter, run.fault, run.controller),
        "status": status,
        "duration": round(_duration(fact.started_at, fact.ended_at) * 1000),
        "start": _milliseconds(fact.started_at),
        "suite": [SUITE],
        "rawStatus": str(run.outcome),
        "type": "acceptance",
        # A step has a name and a status, and no room for what was seen.
        "steps": [
            {"name": plain(each.name), "status": "passed" if each.holds is Holds.YES else "failed"}
            for each in run.assertions
        ],
        "extra": {"run": plain(run.run_id), "title": plain(run.title)},
    }
    if bad:
        test["message"] = _line(bad[0])
        test["trace"] = "\n".join(_line(each) for each in bad)
    return test


def _case(suite: ElementTree.Element, name: str, fact: Scenario | None) -> ElementTree.Element:
    took = _duration(fact.started_at, fact.ended_at) if fact else 0.0
    return ElementTree.SubElement(
        suite, "testcase", {"classname": "holdfast.accept", "name": name, "time": f"{took:.3f}"}
    )


def _name(letter: str, fault: str, controller: str) -> str:
    return plain((f"({letter}) " if letter else "") + fault + (f", {controller}" if controller else ""))


def _line(assertion: Assertion) -> str:
    return plain(f"{assertion.name}: expected {assertion.expected}; seen: {assertion.seen}")


def _why(skipped: Skipped) -> str:
    return plain(f"{skipped.reason} {skipped.what_to_do}".strip())


def _duration(start: datetime, end: datetime | None) -> float:
    return max(0.0, (end - start).total_seconds()) if end else 0.0


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
