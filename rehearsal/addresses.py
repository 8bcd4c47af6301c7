"""One free /16 for the rehearsal, and every address that follows from it."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass

from rehearsal.commands import run
from rehearsal.errors import RehearsalError
from rehearsal.state import read_record, write_record

# 10.240/16 first; the rest are ranges that Docker, kind, minikube and home routers do not use by default.
CANDIDATES = tuple(ipaddress.ip_network(f"10.{n}.0.0/16") for n in (*range(240, 255), *range(200, 240)))


@dataclass(frozen=True)
class Addresses:
    """The address plan below one /16: the machine and the nodes, Services, and a /24 of Pods per node."""

    base: ipaddress.IPv4Network

    def _subnet(self, index: int) -> ipaddress.IPv4Network:
        return list(self.base.subnets(new_prefix=24))[index]

    @property
    def node_network(self) -> ipaddress.IPv4Network:
        return self._subnet(0)

    @property
    def machine(self) -> str:
        """The machine's own address on the bridge: the control plane listens here."""
        return str(self.node_network[1])

    def node(self, index: int) -> str:
        return str(self.node_network[10 + index])

    def pods(self, index: int) -> ipaddress.IPv4Network:
        return self._subnet(16 + index)

    @property
    def all_pods(self) -> ipaddress.IPv4Network:
        return list(self.base.subnets(new_prefix=20))[1]

    @property
    def services(self) -> ipaddress.IPv4Network:
        return list(self.base.subnets(new_prefix=20))[2]

    @property
    def kubernetes_service(self) -> str:
        return str(self.services[1])

    @property
    def dns_service(self) -> str:
        return str(self.services[10])


def addresses() -> Addresses:
    """The plan of this rehearsal: the recorded one, or a new one from a range that nothing on the machine uses."""
    record = read_record("addresses")
    if not record:
        record = {"base": str(_free_range())}
        write_record("addresses", record)
    return Addresses(ipaddress.IPv4Network(record["base"]))


def _free_range() -> ipaddress.IPv4Network:
    used = _networks_in_use()
    for candidate in CANDIDATES:
        if not any(candidate.overlaps(network) for network in used):
            return candidate
    raise RehearsalError(
        "No free address range was found: every candidate from 10.200.0.0/16 to 10.254.0.0/16 overlaps a route.",
        "Remove a route that is no longer needed (`ip route`), or use another cluster by kubeconfig and context.",
    )


def _networks_in_use() -> list[ipaddress.IPv4Network]:
    found = []
    routes = json.loads(_ip("-4", "route", "show", "table", "all") or "[]")
    found += [route["dst"] for route in routes if route.get("dst") not in (None, "default")]
    for link in json.loads(_ip("-4", "address", "show") or "[]"):
        found += [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", [])]
    return [ipaddress.ip_network(text, strict=False) for text in found]


def _ip(*arguments: str) -> str:
    return run("ip", "-json", *arguments)
