"""The images of the rehearsal as one table: what each is built from, and its name in the cluster."""

from __future__ import annotations

import platform
from dataclasses import dataclass

REPOSITORY = "docker.io/holdfast"

# Wheels are for one Python version, so the Debian suite that ships it is pinned, whatever the host runs.
PYTHON_VERSION = "3.11"
DEBIAN_SUITE = "bookworm"

# Every file time inside an image, so that the same inputs give the same digest (2026-01-01T00:00:00Z).
SOURCE_DATE_EPOCH = 1767225600

# A change here, or of this number, makes every cached image out of date.
BUILDER_VERSION = 2


@dataclass(frozen=True)
class ContainerfileImage:
    """An image that is built by its own Containerfile.

    context: folder in the checkout that is the build context; it gains a folder `wheels/` for the build.
    requirements: hashed requirement files in the context whose wheels the build installs.
    build_args: passed on besides BASE.
    """

    name: str
    repository: str
    context: str
    requirements: tuple[str, ...]
    build_args: tuple[tuple[str, str], ...] = ()
    containerfile: str = "Containerfile"


@dataclass(frozen=True)
class ProgramImage:
    """An image that is one static program and nothing else.

    tag: also known by this tag (the sandbox image is named by a tag in containerd's configuration).
    """

    name: str
    repository: str
    path: str
    user: str
    tag: str | None = None


CONTAINERFILE_IMAGES = {
    image.name: image
    for image in (
        ContainerfileImage(
            name="trainer",
            repository=f"{REPOSITORY}/trainer",
            context="trainer",
            requirements=("requirements.txt",),
            build_args=(("ACCELERATOR", "cpu"),),
        ),
        ContainerfileImage(
            name="gpu-operator",
            repository=f"{REPOSITORY}/rehearsal-gpu-operator",
            context="rehearsal/gpu_operator",
            requirements=("requirements.txt",),
        ),
    )
}

PROGRAM_IMAGES = {
    image.name: image
    for image in (
        ProgramImage(
            name="pause", repository=f"{REPOSITORY}/pause", path="pause", user="65535:65535", tag="1"
        ),
        ProgramImage(name="coredns", repository=f"{REPOSITORY}/coredns", path="coredns", user="65532:65532"),
        # JobSet's chart runs the command /manager.
        ProgramImage(name="jobset", repository=f"{REPOSITORY}/jobset", path="manager", user="65532:65532"),
    )
}


def go_architecture() -> str:
    """This machine's processor as OCI and Go name it: amd64 or arm64."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
