"""How quickly checkpoints are saved and restored, against `cp` and `fsync` of the same bytes.

    python bench/checkpoints.py [--mib N] [--rounds N] [--directory DIR] [--json]

One run measures everything in turn, so that ratios hold on a machine that does other work too. The directory
is on the volume to measure (the current one unless given) and needs four times the bytes. Figures are
medians.

copy        `cp` of files in the page cache to new ones, then fsync of each file and directory
synced      the same `cp`, then one `sync -f` of the whole volume, which also waits for what others write
save        the same bytes from memory, hashed, flushed, with manifest, renamed
background  the same save, while a loop of small steps goes on; blocked: what the loop waits for
read, restore   from the volume, not from the page cache: plainly, and with every hash compared
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MIB = 1024 * 1024
# As cp writes. For larger parts the kernel takes larger pieces of memory, which a virtual machine may never
# have touched: the first touch costs several times the writing, and cp would not pay it.
WRITE_BYTES = 256 * 1024
SHAPES = {"one file": 1, "200 files": 200}


class Shape:
    """The bytes of one checkpoint, in memory and as files, and each way to bring them to the volume."""

    def __init__(self, folder: Path, size: int, files: int) -> None:
        self.folder = folder
        self.state = memoryview(bytearray(os.urandom(MIB) * (size // MIB)))
        self.memory = memoryview(bytearray(len(self.state)))  # taken once, as a training program should
        ends = [len(self.state) * number // files for number in range(files + 1)]
        self.parts = {f"part-{n:03}": slice(ends[n], ends[n + 1]) for n in range(files)}
        self.source = folder / "source"
        self.source.mkdir()
        self.write(self.source, self.state)
        flush(self.source)

    def write(self, folder: Path, state: memoryview) -> None:
        for name, part in self.parts.items():
            with open(folder / name, "wb", buffering=0) as stream:
                view = state[part]
                while view:
                    view = view[stream.write(view[:WRITE_BYTES]) :]

    def snapshot(self) -> memoryview:
        self.memory[:] = self.state
        return self.memory

    def round(self) -> dict[str, float]:
        """Seconds of each way, once. What was made is removed before the next, and not measured."""
        from trainer.recovery import open_attempt

        for path in self.source.iterdir():
            path.read_bytes()  # into the page cache
        found: dict[str, float] = {}
        with self._place("copy") as place:
            found["copy"] = timed(lambda: copy(self.source, place / "files"))
        with self._place("synced") as place:
            found["synced"] = timed(lambda: copy(self.source, place / "files", at_once=True))
        with self._place("save") as place:
            store = open_attempt(place / "run", {}).store
            found["save"] = timed(lambda: store.save(1, lambda folder: self.write(folder, self.state)))
            forget(place)
            found["read"] = timed(lambda: read(store.work_dir / "step-1"))
            forget(place)
            again = open_attempt(place / "run", {}).store
            found["restore"] = timed(again.restore)
        with self._place("background") as place:
            found |= self._background(open_attempt(place / "run", {}).store)
        return found

    def _background(self, store: Any) -> dict[str, float]:
        alone = [step() for _ in range(50)]
        with events() as said:
            store.save_in_background(1, self.snapshot, self.write)
            beside = [step()]
            while store._background.busy_with is not None:
                beside.append(step())
            store.wait()
        [event] = [event for event in said if event["event"] == "checkpoint"]
        slower = statistics.median(beside) / statistics.median(alone)
        return {"background": event["seconds"], "blocked": event["blocked_seconds"], "steps slower": slower}

    @contextmanager
    def _place(self, name: str) -> Iterator[Path]:
        place = self.folder / name
        place.mkdir()
        os.sync()  # what was removed before is not written in this one's time
        try:
            yield place
        finally:
            shutil.rmtree(place)


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def step() -> float:
    """Seconds of one step of a training that waits for a device, and then computes in Python for a while."""
    began = time.monotonic()
    time.sleep(0.005)
    total = 0
    for number in range(20_000):
        total += number
    return time.monotonic() - began


def copy(source: Path, target: Path, at_once: bool = False) -> None:
    subprocess.run(["cp", "-r", "--reflink=never", source, target], check=True)
    if at_once:
        subprocess.run(["sync", "-f", target], check=True)
    else:
        flush(target)


def read(folder: Path) -> None:
    subprocess.run(["cat", *sorted(folder.iterdir())], check=True, stdout=subprocess.DEVNULL)


def flush(folder: Path) -> None:
    for path in (*sorted(folder.iterdir()), folder, folder.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def forget(folder: Path) -> None:
    """Let the page cache go of every file below: another node's would not have them."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def events() -> Iterator[list[dict[str, Any]]]:
    """Keep what the library says on standard output out of the table, and read it."""
    said: list[dict[str, Any]] = []
    sys.stdout.flush()
    real = os.dup(1)
    with tempfile.TemporaryFile() as lines:
        os.dup2(lines.fileno(), 1)
        try:
            yield said
        finally:
            os.dup2(real, 1)
            os.close(real)
            lines.seek(0)
            said += [json.loads(line) for line in lines]


