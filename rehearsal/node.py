"""One node: namespaces, its own standard folders, containerd, kubelet and kube-proxy."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from rehearsal import cgroups, network, pki, processes
from rehearsal.addresses import Addresses
from rehearsal.commands import run_in
from rehearsal.control_plane import Identities
from rehearsal.errors import RehearsalError
from rehearsal.progress import Step
from rehearsal.state import state_dir, write_atomically
from rehearsal.waiting import wait_until

PROGRAMS = ("containerd", "kubelet", "kube-proxy")
POOL_LABEL = "holdfast.dev/rehearsal-pool"
SANDBOX_IMAGE = "docker.io/holdfast/pause:1"
GPU_LIST = "/etc/holdfast-rehearsal"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))  # Debian's package; the CNI project's own archive

# Standard path on a node -> folder below the node's own, and whether it is emptied when the node boots, as /run is.
FOLDERS: Mapping[str, tuple[str, bool]] = {
    "/var/lib/kubelet": ("kubelet", False),
    "/var/lib/containerd": ("containerd", False),
    "/var/log/pods": ("log-pods", False),
    "/var/log/containers": ("log-containers", False),
    "/etc/cni/net.d": ("cni-config", False),
    "/etc/cdi": ("cdi", False),
    GPU_LIST: ("gpus", False),
    "/run/containerd": ("run-containerd", True),
    "/opt/containerd": ("opt-containerd", False),
    "/usr/libexec/kubernetes": ("volume-plugins", False),
    "/run/netns": ("run-netns", True),
    "/run/nvidia": ("run-nvidia", True),
    "/run/mount": ("run-mount", True),  # where mount(8) keeps notes
    "/var/lib/cni": ("cni-leases", True),  # a boot ends every Pod sandbox, so no address is in use
}


@dataclass(frozen=True)
class Node:
    """What a node is: its place in the address plan, its pool, and the stand-in GPUs that its list file names."""

    index: int
    name: str
    pool: str
    gpus: Sequence[str] = ()

    @property
    def folder(self) -> Path:
        return state_dir() / "nodes" / self.name

    @property
    def containerd_root(self) -> Path:
        return self.folder / FOLDERS["/var/lib/containerd"][0]

    def process(self, program: str) -> str:
        return f"{self.name}-{program}"

    @property
    def init(self) -> processes.Process | None:
        return processes.running(self.process("node"))


def _gpu(node: str, index: int) -> str:
    return f"GPU-rehearsal-{node}-{index}"


NODES = (
    Node(0, "system-0", "system"),
    Node(1, "gpu-0", "gpu", (_gpu("gpu-0", 0),)),
    Node(2, "gpu-1", "gpu", (_gpu("gpu-1", 0),)),
)


def start(node: Node, plan: Addresses, who: Identities, programs: Mapping[str, Path], step: Step) -> None:
    """Boot a node, or start what has ended on it. Returns when containerd answers; the kubelet registers by itself."""
    if node.init is None:
        for program in PROGRAMS:
            processes.forget(node.process(program))  # they ended with the namespace
        _boot(node, step)
    _configure(node, plan, who)
    inside = node.init
    environment = {"PATH": _path(programs), "HOME": "/root", "LANG": "C.UTF-8"}
    processes.start(
        node.process("containerd"),
        [programs["containerd"], "--config", node.folder / "containerd.toml"],
        environment=environment,
        inside=inside,
    )
    _wait_for_containerd(node, programs, step)
    processes.start(
        node.process("kubelet"),
        [
            programs["kubelet"],
            f"--config={node.folder / 'kubelet.yaml'}",
            f"--kubeconfig={who.folder / f'kubelet-{node.name}.kubeconfig'}",
            f"--hostname-override={node.name}",
            f"--node-ip={plan.node(node.index)}",
            f"--node-labels={POOL_LABEL}={node.pool}",
            "--cert-dir=/var/lib/kubelet/pki",
        ],
        environment=environment,
        inside=inside,
    )
    processes.start(
        node.process("kube-proxy"),
        [programs["kube-proxy"], f"--config={node.folder / 'kube-proxy.yaml'}"],
        environment=environment,
        inside=inside,
    )


def _path(programs: Mapping[str, Path]) -> str:
    """containerd finds its shim, and the kubelet finds mount and iptables, by PATH."""
    folders = dict.fromkeys(str(programs[name].parent) for name in ("containerd-shim-runc-v2", "ctr"))
    return ":".join([*folders, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


def _boot(node: Node, step: Step) -> None:
    cgroups.create(node.name)
    ready = node.folder / "ready"
    ready.unlink(missing_ok=True)
    binds = []
    for target, (source, emptied) in FOLDERS.items():
        folder = node.folder / source
        if emptied:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        binds.append([str(folder), target])
    gpu_list = node.folder / FOLDERS[GPU_LIST][0] / "gpus"
    if node.gpus and not gpu_list.exists():
        write_atomically(gpu_list, "".join(f"{gpu}\n" for gpu in node.gpus))
    plan = {"hostname": node.name, "binds": binds, "shared": ["/var/lib/kubelet"], "ready": str(ready)}
    write_atomically(node.folder / "init.json", json.dumps(plan))
    script = Path(__file__).with_name("node_init.py")
    argv = [sys.executable, "-I", "-S", script, node.folder / "init.json"]
    processes.start_namespace(node.process("node"), network.namespace(node.index), argv)

    def missing() -> str:
        if node.init is None:
            words = processes.last_words(node.process("node"))
            raise RehearsalError(f"The namespaces of node {node.name} could not be made. {words}", "Mend it and retry.")
        return "" if ready.exists() else f"the folders of {node.name}"

    wait_until(missing, limit_seconds=20, step=step, fix=f"Read {processes.log_path(node.process('node'))}.")


def _configure(node: Node, plan: Addresses, who: Identities) -> None:
    identity = who.authority.issue(f"kubelet-{node.name}", f"system:node:{node.name}", organisation="system:nodes")
    pki.write_kubeconfig(
        who.folder / f"kubelet-{node.name}.kubeconfig", who.server, who.authority, identity, f"system:node:{node.name}"
    )
    serving = who.authority.issue(
        f"kubelet-serving-{node.name}",
        f"system:node:{node.name}",
        organisation="system:nodes",
        server_names=[node.name, plan.node(node.index)],
    )
    write_atomically(node.folder / "containerd.toml", _containerd_config(bool(node.gpus)))
    write_atomically(node.folder / "kubelet.yaml", yaml.safe_dump(_kubelet_config(node, plan, who, serving)))
    proxy = who.kubeconfig("kube-proxy", "system:kube-proxy")
    write_atomically(node.folder / "kube-proxy.yaml", yaml.safe_dump(_proxy_config(node, plan, proxy)))
    write_atomically(node.folder / "cni-config" / "10-bridge.conflist", json.dumps(_cni_config(node, plan), indent=2))
    resolv = "nameserver 127.0.0.1\n"  # the cluster has no way out: names outside it are not resolved
    write_atomically(node.folder / "resolv.conf", resolv)


def _containerd_config(gpu: bool) -> str:
    """The `nvidia` handler is runc under another name: the host's toolkit as a Pod sees it, without a GPU behind it."""
    nvidia = """
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
  runtime_type = 'io.containerd.runc.v2'
"""
    return f"""version = 3
root = '/var/lib/containerd'
state = '/run/containerd'

[plugins.'io.containerd.nri.v1.nri']
  # Its socket has one place on the machine, and three nodes would fight for it.
  disable = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{SANDBOX_IMAGE}'

[plugins.'io.containerd.cri.v1.runtime']
  # A machine without CAP_SYS_RESOURCE can not lower a container's OOM score.
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  enable_cdi = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{cni_folder()}']
  conf_dir = '/etc/cni/net.d'

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
{nvidia if gpu else ''}"""


