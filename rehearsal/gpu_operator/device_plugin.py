"""A real kubelet device plugin (API v1beta1) for the stand-in GPUs of this node.

Real: the registration, the stream of devices with their health, the allocation, the return after a restart of
the kubelet. Simulated: the devices. A container gets their ids in NVIDIA_VISIBLE_DEVICES and no device file.
"""

from .process import end_on_signals, say

if __name__ == "__main__":
    end_on_signals()  # before grpc, whose import takes a while

import os
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from . import deviceplugin_api as api
from . import gpus

RESOURCE = "nvidia.com/gpu"
KUBELET_FOLDER = Path("/var/lib/kubelet/device-plugins")
ENDPOINT = "gpu-operator-rehearsal.sock"
POLL_SECONDS = 0.5

_REGISTER_TIMEOUT_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 5.0
_STOP_SECONDS = 1.0
# One stream stays open per kubelet; after a restart of it the old stream may linger beside the new one.
_THREADS = 8
# Without it a new channel shares the dead connection to the kubelet's former socket, and its backoff.
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


class Devices:
    """The node's devices, shared by the thread that reads the file and the streams that announce them."""

    def __init__(self, found: tuple[gpus.Gpu, ...] = ()) -> None:
        self._changed = threading.Condition()
        self._found = found
        self._version = 0
        self._closed = False

    def replace(self, found: tuple[gpus.Gpu, ...]) -> bool:
        """Take the newest reading; true when it differs from the one before."""
        with self._changed:
            if found == self._found:
                return False
            self._found, self._version = found, self._version + 1
            self._changed.notify_all()
            return True

    def now(self) -> tuple[gpus.Gpu, ...]:
        """The devices as last read."""
        with self._changed:
            return self._found

    def wake(self) -> None:
        """Make waiting streams look whether their caller is still there."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def readings(self, wanted: Any) -> Iterator[tuple[gpus.Gpu, ...]]:
        """The devices now and after each change, until closed or until `wanted()` is false."""
        seen = -1
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not wanted() or self._version != seen)
                if self._closed or not wanted():
                    return
                seen, found = self._version, self._found
            yield found


class DevicePlugin:
    """The five calls of the DevicePlugin service."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    def options(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """GetDevicePluginOptions."""
        return _options()

    def list_and_watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """ListAndWatch: the whole list now, and again whenever a device appears, goes, fails or heals."""
        context.add_callback(self._devices.wake)
        for found in self._devices.readings(wanted=context.is_active):
            yield api.ListAndWatchResponse(
                devices=[api.Device(ID=gpu.uuid, health=_health(gpu)) for gpu in found]
            )

    def allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Allocate: name the devices to the container; an id that this node does not have is an error."""
        known = {gpu.uuid for gpu in self._devices.now()}
        answer = api.AllocateResponse()
        for wanted in request.container_requests:
            unknown = [uuid for uuid in wanted.devices_ids if uuid not in known]
            if unknown:
                context.abort(
                    grpc.StatusCode.NOT_FOUND,
                    f"this node has no device {', '.join(unknown)}: {gpus.HOST_FILE} lists "
                    f"{', '.join(sorted(known)) or 'none'}",
                )
            answer.container_responses.add(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(wanted.devices_ids)})
        return answer

    def preferred(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """GetPreferredAllocation: those that must be in it, then the first available ones by id."""
        answer = api.PreferredAllocationResponse()
        for wanted in request.container_requests:
            chosen = list(wanted.must_include_deviceIDs)
            rest = sorted(set(wanted.available_deviceIDs) - set(chosen))
            answer.container_responses.add(deviceIDs=(chosen + rest)[: wanted.allocation_size])
        return answer

    def pre_start(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """PreStartContainer: nothing to prepare; the options tell the kubelet not to ask."""
        return api.PreStartContainerResponse()


def _options() -> Any:
    return api.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)


def _health(gpu: gpus.Gpu) -> str:
    return api.HEALTHY if gpu.healthy else api.UNHEALTHY


def serve(devices: Devices, socket: Path) -> grpc.Server:
    """Serve the plugin on a fresh unix socket, replacing one that a dead plugin left there."""
    plugin = DevicePlugin(devices)
    calls = {
        "GetDevicePluginOptions": _unary(plugin.options, api.Empty),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            plugin.list_and_watch, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": _unary(plugin.allocate, api.AllocateRequest),
        "GetPreferredAllocation": _unary(plugin.preferred, api.PreferredAllocationRequest),
        "PreStartContainer": _unary(plugin.pre_start, api.PreStartContainerRequest),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="plugin"))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(api.DEVICE_PLUGIN_SERVICE, calls),))
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def _unary(call: Any, request: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        call, request.FromString, lambda answer: bytes(answer.SerializeToString())
    )


