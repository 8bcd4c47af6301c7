"""`test`: the tiers of tests, each by its own pytest, with JUnit files in test-results/."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ops import console
from ops.bootstrap import BootstrapError, ensure_packages
from ops.errors import OpsError
from ops.exit_codes import ExitCode
from ops.stacks import ROOT
from rehearsal.progress import Progress

RESULTS = ROOT / "test-results"
TRAINER_REQUIREMENTS = ROOT / "trainer" / "requirements.txt"
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
    if Tier.PROCESSES in tiers:
        try:
            ensure_packages(TRAINER_REQUIREMENTS, "trainer")
        except BootstrapError as error:
            raise OpsError(str(error), code=ExitCode.UNAVAILABLE) from None
    results = [
        _rehearsal_tier(keep, extra) if one is Tier.REHEARSAL else _pytest(one, extra) for one in tiers
    ]
    _table(results)
    return ExitCode.OK if all(result.code == 0 for result in results) else ExitCode.FAILED


def state_dir_of_tests(root: Path = ROOT) -> Path:
    """The test cluster's state folder: one per checkout, and never the one of `./holdfast up`."""
    return Path("/var/lib/holdfast") / f"test-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"


def _rehearsal_tier(keep: bool, extra: Sequence[str]) -> TierResult:
    started = time.monotonic()
    before = os.environ.get("HOLDFAST_STATE")
    os.environ["HOLDFAST_STATE"] = str(state_dir_of_tests())
    from rehearsal import cluster

    progress = Progress()
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


def _pytest(tier: Tier, extra: Sequence[str], started: float | None = None) -> TierResult:
    started = time.monotonic() if started is None else started
    report = RESULTS / f"{tier}.xml"
    report.unlink(missing_ok=True)
    print(f"== {tier} tests", flush=True)
    command = [sys.executable, "-m", "pytest", f"tests/{tier}", f"--junitxml={report}", "-q", *extra]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    code = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode
    if code == NO_TESTS and extra:
        code = 0  # a selection such as `-k name` may fit one tier and no other
    return TierResult(tier, code, time.monotonic() - started, *counts(report))


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
