"""The standard paths of a machine over which nodes mount folders of their own: made where missing, and removed again.

Rehearsals of several checkouts share them. The kernel takes a mount away, in every mount namespace, when the folder under
it is removed (mount_namespaces(7)), so none is removed while a node of another rehearsal lives: it is handed on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rehearsal import network
from rehearsal.state import read_json, read_record, state_dir, write_atomically, write_record

RECORD = "mount-points"
HANDED_ON = Path("/var/lib/holdfast/mount-points.json")
"""What rehearsals that have ended made and another one still used. The last one removes it."""


def make(targets: Iterable[str]) -> None:
    """Create the paths that this machine lacks, and write down which, so that `remove` removes just those."""
    with _alone():
        made = list(read_record(RECORD).get("made", []))
        for target in targets:
            path = Path(target)
            missing = [p for p in (path, *path.parents) if not p.exists()]
            for folder in reversed(missing):
                folder.mkdir()
                made.append(str(folder))
        write_record(RECORD, {"made": made})


def remove() -> None:
    """Remove what `make` made, where nobody has put anything there since. Once this rehearsal's nodes have ended."""
    with _alone():
        made = {*read_record(RECORD).get("made", []), *read_json(HANDED_ON).get("made", [])}
        if made and _another_rehearsal():
            write_atomically(HANDED_ON, json.dumps({"made": sorted(made)}, indent=2) + "\n")
            return
        for text in sorted(made, key=len, reverse=True):
            folder = Path(text)
            if text == "/run/netns":
                network.unmount_namespaces()
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        HANDED_ON.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            HANDED_ON.parent.rmdir()  # only where it is empty


def _another_rehearsal(processes: Path = Path("/proc")) -> bool:
    """Whether a node of another checkout's rehearsal lives: its first process names the plan of its mounts."""
    for entry in processes.glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = [os.fsdecode(word) for word in entry.read_bytes().rstrip(b"\0").split(b"\0")]
            if len(words) > 1 and words[-2].endswith("/rehearsal/node_init.py"):
                if not Path(words[-1]).is_relative_to(state_dir()):
                    return True
    return False


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One checkout at a time. A folder is locked, so that no file is left behind."""
    descriptor = os.open("/run", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
