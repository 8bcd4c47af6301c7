"""`up` mends whatever was killed, and `down` leaves no trace."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from rehearsal import cgroups, cluster, mount_points, network, node, processes
from rehearsal.api import core
from rehearsal.progress import Progress
from rehearsal.state import read_json, read_record, rehearsal_id, state_dir
from tests.rehearsal.helpers import wait_for

ONE_OF_EACH = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "provisioner",
    "gpu-0-containerd", "gpu-0-kubelet", "gpu-0-kube-proxy", "gpu-0-node",
)  # fmt: skip


def nodes_ready() -> bool:
    ready = [
        any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)
        for found in core().list_node().items
    ]
    return len(ready) == len(node.NODES) and all(ready)


def kill(name: str) -> None:
    process = processes.recorded()[name]
    os.kill(process.pid, signal.SIGKILL)
    wait_for(f"{name} is gone", lambda: not process.alive(), seconds=10)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_killed_process_is_named_and_the_next_up_starts_it(name):
    kill(name)
    assert name in [fault.what for fault in cluster.faults()]
    cluster.up(Progress())
    assert cluster.faults() == []
    wait_for("all nodes are ready", nodes_ready)


def test_up_works_after_every_process_was_killed():
    for process in processes.recorded().values():
        if process.alive():
            os.kill(process.pid, signal.SIGKILL)
    cluster.up(Progress())
    assert cluster.faults() == []
    wait_for("all nodes are ready", nodes_ready)


def traces() -> dict[str, list[str]]:
    """Everything on this machine that carries the rehearsal's mark."""
    here, mark = str(state_dir()), rehearsal_id()
    found: dict[str, list[str]] = {"processes": []}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if here in words:
                found["processes"].append(words)
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found["mounts"] = [line for line in lines if here in line or mark in line]
    listed = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    found["interfaces"] = [line for line in listed.splitlines() if mark in line]
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    found["rules"] = [line for line in rules.splitlines() if mark in line or "KUBE-" in line]
    found["namespaces"] = [str(path) for path in Path("/run").glob("netns/*") if mark in path.name]
    found["cgroups"] = [str(path) for path in cgroups.ROOT.rglob(f"*{mark}*")]
    found["files"] = [here] if state_dir().exists() else []
    return found


def folders_made_since(moment: float) -> list[str]:
    """Folders of the machine's own that came into being since then, where daemons leave theirs."""
    places = [Path(p) for p in ("/run", "/var/lib", "/var/log", "/etc", "/opt", "/usr/libexec", "/etc/cni", "/run/lock")]
    folders = [str(path) for place in places if place.is_dir() for path in place.iterdir() if path.is_dir()]
    born = subprocess.run(["stat", "--format=%W %n", *folders], capture_output=True, text=True, check=True).stdout
    return [line.split(" ", 1)[1] for line in born.splitlines() if int(line.split()[0]) >= moment]


def test_down_leaves_no_trace_and_up_works_after_it():
    made = read_record("mount-points")["made"]
    began = (state_dir() / "addresses.json").stat().st_mtime
    assert str(state_dir().parent) in folders_made_since(0), "the check itself sees folders"
    assert traces()["interfaces"], "the check itself sees a running cluster"
    assert Path(f"/run/netns/{network.namespace(0)}").exists()
    cluster.down(Progress())
    assert traces() == dict.fromkeys(traces(), [])
    handed_on = read_json(mount_points.HANDED_ON).get("made", [])  # where another checkout's rehearsal uses them
    assert [path for path in made if Path(path).exists() and path not in handed_on] == []
    kept = {str(state_dir().parent), *handed_on}
    assert [path for path in folders_made_since(began) if path not in kept] == []
    cluster.down(Progress())  # nothing to do, and no complaint
    cluster.up(Progress())
    wait_for("all nodes are ready", nodes_ready)
