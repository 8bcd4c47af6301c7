"""A new node's containerd shares what never changes with the kept folder, and nothing that it writes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from rehearsal.node_roots import UNCHANGING, seed

BLOB = UNCHANGING[0] / "sha256" / "0123"
LAYER_FILE = UNCHANGING[1] / "1" / "fs" / "usr" / "bin" / "python3"
DATABASES = (
    Path("io.containerd.metadata.v1.bolt/meta.db"),
    Path("io.containerd.snapshotter.v1.overlayfs/metadata.db"),
    Path("io.containerd.something.new/state.db"),
)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    root = tmp_path / "kept"
    for path in (BLOB, LAYER_FILE, *DATABASES):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"content of {path.name}")
    (root / LAYER_FILE).chmod(0o755)
    (root / LAYER_FILE).with_name("python").symlink_to("python3")
    return root


def contents(root: Path) -> dict[str, tuple[str, int]]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): (path.read_text(), path.stat().st_mode) for path in files}


def test_layers_are_shared_and_databases_are_the_node_s_own(kept: Path, tmp_path: Path) -> None:
    node = tmp_path / "node" / "containerd"
    seed(kept, node)
    assert contents(node) == contents(kept)
    assert all((node / path).samefile(kept / path) for path in (BLOB, LAYER_FILE))
    for path in DATABASES:
        (node / path).write_text("changed by the node")
        assert (kept / path).read_text() == f"content of {path.name}"
    assert (node / LAYER_FILE).with_name("python").is_symlink()


def test_what_a_node_has_already_stays_as_it_is(kept: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.mkdir()
    (node / "own").touch()
    seed(kept, node)
    assert [path.name for path in node.iterdir()] == ["own"]


def test_what_an_interrupted_start_left_is_not_taken_for_a_whole_root(kept: Path, tmp_path: Path) -> None:
    left = tmp_path / ".node.partial"
    (left / "io.containerd.metadata.v1.bolt").mkdir(parents=True)
    seed(kept, tmp_path / "node")
    assert contents(tmp_path / "node") == contents(kept)
    assert not left.exists()


def test_on_another_file_system_everything_is_a_copy(kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        assert Path(other).stat().st_dev != kept.stat().st_dev
        seed(kept, Path(other) / "node")
        assert contents(Path(other) / "node") == contents(kept)
