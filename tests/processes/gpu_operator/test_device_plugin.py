"""The device plugin against a kubelet's registration service, over real unix sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rehearsal.gpu_operator import deviceplugin_api as api
from rehearsal.gpu_operator.device_plugin import ENDPOINT, Place, run

Start = Callable[[str], Path]


@pytest.fixture
def start(kubelet: Any, tmp_path: Path) -> Iterator[Start]:
    """Starts the plugin with the given content of the device file; returns the file."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def begin(text: str) -> Path:
        file = tmp_path / "gpus"
        file.write_text(text)
        place = Place(folder=kubelet.folder, endpoint=ENDPOINT, devices_file=file)
        thread = threading.Thread(target=run, args=(place, stop, 0.02))
        thread.start()
        threads.append(thread)
        return file

    yield begin
    stop.set()
    for thread in threads:
        thread.join(timeout=5)
        assert not thread.is_alive()


@pytest.fixture
def channel(kubelet: Any) -> Iterator[grpc.Channel]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix://{kubelet.folder / ENDPOINT}", options=options) as made:
        yield made


def call(channel: grpc.Channel, method: str, request: Any, answer: Any) -> Any:
    path = f"/{api.DEVICE_PLUGIN_SERVICE}/{method}"
    ask = channel.unary_unary(path, type(request).SerializeToString, answer.FromString)
    return ask(request, timeout=5, wait_for_ready=True)


def watch(channel: grpc.Channel) -> Any:
    path = f"/{api.DEVICE_PLUGIN_SERVICE}/ListAndWatch"
    ask = channel.unary_stream(path, api.Empty.SerializeToString, api.ListAndWatchResponse.FromString)
    return ask(api.Empty(), timeout=10, wait_for_ready=True)


def devices(answer: Any) -> list[tuple[str, str]]:
    return [(one.ID, one.health) for one in answer.devices]


def test_it_registers_the_resource_with_the_kubelet(kubelet: Any, start: Start) -> None:
    start("GPU-1\n")
    kubelet.wait_for_registrations(1)
    (request,) = kubelet.registered
    assert (request.version, request.endpoint) == ("v1beta1", ENDPOINT)
    assert request.resource_name == "nvidia.com/gpu"
    assert request.options.get_preferred_allocation_available
    assert not request.options.pre_start_required


def test_a_planted_fault_is_announced_and_so_is_the_recovery(
    kubelet: Any, start: Start, channel: grpc.Channel
) -> None:
    file = start("GPU-1\nGPU-2\n")
    kubelet.wait_for_registrations(1)
    stream = watch(channel)
    assert devices(next(stream)) == [("GPU-1", "Healthy"), ("GPU-2", "Healthy")]
    file.write_text("GPU-1\nGPU-2 unhealthy\n")
    assert devices(next(stream)) == [("GPU-1", "Healthy"), ("GPU-2", "Unhealthy")]
    file.write_text("GPU-1\nGPU-2\n")
    assert devices(next(stream)) == [("GPU-1", "Healthy"), ("GPU-2", "Healthy")]
    stream.cancel()


def test_a_removed_device_and_a_removed_file_are_announced(
    kubelet: Any, start: Start, channel: grpc.Channel
) -> None:
    file = start("GPU-1\nGPU-2\n")
    kubelet.wait_for_registrations(1)
    stream = watch(channel)
    next(stream)
    file.write_text("GPU-2\n")
    assert devices(next(stream)) == [("GPU-2", "Healthy")]
    file.unlink()
    assert devices(next(stream)) == []
    stream.cancel()


def test_an_allocation_names_the_devices_to_each_container(
    kubelet: Any, start: Start, channel: grpc.Channel
) -> None:
    start("GPU-1\nGPU-2\nGPU-3\n")
    kubelet.wait_for_registrations(1)
    wanted = [["GPU-1"], ["GPU-3", "GPU-2"]]
    request = api.AllocateRequest(
        container_requests=[api.ContainerAllocateRequest(devices_ids=ids) for ids in wanted]
    )
    answer = call(channel, "Allocate", request, api.AllocateResponse)
    assert [dict(one.envs) for one in answer.container_responses] == [
        {"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
        {"NVIDIA_VISIBLE_DEVICES": "GPU-3,GPU-2"},
    ]


def test_an_allocation_of_a_device_that_is_not_there_is_refused_by_name(
    kubelet: Any, start: Start, channel: grpc.Channel
) -> None:
    start("GPU-1\n")
    kubelet.wait_for_registrations(1)
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["GPU-9"])])
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, "Allocate", request, api.AllocateResponse)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert "this node has no device GPU-9" in refused.value.details()


