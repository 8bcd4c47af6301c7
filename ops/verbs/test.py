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
    """What a tier needs grows: nothing (pure functions and mocks); the SDK's proxies; processes and servers; the engine; a cluster."""

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
    # The rehearsal's tests wait for controllers half of their time: those with the engine get the cores meanwhile.
    beside = Tier.CLI if Tier.REHEARSAL in tiers and side_by_side(Tier.CLI, extra) else None
    with Background() as background:
        begun = [_tier(one, keep, extra, progress, background if one is beside else None) for one in tiers]
        results = [one if isinstance(one, TierResult) else background.told(Tier.CLI, one, progress) for one in begun]
    _table(results)
    return ExitCode.OK if all(result.code == 0 for result in results) else ExitCode.FAILED


def _tier(
    tier: Tier, keep: bool, extra: Sequence[str], progress: Progress, background: Background | None = None
) -> TierResult | Future[TierResult]:
    """One tier, with what it needs made first: here it is shown and has no time limit, inside a test it would have one.

    What can not be made fails this tier; the next one is run all the same.
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
            return _rehearsal_tier(keep, extra, progress, started)
    except (BootstrapError, RehearsalError) as error:
        console.say(f"The {tier} tests can not be run: {error}")
        return TierResult(tier, int(ExitCode.UNAVAILABLE), time.monotonic() - started)
    return background.begin(tier, extra) if background else _pytest(tier, extra, started)


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


class Background:
    """A tier behind everything else, its words in test-results/TIER.log. It ends with whoever leaves this context."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:  # those that have ended do not mind
            process.terminate()
        self._pool.shutdown()

    def begin(self, tier: Tier, extra: Sequence[str]) -> Future[TierResult]:
        """Start its pytest now; the result comes with its end."""
        started = time.monotonic()
        with _log(tier).open("w") as log:
            print(f"== {tier} tests", file=log, flush=True)
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
            # Whoever ends this program ends its group; a signal to it alone is passed on by leaving the context.
            process = subprocess.Popen(
                ["nice", f"-n{BACKGROUND_NICENESS}", *_command(tier, extra)],
                cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._processes.append(process)
        return self._pool.submit(lambda: _result(tier, process.wait(), extra, started))

    def told(self, tier: Tier, running: Future[TierResult], progress: Progress) -> TierResult:
        """Wait for its end, and then print what it said."""
        with progress.step(f"The {tier} tests, which began beside the rehearsal's"):
            result = running.result()
        print(_log(tier).read_text(errors="replace"), flush=True)
        return result


def _pytest(tier: Tier, extra: Sequence[str], started: float) -> TierResult:
    print(f"== {tier} tests", flush=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    code = subprocess.run(_command(tier, extra), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode
    return _result(tier, code, extra, started)


def _command(tier: Tier, extra: Sequence[str]) -> list[str]:
    """pytest for one tier, with no report of an earlier one left."""
    _report(tier).unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"tests/{tier}", f"--junitxml={_report(tier)}", "-q"]
    return [*command, *side_by_side(tier, extra), *extra]


def _result(tier: Tier, code: int, extra: Sequence[str], started: float) -> TierResult:
    if code == NO_TESTS and extra:
        code = 0  # a selection such as `-k name` may fit one tier and no other
    return TierResult(tier, code, time.monotonic() - started, *counts(_report(tier)))


def _report(tier: Tier) -> Path:
    return RESULTS / f"{tier}.xml"


def _log(tier: Tier) -> Path:
    return RESULTS / f"{tier}.log"


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
