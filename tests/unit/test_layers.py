"""Fabric ports that are VLANs or bonds: what the role writes and takes away, and what preflight refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.node_modules import load

layers: Any = load("plugins/plugin_utils/layers.py")
fabric: Any = load("plugins/plugin_utils/fabric.py")
preflight: Any = load("plugins/plugin_utils/preflight_network.py")
claims: Any = load("plugins/plugin_utils/claims.py")

BOND = {"interface": "bond0", "address": "10.80.0.31/24", "bond_members": ["ens9f0", "ens9f1"]}
VLAN = {"interface": "ens8.80", "address": "10.81.0.31/24", "vlan": 80, "parent": "ens8"}
TAGGED_BOND = {**BOND, "interface": "bond0.80", "vlan": 80, "parent": "bond0"}
LINKS = {"lo": ["127.0.0.1"], "ens8": [], "ens9f0": [], "ens9f1": [], "eno1": ["192.0.2.31"]}


def reasons(*ports: dict[str, Any], links: dict[str, Any] = LINKS) -> list[str]:
    wanted = {"name": "gpu1", "address": "192.0.2.31", "fabric_ports": ports, "fabric_mtu": 9000, "addresses": {}}
    observed = {"links": links, "links_error": "", "drivers": {}}
    found = [*preflight.address_reasons(observed, wanted), *layers.layer_reasons(observed, wanted)]
    return [str(reason) for reason in found]


@pytest.mark.parametrize("ports", [[BOND], [VLAN], [TAGGED_BOND], [BOND, {**VLAN, "parent": "bond0"}]])
def test_interfaces_that_the_role_makes_need_not_be_there(ports: list[dict[str, Any]]) -> None:
    assert reasons(*ports) == []


def test_a_partition_of_infiniband_need_not_be_there_either() -> None:
    port = {"interface": "ib0.8001", "address": "10.80.0.31/24", "link_layer": "infiniband", "pkey": "0x8001"}
    assert reasons({**port, "parent": "ib0"}) == []


UNFIT: list[tuple[list[dict[str, Any]], str]] = [
    ([{**VLAN, "vlan": 4095}], "vlan 4095 is not 1 to 4094"),
    ([{key: value for key, value in VLAN.items() if key != "parent"}], "a VLAN needs the interface"),
    ([{**VLAN, "interface": "ens8", "vlan": None}], "parent without vlan or pkey"),
    ([{**VLAN, "pkey": "0x8001"}], "vlan is Ethernet's, pkey InfiniBand's"),
    ([{**VLAN, "link_layer": "infiniband"}], "InfiniBand has partitions"),
    ([{**BOND, "bond_members": ["ens9f0"]}], "a bond needs two members at least"),
    ([{**BOND, "interface": "ens9f0"}], "a bond is no member of itself"),
    ([{**BOND, "bond_mode": "balance-rr"}], "bond_mode balance-rr is none of 802.3ad, active-backup"),
    ([{**VLAN, "bond_mode": "802.3ad"}], "bond_mode without bond_members"),
    ([{**VLAN, "interface": "ens31f0np0.stor1"}], "ens31f0np0.stor1 has more than the 15 characters"),
    ([BOND, {"interface": "ens9f0", "address": "10.9.0.1/24"}], "fabric port ens9f0 is a member of bond bond0 too"),
    ([BOND, {**BOND, "interface": "bond1", "address": "10.9.0.1/24", "bond_members": ["ens9f1", "ens8"]}],
     "interface ens9f1 is a member of bonds bond0 and bond1"),
    ([{**BOND, "mtu": 1500}, {**VLAN, "parent": "bond0"}], "fabric port ens8.80: bond0 has MTU 1500"),
    ([BOND, {**VLAN, "parent": "bond0", "mtu": 9100}], "fabric port ens8.80: bond0 has MTU 9000"),
    ([{**VLAN, "parent": "ens7"}], "interface ens7, which ens8.80 needs, does not exist"),
    ([{**VLAN, "parent": "eno1"}], "fabric port ens8.80 needs interface eno1, which carries the management address"),
]  # fmt: skip


@pytest.mark.parametrize(("ports", "words"), UNFIT, ids=[words for _, words in UNFIT])
def test_what_cannot_be_is_refused_with_the_port(ports: list[dict[str, Any]], words: str) -> None:
    (reason,) = reasons(*ports)
    assert words in reason


def test_a_member_that_another_manager_gives_an_address_is_refused_with_the_file() -> None:
    claim = {
        "port": "ens9f1", "manager": "netplan", "file": "/etc/netplan/a.yaml", "dhcp": False, "member_of": "",
        "addresses": ["10.9.9.9/24"], "rendered": "/run/systemd/network/10-netplan-ens9f1.network",
    }  # fmt: skip
    network = {"claims": [claim], "running": ["systemd-networkd"], "networkmanager": {}}
    wanted = {"fabric_ports": [BOND], "port_manager": "systemd-networkd"}
    (reason,) = claims.claim_reasons({"network": network}, wanted)
    assert "fabric port ens9f1 has the address 10.9.9.9/24 by /etc/netplan/a.yaml" in reason


def read(*there: str) -> dict[str, Any]:
    links = {
        name: {"exists": name in there, "operstate": "up", "mtu": 1500, "txqueuelen": 1000, "addresses": []}
        for name in fabric.fabric_links([TAGGED_BOND])
    }
    return {"contents": {}, "units": {"systemd-networkd.service": {"enabled": True}}, "links": links, "sysctls": {}}


def before(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fabric.fabric_before(node, "/b", [], "systemd-networkd", [TAGGED_BOND])
    return found


def test_what_the_role_made_goes_and_what_was_there_comes_back() -> None:
    found = before(read("ens9f0", "ens9f1"))
    assert found["made"] == ["bond0.80", "bond0"]
    assert set(found["ports"]) == {"ens9f0", "ens9f1"}
    lines = fabric.port_commands(found, "systemd-networkd").splitlines()
    assert lines[:2] == ["link delete dev bond0.80", "link delete dev bond0"]
    assert "link set dev ens9f1 mtu 1500 txqueuelen 1000 up" in lines


def test_a_second_run_remembers_the_same() -> None:
    first = before(read("ens9f0", "ens9f1"))
    again = {**read("ens9f0", "ens9f1", "bond0", "bond0.80"), "contents": {"/b": json.dumps(first)}}
    assert before(again) == first


def test_a_bond_that_was_there_before_stays() -> None:
    assert before(read("ens9f0", "ens9f1", "bond0"))["made"] == ["bond0.80"]


def test_connections_of_what_ports_stand_on_are_activated_when_their_files_changed() -> None:
    live = {"exists": True, "addresses": [TAGGED_BOND["address"]], "addresses6": [], "mtu": 9000, "txqueuelen": 10000}
    node = {"links": {"bond0.80": live}, "units": {}}
    changed = [f"/etc/NetworkManager/system-connections/elastic-ai-{name}.nmconnection" for name in ("ens9f0", "bond0")]
    assert fabric.ports_to_activate(node, [TAGGED_BOND], 9000, 10000, changed) == ["ens9f0", "bond0"]
    assert fabric.ports_to_activate(node, [TAGGED_BOND], 9000, 10000, []) == []
