"""Ports that a site's own network manager knows too: what role fabric writes, read by the managers themselves."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load
from tests.support.nodes_network import keyfile, networkd, port_files, written

pytestmark = pytest.mark.engines

claims: Any = load("plugins/module_utils/network.py")

# As cloud-init and the installer of Ubuntu leave it: the ports by name, and whatever else there is by its kind of name.
NETPLAN = """\
network:
  version: 2
  renderer: networkd
  ethernets:
    fab0: {dhcp4: true, optional: true}
    others:
      match: {name: "en*"}
      dhcp4: true
"""
PORTS = [
    {"interface": "fab0", "address": "10.78.0.11/24"},
    {"interface": "ens31np0", "address": "10.79.0.11/24", "mtu": 4200},
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace of its own")


def netplan(root: Path, text: str = NETPLAN) -> None:
    """What netplan generates below `root`."""
    (root / "etc/netplan").mkdir(parents=True)
    (root / "etc/netplan/50-cloud-init.yaml").write_text(text, encoding="utf-8")
    (root / "etc/netplan/50-cloud-init.yaml").chmod(0o600)
    subprocess.run(["netplan", "generate", "--root-dir", str(root)], check=True, capture_output=True)


@needs_root
def test_the_roles_files_win_over_netplans(tmp_path: Path) -> None:
    """Real netplan, real systemd-networkd: it takes the first file by name, whatever its folder."""
    netplan(tmp_path)
    port_files(tmp_path, PORTS, "systemd-networkd")
    live = networkd(tmp_path, ["fab0", "ens31np0"], "10.79.0.11")
    assert [live.addresses(str(port["interface"])) for port in PORTS] == [[port["address"]] for port in PORTS]
    assert {link["ifname"]: link["mtu"] for link in live.links if "ens" in link["ifname"]}["ens31np0"] == 4200


@needs_root
@pytest.mark.parametrize("own", [True, False])
def test_a_boot_waits_for_fabric_ports_only_where_there_are_no_others(tmp_path: Path, own: bool) -> None:
    """By systemd's own command: online with a rail unplugged where the system has a port of its own beside ours, and
    where systemd-networkd is there for ours alone too (before 254 it never is if no port is required)."""
    port_files(tmp_path, PORTS, "systemd-networkd", __fabric_own_networkd=own)
    if not own:
        netplan(tmp_path, "network: {version: 2, ethernets: {mgmt0: {addresses: [192.0.2.9/24], accept-ra: false}}}\n")
    ports = ["fab0", "ens31np0"] if own else ["fab0", "-ens31np0", "mgmt0"]
    assert networkd(tmp_path, ports, "10.79.0.11" if own else "192.0.2.9").online


@needs_root
def test_each_rail_answers_by_its_own_table(tmp_path: Path) -> None:
    """Two rails in one network, and one that is a /31 with IPv6, by real systemd-networkd."""
    ports = [
        {"interface": "fab0", "address": "10.78.0.11/24", "gateway": "10.78.0.1", "table": 101},
        {"interface": "fab1", "address": "10.78.0.12/24", "gateway": "10.78.0.1", "table": 102},
        {"interface": "fab2", "address": "10.79.0.0/31", "gateway": "10.79.0.1", "routes": ["10.79.0.0/16"],
         "address6": "fd00:79::1/64"},
    ]  # fmt: skip
    port_files(tmp_path, ports, "systemd-networkd")
    live = networkd(tmp_path, ["fab0", "fab1", "fab2"], "10.79.0.0")
    rules = {(r["src"], str(r["table"]), r["priority"]) for r in live.rules if r.get("src", "all") != "all"}
    assert rules == {("10.78.0.11", "101", 1000), ("10.78.0.12", "102", 1000)}
    routes = {
        (r["dst"], r.get("gateway", ""), r["dev"], str(r.get("table", "main"))) for r in live.routes if "dev" in r
    }
    for number, port in ((101, "fab0"), (102, "fab1")):
        assert {("default", "10.78.0.1", port, str(number)), ("10.78.0.0/24", "", port, str(number))} <= routes
    assert ("10.79.0.0/16", "10.79.0.1", "fab2", "main") in routes
    assert not [route for route in routes if route[0] == "default" and route[3] == "main"]
    assert live.addresses("fab2", "inet6")[:1] == ["fd00:79::1/64"]


LAYERED = [
    {"interface": "bond0.80", "address": "10.83.0.11/24", "vlan": 80, "parent": "bond0",
     "bond_members": ["ens9f0", "ens9f1"]},
    {"interface": "bond1", "address": "10.84.0.11/24", "bond_members": ["ens10f0", "ens10f1"],
     "bond_mode": "active-backup", "mtu": 4200},
    {"interface": "fab0.81", "address": "10.85.0.11/24", "vlan": 81, "parent": "fab0"},
    {"interface": "fab0", "address": "10.86.0.11/24"},
]  # fmt: skip


@needs_root
def test_vlans_and_bonds_are_made_by_systemd_networkd(tmp_path: Path) -> None:
    """It understands every line; where the kernel has bonds and VLANs, they are there with their addresses."""
    port_files(tmp_path, LAYERED, "systemd-networkd")
    members = ["ens9f0", "ens9f1", "ens10f0", "ens10f1"]
    live = networkd(tmp_path, [*members, "fab0"], "10.83.0.11")
    log = (tmp_path / "networkd.log").read_text(encoding="utf-8")
    assert not re.findall(r".*(?:Unknown (?:key|section)|Failed to parse|Invalid|ignoring).*", log)
    if "Unknown device type" in log:
        pytest.skip("this machine's kernel has no bonds or no VLANs")
    assert [live.addresses(str(port["interface"])) for port in LAYERED] == [[port["address"]] for port in LAYERED]
    links = {link["ifname"]: link for link in live.links}
    assert [links[name]["master"] for name in members] == ["bond0", "bond0", "bond1", "bond1"]
    assert (links["bond0"]["mtu"], links["bond1"]["mtu"], links["ens10f0"]["mtu"]) == (9000, 4200, 4200)


def test_networkmanager_itself_accepts_vlans_and_bonds(tmp_path: Path) -> None:
    """Read and normalized by libnm, as the daemon does it."""
    files = port_files(tmp_path, LAYERED, "NetworkManager")
    said = {file.stem.removeprefix("elastic-ai-"): keyfile(file).replace("'", "") for file in files}
    assert set(said) == {"bond0.80", "bond0", "ens9f0", "ens9f1", "bond1", "ens10f0", "ens10f1", "fab0.81", "fab0"}
    assert all(words in said["bond0.80"] for words in ("type: <vlan>", "id: <80>", "parent: <bond0>", "<10.83.0.11>"))
    assert "mode: 802.3ad" in said["bond0"]
    assert "xmit_hash_policy: layer3+4" in said["bond0"]
    assert "method: <disabled>" in said["bond0"]
    assert all(words in said["ens9f1"] for words in ("master: <bond0>", "slave-type: <bond>", "type: <802-3-ethernet>"))
    assert "ipv4" not in said["ens9f1"], "a member has no address"
    assert all(words in said["bond1"] for words in ("mode: active-backup", "<10.84.0.11>", "mtu: <4200>"))
    assert "xmit_hash_policy" not in said["bond1"]
    assert "parent: <fab0>" in said["fab0.81"]


def test_what_netplan_claims_is_found_with_the_file_that_a_person_edits(tmp_path: Path) -> None:
    netplan(tmp_path)
    links = [{"ifname": name, "address": "52:54:00:00:00:01"} for name in ("lo", "fab0", "ens31np0", "ib0")]
    found = claims.read_claims(links, tmp_path)
    assert [(c["port"], c["manager"], c["file"], c["dhcp"]) for c in found] == [
        ("fab0", "netplan", "/etc/netplan/50-cloud-init.yaml", True),
        ("ens31np0", "netplan", "/etc/netplan/50-cloud-init.yaml", True),
    ]
    assert found[0]["rendered"] == "/run/systemd/network/10-netplan-fab0.network"


def test_a_port_in_a_bond_of_netplans_is_found(tmp_path: Path) -> None:
    netplan(tmp_path, "network: {version: 2, ethernets: {fab0: {}}, bonds: {bond7: {interfaces: [fab0]}}}\n")
    (found,) = claims.read_claims([{"ifname": "fab0"}], tmp_path)
    assert (found["member_of"], found["manager"]) == ("bond7", "netplan")


OTHERS = {
    "etc/NetworkManager/system-connections/fab0.nmconnection": (
        "[connection]\nid=fab0\ntype=ethernet\ninterface-name=fab0\nmaster=bond7\n[ipv4]\nmethod=auto\n",
        {"manager": "NetworkManager", "dhcp": True, "member_of": "bond7"},
    ),
    "etc/sysconfig/network-scripts/ifcfg-fab0": (
        'DEVICE="fab0"\nBOOTPROTO=none\nIPADDR=192.0.2.9\nPREFIX=24\n',
        {"manager": "NetworkManager", "dhcp": False, "addresses": ["192.0.2.9/24"]},
    ),
    "etc/network/interfaces.d/fab": (
        "auto fab0\niface fab0 inet static\n    address 192.0.2.9/24\n",
        {"manager": "ifupdown", "dhcp": False, "addresses": ["192.0.2.9/24"]},
    ),
    "etc/systemd/network/20-wired.network": (
        "[Match]\nName=!en* !ib*\nMACAddress=52:54:00:AA:00:01\n[Network]\nDHCP=ipv4\n",
        {"manager": "systemd-networkd", "dhcp": True},
    ),
}


@pytest.mark.parametrize("path", OTHERS)
def test_each_manager_is_found_by_its_own_files(tmp_path: Path, path: str) -> None:
    text, expected = OTHERS[path]
    for file in (path, "usr/sbin/ifup", "etc/systemd/network/05-elastic-ai-fab0.network"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    (found,) = claims.read_claims([{"ifname": "fab0", "address": "52:54:00:aa:00:01"}, {"ifname": "enp1"}], tmp_path)
    assert {key: found[key] for key in expected} == expected
    assert (found["port"], found["file"]) == ("fab0", f"/{path}")


def test_networkmanager_itself_accepts_what_the_role_writes(tmp_path: Path) -> None:
    """Read and normalized by libnm, as the daemon does it."""
    ports = [
        *PORTS,
        {"interface": "ib0", "address": "10.80.0.11/24", "link_layer": "infiniband", "ipoib_mode": "connected"},
        {"interface": "ib0.8001", "address": "10.81.0.11/24", "link_layer": "infiniband", "pkey": "0x8001",
         "parent": "ib0"},
        {"interface": "rail0", "address": "10.82.0.0/31", "gateway": "10.82.0.1", "routes": ["10.82.0.0/16"],
         "table": 101, "address6": "fd00:82::1/64"},
    ]  # fmt: skip
    files = port_files(tmp_path, ports, "NetworkManager")
    assert {oct(file.stat().st_mode)[-3:] for file in files} == {"600"}  # the daemon refuses others
    said = {file.stem.removeprefix("elastic-ai-"): keyfile(file) for file in files}
    for port in ports:
        text = said[str(port["interface"])]
        address, prefix = str(port["address"]).split("/")
        assert f"'address': <'{address}'>" in text
        assert f"'prefix': <{prefix}>" in text
        assert "'autoconnect-priority': <999>" in text
        assert "'never-default': <true>" in text
    assert "'mtu': <9000>" in said["fab0"]
    assert "'mtu': <4200>" in said["ens31np0"]
    assert "'transport-mode': <'connected'>" in said["ib0"]
    assert "'mtu': <65520>" in said["ib0"]
    assert "'p-key': <32769>" in said["ib0.8001"]
    assert "'parent': <'ib0'>" in said["ib0.8001"]
    routed = said["rail0"].replace("'", "")
    assert "[{dest: <10.82.0.0>, prefix: <16>, next-hop: <10.82.0.1>}, " in routed
    assert "{dest: <10.82.0.0>, prefix: <31>, table: <101>}, " in routed
    assert "{dest: <0.0.0.0>, prefix: <0>, next-hop: <10.82.0.1>, table: <101>}]" in routed
    assert "<fd00:82::1>" in routed
    assert all(f"{key}: <{value}>" in routed for key, value in (("from", "10.82.0.0"), ("priority", 1000)))
    assert len({json.dumps(text.partition("'uuid': ")[2][:40]) for text in said.values()}) == len(ports)


def test_what_networkmanager_holds_is_read_from_its_own_listing() -> None:
    listing = "fab0:connected\nens31np0:connecting (getting IP configuration)\nvlan\\:5:unmanaged\n"
    assert claims.device_states(listing) == {
        "fab0": "connected",
        "ens31np0": "connecting (getting IP configuration)",
        "vlan:5": "unmanaged",
    }


@needs_root
def test_a_port_without_a_cable_is_configured_all_the_same(tmp_path: Path) -> None:
    """By real systemd-networkd: address, MTU and routes are there when the cable comes."""
    port_files(tmp_path, [PORTS[0], {**PORTS[1], "gateway": "10.79.0.1", "table": 101}], "systemd-networkd")
    live = networkd(tmp_path, ["fab0", "-ens31np0"], "10.79.0.11")
    link = next(link for link in live.links if link["ifname"] == "ens31np0")
    assert "NO-CARRIER" in link["flags"], "the port has a cable, so this proves nothing"
    assert [live.addresses(str(port["interface"])) for port in PORTS] == [[port["address"]] for port in PORTS]
    assert link["mtu"] == 4200
    assert [rule["src"] for rule in live.rules if str(rule.get("table")) == "101"] == ["10.79.0.11"]


def test_networkmanager_activates_ports_without_a_carrier(tmp_path: Path) -> None:
    """It waits for a carrier otherwise, and `nmcli connection up` fails (NetworkManager.conf, ignore-carrier)."""
    (path,) = written(
        tmp_path, "fabric", [{"path": "/etc/nm.conf", "template": "networkmanager.conf.j2"}],
        fabric_ports=[*PORTS, LAYERED[0]],
    )  # fmt: skip
    read = configparser.ConfigParser()
    read.read(path)
    (section,) = read.sections()
    assert section.startswith("device")
    assert read[section]["ignore-carrier"] == "yes"
    names = read[section]["match-device"].replace("interface-name:=", "").split(";")
    assert names == ["fab0", "ens31np0", "bond0.80", "bond0", "ens9f0", "ens9f1"]


DOWN = {"exists": True, "mtu": 9000, "txqueuelen": 20000, "operstate": "down", "addresses": [], "addresses6": []}


def test_a_port_without_a_cable_is_named_and_fails_nothing() -> None:
    """Its address is missing where the network manager waits for a carrier; everything else is as strict as before."""
    fabric: Any = load("plugins/plugin_utils/fabric.py")
    up = {**DOWN, "operstate": "up", "addresses": ["10.78.0.11/24"]}
    node = {"units": {}, "links": {"fab0": up, "ens31np0": {**DOWN, "mtu": 4200}}}
    assert fabric.fabric_ports_off(node, PORTS, 9000, 20000) == []
    (named,) = fabric.fabric_no_carrier(node, PORTS)
    assert named == "no carrier on ens31np0: look at its cable, its transceiver and the port of the switch"
    bare = {**node, "links": {**node["links"], "fab0": {**up, "addresses": []}}}
    assert fabric.fabric_ports_off(bare, PORTS, 9000, 20000) == ["fab0 lacks address 10.78.0.11/24 (has: none)"]
    (mtu,) = fabric.fabric_ports_off({**node, "links": {**node["links"], "ens31np0": DOWN}}, PORTS, 9000, 20000)
    assert "MTU" in mtu
    assert fabric.fabric_no_carrier({"links": {"fab0": up}}, PORTS[:1]) == []
