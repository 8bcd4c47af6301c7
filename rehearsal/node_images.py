"""Images on nodes: built once, imported into each node's containerd, never pulled. A new node has them from the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rehearsal import images
from rehearsal.images import BuiltImage as Image
from rehearsal.node import Node, ctr
from rehearsal.progress import Progress
from rehearsal.state import write_record


def build(name: str, progress: Progress) -> Image:
    return images.build(name, progress)


def ensure_imported(node: Node, wanted: Iterable[Image], programs: Mapping[str, Path]) -> None:
    """Import the archives of images that the node lacks. Their references by digest exist afterwards."""
    present = ctr(node, programs, "images", "list", "--quiet").split()
    for image in wanted:
        if image.reference not in present:
            ctr(node, programs, *images.import_arguments(image))


def record(built: Mapping[str, Image]) -> None:
    """Write the references down for `environment`."""
    write_record("images", {name: image.reference for name, image in built.items()})
