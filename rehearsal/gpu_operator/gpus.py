"""The stand-in GPUs of one node: a text file on the host, one UUID a line.

A line may end in ` unhealthy`: that device is announced as failed, which is how a test plants a device fault.
Empty lines and lines that begin with `#` are ignored. No file, or an empty one, means a node without GPUs.
"""

from dataclasses import dataclass
from pathlib import Path

HOST_FOLDER = "/etc/holdfast-rehearsal"
HOST_FILE = Path(HOST_FOLDER, "gpus")

# kubelet v1beta1 api.proto, message Device: "Max length of this field is 63 characters".
_LONGEST_ID = 63


@dataclass(frozen=True)
class Gpu:
    """One stand-in device: its id as pods see it, and whether it works."""

    uuid: str
    healthy: bool


def read(path: Path = HOST_FILE) -> tuple[Gpu, ...]:
    """The node's devices in the file's order; empty when there is no file.

    A word other than `unhealthy` after the id makes the device unhealthy too: a typing error must not turn a
    planted fault into a working device. A repeated id counts once, and an id that the kubelet would refuse is
    left out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    found: dict[str, Gpu] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#") or len(words[0]) > _LONGEST_ID:
            continue
        found.setdefault(words[0], Gpu(uuid=words[0], healthy=len(words) == 1))
    return tuple(found.values())
