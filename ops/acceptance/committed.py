"""Assertions about the result: committed once, verified, and equal to an uninterrupted run's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ops.acceptance.facts import Json, Scenario
from ops.acceptance.reading import UNREAD, Reading, mapping, number, objects, text, whole
from ops.acceptance.verdict import Assertion, told


def committed_once(reading: Reading) -> Assertion:
    """One attempt committed; whoever else came to the end found that result, and it never changed."""
    ours = [(life, event) for life, event in reading.results if event.data.get("ours") is True]
    looks = [look for look in reading.looks if look.result]
    hashes = {text(look.result.get("sha256")) for look in looks}
    wrong = []
    if len(ours) > 1:
        wrong.append(f"{', '.join(life.title for life, _ in ours)} each say that theirs was committed")
    if len(hashes) > 1:
        wrong.append("result.json changed between two looks at the volume")
    contents = {_canonical(event.data) for _, event in reading.results}
    if len(contents) > 1:
        wrong.append("attempts tell different results")
    final = reading.final.result if reading.final else {}
    if ours and final and ours[0][0].generation not in (None, whole(final.get("generation"))):
        wrong.append(f"result.json is of generation {final.get('generation')}, not of {ours[0][0].title}")
    cut = reading.cut_short()
    holds: bool | None = not wrong and len(ours) == 1
    if holds and (not looks or cut):
        holds = None
    if not ours and not wrong:
        holds = None if cut else False
        wrong.append("no attempt says that it committed")
    seen = (
        "; ".join(wrong) or f"{ours[0][0].title} committed, result.json {min(hashes)[:12] if hashes else '?'}"
    )
    if holds is None:
        seen += f"; {cut[0].title} has {UNREAD}" if cut else "; the volume was not read"
    evidence = [event.where for _, event in reading.results] + [
        f"{look.where}/inspect/result" for look in looks
    ]
    expected = "exactly one attempt commits, and result.json never changes"
    return told("result committed once", expected, seen, holds, evidence)


def _canonical(event: Json) -> str:
    return json.dumps([event.get("step"), event.get("metrics"), event.get("artifacts")], sort_keys=True)


def result_verifies(reading: Reading) -> Assertion:
    """result.json is of the last step, and every artifact has the hash that it states."""
    name, steps = "result verifies", reading.fact.run.steps
    expected = f"result.json is of step {steps} and of this run, and its artifacts have their hashes"
    if reading.final is None:
        return told(name, expected, "the volume was not read at the end", None, [f"{reading.where}/volume"])
    result, where = reading.final.result, f"{reading.final.where}/inspect/result"
    if not result:
        return told(name, expected, "there is no result", False, [where])
    wrong = []
    if result.get("step") != steps:
        wrong.append(f"it is of step {result.get('step')}")
    if result.get("run_id") != reading.fact.run_id:
        wrong.append(f"it is of the run {result.get('run_id')!r}")
    if result.get("verified") is False:
        wrong.append(f"it does not verify: {text(result.get('problem'))}")
    published = {
        (text(item.get("name")), text(item.get("sha256")))
        for item in objects(reading.final.fact.inspect.get("artifacts"))
    }
    wrong += [
        f"the artifact {artifact} is not published with its hash"
        for artifact, sha256 in artifacts_of(result).items()
        if (artifact, sha256) not in published
    ]
    unread = result.get("verified") is None
    seen = "; ".join(wrong) or ("its hashes were not compared" if unread else "so it is")
    return told(name, expected, seen, False if wrong else None if unread else True, [where])


def artifacts_of(result: Json) -> dict[str, str]:
    """Name to SHA-256 of the artifacts in a result.json."""
    return {text(item.get("name")): text(item.get("sha256")) for item in objects(result.get("artifacts"))}


def no_result(reading: Reading) -> Assertion:
    """A run that failed has no result."""
    name, expected = "no result", "nothing is committed"
    if reading.final is None:
        return told(name, expected, "the volume was not read at the end", None, [f"{reading.where}/volume"])
    found = [event.where for _, event in reading.results]
    there = bool(reading.final.result)
    seen = "a result" if there or found else "no result"
    where = [*found, f"{reading.final.where}/inspect/result"]
    return told(name, expected, seen, not there and not found, where)


def final_weights(run: Scenario, reference: Scenario | None, where: str) -> Assertion:
    """Bit-identical to the uninterrupted run's; on a GPU, equal within the result's stated tolerance."""
    name = "final weights"
    ours, theirs = _result_of(run), _result_of(reference)
    pointers = [
        f"{where}/volume/inspect/result",
        *(f"{where}/comparisons/{i}" for i in range(len(run.comparisons))),
    ]
    details = mapping(ours.get("details"))
    tolerance = None if details.get("platform") == "cpu" else number(details.get("tolerance"))
    expected = (
        f"equal to the uninterrupted run's within {tolerance:g}, the run's stated tolerance"
        if tolerance
        else "bit-identical to the uninterrupted run's"
    )
    mine, others = artifacts_of(ours), artifacts_of(theirs)
    if not mine or not others:
        whose = "this run" if not mine else f"the reference {run.reference or '(none)'}"
        return told(name, expected, f"no artifact of {whose} was read", None, pointers)
    for comparison in run.comparisons:
        pair = (mine.get(comparison.artifact, ""), others.get(comparison.artifact, ""))
        if (comparison.sha256 or pair[0], comparison.reference_sha256 or pair[1]) != pair:
            seen = f"the comparison of {comparison.artifact} is of other files than the two results state"
            return told(name, expected, seen, False, pointers)
    if mine == others:
        hashes = ", ".join(f"{artifact} {sha256[:12]}" for artifact, sha256 in sorted(mine.items()))
        return told(name, expected, f"bit-identical: {hashes}", True, pointers)
    if not tolerance or set(mine) != set(others):
        differ = sorted(n for n in {*mine, *others} if mine.get(n) != others.get(n))
        largest = [c.max_abs_difference for c in run.comparisons if c.max_abs_difference is not None]
        by = f", by up to {max(largest):g}" if largest else ""
        return told(name, expected, f"{', '.join(differ)} differs{by}", False, pointers)
    differing = {artifact for artifact in mine if mine[artifact] != others[artifact]}
    known = {c.artifact: c.max_abs_difference for c in run.comparisons if c.max_abs_difference is not None}
    if differing <= set(known):
        largest = max(known[artifact] for artifact in differing)
        return told(
            name, expected, f"largest difference of a weight: {largest:g}", largest <= tolerance, pointers
        )
    return _metrics_within(
        name, expected, mapping(ours.get("metrics")), mapping(theirs.get("metrics")), tolerance, pointers
    )


def _metrics_within(
    name: str,
    expected: str,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    tolerance: float,
    where: list[str],
) -> Assertion:
    """The weights could not be compared one by one: the recorded metrics stand for them, as `seen` says."""
    pairs = {key: (number(ours.get(key)), number(theirs.get(key))) for key in {*ours, *theirs}}
    if not pairs or any(a is None or b is None for a, b in pairs.values()):
        seen = "the files differ, and neither weights nor metrics can be compared"
        return told(name, expected, seen, None, where)
    largest = max(abs((a or 0.0) - (b or 0.0)) for a, b in pairs.values())
    seen = f"the files differ; compared by the recorded metrics, which differ by at most {largest:g}"
    return told(name, expected, seen, largest <= tolerance, where)


def _result_of(run: Scenario | None) -> Json:
    return mapping(run.volume.inspect.get("result")) if run and run.volume else {}
