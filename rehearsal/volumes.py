"""The folders behind the rehearsal's shared volumes, and volumes of a real size limit.

A bounded volume is a tmpfs: full at its size, as a real one is. It must be one file system on all nodes, though a
node has a mount namespace of its own. So the folder of all volumes is a shared mount, of which each node has a
slave: what is mounted below it on the machine appears on every node (mount_namespaces(7)).
"""

from __future__ import annotations

from pathlib import Path

from rehearsal.commands import run
from rehearsal.state import state_dir

SHARED_GROUP = 1000
MODE = 0o2775


def volumes_dir() -> Path:
    return state_dir() / "volumes"


def share() -> None:
    """Make the folder of all volumes a shared mount. Before the nodes boot."""
    folder = volumes_dir()
    folder.mkdir(parents=True, exist_ok=True)
    if folder not in _mounted():
        run("mount", "--no-mtab", "--bind", folder, folder)
        run("mount", "--no-mtab", "--make-private", folder)
        run("mount", "--no-mtab", "--make-shared", folder)


def bound(folder: Path, size_bytes: int) -> None:
    """Limit a volume's folder to a size. One that has been limited already stays as it is."""
    if folder not in _mounted():
        options = f"size={size_bytes},mode={MODE:o},gid={SHARED_GROUP},nosuid,nodev"
        run("mount", "--no-mtab", "-t", "tmpfs", "-o", options, "holdfast-bounded", folder)


def release(folder: Path) -> None:
    """Give the memory of a bounded volume back."""
    if folder in _mounted():
        run("umount", "--no-mtab", "--lazy", folder)


def unmount() -> None:
    """Undo all of it, the innermost first."""
    inside = [path for path in _mounted() if path.is_relative_to(volumes_dir())]
    for path in sorted(inside, key=lambda path: len(path.parts), reverse=True):
        run("umount", "--no-mtab", "--lazy", path)


def _mounted() -> list[Path]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [Path(line.split()[4]) for line in lines]
