"""The validator's steps, one init container each: `driver`, `toolkit`, `cuda`, `plugin`.

Each leaves a file `<step>-ready` in /run/nvidia/validations on the host, as the real validator does; the
other operands wait for `toolkit-ready`. Real: that the pod's RuntimeClass has a handler, and that the node's
allocatable GPUs are above zero. Simulated: the driver, which is the host file, and CUDA, which is not run.
"""

from .process import end_on_signals, give_up, say

if __name__ == "__main__":
    end_on_signals()

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import gpus

VALIDATIONS = Path("/run/nvidia/validations")
RESOURCE = "nvidia.com/gpu"

_POLL_SECONDS = 0.5
# The real validator looks 30 times, 5 s apart, and then fails the pod.
_PATIENCE_SECONDS = 150.0


def _until(true: Callable[[], bool], patience_seconds: float) -> bool:
    """Ask until the answer is yes; false when the time is over."""
    end = time.monotonic() + patience_seconds
    while not true():
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def driver(folder: Path, devices: Callable[[], tuple[gpus.Gpu, ...]], patience_seconds: float) -> str:
    """The host has stand-in GPUs. Starts the round: results of an earlier one are removed first."""
    for old in folder.glob("*-ready"):
        old.unlink(missing_ok=True)
    if not _until(lambda: bool(devices()), patience_seconds):
        raise give_up(
            f"driver-validation: {gpus.HOST_FILE} on the host lists no device, though the node is labelled "
            f"as having GPUs; write one UUID a line into it, or remove the label {RESOURCE}.present"
        )
    return f"{len(devices())} stand-in GPUs in {gpus.HOST_FILE} (simulated: there is no driver)"


def plugin(allocatable: Callable[[], int], patience_seconds: float) -> str:
    """The kubelet offers GPUs on this node."""
    if not _until(lambda: allocatable() > 0, patience_seconds):
        raise give_up(
            f"plugin-validation: this node still has no allocatable {RESOURCE}; look at the log of the "
            "device plugin's pod on it, and whether its tolerations fit the node's taints"
        )
    return f"{allocatable()} allocatable {RESOURCE}"


def _allocatable_from_api() -> Callable[[], int]:
    # Imported here: TLS and HTTP double the size of the other steps, which need neither.
    from .kube import TRANSIENT, Kube

    kube, node = Kube.in_cluster(), os.environ["NODE_NAME"]

    def ask() -> int:
        try:
            status = kube.get(f"/api/v1/nodes/{node}").get("status", {})
        except TRANSIENT as error:
            say(f"the API server does not say what the node has: {error}")
            return 0
        return int(status.get("allocatable", {}).get(RESOURCE, 0))

    return ask


def main(step: str) -> None:
    """Do one step; exit status 0 when it holds, 1 with a sentence when it does not."""
    steps: dict[str, Callable[[], str]] = {
        "driver": lambda: driver(VALIDATIONS, gpus.read, _PATIENCE_SECONDS),
        "toolkit": lambda: "this container runs under the pod's RuntimeClass, so the node has its handler",
        "cuda": lambda: "simulated: no CUDA workload is run",
        "plugin": lambda: plugin(_allocatable_from_api(), _PATIENCE_SECONDS),
    }
    say(f"{step}-validation: {steps[step]()}")
    (VALIDATIONS / f"{step}-ready").touch()


if __name__ == "__main__":
    main(sys.argv[1])