def register(folder: Path, endpoint: str) -> None:
    """Tell the kubelet which socket in its folder serves the resource. Raises grpc.RpcError."""
    request = api.RegisterRequest(
        version=api.VERSION, endpoint=endpoint, resource_name=RESOURCE, options=_options()
    )
    with grpc.insecure_channel(f"unix://{folder / 'kubelet.sock'}", options=_OWN_CONNECTION) as channel:
        call = channel.unary_unary(
            api.REGISTER,
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        call(request, timeout=_REGISTER_TIMEOUT_SECONDS)


@dataclass(frozen=True)
class Place:
    """Where this plugin finds its kubelet and its devices."""

    folder: Path = KUBELET_FOLDER
    endpoint: str = ENDPOINT
    devices_file: Path = gpus.HOST_FILE


def run(place: Place, stop: threading.Event, poll_seconds: float = POLL_SECONDS) -> None:
    """Serve, register, and follow the file and the kubelet until `stop` is set.

    A starting kubelet empties its folder and forgets every plugin, so its socket's identity is watched, and
    our own socket's existence: on a change of either, serve anew and register again.
    """
    devices = Devices(gpus.read(place.devices_file))
    server: grpc.Server | None = None
    registered_with: tuple[int, int, int] | None = None
    pause = poll_seconds
    try:
        while not stop.is_set():
            if devices.replace(gpus.read(place.devices_file)):
                say(f"devices: {_summary(devices.now())}")
            kubelet = _identity(place.folder / "kubelet.sock")
            lost = kubelet != registered_with or not (place.folder / place.endpoint).exists()
            if kubelet is not None and lost:
                registered_with = None
                try:
                    server = _end(server)
                    server = serve(devices, place.folder / place.endpoint)
                    register(place.folder, place.endpoint)
                except (grpc.RpcError, OSError, RuntimeError) as error:
                    say(f"the kubelet took no registration, trying again in {pause:.1f} s: {_reason(error)}")
                    stop.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                    continue
                registered_with, pause = kubelet, poll_seconds
                say(f"registered {RESOURCE} with the kubelet: {_summary(devices.now())}")
            stop.wait(poll_seconds)
    finally:
        devices.close()
        _end(server)
        (place.folder / place.endpoint).unlink(missing_ok=True)


def _end(server: grpc.Server | None) -> None:
    """Stop the server and wait until it is gone: as it goes it removes its socket's path, whoever made it."""
    if server is not None:
        server.stop(grace=0).wait(_STOP_SECONDS)


def _identity(socket: Path) -> tuple[int, int, int] | None:
    """What tells one kubelet's socket from the next: an inode number alone may be used again at once."""
    try:
        facts = os.stat(socket)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns


def _summary(found: tuple[gpus.Gpu, ...]) -> str:
    if not found:
        return "none"
    return ", ".join(gpu.uuid if gpu.healthy else f"{gpu.uuid} ({api.UNHEALTHY})" for gpu in found)


def _reason(error: Exception) -> str:
    details = getattr(error, "details", None)
    return str(details() if callable(details) else error)


def main() -> None:
    """Run until SIGTERM."""
    say(f"device plugin of the GPU Operator stand-in; devices come from {gpus.HOST_FILE}")
    run(Place(), threading.Event())


if __name__ == "__main__":
    main()
