"""Stand-ins for Node Feature Discovery's worker (`nfd`) and for GPU Feature Discovery (`gfd`).

Both put labels on the node on which they run. Simulated: the source, which is the host file of stand-in
GPUs in place of the PCI bus and NVML. Neither takes its labels back when it ends: the real GPU Operator
leaves them too, and a worker that restarts must not make a node look as if it had lost its GPUs for a moment.
"""

from .process import end_on_signals, say

if __name__ == "__main__":
    end_on_signals()

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping

from . import gpus
from .kube import TRANSIENT, Kube

Labels = Mapping[str, str | None]  # a None removes the label

PCI_VENDOR_LABEL = "feature.node.kubernetes.io/pci-10de.present"
KERNEL_LABEL = "feature.node.kubernetes.io/kernel-version.full"

_LOOK_SECONDS = 1.0
_REPEAT_SECONDS = 60.0  # as nfd-worker's default sleep interval: heals a label that someone removed
_LONGEST_PAUSE_SECONDS = 10.0


def nfd_labels(found: tuple[gpus.Gpu, ...], kernel: str) -> Labels:
    """The kernel's version on every node, and the PCI vendor 10de where there are stand-in GPUs."""
    return {KERNEL_LABEL: _label_value(kernel), PCI_VENDOR_LABEL: "true" if found else None}


def gfd_labels(found: tuple[gpus.Gpu, ...]) -> Labels:
    """What a workload may select on. A failed device still counts: it is there, and does not work."""
    values = {
        "nvidia.com/gpu.count": str(len(found)),
        "nvidia.com/gpu.product": "Rehearsal-GPU",
        "nvidia.com/gpu.family": "rehearsal",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/mig.capable": "false",
    }
    return {name: value if found else None for name, value in values.items()}


def _label_value(text: str) -> str:
    """A label value: at most 63 of the characters A-Z a-z 0-9 . _ - and neither end a punctuation mark."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:63].strip("._-")


def follow(kube: Kube, node: str, labels: Callable[[], Labels]) -> None:
    """Keep the node's labels as `labels()` says, for ever; an absent API server is waited for."""
    said: Labels | None = None
    due, pause = 0.0, _LOOK_SECONDS
    while True:
        wanted = labels()
        if wanted != said or time.monotonic() >= due:
            try:
                kube.merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": dict(wanted)}})
            except TRANSIENT as error:
                say(f"node {node} could not be labelled, trying again in {pause:.0f} s: {error}")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            if wanted != said:
                say(f"node {node}: " + ", ".join(f"{name}={value}" for name, value in wanted.items()))
            said, due, pause = wanted, time.monotonic() + _REPEAT_SECONDS, _LOOK_SECONDS
        time.sleep(_LOOK_SECONDS)


def main(role: str) -> None:
    """Run as `nfd` or as `gfd` until SIGTERM."""
    sources: dict[str, Callable[[], Labels]] = {
        "nfd": lambda: nfd_labels(gpus.read(), platform.release()),
        "gfd": lambda: gfd_labels(gpus.read()),
    }
    follow(Kube.in_cluster(), os.environ["NODE_NAME"], sources[role])


if __name__ == "__main__":
    main(sys.argv[1])
