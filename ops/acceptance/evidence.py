"""The evidence of an acceptance: one JSON file with facts, verdict and digests, and its check.

What `verify` proves: the file is whole and unedited since its digests were made, and its verdict follows from
its facts. It does not prove who wrote it: the file is not signed, and a forger can make facts up and digests
anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ops.acceptance.facts import FORMAT as FACTS_FORMAT
from ops.acceptance.facts import Acceptance, dump
from ops.acceptance.judge import conclude
from ops.acceptance.junit import ctrf, junit
from ops.acceptance.report import page
from ops.acceptance.verdict import RULES, Outcome, Verdict
from ops.acceptance.words import plain

FORMAT = "holdfast.evidence/1"
LARGEST_FILE = 512 * 1024 * 1024  # bytes
EVIDENCE, REPORT, JUNIT, CTRF = "evidence.json", "report.html", "junit.xml", "ctrf.json"
MOST_TOLD = 20  # differences of one file that are told one by one
_PARTS = ("attempts", "done", "objects", "snapshots", "observations", "watch", "comparisons", "volume")


@dataclass(frozen=True)
class Paths:
    """Where the evidence is."""

    evidence: Path
    report: Path
    junit: Path
    ctrf: Path


@dataclass(frozen=True)
class Verified:
    """What a check of a file found. `problems`: sentences, each naming the part; `verdict`: derived anew.

    `judged`: the verdict was derived and compared. It is not where other rules judged the file.
    """

    path: Path
    intact: bool
    sentence: str
    problems: tuple[str, ...] = ()
    verdict: Verdict | None = None
    facts: Acceptance | None = None
    judged: bool = False

    @property
    def passed(self) -> bool:
        """Intact, and its verdict, derived anew, is that the acceptance passed."""
        return (
            self.intact
            and self.judged
            and self.verdict is not None
            and self.verdict.outcome is Outcome.PASSED
        )


def canonical(value: Any) -> bytes:
    """The one text of a JSON value, of which digests are made."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def digest(value: Any) -> str:
    """Hex SHA-256 of a JSON value's canonical text."""
    return hashlib.sha256(canonical(value)).hexdigest()


def assemble(facts: Acceptance, verdict: Verdict) -> dict[str, Any]:
    """The whole document. `digests.parts`: JSON pointer of each part of the facts to its digest."""
    raw = json.loads(dump(facts))
    document = {"format": FORMAT, "facts": raw, "verdict": verdict.model_dump(mode="json")}
    parts = {pointer: digest(value) for pointer, _, value in _parts(raw)}
    document["digests"] = {
        "algorithm": "sha256",
        "canonical": "JSON, sorted keys, no spaces, ASCII",
        "parts": parts,
        "verdict": digest(document["verdict"]),
        "document": "",
    }
    document["digests"]["document"] = _document_digest(document)
    return document


