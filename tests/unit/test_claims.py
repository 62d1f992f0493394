"""Ports that another network manager configures: what preflight refuses, what it only says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.node_modules import load

claims: Any = load("plugins/plugin_utils/claims.py")

NETPLAN, RENDERED = "/etc/netplan/50-cloud-init.yaml", "/run/systemd/network/10-netplan-ens2f0.network"


def claim(manager: str = "netplan", port: str = "ens2f0", **more: Any) -> dict[str, Any]:
    file = {"netplan": NETPLAN, "ifupdown": "/etc/network/interfaces"}.get(manager, f"/etc/{manager}/ens2f0")
    said = {"port": port, "manager": manager, "file": file, "rendered": RENDERED, "dhcp": True, "addresses": []}
    return {**said, "member_of": "", **more}


def said(*found: dict[str, Any], own: str = "systemd-networkd", **states: str) -> tuple[list[str], list[str]]:
    """Reasons and notes for a node with two declared ports."""
    ports = [{"interface": "ens2f0", "address": "10.78.0.11/24"}, {"interface": "ens3f0", "address": "10.79.0.11/24"}]
    running = ["systemd-networkd", "NetworkManager"] if states or own == "NetworkManager" else ["systemd-networkd"]
    observed = {"network": {"running": running, "claims": list(found), "networkmanager": states}}
    wanted = {"fabric_ports": ports, "port_manager": own}
    return list(claims.claim_reasons(observed, wanted)), claims.claim_notes(observed, wanted)


def test_dhcp_of_netplan_is_outranked_and_said() -> None:
    reasons, notes = said(claim(), claim(port="ens3f0"), claim(port="eno1"))
    assert reasons == []
    assert notes == [
        f"{NETPLAN} (netplan) configures fabric port ens2f0, ens3f0 too; the files of role fabric outrank it"
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (claim(addresses=["192.0.2.9/24"]), ["the address 192.0.2.9/24", NETPLAN, "netplan apply"]),
        (claim(member_of="bond0"), ["belongs to bond0", NETPLAN, "netplan apply", "declare bond0"]),
        (claim("systemd-networkd", rendered="/etc/systemd/network/01-own.network"), ["before the 05-", "later name"]),
        (claim("ifupdown"), ["configured by ifupdown (/etc/network/interfaces)", "ifdown ens2f0"]),
    ],
)
def test_a_port_of_another_is_refused_with_port_file_and_cure(found: dict[str, Any], words: list[str]) -> None:
    (reason,), _ = said(found)
    assert [word for word in ["fabric port ens2f0", *words] if word not in reason] == []


def test_the_declared_address_given_by_netplan_already_is_no_reason() -> None:
    assert said(claim(addresses=["10.78.0.11/24"]))[0] == []


def test_a_port_that_networkmanager_holds_is_refused_where_networkd_does_the_ports() -> None:
    (reason,), _ = said(claim("NetworkManager"), ens2f0="connected", ens3f0="disconnected", eno1="connected")
    assert "fabric port ens2f0, ens3f0 is held by NetworkManager (/etc/NetworkManager/ens2f0)" in reason
    assert "unmanaged-devices=interface-name:ens2f0;interface-name:ens3f0" in reason
    assert said(ens2f0="unmanaged")[0] == []


def test_where_networkmanager_does_the_ports_its_own_dhcp_is_outranked() -> None:
    reasons, notes = said(claim("NetworkManager"), own="NetworkManager", ens2f0="connected")
    assert (reasons, len(notes)) == ([], 1)
    (reason,), _ = said(claim("NetworkManager", member_of="team0"), own="NetworkManager")
    assert "nmcli connection reload" in reason


def test_a_node_without_the_manager_of_its_system_is_refused() -> None:
    observed = {"network": {"running": [], "claims": [], "networkmanager": {}}}
    wanted = {"fabric_ports": [{"interface": "a", "address": "10.0.0.1/24"}], "port_manager": "NetworkManager"}
    (reason,) = claims.claim_reasons(observed, wanted)
    assert "systemctl enable --now NetworkManager" in reason
