"""The base of the Python images: Debian's Python 3.11, pip, CA certificates and libstdc++, no more."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from rehearsal.errors import RehearsalError
from rehearsal.images import oci
from rehearsal.images.definitions import DEBIAN_SUITE, PYTHON_VERSION, SOURCE_DATE_EPOCH, go_architecture
from rehearsal.images.sources import debian_sources
from rehearsal.images.wheels import wheels_for

TAG = "base"
INSTALLER_REQUIREMENTS = Path(__file__).parent / "installer-requirements.txt"

# libstdc++6: wheels with C++ inside expect it from the system, as every common base image has it.
# usr-is-merged instead of usrmerge keeps 35 MB of Perl out; it needs the hook that merges /usr first.
OPTIONS = (
    "--variant=essential",
    "--include=python3,ca-certificates,libstdc++6,usr-is-merged",
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/zoneinfo/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)


def base_key() -> str:
    """Names the base by its definition: suite, packages, options, pip, processor."""
    content = hashlib.sha256()
    for part in (DEBIAN_SUITE, PYTHON_VERSION, *OPTIONS, go_architecture(), str(SOURCE_DATE_EPOCH)):
        content.update(part.encode() + b"\0")
    content.update(INSTALLER_REQUIREMENTS.read_bytes())
    return content.hexdigest()[:16]


def base_folder(cache: Path) -> Path:
    return cache / f"base-{base_key()}"


def ensure_base(cache: Path) -> Path:
    """The base as an OCI layout folder with the tag `base`, made on first use (about a minute)."""
    folder = base_folder(cache)
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=cache, prefix="tmp-base-"))
    try:
        layer = oci.Layer.of(_root_file_system(work, cache))
        created = datetime.fromtimestamp(SOURCE_DATE_EPOCH, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        image = oci.assemble([layer], go_architecture(), created, {"Env": [f"PATH={oci.SEARCH_PATH}"]})
        oci.write_layout(image, work / "layout", TAG)
        (work / "layout").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _root_file_system(work: Path, cache: Path) -> Path:
    """The tar file of mmdebstrap. Raises RehearsalError with its last words."""
    packages = work / "dist-packages"
    for wheel in sorted(wheels_for([INSTALLER_REQUIREMENTS], cache).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    target = work / "base.tar"
    command = ["mmdebstrap", "--mode=root", "--format=tar", "--quiet", *OPTIONS]
    # A pip of its own, as the official Python images have; Debian's brings setuptools and a compiler's
    # headers along.
    command += [f"--customize-hook=sync-in {packages} /usr/local/lib/python{PYTHON_VERSION}/dist-packages"]
    command += [DEBIAN_SUITE, str(target)]
    sources = debian_sources(DEBIAN_SUITE)
    if sources:
        listed = work / "sources.list"
        listed.write_text("\n".join(sources) + "\n")
        command.append(str(listed))
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
        "TMPDIR": str(work),
        "LC_ALL": "C",
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RehearsalError(
            f"mmdebstrap could not make the base of the images: {' '.join(lines[-4:])[-800:]}",
            f"Check that this machine reaches a Debian archive with {DEBIAN_SUITE}, and try again.",
        )
    return target
