"""The machine's side of the cluster network: one bridge, one network namespace and one veth pair per node, routes."""

from __future__ import annotations

from pathlib import Path

from rehearsal.addresses import Addresses
from rehearsal.commands import run
from rehearsal.state import rehearsal_id


def bridge() -> str:
    return f"hf{rehearsal_id()}"  # an interface name has at most 15 characters


def namespace(index: int) -> str:
    return f"hf{rehearsal_id()}-{index}"


def _veth(index: int) -> str:
    return f"hf{rehearsal_id()}v{index}"


def up(plan: Addresses, nodes: int) -> None:
    """Make what is missing; leave what is there."""
    if not _exists(bridge()):
        run("ip", "link", "add", bridge(), "type", "bridge")
    run("ip", "address", "replace", f"{plan.machine}/{plan.node_network.prefixlen}", "dev", bridge())
    run("ip", "link", "set", bridge(), "up")
    _accept_forwarding()
    for index in range(nodes):
        _node_up(plan, index, nodes)
        run("ip", "route", "replace", str(plan.pods(index)), "via", plan.node(index))


def _node_up(plan: Addresses, index: int, nodes: int) -> None:
    name, veth = namespace(index), _veth(index)
    if not Path(f"/run/netns/{name}").exists():
        run("ip", "netns", "add", name)
    inside = ("ip", "-netns", name)
    if not _exists(veth):
        run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "link", "set", veth, "master", bridge(), "up")
    run(*inside, "address", "replace", f"{plan.node(index)}/{plan.node_network.prefixlen}", "dev", "eth0")
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "link", "set", "eth0", "up")
    run(*inside, "route", "replace", "default", "via", plan.machine)
    for other in range(nodes):
        if other != index:
            run(*inside, "route", "replace", str(plan.pods(other)), "via", plan.node(other))
    # Forwarding is switched on for the node only; the machine's own setting is not touched.
    run("nsenter", f"--net=/run/netns/{name}", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")


def down(nodes: int) -> None:
    """Remove the interfaces, namespaces, routes (they go with the bridge) and firewall rules, and nothing else."""
    for rule in _forward_rules():
        run("iptables", "-D", *rule.split()[1:])
    for index in range(nodes):
        if _exists(_veth(index)):
            run("ip", "link", "delete", _veth(index))
        if Path(f"/run/netns/{namespace(index)}").exists():
            run("ip", "netns", "delete", namespace(index))
    if _exists(bridge()):
        run("ip", "link", "delete", bridge())


def unmount_namespaces() -> None:
    """Undo the mount that `ip netns add` makes over /run/netns. Only where it is empty and this rehearsal made it."""
    folder = Path("/run/netns")
    # Path.is_mount does not see a folder that is mounted on itself.
    mounted = any(line.split()[4] == str(folder) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    if mounted and not any(folder.iterdir()):
        run("umount", "--no-mtab", folder)


def _accept_forwarding() -> None:
    """Let traffic between nodes pass where the machine filters bridged packets.

    Docker switches this filter on and sets the FORWARD chain to DROP, which would cut the nodes off from each other.
    """
    switch = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if switch.exists() and switch.read_text().strip() == "1" and not _forward_rules():
        comment = ("-m", "comment", "--comment", bridge())
        run("iptables", "-I", "FORWARD", "-i", bridge(), "-o", bridge(), *comment, "-j", "ACCEPT")


def _forward_rules() -> list[str]:
    switch = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if not switch.exists():
        return []
    return [line for line in run("iptables", "-S", "FORWARD").splitlines() if bridge() in line]


def _exists(interface: str) -> bool:
    return Path(f"/sys/class/net/{interface}").exists()

