"""Official release archives, taken only when their checksum is pinned in releases.json, and Go's own."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.progress import Progress
from rehearsal.state import cache_dir
from rehearsal.toolchain.programs import Program

PINS = Path(__file__).with_name("releases.json")
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
    """The `go` command of the pinned Go toolchain, as the Go module proxy serves it. Kept in the cache."""
    pins = json.loads(PINS.read_text())["go"]
    folder = cache_dir() / "toolchain" / f"go-{pins['version']}"
    go = folder / "bin" / "go"
    if go.exists():
        return go
    name = f"v0.0.1-go{pins['version']}.linux-{architecture()}"
    checksum = pins["sha256"].get(f"linux-{architecture()}")
    url = f"https://proxy.golang.org/golang.org/toolchain/@v/{name}.zip"
    with progress.step(f"Downloading Go {pins['version']}", 30):
        content = _download(url, checksum) if checksum else None
        if content is None:
            raise RehearsalError(
                f"Go {pins['version']} or newer is not on PATH and could not be downloaded from {url}.",
                "Install Go from https://go.dev/dl or your distribution, then run the command again.",
            )
        partial = folder.with_name(folder.name + ".partial")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                inner = entry.filename.removeprefix(f"golang.org/toolchain@{name}/")
                place = partial / inner
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(entry))
                # A module archive has no modes; what Go executes is in these two folders.
                if inner.startswith(("bin/", "pkg/tool/")):
                    place.chmod(0o755)
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
