"""Look at every crash point of every scenario, and print how many there are.

    python -m tests.processes.crash_model [--thorough] [--seed N] [--only TEXT]

Ends with 1, and says what is lost, when an invariant does not hold.
"""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace

from tests.processes.crash_model.adopting import ADOPTED
from tests.processes.crash_model.exploring import DEPTHS, Counted, Depth, Violation, explore, killed
from tests.processes.crash_model.faults import Kind, inject
from tests.processes.crash_model.protocol import SCENARIOS

HEAD = ("what is crashed in", "calls", "crash points", "disk states", "different", "of a second crash")


def work(depth: Depth) -> Iterator[tuple[str, Callable[[], Counted]]]:
    """Everything that is looked at, by name."""
    for scenario in (*SCENARIOS, *ADOPTED):
        yield scenario.name, lambda scenario=scenario: explore(scenario, depth)
    whole, resumed = SCENARIOS[-1], SCENARIOS[-2]
    yield f"{whole.name}, killed, then power lost", lambda: killed(whole, depth)
    for scenario in SCENARIOS:
        if scenario.name in ("first save", "commit"):
            name = f"{scenario.name}, killed, then power lost"
            yield name, lambda scenario=scenario: killed(scenario, depth, last=30)
    for kind, error in (
        (Kind.ONCE, errno.EIO),
        (Kind.FROM_HERE, errno.EIO),
        (Kind.ONCE, errno.ENOSPC),
        (Kind.FROM_HERE, errno.ENOSPC),
        (Kind.ANSWER, errno.EIO),
    ):
        name = f"{resumed.name}: {errno.errorcode[error]} {kind.value}"
        yield name, lambda kind=kind, error=error: inject(resumed, kind, error, depth)


def row(values: tuple[object, ...]) -> str:
    first, *others = values
    return (
        f"| {first} | "
        + " | ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in others)
        + " |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.processes.crash_model")
    parser.add_argument(
        "--thorough", action="store_true", help="more random states, and second crashes in more of them"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random states")
    parser.add_argument("--only", default="", help="only what has this text in its name")
    given = parser.parse_args()
    depth = replace(DEPTHS["thorough" if given.thorough else "usual"], seed=given.seed)
    began, found = time.monotonic(), []
    print(row(HEAD))
    print("|---|" + "---:|" * (len(HEAD) - 1))
    for name, look in work(depth):
        if given.only in name:
            try:
                found.append(look())
            except Violation as error:
                print(f"\n{error}", file=sys.stderr)
                return 1
            print(row(astuple(found[-1])), flush=True)
    if not found:
        print(f"nothing has {given.only!r} in its name", file=sys.stderr)
        return 2
    print(row(("all", *(sum(numbers) for numbers in list(zip(*map(astuple, found), strict=True))[1:]))))
    print(f"\n{time.monotonic() - began:.0f} seconds, seed {given.seed}; every invariant holds", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