def write_evidence(facts: Acceptance, verdict: Verdict, folder: Path) -> Paths:
    """Write the JSON file, the page, and the two files for CI, each whole or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    document = assemble(facts, verdict)
    paths = Paths(folder / EVIDENCE, folder / REPORT, folder / JUNIT, folder / CTRF)
    _write(paths.evidence, json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    _write(paths.report, page(facts, verdict, document["digests"]["document"]).encode())
    _write(paths.junit, junit(facts, verdict))
    _write(paths.ctrf, json.dumps(ctrf(facts, verdict), indent=1).encode() + b"\n")
    return paths


def verify(path: Path) -> Verified:
    """Check a file that anybody may have written: digests, then the verdict from the facts. Never raises."""
    try:
        if path.is_dir():
            path = path / EVIDENCE
        if path.exists() and not path.is_file():
            return _refuse(path, f"{path} is not a file.")
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        return _refuse(path, f"{path} can not be read: {error.strerror or error}.")
    if len(content) > LARGEST_FILE:
        return _refuse(path, f"{path} is larger than {LARGEST_FILE >> 20} MiB, which no evidence is.")
    return check(content, path)


def check(content: bytes, path: Path) -> Verified:
    """`verify` for content that has been read."""
    try:
        return _check(_parse(content), path)
    except _NotEvidence as error:
        return _refuse(path, f"{path} {error}.")
    except RecursionError:
        return _refuse(path, f"{path} is nested too deeply for an evidence.")


def _check(document: dict[str, Any], path: Path) -> Verified:
    facts_raw, claimed, digests = document["facts"], document["verdict"], document["digests"]
    problems = [*_broken_digests(document, facts_raw, claimed, digests)]
    try:
        facts = Acceptance.model_validate_json(json.dumps(facts_raw))
    except (ValidationError, ValueError, RecursionError) as error:
        problems.append(f"The facts are not of the format {FACTS_FORMAT}: {_first(error)}")
        return _judged(path, problems, None, None, False)
    # A release may add optional fields to the format, which an older file does not have.
    if not _same(json.loads(facts.model_dump_json(exclude_unset=True)), facts_raw):
        # Else a value that the model reads differently would be digested as one thing and judged as another.
        problems.append("The facts are not written as this format writes them, so they were edited")
    rules = claimed.get("rules") if isinstance(claimed, dict) else None
    if rules != RULES and isinstance(rules, int):
        problems.append(
            f"The verdict was made by the rules {rules}, this release has the rules {RULES}, so it was not "
            f"derived anew: check it with the release that wrote it ({plain(facts.tool_version, 60)})"
        )
        return _judged(path, problems, None, facts, False)
    try:
        verdict = conclude(facts)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # The models take more than any cluster has, such as a Pod of the year 1.
        problems.append(f"The facts can not be judged: {plain(error, 200)}")
        return _judged(path, problems, None, facts, False)
    problems += _differences(claimed, verdict)
    return _judged(path, problems, verdict, facts, True)


class _NotEvidence(Exception):
    """What the file is instead."""


def _parse(content: bytes) -> dict[str, Any]:
    if not content.strip():
        raise _NotEvidence("is empty")
    try:
        document = json.loads(
            content.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise _NotEvidence("is not text in UTF-8, so it is no evidence") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(content.decode().rstrip()) - 1 or "Unterminated" in error.msg
        raise _NotEvidence(
            f"is not whole JSON (line {error.lineno}, column {error.colno}: {error.msg})"
            + ("; it seems to be cut off" if cut else "")
        ) from None
    except ValueError as error:
        raise _NotEvidence(f"is not JSON as an evidence has it: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("format"), str):
        raise _NotEvidence("is JSON, but no evidence of an acceptance: it has no format")
    found = document["format"]
    if found == FACTS_FORMAT:
        raise _NotEvidence(
            "has facts only, without verdict and digests: `evidence.json` beside it is the one to check"
        )
    if found != FORMAT:
        newer = found.startswith("holdfast.evidence/")
        what = (
            "an evidence of a format that this release does not know"
            if newer
            else "no evidence of an acceptance"
        )
        raise _NotEvidence(f"is {what}: {plain(found, 80)!r} instead of {FORMAT!r}")
    wanted = {"format": str, "facts": dict, "verdict": dict, "digests": dict}
    for name, kind in wanted.items():
        if not isinstance(document.get(name), kind):
            raise _NotEvidence(f"has no {name}, so it is no whole evidence")
    if extra := sorted(set(document) - set(wanted)):
        raise _NotEvidence(f"has the part {plain(extra[0], 80)!r}, which an evidence has not")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _document_digest(document: Mapping[str, Any]) -> str:
    bare = {**document, "digests": {**document["digests"], "document": ""}}
    return digest(bare)


def _parts(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(JSON pointer, title, value) of every part of the facts; together they are all of it."""
    yield (
        "/facts",
        "the head of the facts",
        {k: v for k, v in raw.items() if k not in ("references", "scenarios")},
    )
    for group in ("references", "scenarios"):
        runs = raw.get(group)
        runs = runs if isinstance(runs, list) else []
        yield f"/facts/{group}", f"the list of {group}", len(runs)
        for index, run in enumerate(runs):
            yield from _scenario_parts(f"/facts/{group}/{index}", run)


