"""Does the crash model find mistakes? Makes one at a time in a copy of `trainer/`, and names what caught it.

    python bench/mutations.py [--only TEXT] [--jobs N] [--write]

Prints a table. Ends with 1 when a mutation survives, and with 2 when one no longer fits the code (its text
must be there exactly once) or when the unchanged copy fails. `--write` puts the table into
docs/recovery-proof.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.mutation_list import CRASHES, MUTATIONS, Mutation  # noqa: E402

DOCUMENT = ROOT / "docs" / "recovery-proof.md"
BEGIN, END = "<!-- begin of the mutation table -->", "<!-- end of the mutation table -->"
COPIED = (
    "trainer",
    "tests/conftest.py",
    "tests/processes/conftest.py",
    "tests/processes/crash_model",
    "tests/processes/trainer",
    "pyproject.toml",
)
LONGEST_TEST_SECONDS, LONGEST_RUN_SECONDS = 150, 900  # on a busy machine
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", re.MULTILINE)
PYTEST_FOUND_FAILURES = 1


class DoesNotFit(Exception):
    """A mutation's text is not in the code exactly once: the code changed, and the mutation must follow."""


@dataclass(frozen=True)
class Judged:
    """What became of one mutation. caught_by: the test that failed, empty when it survived."""

    mutation: Mutation
    caught_by: str
    why: str
    seconds: float


def mutated(text: str, edits: Sequence[tuple[str, str]], where: str) -> str:
    """Raises DoesNotFit."""
    for old, new in edits:
        if (count := text.count(old)) != 1:
            raise DoesNotFit(f"{where}: this text is there {count} times instead of once:\n{old}")
        text = text.replace(old, new)
    return text


def apply(mutation: Mutation, root: Path = ROOT) -> None:
    """Change the copy below `root`. Raises DoesNotFit."""
    path = root / "trainer" / "recovery" / mutation.file
    text = mutated(path.read_text(), mutation.edits, f"{mutation.name} in {mutation.file}")
    compile(text, str(path), "exec")
    path.write_text(text)


def copy_to(root: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)


def run_tests(root: Path, tests: Sequence[str], select: str = "") -> tuple[str, str]:
    """The first test that fails in the copy, and what it says; empty when all pass. Raises RuntimeError."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--tb=no",
        "-rfE",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    command += [f"--timeout={LONGEST_TEST_SECONDS}", *(["-k", select] if select else [])]
    environ = {
        **os.environ,
        "HOLDFAST_CRASH_MODEL": "fast",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "1000",
    }
    try:
        done = subprocess.run(
            command, cwd=root, env=environ, capture_output=True, text=True, timeout=LONGEST_RUN_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the tests took more than {LONGEST_RUN_SECONDS} s: a busy machine?") from error
    if done.returncode == 0:
        return "", ""
    found = FAILED.search(done.stdout)
    if done.returncode != PYTEST_FOUND_FAILURES or not found:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return found[1].rpartition("::")[2], (found[2] or "").strip()


def judge(mutation: Mutation, select: str = "") -> Judged:
    """Apply one mutation to a copy and run its tests. Raises DoesNotFit, RuntimeError."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        root = Path(folder)
        copy_to(root)
        apply(mutation, root)
        caught_by, why = run_tests(root, mutation.tests, select)
    return Judged(mutation, caught_by, why, time.monotonic() - began)


def unchanged_passes(tests: Sequence[str] = CRASHES) -> str:
    """The first test that fails without any mutation, which would catch everything; empty when all pass."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy_to(Path(folder))
        return run_tests(Path(folder), tests)[0]


def table(judged: Sequence[Judged]) -> str:
    lines = ["| mutation | where | caught by | with the words |", "|---|---|---|---|"]
    for one in judged:
        words = re.sub(r"^[\w.]*(Violation|Error|Failed): ", "", one.why)
        words = re.sub(r"/\S*/(?=run-001)", "…/", words)[:110].replace("|", "/")
        caught = f"`{one.caught_by}`" if one.caught_by else "**SURVIVED**"
        lines.append(f"| {one.mutation.name} | `{one.mutation.file}` | {caught} | {words} |")
    return "\n".join(lines)


def write(text: str, document: Path = DOCUMENT) -> None:
    """Put the table between its marks."""
    before, _, rest = document.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench/mutations.py", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", default="", help="only mutations with this text in their names")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)), help="at once")
    parser.add_argument("--write", action="store_true", help="put the table into docs/recovery-proof.md")
    given = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if given.only in mutation.name]
    if not chosen:
        print(f"no mutation has {given.only!r} in its name", file=sys.stderr)
        return 2
    judged: list[Judged] = []
    try:
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            if broken := unchanged_passes(tests):
                print(f"{broken} fails without any mutation: mend that first", file=sys.stderr)
                return 2
        with ThreadPoolExecutor(given.jobs) as pool:
            for one in pool.map(judge, chosen):
                judged.append(one)
                print(
                    f"{one.seconds:5.0f} s  {one.mutation.name}: {one.caught_by or 'SURVIVED'}",
                    file=sys.stderr,
                )
    except (DoesNotFit, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(judged))
    if given.write:
        write(table(judged))
    survived = [one for one in judged if not one.caught_by]
    print(f"\n{len(judged)} mutations, {len(survived)} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
