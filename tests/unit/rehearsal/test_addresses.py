"""The address plan of the rehearsal."""

import ipaddress

import pytest

from rehearsal import addresses
from rehearsal.addresses import Addresses
from rehearsal.errors import RehearsalError

PLAN = Addresses(ipaddress.IPv4Network("10.241.0.0/16"))


def test_every_part_of_the_plan_is_inside_its_range_and_apart_from_the_others():
    parts = [PLAN.node_network, PLAN.all_pods, PLAN.services]
    assert all(part.subnet_of(PLAN.base) for part in parts)
    assert not any(a.overlaps(b) for i, a in enumerate(parts) for b in parts[i + 1 :])
    assert all(PLAN.pods(index).subnet_of(PLAN.all_pods) for index in range(3))
    assert not PLAN.pods(0).overlaps(PLAN.pods(1))


def test_service_addresses_are_where_clusters_have_them():
    assert PLAN.kubernetes_service == "10.241.32.1"
    assert PLAN.dns_service == "10.241.32.10"
    assert PLAN.machine == "10.241.0.1"
    assert PLAN.node(2) == "10.241.0.12"


def test_a_range_that_a_route_uses_is_not_chosen(monkeypatch):
    monkeypatch.setattr(addresses, "_networks_in_use", lambda: [ipaddress.ip_network("10.240.5.0/24")])
    assert str(addresses._free_range()) == "10.241.0.0/16"


def test_a_machine_whose_vpn_takes_all_of_10_is_told_so(monkeypatch):
    monkeypatch.setattr(addresses, "_networks_in_use", lambda: [ipaddress.ip_network("10.0.0.0/8")])
    with pytest.raises(RehearsalError, match="No free address range was found"):
        addresses._free_range()


def test_the_chosen_range_stays_the_same_for_the_life_of_the_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_STATE", str(tmp_path))
    monkeypatch.setattr(addresses, "_networks_in_use", lambda: [])
    first = addresses.addresses()
    monkeypatch.setattr(addresses, "_networks_in_use", lambda: [first.base])  # our own bridge is there now
    assert addresses.addresses() == first
