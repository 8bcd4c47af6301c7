"""What a node's programs are told."""

import tomllib

import pytest

from rehearsal import node


@pytest.fixture
def config(monkeypatch, tmp_path):
    (tmp_path / "bridge").touch()
    monkeypatch.setattr(node, "CNI_FOLDERS", (tmp_path,))
    return lambda gpu: tomllib.loads(node._containerd_config(gpu))["plugins"]


def test_the_nvidia_handler_is_on_gpu_nodes_only(config):
    def runtimes(gpu):
        return set(config(gpu)["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"])

    assert runtimes(gpu=True) == {"runc", "nvidia"}
    assert runtimes(gpu=False) == {"runc"}


def test_nothing_of_a_node_s_containerd_has_one_place_on_the_machine(config):
    """Three of them run side by side: what is not below a folder of the node's own is off."""
    assert config(True)["io.containerd.nri.v1.nri"]["disable"] is True


def test_every_standard_folder_of_a_node_is_its_own_and_run_is_emptied_at_boot():
    folders = [folder for folder, _ in node.FOLDERS.values()]
    assert len(set(folders)) == len(folders)
    for target, (_, emptied) in node.FOLDERS.items():
        assert emptied == (target.startswith("/run/") or target == "/var/lib/cni"), target


def test_a_machine_without_cni_plugins_is_told_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(node, "CNI_FOLDERS", (tmp_path,))
    with pytest.raises(node.RehearsalError, match="containernetworking-plugins"):
        node.cni_folder()
