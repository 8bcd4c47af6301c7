"""A cgroup of its own for each node, in cgroup v1 and v2, and its removal."""

from __future__ import annotations

import time
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.state import rehearsal_id

ROOT = Path("/sys/fs/cgroup")


def is_v2() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def node_root(node: str) -> str:
    """The cgroup below which a node's kubelet keeps its Pods, as the kubelet's `cgroupRoot` wants it."""
    return f"/holdfast-{rehearsal_id()}/{node}"


def create(node: str) -> None:
    """Create the node's cgroup in every controller. Raises RehearsalError where the kernel refuses."""
    top, leaf = (Path(part) for part in (f"holdfast-{rehearsal_id()}", f"holdfast-{rehearsal_id()}/{node}"))
    try:
        for hierarchy in _hierarchies():
            for folder in (hierarchy / top, hierarchy / leaf):
                if is_v2():
                    _pass_controllers_on(folder.parent)
                folder.mkdir(exist_ok=True)
                if not is_v2():
                    _inherit_cpuset(folder)
    except OSError as error:
        raise RehearsalError(
            f"The cgroup of node {node} can not be made: {error}.",
            "Run on the machine itself, not in a container that may not change its cgroups.",
        ) from error


def _pass_controllers_on(folder: Path) -> None:
    """In v2 a cgroup has only the controllers that its parent passes on."""
    available = (folder / "cgroup.controllers").read_text().split()
    passed = (folder / "cgroup.subtree_control").read_text().split()
    if missing := [f"+{name}" for name in available if name not in passed]:
        (folder / "cgroup.subtree_control").write_text(" ".join(missing))


def _inherit_cpuset(folder: Path) -> None:
    """In v1 an empty cpuset can hold no process, so the parent's CPUs and memory nodes are copied down."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((folder.parent / name).read_text())


def remove() -> None:
    """Remove every cgroup of this rehearsal. Called when its processes have ended."""
    deadline = time.monotonic() + 15
    while left := [path for path in _ours() if not _removed(path)]:
        if time.monotonic() > deadline:
            raise RehearsalError(
                f"The cgroup {left[0]} can not be removed; a process may still be in it.",
                f"Look at {left[0]}/cgroup.procs, end that process and run `./holdfast down` again.",
            )
        time.sleep(0.1)


def _hierarchies() -> list[Path]:
    if is_v2():
        return [ROOT]
    # A symbolic link (cpu -> cpu,cpuacct) is the same hierarchy under another name. `unified` is v2 beside v1: unused.
    return [p for p in ROOT.iterdir() if p.is_dir() and not p.is_symlink() and p.name != "unified"]


def _ours() -> list[Path]:
    """Our cgroups, children before parents."""
    name = f"holdfast-{rehearsal_id()}"
    hierarchies = [*_hierarchies(), *([] if is_v2() else [ROOT / "unified"])]
    tops = [h / name for h in hierarchies if (h / name).is_dir()]
    folders = [folder for top in tops for folder in (top, *(p for p in top.rglob("*") if p.is_dir()))]
    return sorted(folders, key=lambda path: len(path.parts), reverse=True)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
