"""What only the rehearsal's machine can do: stop a kubelet, freeze a Pod's processes, read a node's files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rehearsal import cluster, control_plane, processes, toolchain
from rehearsal import node as nodes
from rehearsal.addresses import addresses
from rehearsal.errors import RehearsalError
from rehearsal.progress import Progress

SANDBOX = "pause"


def stop_kubelet(name: str) -> None:
    """End the node's kubelet as a crash would. Its containers live on, below containerd's shims."""
    processes.stop(_node(name).process("kubelet"), grace_seconds=0)


def start_kubelet(name: str) -> None:
    """Start what has ended on the node. Returns when it runs, not when the node is Ready."""
    progress = Progress()
    plan = addresses()
    programs: dict[str, Path] = {}
    for program in cluster.CLUSTER_PROGRAMS:
        programs |= toolchain.ensure([program], progress)  # built long ago: this finds them
    with progress.step(f"Starting the kubelet of {name}", 5) as step:
        nodes.start(_node(name), plan, control_plane.identities(plan), programs, step)


def kubelet_runs(name: str) -> bool:
    return processes.running(_node(name).process("kubelet")) is not None


def silent_nodes() -> list[str]:
    """Nodes that are there and whose kubelet does not run."""
    return [node.name for node in nodes.NODES if node.init is not None and not kubelet_runs(node.name)]


def freeze(pod_uid: str) -> list[int]:
    """SIGSTOP every process of the Pod but its sandbox's; their pids on this machine."""
    return _signal(pod_uid, signal.SIGSTOP)


def thaw(pod_uid: str) -> list[int]:
    return _signal(pod_uid, signal.SIGCONT)


def alive(pod_uid: str) -> list[int]:
    """The Pod's processes that live, without its sandbox's, by their pids on this machine."""
    found = []
    for pid in _of_pod(pod_uid):
        if processes.start_time(pid) is not None:
            found.append(pid)
    return sorted(found)


def node_log(node: str, namespace: str, pod: str, pod_uid: str, container: str = "trainer") -> str:
    """The container's log as its node has it; empty where the node has none (any more)."""
    folder = (
        _node(node).folder / nodes.FOLDERS["/var/log/pods"][0] / f"{namespace}_{pod}_{pod_uid}" / container
    )
    try:
        return cri_text((folder / "0.log").read_text(errors="replace"))
    except OSError:
        return ""


def cri_text(content: str) -> str:
    """The lines that a container wrote, out of the runtime's log format: `TIME STREAM P|F TEXT`.

    P marks a part of a long line, F its end (kubernetes/cri-api, the CRI logging format). A last line that is
    still being written is left out.
    """
    lines, begun = [], ""
    for line in content.split("\n")[:-1]:
        fields = line.split(" ", 3)
        if len(fields) < 3:
            continue
        begun += fields[3] if len(fields) == 4 else ""
        if fields[2].startswith("F"):
            lines.append(begun)
            begun = ""
    return "".join(f"{line}\n" for line in lines)


def _signal(pod_uid: str, number: signal.Signals) -> list[int]:
    """Twice, because a process that is being forked meanwhile is seen only after its parent stands still."""
    reached: dict[int, None] = {}
    for _ in range(2):
        for pid in _of_pod(pod_uid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                reached[pid] = None
    return sorted(reached)


def _of_pod(pod_uid: str) -> Iterator[int]:
    """By the cgroup, whose path has the Pod's uid whatever namespaces the process is in."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if (
                f"pod{pod_uid}" in (entry / "cgroup").read_text()
                and (entry / "comm").read_text().strip() != SANDBOX
            ):
                yield int(entry.name)


def _node(name: str) -> nodes.Node:
    found = next((node for node in nodes.NODES if node.name == name), None)
    if found is None:
        raise RehearsalError(f"The rehearsal has no node {name}.", "Run `./holdfast up`.")
    return found
