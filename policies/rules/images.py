"""Images by digest: what ran once must run again, bit for bit, in the next attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pulumi_policy import Severity

from rules.engine import Config, Resource, Violation, resource_policy
from rules.pods import Workload, in_scope, may_have_pods, workloads
from rules.views import View

_DIGESTS = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
# Source: github.com/distribution/reference: the registry may have capitals and a port, the path may not.
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.\-]*(?::\d+)?/)?{_PATH}(?:/{_PATH})*(?::\w[\w.\-]{{0,127}})?", re.ASCII
)


def problem_of_reference(reference: str) -> str | None:
    """Why an image reference does not pin the image, or None. A tag beside the digest is fine."""
    name, at, digest = reference.partition("@")
    if not at:
        return f"image '{reference}' is not pinned by digest: a tag can point to another image tomorrow"
    if _NAME.fullmatch(name) is None:
        return (
            f"image '{reference}' has no usable name before the '@': a name has lower-case letters, digits"
            " and - . _ /"
        )
    if _DIGESTS.fullmatch(digest) is None:
        return (
            f"image '{reference}' has a malformed digest: after the '@' it needs sha256: and 64 lowercase "
            "hexadecimal digits"
        )
    return None


def check_images(resource: Resource, _config: Config) -> Iterator[Violation]:
    """Every container, and every image volume, of a Pod that asks for GPUs or is part of Holdfast."""
    for workload in workloads(resource):
        problems: list[str] = []
        unknown: list[View] = []
        for where, image in _references(workload):
            if image.unknown:
                unknown.append(image)
                continue
            reference = image.peek_text() or ""
            if not reference and not workload.complete:
                continue
            problem = problem_of_reference(reference) if reference else "image is missing"
            if problem:
                problems.append(f"{workload.title}, {where}: {problem}")
        # The scope is asked for only when it matters: a sound workload never waits for unknown values.
        if (problems or unknown) and in_scope(workload):
            for image in unknown:
                image.note()
            yield from (
                Violation(
                    f"{problem}. Write the image as name@sha256:<digest> (name:tag@sha256:<digest> too)."
                )
                for problem in problems
            )


def _references(workload: Workload) -> Iterator[tuple[str, View]]:
    for container in workload.containers():
        yield f"container '{container.name}'", container.view["image"]
    for volume in workload.spec["volumes"].peek_elements():
        if volume["image"].is_mapping:
            yield f"image volume '{volume['name'].peek_text()}'", volume["image"]["reference"]


IMAGE_BY_DIGEST = resource_policy(
    name="image-by-digest",
    description="Containers of GPU workloads name their image by digest.",
    severity=Severity.HIGH,
    remediation=(
        "Replace the tag by the digest: name@sha256:<64 hexadecimal digits>. `crane digest name:tag` or the"
        " build's output prints it. A tag may stay in front of the '@' for the reader."
    ),
    check=check_images,
    wants=may_have_pods,
)
