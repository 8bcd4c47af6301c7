"""`test`: the tiers of tests, each by its own pytest, with JUnit files in test-results/."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from ops import console
from ops.bootstrap import BootstrapError, ensure_packages, ensure_venv
from ops.exit_codes import ExitCode
from ops.stacks import ROOT
from rehearsal import toolchain
from rehearsal.errors import RehearsalError
from rehearsal.progress import Progress

RESULTS = ROOT / "test-results"
TRAINER_REQUIREMENTS = ROOT / "trainer" / "requirements.txt"
FRAMEWORKS_REQUIREMENTS = ROOT / "tests" / "processes" / "trainer" / "frameworks" / "requirements.txt"
BACKGROUND_NICENESS = 10
MOST_PROCESSES = 8  # a tier has few minutes of work: more would start longer than they help
NO_TESTS = 5  # pytest's exit code for "no test was collected"


class Tier(StrEnum):
    """What a tier needs grows: nothing (pure functions and mocks); the SDK's proxies; real processes; the engine; a cluster."""

    UNIT = "unit"
    POLICIES = "policies"
    PROCESSES = "processes"
    CLI = "cli"
    REHEARSAL = "rehearsal"
    ALL = "all"


ORDER = (Tier.UNIT, Tier.POLICIES, Tier.PROCESSES, Tier.CLI, Tier.REHEARSAL)


@dataclass(frozen=True)
class TierResult:
    """One tier's outcome. `seconds` includes what it prepared; counts are pytest's."""

    tier: Tier
    code: int
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0


def test(tier: Tier, keep: bool, extra: Sequence[str]) -> ExitCode:
    """Run the tiers in order; a failed one does not stop the next. Arguments after `--` go to pytest.

    The rehearsal tier has a cluster of its own, in another state folder than a person's, and ends it (`keep`
    leaves it for the next time).
    """
    tiers = ORDER if tier is Tier.ALL else (tier,)
    if Tier.REHEARSAL in tiers:
        from rehearsal import machine

        machine.require()  # told now, not after the other tiers
    RESULTS.mkdir(exist_ok=True)
    progress = Progress()
    results: dict[Tier, TierResult] = {}
    beside = Tier.CLI if Tier.REHEARSAL in tiers and side_by_side(Tier.CLI, extra) else None
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[TierResult] | None = None
        for one in tiers:
            if one is not beside:
                results[one] = _tier(one, keep, extra, progress)
            elif not (unready := _prepare(one, progress)):
                # The rehearsal's tests wait for controllers half of their time: these get the cores meanwhile.
                waiting = pool.submit(_pytest_in_the_background, one, extra)
            else:
                results[one] = unready
        if waiting and beside:
            results[beside] = _told(beside, waiting, progress)
    _table([results[one] for one in tiers])
    return ExitCode.OK if all(result.code == 0 for result in results.values()) else ExitCode.FAILED


def _tier(tier: Tier, keep: bool, extra: Sequence[str], progress: Progress) -> TierResult:
    """One tier, with what it needs made first. What can not be made fails this tier; the next one is run all the same."""
    started = time.monotonic()
    if unready := _prepare(tier, progress):
        return unready
    try:
        if tier is Tier.REHEARSAL:
            return _rehearsal_tier(keep, extra, progress, started)
    except RehearsalError as error:
        return _unready(tier, error, started)
    return _pytest(tier, extra, started)


def _prepare(tier: Tier, progress: Progress) -> TierResult | None:
    """Make what a tier needs: here it is shown and has no time limit, inside a test it would have one.

    None where all is there; else the result of a tier that can not be run.
    """
    started = time.monotonic()
    try:
        if tier is Tier.PROCESSES:
            ensure_packages(TRAINER_REQUIREMENTS, "trainer")
            python_with_frameworks()
        if tier is Tier.CLI:
            toolchain.ensure(toolchain.CLI_TEST_PROGRAMS, progress)
        if tier is Tier.REHEARSAL:
            toolchain.ensure(["kubectl"], progress)
    except (BootstrapError, RehearsalError) as error:
        return _unready(tier, error, started)
    return None


def _unready(tier: Tier, error: Exception, started: float) -> TierResult:
    console.say(f"The {tier} tests can not be run: {error}")
    return TierResult(tier, int(ExitCode.UNAVAILABLE), time.monotonic() - started)


