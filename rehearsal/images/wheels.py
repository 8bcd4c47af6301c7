"""Wheels for an image, downloaded on the host by hash: the build itself needs no network."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.images.definitions import PYTHON_VERSION

# Debian 12's glibc is 2.36: any wheel for that one or an older one runs. pip does not widen the newer tags by
# itself (https://github.com/pypa/pip/issues/10760), so each is named.
GLIBC_MINORS = range(17, 37)


def platform_tags() -> list[str]:
    machine = platform.machine()
    return [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS] + [f"manylinux2014_{machine}"]


def download_command(requirements: Sequence[Path], folder: Path) -> list[str]:
    """pip's download of exactly these hashes, for the image's Python and not the host's."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--dest", str(folder)]
    abi = f"cp{PYTHON_VERSION.replace('.', '')}"
    command += ["--implementation=cp", f"--python-version={PYTHON_VERSION}"]
    command += [f"--abi={name}" for name in (abi, "abi3", "none")]
    command += [f"--platform={tag}" for tag in platform_tags()]
    for path in requirements:
        command += ["--requirement", str(path)]
    return command


def wheels_folder(requirements: Sequence[Path], cache: Path) -> Path:
    content = hashlib.sha256(b"\0".join(path.read_bytes() for path in requirements))
    content.update(" ".join([PYTHON_VERSION, *platform_tags()]).encode())
    return cache / f"wheels-{content.hexdigest()[:16]}"


def wheels_for(requirements: Sequence[Path], cache: Path) -> Path:
    """The folder with the wheels of these requirement files, downloaded once per content.

    Raises RehearsalError with pip's own words when a download fails.
    """
    folder = wheels_folder(requirements, cache)
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=cache, prefix="tmp-wheels-"))
    try:
        done = subprocess.run(
            download_command(requirements, temporary), capture_output=True, text=True, check=False
        )
        if done.returncode:
            names = ", ".join(str(path) for path in requirements)
            raise RehearsalError(
                f"The Python packages of {names} could not be downloaded: {_last_words(done.stderr)}",
                "Check that this machine reaches a Python package index (pip's own configuration is used), "
                "and try again.",
            )
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-3:])[-600:] or "pip said nothing."