def figures(rounds: Sequence[dict[str, float]], size: int) -> dict[str, Any]:
    """Medians of seconds, and of the ratios of one round's figures, which other work disturbs less."""

    def ratio(over: str, under: str) -> float:
        return round(statistics.median(found[over] / found[under] for found in rounds), 3)

    names = ("copy", "synced", "save", "background", "blocked", "read", "restore")
    return {
        "bytes": size,
        "seconds": {name: round(statistics.median(found[name] for found in rounds), 3) for name in names},
        "save_speed_over_copy": ratio("copy", "save"),
        "save_speed_over_synced": ratio("synced", "save"),
        "restore_speed_over_copy": ratio("copy", "restore"),
        "restore_speed_over_read": ratio("read", "restore"),
        "blocked_over_save": ratio("blocked", "background"),
        "step_beside_save_over_alone": round(statistics.median(found["steps slower"] for found in rounds), 2),
        "rounds": [{name: round(value, 3) for name, value in found.items()} for found in rounds],
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    parts = list(found.values())
    rows: list[tuple[str, list[str]]] = [("", list(found))]
    for name in parts[0]["seconds"]:
        seconds = [part["seconds"][name] for part in parts]
        rows.append((f"{name}, seconds", [f"{value:.3f}" for value in seconds]))
        if name != "blocked":
            speeds = [part["bytes"] / MIB / value for part, value in zip(parts, seconds, strict=True)]
            rows.append((f"{name}, MiB/s", [f"{value:.0f}" for value in speeds]))
    ratios = [name for name, value in parts[0].items() if isinstance(value, float)]
    rows += [(name.replace("_", " "), [f"{part[name]:.3f}" for part in parts]) for name in ratios]
    return "\n".join(f"{name:34}" + "".join(f"{cell:>12}" for cell in cells) for name, cells in rows)


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--mib", type=int, default=1024, help="size of one checkpoint (default 1024)")
    parser.add_argument("--rounds", type=int, default=5, help="after one that is not counted (default 5)")
    parser.add_argument("--directory", type=Path, default=Path(), help="on the volume to measure")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    asked = parser.parse_args()
    if asked.mib < 1 or asked.rounds < 1 or not asked.directory.is_dir():
        parser.error("--mib and --rounds are whole numbers from 1, --directory is a directory that exists")
    free = shutil.disk_usage(asked.directory).free // MIB
    if free < 4 * asked.mib:
        parser.error(f"{asked.directory.resolve()} has {free} MiB free, and {4 * asked.mib} MiB are needed")
    about: dict[str, Any] = {"cores": os.cpu_count(), "load_at_begin": os.getloadavg()[0]}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=asked.directory, prefix="bench-checkpoints-") as folder:
        for name, files in SHAPES.items():
            (inner := Path(folder) / name.replace(" ", "-")).mkdir()
            rounds = []
            with events():
                shape = Shape(inner, asked.mib * MIB, files)
                for _ in range(asked.rounds + 1):
                    rounds.append(shape.round())
            # The first round takes memory that the machine has not used yet.
            found[name] = figures(rounds[1:], asked.mib * MIB)
            shutil.rmtree(inner)
    about["load_at_end"] = os.getloadavg()[0]
    print(json.dumps({**about, "shapes": found}) if asked.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