def test_a_preferred_allocation_holds_what_it_must_and_has_the_asked_size(
    kubelet: Any, start: Start, channel: grpc.Channel
) -> None:
    start("GPU-1\nGPU-2\nGPU-3\n")
    kubelet.wait_for_registrations(1)
    wanted = api.ContainerPreferredAllocationRequest(
        available_deviceIDs=["GPU-3", "GPU-2", "GPU-1"], must_include_deviceIDs=["GPU-3"], allocation_size=2
    )
    request = api.PreferredAllocationRequest(container_requests=[wanted])
    answer = call(channel, "GetPreferredAllocation", request, api.PreferredAllocationResponse)
    assert [list(one.deviceIDs) for one in answer.container_responses] == [["GPU-3", "GPU-1"]]


def test_options_and_the_call_before_a_start_are_answered(
    kubelet: Any, start: Start, channel: grpc.Channel
) -> None:
    start("GPU-1\n")
    kubelet.wait_for_registrations(1)
    options = call(channel, "GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions)
    assert options.get_preferred_allocation_available
    request = api.PreStartContainerRequest(devices_ids=["GPU-1"])
    call(channel, "PreStartContainer", request, api.PreStartContainerResponse)


def test_after_a_restart_of_the_kubelet_it_registers_again_and_serves_again(
    kubelet: Any, start: Start, channel: grpc.Channel
) -> None:
    start("GPU-1\n")
    kubelet.wait_for_registrations(1)
    kubelet.stop()
    kubelet.start()
    kubelet.wait_for_registrations(2)
    assert devices(next(watch(channel))) == [("GPU-1", "Healthy")]


def test_a_kubelet_that_is_not_ready_is_asked_again(kubelet: Any, start: Start) -> None:
    kubelet.refusals = 2
    start("GPU-1\n")
    kubelet.wait_for_registrations(1)
    assert kubelet.refusals == 0


def test_it_leaves_no_socket_behind(kubelet: Any, tmp_path: Path) -> None:
    stop = threading.Event()
    place = Place(folder=kubelet.folder, endpoint=ENDPOINT, devices_file=tmp_path / "gpus")
    thread = threading.Thread(target=run, args=(place, stop, 0.02))
    thread.start()
    kubelet.wait_for_registrations(1)
    stop.set()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert [path.name for path in kubelet.folder.iterdir()] == ["kubelet.sock"]


# Written by the Go package k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1 v0.37.2, deterministic marshalling.
@pytest.mark.parametrize(
    ("message", "written_by_go"),
    [
        (
            api.RegisterRequest(
                version="v1beta1",
                endpoint="a.sock",
                resource_name="nvidia.com/gpu",
                options={"pre_start_required": True, "get_preferred_allocation_available": True},
            ),
            "0a07763162657461311206612e736f636b1a0e6e76696469612e636f6d2f677075220408011001",
        ),
        (
            api.ListAndWatchResponse(
                devices=[
                    {"ID": "GPU-1", "health": "Healthy", "topology": {"nodes": [{"ID": 7}]}},
                    {"ID": "GPU-2", "health": "Unhealthy"},
                ]
            ),
            "0a160a054750552d3112074865616c7468791a040a0208070a120a054750552d321209556e6865616c746879",
        ),
        (
            api.PreStartContainerRequest(devices_ids=["GPU-1", "GPU-2"]),
            "0a054750552d310a054750552d32",
        ),
        (
            api.PreferredAllocationRequest(
                container_requests=[
                    {
                        "available_deviceIDs": ["GPU-1", "GPU-2"],
                        "must_include_deviceIDs": ["GPU-2"],
                        "allocation_size": 3,
                    }
                ]
            ),
            "0a170a054750552d310a054750552d3212054750552d321803",
        ),
        (
            api.PreferredAllocationResponse(container_responses=[{"deviceIDs": ["GPU-1"]}]),
            "0a070a054750552d31",
        ),
        (
            api.AllocateRequest(container_requests=[{"devices_ids": ["GPU-1"]}]),
            "0a070a054750552d31",
        ),
        (
            api.AllocateResponse(
                container_responses=[
                    {
                        "envs": {"K": "V"},
                        "mounts": [{"container_path": "/c", "host_path": "/h", "read_only": True}],
                        "devices": [{"container_path": "/d", "host_path": "/e", "permissions": "rw"}],
                        "annotations": {"A": "B"},
                        "cdi_devices": [{"name": "v/c=d"}],
                    }
                ]
            ),
            "0a330a060a014b120156120a0a022f6312022f6818011a0c0a022f6412022f651a02727722060a0141"
            "1201422a070a05762f633d64",
        ),
    ],
    ids=lambda value: value.DESCRIPTOR.name if hasattr(value, "DESCRIPTOR") else "",
)
def test_the_messages_have_the_kubelets_own_bytes(message: Any, written_by_go: str) -> None:
    assert message.SerializeToString(deterministic=True).hex() == written_by_go
    assert type(message).FromString(bytes.fromhex(written_by_go)) == message
