"""Image references, and why one that has no digest is refused."""

from __future__ import annotations

import re

from components.settings.base import refusal

_HEX = re.compile(r"[0-9a-f]{64}")
# Source: github.com/distribution/reference, grammar of a reference.
_HOST = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*(?::\d+)?/)?"
)
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_HOST}{_PATH}(?:/{_PATH})*", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)


def digest_image(text: str) -> str:
    """`name@sha256:<64 hex digits>`, with or without a tag before the `@`."""
    if text.startswith(("docker://", "oci://", "http://", "https://")):
        bare = text.split("://", 1)[1]
        raise refusal("an image reference has no scheme", f"write {bare!r}")
    if text != text.strip():
        raise refusal("it has blanks or a line's end around it", f"write {text.strip()}")
    name, at, digest = text.partition("@")
    name, tag = _split_tag(name)
    if not at and name.startswith(("sha256", "sha512")) and tag and re.fullmatch(r"[0-9a-fA-F]{32,}", tag):
        raise refusal("it is a digest without the image's name", f"write <name>@{text}")
    if at and not digest:
        raise refusal("nothing follows the '@'", f"write {name}@sha256:<64 hex digits>")
    if not at:
        told = f"the tag {tag!r}" if tag else "no tag and no digest (so the tag 'latest')"
        raise refusal(
            f"it has {told}, and a tag can move to another image between two attempts of one run",
            f"write {name}@sha256:<64 hex digits>; `crane digest {name}:{tag or 'latest'}` or "
            f"`docker buildx imagetools inspect {name}:{tag or 'latest'}` prints the digest",
        )
    algorithm, _, digits = digest.partition(":")
    if algorithm != "sha256":
        reason = f"the digest's algorithm is {algorithm!r}, and registries and runtimes agree on sha256 only"
        raise refusal(reason, f"write {name}@sha256:<64 hex digits>")
    if not _HEX.fullmatch(digits):
        told = (
            f"{len(digits)} characters"
            if len(digits) != 64
            else "characters that are not lower-case hex digits"
        )
        raise refusal(
            f"the digest after 'sha256:' has {told}", "write all 64 lower-case hex digits of the digest"
        )
    if not _NAME.fullmatch(name):
        raise refusal(
            f"{name!r} is not an image name",
            "write lower-case letters, digits and - . _ /, such as docker.io/team/trainer",
        )
    if tag is not None and not _TAG.fullmatch(tag):
        raise refusal(f"{tag!r} is not a tag", "remove the tag; the digest alone names the image")
    return text


def _split_tag(name: str) -> tuple[str, str | None]:
    head, colon, tag = name.rpartition(":")
    # A colon before the last slash belongs to the registry's port.
    return (head, tag) if colon and "/" not in tag else (name, None)
