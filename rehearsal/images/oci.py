"""OCI image archives with uncompressed layers, written by the standard library.

Format: https://github.com/opencontainers/image-spec (image layout, manifest and config, v1).
Layers stay uncompressed because an import on the same machine is faster without gzip.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Layer:
    """One layer: a tar file on disk and its digest (`sha256:…`)."""

    path: Path
    digest: str
    size: int

    @classmethod
    def of(cls, path: Path) -> Layer:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return cls(path, f"sha256:{digest}", path.stat().st_size)


@dataclass(frozen=True)
class Image:
    """A manifest and its blobs by digest: bytes for the small ones, files for layers."""

    manifest: bytes
    blobs: Mapping[str, bytes | Path]

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encode(value: Any) -> bytes:
    """Canonical JSON, so that equal images have equal digests."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def assemble(layers: Sequence[Layer], architecture: str, created: str, config: Mapping[str, Any]) -> Image:
    """An image of these layers. `config` is the OCI config's `config` object (Entrypoint, User, Env, …)."""
    content = encode(
        {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": created} for _ in layers],
        }
    )
    manifest = encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": digest_of(content), "size": len(content)},
            "layers": [
                {"mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.size} for layer in layers
            ],
        }
    )
    blobs: dict[str, bytes | Path] = {digest_of(content): content}
    blobs.update({layer.digest: layer.path for layer in layers})
    return Image(manifest, blobs)


def from_directory(folder: Path) -> Image:
    """What `buildah push … dir:FOLDER` wrote: manifest.json, and blobs named by their hex digest."""
    manifest = (folder / "manifest.json").read_bytes()
    described = json.loads(manifest)
    names = [described["config"]["digest"], *(layer["digest"] for layer in described["layers"])]
    return Image(manifest, {name: folder / name.removeprefix("sha256:") for name in names})


def index_of(image: Image, tag: str | None) -> bytes:
    entry: dict[str, Any] = {
        "mediaType": MANIFEST_TYPE,
        "digest": image.digest,
        "size": len(image.manifest),
    }
    if tag:
        entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    return encode({"schemaVersion": 2, "manifests": [entry]})


def write_archive(image: Image, path: Path, tag: str | None = None) -> None:
    """Write an OCI archive: the image layout as one tar file, the same bytes for the same image."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", index_of(image, tag))
        for digest, blob in {image.digest: image.manifest, **image.blobs}.items():
            _add(archive, f"blobs/sha256/{digest.removeprefix('sha256:')}", blob)


def write_layout(image: Image, folder: Path, tag: str) -> None:
    """Write an OCI layout folder; layers are linked, or copied where the file system is another."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    (folder / "oci-layout").write_bytes(encode({"imageLayoutVersion": "1.0.0"}))
    (folder / "index.json").write_bytes(index_of(image, tag))
    for digest, blob in {image.digest: image.manifest, **image.blobs}.items():
        target = blobs / digest.removeprefix("sha256:")
        if isinstance(blob, bytes):
            target.write_bytes(blob)
        else:
            os.link(blob, target)


def write_program_layer(program: Path, name: str, path: Path, mtime: int) -> Layer:
    """A layer with one executable file at `/name`, owned by root."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, name, program, mode=0o755, mtime=mtime)
    return Layer.of(path)


def _add(
    archive: tarfile.TarFile, name: str, content: bytes | Path, mode: int = 0o644, mtime: int = 0
) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, mtime
    if isinstance(content, bytes):
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    else:
        entry.size = content.stat().st_size
        with content.open("rb") as stream:
            archive.addfile(entry, stream)