def cni_folder() -> Path:
    for folder in CNI_FOLDERS:
        if (folder / "bridge").exists():
            return folder
    raise RehearsalError(
        f"The CNI plugins are in none of {', '.join(map(str, CNI_FOLDERS))}.",
        "Install the package containernetworking-plugins.",
    )


def _kubelet_config(node: Node, plan: Addresses, who: Identities, serving: pki.Pair) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(who.authority.pair.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.node_root(node.name),
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "clusterDNS": [plan.dns_service],
        "clusterDomain": "cluster.local",
        "resolvConf": str(node.folder / "resolv.conf"),
        "podCIDR": str(plan.pods(node.index)),
        "registerNode": True,
        # One disk and one memory serve all nodes and everything else on the machine: evict only when it is truly full.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # images are imported, so none could be pulled again
        # A device plugin's GPUs become allocatable with the next status: the default of 10 s is a long part of a short run.
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "10s",
        "logging": {"verbosity": 1},
    }


def _proxy_config(node: Node, plan: Addresses, kubeconfig: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node.name,
        "mode": "iptables",
        "clusterCIDR": str(plan.all_pods),
        # The connection-tracking limits belong to the machine, not to a node's namespace.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _cni_config(node: Node, plan: Addresses) -> dict[str, object]:
    return {
        "cniVersion": "1.0.0",
        "name": "rehearsal",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": str(plan.pods(node.index))}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _wait_for_containerd(node: Node, programs: Mapping[str, Path], step: Step) -> None:
    name = node.process("containerd")

    def missing() -> str:
        if not processes.running(name):
            raise RehearsalError(f"{name} ended at its start. {processes.last_words(name)}", f"Read {processes.log_path(name)}.")
        try:
            ctr(node, programs, "version")
        except RehearsalError:
            return f"containerd of {node.name}"
        return ""

    wait_until(missing, limit_seconds=60, step=step, fix=f"Read {processes.log_path(name)}.")


def ctr(node: Node, programs: Mapping[str, Path], *arguments: str | Path) -> str:
    """Run containerd's own client on a node, in the namespace where the kubelet looks for images."""
    inside = node.init
    if inside is None:
        raise RehearsalError(f"The node {node.name} is not running.", "Run `./holdfast up`.")
    return run_in(inside.pid, [programs["ctr"], "--namespace=k8s.io", *arguments])
