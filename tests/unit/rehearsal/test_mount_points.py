"""The machine's standard paths under the nodes' mounts: none goes while another checkout's node mounts over it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rehearsal import mount_points


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOLDFAST_STATE", str(tmp_path / "states" / "ours"))
    monkeypatch.setattr(mount_points, "HANDED_ON", tmp_path / "shared" / "mount-points.json")
    monkeypatch.setattr(mount_points, "_another_rehearsal", lambda: False)
    return tmp_path


def test_only_what_was_missing_is_made_and_removed_again(machine: Path) -> None:
    (machine / "etc").mkdir()
    mount_points.make([str(machine / "etc" / "cni" / "net.d")])
    assert (machine / "etc" / "cni" / "net.d").is_dir()
    mount_points.remove()
    assert [path.name for path in machine.glob("etc/**/*")] == [] and (machine / "etc").is_dir()


def test_a_folder_in_which_somebody_has_put_something_since_stays(machine: Path) -> None:
    mount_points.make([str(machine / "cni")])
    (machine / "cni" / "theirs").touch()
    mount_points.remove()
    assert (machine / "cni" / "theirs").exists()


def test_what_another_rehearsal_uses_is_handed_on_and_the_last_one_removes_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount_points.make([str(machine / "containerd")])
    monkeypatch.setattr(mount_points, "_another_rehearsal", lambda: True)
    mount_points.remove()
    assert (machine / "containerd").is_dir(), "the kernel would take the other's mount away with it"
    assert json.loads(mount_points.HANDED_ON.read_text())["made"] == [str(machine / "containerd")]

    monkeypatch.setenv("HOLDFAST_STATE", str(machine / "states" / "other"))
    monkeypatch.setattr(mount_points, "_another_rehearsal", lambda: False)
    mount_points.make([str(machine / "containerd"), str(machine / "kubelet")])
    mount_points.remove()
    assert not (machine / "containerd").exists() and not (machine / "kubelet").exists()
    assert not mount_points.HANDED_ON.parent.exists()


@pytest.mark.parametrize(
    ("words", "other"),
    [
        (["python", "-I", "/b/rehearsal/node_init.py", "/var/lib/holdfast/b/nodes/gpu-0/init.json"], True),
        (["unshare", "--", "python", "/b/rehearsal/node_init.py", "/b/state/nodes/gpu-0/init.json"], True),
        (["python", "-I", "/a/rehearsal/node_init.py", "{ours}/nodes/gpu-0/init.json"], False),
        (["vim", "/b/rehearsal/node_init.py"], False),
        ([""], False),
    ],
)
def test_another_rehearsal_is_known_by_the_first_process_of_its_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], other: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_STATE", "/var/lib/holdfast/ours")
    (tmp_path / "17").mkdir()
    said = "\0".join(words).replace("{ours}", "/var/lib/holdfast/ours") + "\0"
    (tmp_path / "17" / "cmdline").write_text(said)
    assert mount_points._another_rehearsal(tmp_path) is other
