"""Builds the rehearsal's container images without a container engine or a registry, from Debian and PyPI
only.

    image = build("trainer", progress)
    run("ctr", *import_arguments(image))       # inside each node

A build is kept under the key of everything that goes into it, so an unchanged checkout builds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rehearsal.errors import RehearsalError
from rehearsal.images import oci
from rehearsal.images.base import base_folder, base_key, ensure_base
from rehearsal.images.containerfile import build_image, files_of, stage_context, temporary_folder
from rehearsal.images.definitions import (
    BUILDER_VERSION,
    CONTAINERFILE_IMAGES,
    PROGRAM_IMAGES,
    SOURCE_DATE_EPOCH,
    ContainerfileImage,
    ProgramImage,
)
from rehearsal.images.programs import build_program_image, program_file
from rehearsal.images.wheels import wheels_folder, wheels_for
from rehearsal.state import CHECKOUT, cache_dir, keep_newest, one_at_a_time

if TYPE_CHECKING:
    from rehearsal.progress import Progress

__all__ = ["NAMES", "BuiltImage", "build", "import_arguments"]

NAMES: tuple[str, ...] = (*CONTAINERFILE_IMAGES, *PROGRAM_IMAGES)

# A trainer's archive is about 570 MB, and every edit of its sources makes another one.
KEPT_PER_IMAGE = 2


@dataclass(frozen=True)
class BuiltImage:
    """An image in the cache.

    reference: `docker.io/holdfast/NAME@sha256:…` (the manifest's digest), or NAME:TAG for the sandbox image.
    archive: OCI archive with uncompressed layers. repository: the reference without tag or digest.
    """

    name: str
    reference: str
    archive: Path
    repository: str


def build(name: str, progress: Progress) -> BuiltImage:
    """The image of that name, from the cache or built now. Raises RehearsalError when it can not be built."""
    if name not in NAMES:
        raise RehearsalError(f"There is no image {name!r}.", f"The images are {', '.join(NAMES)}.")
    cache = cache_dir() / "images"
    with _locked(cache, name):
        if name in PROGRAM_IMAGES:
            return _program_image(PROGRAM_IMAGES[name], cache, progress)
        return _containerfile_image(CONTAINERFILE_IMAGES[name], cache, progress)


def import_arguments(image: BuiltImage) -> list[str]:
    """Arguments of `ctr --namespace=k8s.io` that import the archive so that the kubelet finds exactly
    `image.reference`.

    `--digests` makes the `name@sha256:…` reference, which a kubelet with a digest in the Pod looks for; a tag
    comes from the archive's own index
    (https://github.com/containerd/containerd/blob/main/cmd/ctr/commands/images/import.go).
    """
    arguments = ["images", "import", "--digests", f"--base-name={image.repository}"]
    return [*arguments, str(image.archive)]


def _containerfile_image(definition: ContainerfileImage, cache: Path, progress: Progress) -> BuiltImage:
    work = temporary_folder(cache, definition.name)
    try:
        context = work / "context"
        stage_context(definition, CHECKOUT, context)
        key = _context_key(definition, context)
        if found := _cached(definition.name, definition.repository, cache / key):
            return found
        if not base_folder(cache).is_dir():
            with progress.step("Base of the images from Debian packages", 70), _locked(cache, "base"):
                ensure_base(cache)
        requirements = [context / path for path in definition.requirements]
        if not wheels_folder(requirements, cache).is_dir():
            with progress.step(f"Python packages of the image {definition.name}", 60):
                wheels_for(requirements, cache)
        with progress.step(f"Image {definition.name} from its Containerfile", 60) as step:
            step.note("buildah build")
            base, wheels = base_folder(cache), wheels_folder(requirements, cache)
            with _locked(cache, "layers"):
                image = build_image(definition, context, base, wheels, cache, work)
            step.note("writing the archive")
            return _keep(definition.name, definition.repository, image, None, cache / key, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _program_image(definition: ProgramImage, cache: Path, progress: Progress) -> BuiltImage:
    program = program_file(definition, cache, progress)
    content = hashlib.sha256(f"{BUILDER_VERSION} {definition} {SOURCE_DATE_EPOCH}".encode())
    content.update(program.read_bytes())
    entry = cache / f"{definition.name}-{content.hexdigest()[:16]}"
    if found := _cached(definition.name, definition.repository, entry):
        return found
    work = temporary_folder(cache, definition.name)
    try:
        image = build_program_image(definition, program, work)
        return _keep(definition.name, definition.repository, image, definition.tag, entry, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _context_key(definition: ContainerfileImage, context: Path) -> str:
    content = hashlib.sha256(f"{BUILDER_VERSION} {definition} {base_key()} {SOURCE_DATE_EPOCH}".encode())
    for path in files_of(context):
        executable = path.stat().st_mode & 0o100
        content.update(f"\0{path.relative_to(context)} {executable} {path.stat().st_size}\0".encode())
        content.update(path.read_bytes())
    return f"{definition.name}-{content.hexdigest()[:16]}"


def _cached(name: str, repository: str, entry: Path) -> BuiltImage | None:
    try:
        reference = json.loads((entry / "image.json").read_text())["reference"]
    except FileNotFoundError:
        return None
    os.utime(entry)
    return BuiltImage(name, reference, entry / "image.tar", repository)


def _keep(
    name: str, repository: str, image: oci.Image, tag: str | None, entry: Path, work: Path
) -> BuiltImage:
    """Put a finished image into the cache in one rename, and let go of older builds of the same image."""
    reference = f"{repository}:{tag}" if tag else f"{repository}@{image.digest}"
    finished = work / "finished"
    finished.mkdir()
    oci.write_archive(image, finished / "image.tar", tag)
    record = {"name": name, "reference": reference, "digest": image.digest, "built": time.time()}
    (finished / "image.json").write_text(json.dumps(record, indent=2) + "\n")
    finished.rename(entry)
    for pattern in (f"{name}-*/image.json", "base-*/index.json"):
        keep_newest([path.parent for path in entry.parent.glob(pattern)], KEPT_PER_IMAGE)
    return BuiltImage(name, reference, entry / "image.tar", repository)


def _locked(cache: Path, name: str) -> AbstractContextManager[None]:
    return one_at_a_time(cache / f".{name}.lock")