def _scenario_parts(where: str, run: Any) -> Iterator[tuple[str, str, Any]]:
    if not isinstance(run, dict):
        yield where, where, run
        return
    title = f"{plain(run.get('fault'), 40)} ({plain(run.get('run_id'), 60)})"
    yield where, f"{title}, its head", {k: v for k, v in run.items() if k not in _PARTS}
    for name in _PARTS:
        value = run.get(name)
        if name != "attempts" or not isinstance(value, list):
            yield f"{where}/{name}", f"{title}, {name}", value
            continue
        yield f"{where}/attempts", f"{title}, the number of attempts", len(value)
        for index, attempt in enumerate(value):
            place = f"{where}/attempts/{index}"
            said = {"events", "other_lines", "log_lines", "log_sha256"}
            if not isinstance(attempt, dict):
                yield place, f"{title}, attempt {index + 1}", attempt
                continue
            head = {k: v for k, v in attempt.items() if k not in said}
            yield place, f"{title}, attempt {index + 1}", head
            log = {k: v for k, v in attempt.items() if k in said}
            yield f"{place}/events", f"{title}, the log of attempt {index + 1}", log


def _broken_digests(
    document: Mapping[str, Any], raw: Mapping[str, Any], claimed: Any, digests: Mapping[str, Any]
) -> Iterator[str]:
    known = digests.get("parts") if isinstance(digests.get("parts"), dict) else {}
    titles = set()
    for pointer, title, value in _parts(raw):
        titles.add(pointer)
        if pointer not in known:
            yield f"{title} has no digest ({pointer})"
        elif known[pointer] != digest(value):
            yield f"{title} was edited: its digest does not fit ({pointer})"
    for pointer in sorted(set(known) - titles):
        yield f"A part is missing that has a digest ({plain(pointer, 120)})"
    if digests.get("verdict") != digest(claimed):
        yield "The verdict was edited: its digest does not fit (/verdict)"
    if digests.get("document") != _document_digest(document):
        yield "The document was edited: the digest of the whole does not fit (/digests/document)"


def _differences(claimed: Any, verdict: Verdict) -> list[str]:
    """Where the file's verdict is not what follows from its facts, named by scenario and assertion."""
    derived = verdict.model_dump(mode="json")
    if _same(claimed, derived):
        return []
    found = [_name(claimed, derived, path, a, b) for path, a, b in _unequal(claimed, derived, ())]
    told = found[:MOST_TOLD]
    return told + ([f"and {len(found) - MOST_TOLD} more differences"] if len(found) > MOST_TOLD else [])


def _same(one: Any, other: Any) -> bool:
    return canonical(one) == canonical(other)


def _unequal(a: Any, b: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from _unequal(a.get(key), b.get(key), (*path, key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _unequal(left, right, (*path, index))
    elif not _same(a, b):
        yield path, a, b


def _name(claimed: Any, derived: Any, path: tuple[str | int, ...], a: Any, b: Any) -> str:
    where = plain("/verdict" + "".join(f"/{part}" for part in path), 120)
    title = "The verdict"
    if len(path) > 1 and path[0] in ("scenarios", "references") and isinstance(path[1], int):
        run = derived[path[0]][path[1]]
        title = f"The verdict on {plain(run['fault'], 40)} ({plain(run['run_id'], 60)})"
        if len(path) > 3 and path[2] == "assertions" and isinstance(path[3], int):
            title += f", {run['assertions'][path[3]]['name']!r}"
    says = f"the file says {_short(a)}, the facts say {_short(b)}"
    return f"{title} does not follow from the facts: {says} ({where})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 100 else text[:97] + "..."


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = plain("/".join(str(part) for part in first["loc"]), 120)
        return f"{first['msg']} (at /facts/{place})"
    return "they are nested too deeply" if isinstance(error, RecursionError) else plain(error, 200)


def _refuse(path: Path, sentence: str) -> Verified:
    return Verified(path, False, sentence, (sentence,))


def _judged(
    path: Path, problems: list[str], verdict: Verdict | None, facts: Acceptance | None, judged: bool
) -> Verified:
    if problems:
        count = len(problems)
        sentence = (
            f"{path} is not what it was, or says what does not follow: {count} problem{'s' * (count > 1)}."
        )
    else:
        outcome = verdict.outcome if verdict else Outcome.NOT_SHOWN
        sentence = f"{path} is unedited, and its verdict follows from its facts: {outcome}."
    return Verified(path, not problems, sentence, tuple(problems), verdict, facts, judged)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
