"""How long `./holdfast up` takes with cached toolchain and images, and how much memory cluster and run use at most.

    python bench/up.py [RUNS]

Ends the rehearsal cluster of this checkout before each run, and leaves the last one. Needs root. Prints one JSON line
per run: seconds of `up` from nothing, seconds of a second `up`, and the peak of the proportional set size (MiB).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def memory_mib(state: str, mark: str) -> float:
    """Proportional set size of every process of the rehearsal: those that name its state folder or are in its cgroups."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            ours = state.encode() in (entry / "cmdline").read_bytes() or mark in (entry / "cgroup").read_text()
            if ours:
                lines = (entry / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return total / 1024


def timed_up() -> float:
    started = time.monotonic()
    subprocess.run([ROOT / "holdfast", "up"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def main() -> None:
    from rehearsal.state import rehearsal_id, state_dir

    state, mark = str(state_dir()), f"holdfast-{rehearsal_id()}"
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        subprocess.run([ROOT / "holdfast", "down", "--yes"], check=True, stdout=subprocess.DEVNULL)
        peak, ended = 0.0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(1.0):
                peak = max(peak, memory_mib(state, mark))

        watcher = threading.Thread(target=watch)
        watcher.start()
        first = timed_up()
        second = timed_up()
        ended.set()
        watcher.join()
        figures = {"up_seconds": round(first, 1), "second_up_seconds": round(second, 1), "peak_memory_mib": round(peak)}
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