def state_dir_of_tests(root: Path = ROOT) -> Path:
    """The test cluster's state folder: one per checkout, and never the one of `./holdfast up`."""
    return Path("/var/lib/holdfast") / f"test-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"


def _rehearsal_tier(keep: bool, extra: Sequence[str], progress: Progress, started: float) -> TierResult:
    before = os.environ.get("HOLDFAST_STATE")
    os.environ["HOLDFAST_STATE"] = str(state_dir_of_tests())
    from rehearsal import cluster

    try:
        cluster.up(progress)
        return _pytest(Tier.REHEARSAL, extra, started)
    finally:
        if not keep:
            cluster.down(progress)
        if before is None:
            del os.environ["HOLDFAST_STATE"]
        else:
            os.environ["HOLDFAST_STATE"] = before


def _pytest_in_the_background(tier: Tier, extra: Sequence[str]) -> TierResult:
    """A tier's pytest behind everything else, its words in test-results/TIER.log."""
    with (RESULTS / f"{tier}.log").open("w") as log:
        return _pytest(tier, extra, time.monotonic(), log, BACKGROUND_NICENESS)


def _told(tier: Tier, running: Future[TierResult], progress: Progress) -> TierResult:
    """Wait for a tier in the background, and then print what it said."""
    with progress.step(f"The {tier} tests, which began beside the rehearsal's"):
        result = running.result()
    print((RESULTS / f"{tier}.log").read_text(errors="replace"), flush=True)
    return result


def _pytest(
    tier: Tier, extra: Sequence[str], started: float, log: IO[str] | None = None, niceness: int = 0
) -> TierResult:
    """One tier's pytest. Its words go to `log`, or where this program's go."""
    report = RESULTS / f"{tier}.xml"
    report.unlink(missing_ok=True)
    print(f"== {tier} tests", file=log, flush=True)
    command = ["nice", f"-n{niceness}"] if niceness else []
    command += [sys.executable, "-m", "pytest", f"tests/{tier}", f"--junitxml={report}", "-q"]
    command += [*side_by_side(tier, extra), *extra]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if log:
        environment.pop("HOLDFAST_STATE", None)  # the cluster is the other tier's
    said = subprocess.STDOUT if log else None
    code = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=said
    ).returncode
    if code == NO_TESTS and extra:
        code = 0  # a selection such as `-k name` may fit one tier and no other
    return TierResult(tier, code, time.monotonic() - started, *counts(report))


def python_with_frameworks() -> Path:
    """The Python of an environment with other people's training frameworks, made once and kept with the caches."""
    from rehearsal.state import cache_dir

    root = cache_dir() / "test-frameworks"
    root.mkdir(parents=True, exist_ok=True)
    wanted, copy = FRAMEWORKS_REQUIREMENTS.read_bytes(), root / "requirements.txt"
    if not copy.is_file() or copy.read_bytes() != wanted:
        copy.write_bytes(wanted)
    return ensure_venv(root)


def side_by_side(tier: Tier, extra: Sequence[str], cores: int | None = None) -> list[str]:
    """pytest's options for a process per core, where the tests share nothing and nobody wants to see one at work.

    The rehearsal's tests share a cluster. `-n 0` in `extra`, which comes later, turns it off.
    """
    cores = cores or os.cpu_count() or 1
    if tier is Tier.REHEARSAL or cores < 2 or {"-s", "--pdb", "--trace", "--capture=no"} & set(extra):
        return []
    # A process takes the rest of another one's tests when it has none left; files stay together until then.
    return ["-n", str(min(cores, MOST_PROCESSES)), "--dist", "worksteal"]


def counts(report: Path) -> tuple[int, int, int]:
    """Passed, failed (errors among them) and skipped, from a JUnit file; zeros where there is none."""
    if not report.is_file():
        return 0, 0, 0
    tests = failed = skipped = 0
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return tests - failed - skipped, failed, skipped


def _table(results: Sequence[TierResult]) -> None:
    made = console.table("Tests", "tier", "passed", "failed", "skipped", "time")
    for item in results:
        words = "" if item.code == 0 or item.failed else f"  (pytest ended with exit code {item.code})"
        made.add_row(
            str(item.tier),
            str(item.passed),
            str(item.failed),
            str(item.skipped),
            f"{item.seconds:.1f} s{words}",
        )
    console.say()
    console.out().print(made)
    console.say(f"JUnit files: {RESULTS}")
