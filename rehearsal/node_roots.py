"""What a node's containerd has on its disk when the node first boots: its images, unpacked once and kept with the caches.

Importing the training image takes a node ten to twenty seconds, and every node of every cluster needs the same bytes. So
they are imported once, by a containerd that runs for nothing else, and a new node gets links to the files. Layers are
never written to: containerd stores them by content, and a container's changes go to a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rehearsal import images
from rehearsal.commands import run
from rehearsal.errors import RehearsalError
from rehearsal.images import BuiltImage
from rehearsal.progress import Progress, Step
from rehearsal.state import cache_dir, keep_newest, one_at_a_time
from rehearsal.waiting import wait_until

FORMAT = 1  # of these folders: another number makes every kept one out of date
KEPT = 4  # a pool's newest and the one before, for two pools
START_SECONDS = 60
FIX = "Mend that and run `./holdfast up` again."
# Folders of containerd's root whose files never change once they have their names.
UNCHANGING = (
    Path("io.containerd.content.v1.content/blobs"),
    Path("io.containerd.snapshotter.v1.overlayfs/snapshots"),
)


def ensure(built: Sequence[BuiltImage], programs: Mapping[str, Path], progress: Progress) -> Path:
    """The root folder of a containerd that has these images and nothing else. Raises RehearsalError if none can be made."""
    names = sorted(image.reference for image in built)
    version = programs["containerd"].parent.name
    key = hashlib.sha256("\n".join([str(FORMAT), version, *names]).encode()).hexdigest()[:16]
    folder = cache_dir() / "node-roots" / key
    with one_at_a_time(folder.with_name(f"{key}.lock")):
        if folder.is_dir():
            os.utime(folder)
            return folder
        for left in folder.parent.glob(f".{key}-*"):
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{key}-"))
        try:
            short = ", ".join(sorted(image.name for image in built))
            with progress.step(f"Unpacking the images of a node: {short}", 20) as step:
                _import(built, programs, work / "root", step)
            (work / "root").rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        roots = (path for path in folder.parent.iterdir() if path.is_dir() and not path.name.startswith("."))
        keep_newest(roots, KEPT)
        return folder


def seed(root: Path, target: Path) -> None:
    """Make `target` a containerd's root like `root`: links where files never change, copies of the rest.

    Does nothing where the target is there already. On another file system all are copies.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    linked = subprocess.run(["cp", "--archive", "--link", root, partial], capture_output=True, check=False)
    if linked.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        run("cp", "--archive", root, partial)
    else:
        _unlink_what_changes(partial)
    partial.rename(target)


def _unlink_what_changes(root: Path) -> None:
    """Databases are written in place: a link would change the kept folder, and every other node's."""
    unchanging = {root / path for path in UNCHANGING}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) not in unchanging]
        for name in files:
            path = Path(folder, name)
            copy = path.with_name(f".{name}.copy")
            shutil.copy2(path, copy)
            copy.replace(path)


def _import(built: Sequence[BuiltImage], programs: Mapping[str, Path], root: Path, step: Step) -> None:
    """Import into a containerd of our own, which ends when that is done."""
    # Socket paths have a limit of 108 bytes, and a cache folder may be deep.
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/run") as name:
        state = Path(name)
        socket, log = state / "containerd.sock", state / "log"
        (state / "containerd.toml").write_text(_config(root, state, socket))
        # Layers are unpacked by mounting them: what a killed import leaves behind vanishes with the mount namespace.
        command = ["unshare", "--mount", "--propagation=private", "--", str(programs["containerd"])]
        with log.open("w") as stream:
            containerd = subprocess.Popen(
                [*command, "--config", str(state / "containerd.toml")],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip
        try:
            _wait(containerd, programs, socket, log, step)
            for image in built:
                _ctr(programs, socket, *images.import_arguments(image))
        finally:
            containerd.terminate()
            try:
                containerd.wait(20)
            except subprocess.TimeoutExpired:
                containerd.kill()
                containerd.wait()


def _config(root: Path, state: Path, socket: Path) -> str:
    return f"""version = 3
root = '{root}'
state = '{state / "state"}'
disabled_plugins = [
  'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri',
  'io.containerd.podsandbox.controller.v1.podsandbox', 'io.containerd.nri.v1.nri',
]

[grpc]
  address = '{socket}'
"""


def _ctr(programs: Mapping[str, Path], socket: Path, *arguments: str) -> str:
    return run(programs["ctr"], f"--address={socket}", "--namespace=k8s.io", *arguments)


def _wait(
    containerd: subprocess.Popen[bytes], programs: Mapping[str, Path], socket: Path, log: Path, step: Step
) -> None:
    def missing() -> str:
        if containerd.poll() is not None:
            said = " ".join(log.read_text(errors="replace").split())[-600:]
            raise RehearsalError(f"The containerd that unpacks images ended at its start: {said}", FIX)
        try:
            _ctr(programs, socket, "version")
        except RehearsalError:
            return "the containerd that unpacks images"
        return ""

    wait_until(missing, limit_seconds=START_SECONDS, step=step, fix=FIX, interval_seconds=0.1)
