"""What the machine must have, told in plain sentences before anything is changed, and the packages that are installed."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from rehearsal import node
from rehearsal.commands import run
from rehearsal.errors import RehearsalError
from rehearsal.images.packages import DEBIAN_PACKAGES as IMAGE_PACKAGES
from rehearsal.progress import Progress
from rehearsal.state import cache_dir, state_dir

MEMORY_GIB, DISK_GIB = 5.0, 20.0
ELSEWHERE = (
    "Or use a cluster that you have (kind, minikube, a cloud): name its kubeconfig and context in a stack of your own "
    "(docs/environments.md)."
)
# Program that must be found -> Debian package that brings it.
PACKAGES = {
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
}
CNI_PACKAGE = "containernetworking-plugins"


@dataclass(frozen=True)
class Problem:
    """Something that the machine lacks, and what to do about it."""

    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.problem} {self.fix}"


def missing() -> list[Problem]:
    """Everything that stands in the way of a rehearsal cluster and that this program does not install by itself."""
    if sys.platform != "linux":
        return [Problem(f"A rehearsal cluster needs Linux; this is {platform.system()}.", ELSEWHERE)]
    problems = []
    if os.geteuid() != 0:
        problems.append(
            Problem("A rehearsal cluster needs root, for namespaces, mounts and cgroups.", f"Run it as root. {ELSEWHERE}")
        )
    if platform.machine() not in ("x86_64", "aarch64"):
        problems.append(Problem(f"The architecture {platform.machine()} is not supported.", ELSEWHERE))
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists() and not Path("/sys/fs/cgroup/memory").exists():
        problems.append(Problem("No cgroups are mounted at /sys/fs/cgroup.", "Mount cgroup v2 there."))
    if "overlay" not in Path("/proc/filesystems").read_text():
        problems.append(Problem("The kernel does not know the overlay file system.", "Load the module `overlay`."))
    memory = _available_memory_gib()
    if memory < MEMORY_GIB and not (state_dir() / "kubeconfig").exists():
        problems.append(
            Problem(f"{memory:.1f} GiB of memory are free; a rehearsal needs {MEMORY_GIB:.0f}.", "End other programs.")
        )
    for folder, gib in ((state_dir(), DISK_GIB / 2), (cache_dir(), DISK_GIB / 2)):
        free = _free_disk_gib(folder)
        if free < gib:
            problems.append(
                Problem(f"{free:.1f} GiB are free for {folder}; {gib:.0f} are needed.", "Make room, or choose another place "
                        "with HOLDFAST_STATE or HOLDFAST_CACHE.")  # fmt: skip
            )
    absent = absent_packages()
    if absent and not shutil.which("apt-get"):
        problems.append(
            Problem(
                f"Programs of these Debian packages are missing: {', '.join(absent)}.",
                "Install what your distribution calls them; only Debian and Ubuntu are done for you.",
            )
        )
    return problems


def require() -> None:
    """Raise RehearsalError with every problem of `missing` at once."""
    problems = missing()
    if problems:
        raise RehearsalError("This machine can not run a rehearsal cluster yet.\n- " + "\n- ".join(map(str, problems)), "")


def absent_packages() -> list[str]:
    absent = [package for program, package in PACKAGES.items() if not shutil.which(program)]
    if not any((folder / "bridge").exists() for folder in node.CNI_FOLDERS):
        absent.append(CNI_PACKAGE)
    return absent + [package for package in IMAGE_PACKAGES if not _installed(package)]


def _installed(package: str) -> bool:
    if package == "debian-archive-keyring":
        return Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists()
    return package == "util-linux" or shutil.which(package) is not None  # util-linux is in PACKAGES by its nsenter


def install_packages(progress: Progress) -> None:
    """Install what is absent from the distribution's own repositories."""
    absent = absent_packages()
    if not absent:
        return
    fix = f"Install by hand: apt-get install {' '.join(absent)}."
    with progress.step(f"Installing {', '.join(absent)}", 40):
        environment = ("env", "DEBIAN_FRONTEND=noninteractive")
        run(*environment, "apt-get", "update", "-q", fix=fix)
        run(*environment, "apt-get", "install", "-y", "-q", "--no-install-recommends", *absent, fix=fix)


def _available_memory_gib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024**2
    return 0.0


def _free_disk_gib(folder: Path) -> float:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free / 1024**3
