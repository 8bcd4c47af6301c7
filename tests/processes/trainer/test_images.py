"""Building images: what the archives contain, and what makes a build the same or another one."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rehearsal import images
from rehearsal.errors import RehearsalError
from rehearsal.images import oci
from rehearsal.images.containerfile import stage_context
from rehearsal.images.definitions import CONTAINERFILE_IMAGES, PROGRAM_IMAGES
from rehearsal.images.programs import build_program_image
from rehearsal.images.sources import debian_sources
from rehearsal.images.wheels import download_command
from rehearsal.progress import Progress

CHECKOUT = Path(__file__).resolve().parents[3]


def program_image(folder: Path, content: bytes = b"\x7fELF program") -> oci.Image:
    folder.mkdir()
    program = folder / "program"
    program.write_bytes(content)
    return build_program_image(PROGRAM_IMAGES["pause"], program, folder)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    return json.loads(files["index.json"]), files


def test_every_blob_of_an_archive_is_named_by_its_hash_and_the_index_names_the_manifest(
    tmp_path: Path,
) -> None:
    image = program_image(tmp_path / "work")
    oci.write_archive(image, tmp_path / "image.tar", tag="1")
    index, files = read_archive(tmp_path / "image.tar")
    for name, content in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    entry = index["manifests"][0]
    assert entry["digest"] == image.digest
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "1"}


def test_a_program_image_is_one_uncompressed_layer_that_runs_as_nobody(tmp_path: Path) -> None:
    image = program_image(tmp_path / "work")
    manifest = json.loads(image.manifest)
    assert [layer["mediaType"] for layer in manifest["layers"]] == ["application/vnd.oci.image.layer.v1.tar"]
    config = json.loads(image.blobs[manifest["config"]["digest"]])  # type: ignore[arg-type]
    assert config["config"]["Entrypoint"] == ["/pause"] and config["config"]["User"] == "65535:65535"
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def test_the_same_program_gives_the_same_digest_and_another_one_another(tmp_path: Path) -> None:
    digests = [
        program_image(tmp_path / name, content).digest
        for name, content in (("a", b"one"), ("b", b"one"), ("c", b"two"))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_an_image_that_buildah_pushed_to_a_folder_becomes_an_archive_with_the_same_digest(
    tmp_path: Path,
) -> None:
    image = program_image(tmp_path / "work")
    folder = tmp_path / "pushed"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(image.manifest)
    for digest, blob in image.blobs.items():
        target = folder / digest.removeprefix("sha256:")
        target.write_bytes(blob) if isinstance(blob, bytes) else shutil.copy(blob, target)
    oci.write_archive(oci.from_directory(folder), tmp_path / "image.tar")
    index, _ = read_archive(tmp_path / "image.tar")
    assert index["manifests"][0]["digest"] == image.digest


def test_an_import_makes_the_reference_by_digest_that_a_pod_names(tmp_path: Path) -> None:
    reference = f"docker.io/holdfast/trainer@sha256:{'0' * 64}"
    built = images.BuiltImage("trainer", reference, tmp_path / "image.tar", "docker.io/holdfast/trainer")
    arguments = images.import_arguments(built)
    assert "--digests" in arguments and "--base-name=docker.io/holdfast/trainer" in arguments
    assert arguments[-1] == str(tmp_path / "image.tar")


def test_a_cached_image_is_found_without_building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    monkeypatch.setattr(images, "program_file", lambda *arguments: program)
    first = images.build("pause", Progress())
    monkeypatch.setattr(images, "build_program_image", pytest.fail)
    assert images.build("pause", Progress()) == first
    assert first.reference == "docker.io/holdfast/pause:1" and first.archive.is_file()


def test_only_the_newest_builds_of_an_image_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "pause"
    monkeypatch.setattr(images, "program_file", lambda *arguments: program)
    for number in range(4):
        program.write_bytes(bytes([number]))
        newest = images.build("pause", Progress())
    kept = list((tmp_path / "cache" / "images").glob("pause-*"))
    assert len(kept) == images.KEPT_PER_IMAGE and newest.archive.is_file()


def test_an_unknown_image_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(RehearsalError, match="The images are trainer, gpu-operator, pause, coredns, jobset"):
        images.build("trainr", Progress())


def test_the_key_of_an_image_changes_with_any_source_and_not_with_byte_code(tmp_path: Path) -> None:
    definition = CONTAINERFILE_IMAGES["trainer"]
    checkout = tmp_path / "checkout"
    shutil.copytree(CHECKOUT / "trainer", checkout / "trainer", ignore=shutil.ignore_patterns("__pycache__"))

    def key(name: str) -> str:
        stage_context(definition, checkout, tmp_path / name)
        return images._context_key(definition, tmp_path / name)

    first = key("first")
    (checkout / "trainer" / "__pycache__").mkdir()
    (checkout / "trainer" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (checkout / "trainer" / "recovery" / "errors.py").chmod(0o600)
    assert key("second") == first, "byte code and the umask of the checkout are no part of an image"
    with (checkout / "trainer" / "recovery" / "errors.py").open("a") as stream:
        stream.write("# changed\n")
    assert key("third") != first


def test_wheels_are_those_of_the_images_python_whatever_runs_here(tmp_path: Path) -> None:
    command = download_command([tmp_path / "requirements.txt"], tmp_path)
    assert "--python-version=3.11" in command and "--abi=cp311" in command
    assert "--require-hashes" in command and "--only-binary=:all:" in command


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-cuda12.txt"])
def test_requirements_of_the_image_are_hashed_and_have_no_markers(name: str) -> None:
    text = (CHECKOUT / "trainer" / name).read_text()
    pins = re.findall(r"^[a-z0-9-]+(?:\[[a-z0-9]+\])?==\S+ \\$", text, re.MULTILINE)
    assert len(pins) >= 10
    # pip compares markers with the Python that it runs on, not with the one it downloads for.
    assert ";" not in text


def test_the_hosts_own_debian_archive_is_used_for_the_suite(tmp_path: Path) -> None:
    folder = tmp_path / "etc/apt/sources.list.d"
    folder.mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list").write_text(
        "# comment\ndeb [signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n"
        "deb-src http://mirror.example/debian bookworm main\ndeb http://other.example/tools stable main\n"
    )
    (folder / "debian.sources").write_text(
        "Types: deb\n# a comment\nURIs: http://mirror.example/security\nSuites: bookworm-security\n"
        "Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n"
        "Types: deb\nURIs: http://mirror.example/node\nSuites: nodistro\nComponents: main\n"
    )
    assert debian_sources("bookworm", tmp_path) == [
        "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main",
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        "http://mirror.example/security bookworm-security main",
    ]


def test_a_host_of_another_suite_leaves_the_choice_of_the_archive_to_the_default(tmp_path: Path) -> None:
    (tmp_path / "etc/apt").mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list").write_text("deb http://mirror.example/ubuntu noble main\n")
    assert debian_sources("bookworm", tmp_path) == []


def test_the_containerfile_starts_the_supervisor_in_exec_form_as_the_pods_user() -> None:
    text = (CHECKOUT / "trainer" / "Containerfile").read_text()
    assert 'ENTRYPOINT ["/app/holdfast-run", "--"]' in text
    assert "USER 1000:1000" in text
    assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE), "a base by digest"
