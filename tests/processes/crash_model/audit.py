"""Compares what is recorded with what the interpreter's own audit events tell, for every scenario.

    python -m tests.processes.crash_model.audit

Ends with 1 when a call was made that was not recorded. A process of its own, because an audit hook stays
for ever.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.processes.crash_model.exploring import folder, quiet, run
from tests.processes.crash_model.protocol import RUN, SCENARIOS, Scenario
from tests.processes.crash_model.recorder import Recorder

EVENTS = {
    "open": "open",
    "create": "open",
    "mkdir": "os.mkdir",
    "rename": "os.rename",
    "replace": "os.rename",
    "link": "os.link",
    "unlink": "os.remove",
    "remove": "os.remove",
    "rmdir": "os.rmdir",
    "listdir": "os.listdir",
    "scandir": "os.scandir",
    "ftruncate": "os.truncate",
}
_heard: Counter[str] = Counter()
_root: list[str] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _root and event in EVENTS.values() and _is_ours(arguments[0]):
        _heard[event] += 1


def _is_ours(path: Any) -> bool:
    if isinstance(path, int):
        return True  # of an open directory: nothing else in this process has one
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    # Relative to an open directory, as `shutil.rmtree` removes.
    return text.startswith(_root[0]) or not text.startswith("/")


def differences(scenario: Scenario, root: Path) -> list[str]:
    """Events whose number differs from the calls recorded."""
    with quiet("a"):
        scenario.before(root / RUN, lambda fact: None)
    recorder = Recorder(root)
    with recorder.recording():
        _heard.clear()
        _root.append(str(root))
        run(scenario, root / RUN, recorder.mark)
        _root.clear()
    recorded = Counter(EVENTS[call.name] for call in recorder.calls if call.name in EVENTS)
    return [
        f"{scenario.name}: {event} was heard {_heard[event]} times and recorded {recorded[event]} times"
        for event in sorted({*_heard, *recorded})
        if _heard[event] != recorded[event]
    ]


def main() -> int:
    sys.addaudithook(_hear)
    found = []
    for scenario in SCENARIOS:
        with folder() as root:
            found += differences(scenario, root)
    print("\n".join(found) or f"{len(SCENARIOS)} scenarios: every call was recorded")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
