"""Images that are one static program: the sandbox's `pause`, CoreDNS and JobSet's controller. Nothing runs to build them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rehearsal.errors import RehearsalError
from rehearsal.images import oci
from rehearsal.images.definitions import SOURCE_DATE_EPOCH, ProgramImage, go_architecture

if TYPE_CHECKING:
    from rehearsal.progress import Progress

PAUSE_SOURCE = Path(__file__).parent / "pause" / "main.go"


def program_file(definition: ProgramImage, cache: Path, progress: Progress) -> Path:
    """The static program of an image: `pause` from the source beside this file, others from the toolchain."""
    if definition.name == "pause":
        return _compiled_pause(cache, progress)
    from rehearsal.toolchain import ensure  # here, because the toolchain is not needed for any other image

    return ensure([definition.name], progress)[definition.name]


def build_program_image(definition: ProgramImage, program: Path, work: Path) -> oci.Image:
    layer = oci.write_program_layer(program, definition.path, work / "layer.tar", SOURCE_DATE_EPOCH)
    created = datetime.fromtimestamp(SOURCE_DATE_EPOCH, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "Entrypoint": [f"/{definition.path}"],
        "Env": [f"PATH={oci.SEARCH_PATH}"],
        "User": definition.user,
        "WorkingDir": "/",
    }
    return oci.assemble([layer], go_architecture(), created, config)


def _compiled_pause(cache: Path, progress: Progress) -> Path:
    key = hashlib.sha256(PAUSE_SOURCE.read_bytes() + go_architecture().encode()).hexdigest()[:16]
    program = cache / f"pause-{key}" / "pause"
    if program.is_file():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_suffix(f".{os.getpid()}")
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOOS": "linux",
        "GOARCH": go_architecture(),
        "GO111MODULE": "off",
    }
    from rehearsal.toolchain.build import go_command  # here, as above

    command = [
        str(go_command(progress)),
        "build",
        "-trimpath",
        "-ldflags=-s -w",
        "-o",
        str(partial),
        str(PAUSE_SOURCE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        words = " ".join(done.stderr.split())[-600:]
        raise RehearsalError(
            f"The sandbox program could not be compiled: {words}", "Check that `go version` works."
        )
    partial.replace(program)
    return program
