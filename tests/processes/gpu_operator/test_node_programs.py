"""The device file, the labels that come from it, the validator's steps, and the end on SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rehearsal.gpu_operator import gpus, operands, validator
from rehearsal.gpu_operator.desired import Node, desired_state
from rehearsal.gpu_operator.feature_discovery import (
    KERNEL_LABEL,
    PCI_VENDOR_LABEL,
    follow,
    gfd_labels,
    nfd_labels,
)
from rehearsal.gpu_operator.gpus import Gpu

TWO = (Gpu("GPU-1", healthy=True), Gpu("GPU-2", healthy=False))


def read(tmp_path: Path, text: str) -> tuple[Gpu, ...]:
    (tmp_path / "gpus").write_text(text)
    return gpus.read(tmp_path / "gpus")


def test_the_file_lists_one_device_a_line_and_which_of_them_failed(tmp_path: Path) -> None:
    assert read(tmp_path, "# two\nGPU-1\n\n  GPU-2 unhealthy\n") == TWO


def test_a_misspelt_health_is_a_fault_and_not_a_working_device(tmp_path: Path) -> None:
    assert read(tmp_path, "GPU-1 unhealty\n") == (Gpu("GPU-1", healthy=False),)


def test_a_repeated_device_counts_once_and_one_that_the_kubelet_refuses_is_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, f"GPU-1\nGPU-1\n{'x' * 64}\n") == (Gpu("GPU-1", healthy=True),)


def test_a_node_without_the_file_has_no_devices(tmp_path: Path) -> None:
    assert gpus.read(tmp_path / "absent") == ()
    assert gpus.read(tmp_path / "no folder" / "gpus") == ()


def test_nfd_marks_nodes_with_devices_and_only_those() -> None:
    assert nfd_labels(TWO, "6.1.0")[PCI_VENDOR_LABEL] == "true"
    assert nfd_labels((), "6.1.0") == {PCI_VENDOR_LABEL: None, KERNEL_LABEL: "6.1.0"}


@pytest.mark.parametrize(("kernel", "value"), [("6.1.0-1+deb_", "6.1.0-1_deb"), ("x" * 70, "x" * 63)])
def test_a_kernels_version_becomes_a_value_that_a_label_may_have(kernel: str, value: str) -> None:
    assert nfd_labels((), kernel)[KERNEL_LABEL] == value


def test_gpu_feature_discovery_counts_and_never_claims_an_nvidia_product() -> None:
    labels = gfd_labels(TWO)
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/gpu.product"] == "Rehearsal-GPU"
    assert set(gfd_labels(()).values()) == {None}


def test_labels_follow_the_devices_and_survive_an_api_server_that_is_away(
    api_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rehearsal.gpu_operator.feature_discovery._LOOK_SECONDS", 0.01)
    api_server.add_node("gpu-0", mine="kept")
    api_server.refuse_next += [500, 500]
    found: list[tuple[Gpu, ...]] = [TWO]

    class Enough(Exception):
        pass

    def labels() -> Any:
        if not found:
            raise Enough
        return nfd_labels(found[0], "6.1.0")

    def run() -> None:
        with pytest.raises(Enough):
            follow(api_server.client(), "gpu-0", labels)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: PCI_VENDOR_LABEL in api_server.labels("gpu-0"))
    found[0] = ()
    until(lambda: PCI_VENDOR_LABEL not in api_server.labels("gpu-0"))
    found.clear()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert api_server.labels("gpu-0") == {"mine": "kept", KERNEL_LABEL: "6.1.0"}


def until(true: Any, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_driver_validation_begins_a_new_round(tmp_path: Path) -> None:
    (tmp_path / "toolkit-ready").touch()
    assert "2 stand-in GPUs" in validator.driver(tmp_path, lambda: TWO, patience_seconds=0)
    assert list(tmp_path.iterdir()) == []


def test_driver_validation_says_which_file_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        validator.driver(tmp_path, lambda: (), patience_seconds=0)
    assert end.value.code == 1
    assert "/etc/holdfast-rehearsal/gpus on the host lists no device" in capfd.readouterr().err


def test_plugin_validation_waits_until_the_kubelet_offers_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator, "_POLL_SECONDS", 0.01)
    answers = iter([0, 0, 2, 2])
    assert validator.plugin(lambda: next(answers), patience_seconds=5) == "2 allocatable nvidia.com/gpu"


def test_plugin_validation_fails_with_the_way_out(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        validator.plugin(lambda: 0, patience_seconds=0)
    assert "whether its tolerations fit the node's taints" in capfd.readouterr().err


def test_a_program_ends_at_once_on_sigterm(tmp_path: Path, checkout: Path) -> None:
    program = (
        "from rehearsal.gpu_operator.process import end_on_signals\n"
        "end_on_signals()\n"
        "from rehearsal.gpu_operator import validator\n"
        "print('waiting', flush=True)\n"
        "validator.plugin(lambda: 0, patience_seconds=60)\n"
    )
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", program], cwd=checkout, **pipes)
    assert child.stdout is not None and child.stdout.readline() == "waiting\n"
    asked = time.monotonic()
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=5)
    assert (child.returncode, errors) == (0, "")
    assert time.monotonic() - asked < 1


def shell_commands() -> dict[str, list[str]]:
    """Each shell command of the operands by `daemon set/container`."""
    node = Node("gpu-0", {"feature.node.kubernetes.io/pci-10de.present": "true"})
    found = {}
    for one in desired_state({}, [node], operands.Site("ns", "image", ("p", "u"))).daemon_sets:
        pod = one["spec"]["template"]["spec"]
        for container in [*pod["initContainers"], *pod["containers"]]:
            if container["command"][0] == "/bin/sh":
                found[f"{one['metadata']['name']}/{container['name']}"] = container["command"]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-driver-daemonset/nvidia-driver-daemonset",
        "nvidia-operator-validator/nvidia-operator-validator",
        "nvidia-device-plugin-daemonset/toolkit-validation",
    ],
)
def test_a_shell_in_a_pod_says_what_it_is_and_ends_at_once_on_sigterm(name: str) -> None:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(shell_commands()[name], start_new_session=True, **pipes)
    try:
        assert child.stdout is not None and child.stdout.readline().strip()
        asked = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=5) in (0, 143)
        assert time.monotonic() - asked < 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # the `sleep`, which in a pod ends with its container
        child.communicate(timeout=5)


def test_waiting_for_the_toolkit_ends_when_the_validator_says_so(tmp_path: Path) -> None:
    command = shell_commands()["nvidia-device-plugin-daemonset/toolkit-validation"]
    here = [part.replace("/run/nvidia/validations", str(tmp_path)) for part in command]
    child = subprocess.Popen(here, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and "waiting for" in child.stdout.readline()
    assert child.poll() is None
    (tmp_path / "toolkit-ready").touch()
    assert child.wait(timeout=5) == 0
    child.stdout.close()
