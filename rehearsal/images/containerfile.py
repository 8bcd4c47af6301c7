"""Builds an image from its Containerfile with buildah's chroot isolation: no daemon, no registry, no network.

The same Containerfile builds with any container engine; only the base and a folder of wheels are given from
here. Tried with buildah 1.28 as root on a kernel with cgroup v1: chroot isolation needs neither runc nor user
namespaces.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.images import oci
from rehearsal.images.base import TAG
from rehearsal.images.definitions import SOURCE_DATE_EPOCH, ContainerfileImage

# Layers of former builds: after an edit of the code the packages below it are not built again.
STORE = "layers"
STORE_LIMIT_BYTES = 4 * 1024**3


class Buildah:
    """buildah on a store in `cache`, in a mount namespace of its own; `work` ends with the build."""

    def __init__(self, cache: Path, work: Path) -> None:
        self.work = work
        self.store = cache / STORE
        self.layers = self._mounts_overlay()
        if not self.layers:
            self.store = work / STORE  # the plain driver copies every layer whole: nothing is worth keeping
        elif _size(self.store) > STORE_LIMIT_BYTES:
            shutil.rmtree(self.store)

    def _command(self, *arguments: str) -> list[str]:
        # Mounts that a killed build leaves behind vanish with the namespace.
        wrapped = ["unshare", "--mount", "--propagation=private", "--", "buildah"]
        return [
            *wrapped,
            f"--root={self.store}",
            f"--runroot={self.work / 'run'}",
            f"--storage-driver={'overlay' if self.layers else 'vfs'}",
            *arguments,
        ]

    def _mounts_overlay(self) -> bool:
        """Whether overlay mounts work here; the plain driver copies every layer instead."""
        folders = [self.work / "probe" / name for name in ("lower", "upper", "work", "merged")]
        for folder in folders:
            folder.mkdir(parents=True)
        lower, upper, work, merged = map(str, folders)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, merged]
        probe = ["unshare", "--mount", "--propagation=private", "--", *mount]
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        """Run one buildah command in `folder`. Raises RehearsalError with its last words when it fails."""
        command = self._command(*arguments)
        fix = f"Read what it said; if its store is damaged, remove {self.store} and try again."
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        except FileNotFoundError as error:
            names = "rehearsal/images/packages.py"
            raise RehearsalError(
                f"The program {error.filename} is not installed.", f"Install the Debian packages of {names}."
            ) from error
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise RehearsalError(f"`buildah {arguments[0]}` failed: {' '.join(lines[-8:])[-1500:]}", fix)
        return done.stdout


def stage_context(definition: ContainerfileImage, checkout: Path, target: Path) -> None:
    """Copy the image's folder as its build context, without what a checkout gathers while it is used."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "wheels")
    shutil.copytree(checkout / definition.context, target, ignore=ignored)
    # The umask of whoever made the checkout must not reach the image: it runs as another user.
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def build_image(
    definition: ContainerfileImage, context: Path, base: Path, wheels: Path, cache: Path, work: Path
) -> oci.Image:
    """Build and return the image; its blobs are files below `work`.

    context: staged folder; base: OCI layout folder; wheels: folder put into the context as `wheels/`.
    """
    shutil.copytree(wheels, context / "wheels", copy_function=_link)
    buildah = Buildah(cache, work)
    name = f"localhost/holdfast-{definition.name}"
    # A name instead of the layout's path, else this machine's cache folder is written into the image's
    # history. buildah makes an image name of the path that it is given, and an absolute one with `.cache` in
    # it is no valid name.
    pulled = buildah.run("pull", "--quiet", f"oci:{base.name}:{TAG}", folder=base.parent).strip()
    buildah.run("tag", pulled, "localhost/holdfast-base:latest")
    arguments: list[str] = ["--build-arg=BASE=localhost/holdfast-base:latest", "--build-arg=PIP_NO_INDEX=1"]
    arguments += [f"--build-arg={key}={value}" for key, value in definition.build_args]
    buildah.run(
        "build",
        "--isolation=chroot",
        f"--layers={'true' if buildah.layers else 'false'}",
        "--pull-never",
        f"--timestamp={SOURCE_DATE_EPOCH}",
        f"--tag={name}",
        f"--file={context / definition.containerfile}",
        *arguments,
        str(context),
    )
    target = work / "pushed"
    # `dir:` keeps layers as they are; written as an OCI archive they are gzipped, even with this option.
    buildah.run("push", "--quiet", "--disable-compression", name, f"dir:{target}")
    return oci.from_directory(target)


def temporary_folder(cache: Path, name: str) -> Path:
    """A folder for one build of an image, under the lock of its name: what killed builds left is removed."""
    prefix = f"tmp-{name}-"
    for left in cache.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=cache, prefix=prefix))


def _link(source: str, target: str) -> str:
    """Hard link a wheel into the context: they are large and never changed."""
    Path(target).hardlink_to(source)
    return target


def files_of(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _size(folder: Path) -> int:
    """Bytes below a folder, 0 where there is none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
