"""Ports that NetworkManager, ifcfg, ifupdown and netplan take, in every spelling that they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.network_claims import IB, OTHER, PORT, card, claimed, ports

PROFILE = "[connection]\nid=x\ntype=ethernet\n{}\n[ipv4]\nmethod=auto\n"
PROFILES = {
    "name": ("interface-name=fab0", ["fab0"]),
    "address": ("[ethernet]\nmac-address=00:11:22:33:44:55", ["fab0"]),
    "address with hyphens": ("[ethernet]\nmac-address=00-11-22-33-44-55", ["fab0"]),
    "capitals": (f"[ethernet]\nmac-address={IB['address'].upper()[:17]}", []),
    "former section": ("[802-3-ethernet]\nmac-address=00:11:22:33:44:55", ["fab0"]),
    "infiniband": (f"[infiniband]\nmac-address={IB['address'].upper()}", ["ib0"]),
    "match": ("[match]\ninterface-name=ens1;fab*;", ["fab0"]),
    "match, optional": ("[match]\ninterface-name=|fab0;|ens1;", ["fab0"]),
    "match, all but": ("[match]\ninterface-name=!fab0;!ib*;", ["eno1"]),
    "match, both": ("[match]\ninterface-name=fab*;&!fab0;", []),
    "name and address": ("interface-name=fab0\n[ethernet]\nmac-address=00:11:22:33:44:66", []),
    "driver": ("[match]\ndriver=mlx5*;", ["fab0"]),
    "place": ("[match]\npath=pci-0000:08:00.0;", ["fab0"]),
}


@pytest.mark.parametrize("case", PROFILES)
def test_a_profile_of_networkmanager_is_read_as_it_reads_it(tmp_path: Path, case: str) -> None:
    text, wanted = PROFILES[case]
    card = tmp_path / "sys/devices/pci0000:00/0000:08:00.0"
    (tmp_path / "sys/bus/pci/drivers/mlx5_core").mkdir(parents=True)
    card.mkdir(parents=True)
    (card / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/mlx5_core")
    (tmp_path / "sys/class/net/fab0").mkdir(parents=True)
    (tmp_path / "sys/class/net/fab0/device").symlink_to(card)
    assert ports(tmp_path, {"etc/NetworkManager/system-connections/x.nmconnection": PROFILE.format(text)}) == wanted


@pytest.mark.parametrize("name", ["x.nmconnection~", ".x.swp", "x.rpmsave", "x.bak"])
def test_copies_that_nobody_reads_are_no_claims(tmp_path: Path, name: str) -> None:
    files = {f"etc/NetworkManager/system-connections/{name}": PROFILE.format("interface-name=fab0")}
    assert ports(tmp_path, files | {f"etc/sysconfig/network-scripts/ifcfg-fab0{name[1:]}~": "DEVICE=fab0\n"}) == []


IFCFG = {
    "plain": ("DEVICE=fab0\nBOOTPROTO=dhcp\n", ["fab0"]),
    "quotes": ("DEVICE=\"fab0\"\nBOOTPROTO='dhcp'\n", ["fab0"]),
    "comment behind": ("DEVICE=fab0   # the rail\nBOOTPROTO=dhcp # for now\n", ["fab0"]),
    "export": ("export DEVICE=fab0\nBOOTPROTO=dhcp\n", ["fab0"]),
    "capitals": ("DEVICE=fab0\nBOOTPROTO=DHCP\n", ["fab0"]),
    "bootp": ("DEVICE=fab0\nBOOTPROTO=bootp\n", ["fab0"]),
    "hardware alone": ("HWADDR=00:11:22:33:44:55\nBOOTPROTO=dhcp\n", ["fab0"]),
    "hardware in quotes": ('HWADDR="00:11:22:33:44:55"\nBOOTPROTO=dhcp\n', ["fab0"]),
    "hardware of another": ("DEVICE=fab0\nHWADDR=00:11:22:33:44:66\nBOOTPROTO=dhcp\n", []),
    "commented out": ("#DEVICE=fab0\nDEVICE=eno1\nBOOTPROTO=dhcp\n", ["eno1"]),
    "blanks before": ("  DEVICE=fab0\n  BOOTPROTO=dhcp\n", ["fab0"]),
}


@pytest.mark.parametrize("case", IFCFG)
def test_ifcfg_is_read_as_the_shell_reads_it(tmp_path: Path, case: str) -> None:
    text, wanted = IFCFG[case]
    found = claimed(tmp_path, {"etc/sysconfig/network-scripts/ifcfg-rail": text})
    assert [one["port"] for one in found] == wanted
    assert all(one["dhcp"] for one in found)


def test_ifcfg_without_a_device_is_of_the_port_in_its_name(tmp_path: Path) -> None:
    files = {"etc/sysconfig/network-scripts/ifcfg-fab0": "BOOTPROTO=none\n"}
    assert ports(tmp_path, {**files, "etc/sysconfig/network-scripts/ifcfg-eno1:1": "IPADDR=192.0.2.1\n"}) == ["fab0"]


@pytest.mark.parametrize(
    ("text", "static"),
    [
        ("IPADDR=192.0.2.9\nPREFIX=24\n", ["192.0.2.9/24"]),
        ("IPADDR=192.0.2.9\nNETMASK=255.255.255.0\n", ["192.0.2.9/24"]),
        ("IPADDR0=192.0.2.9\nPREFIX0=31\n", ["192.0.2.9/31"]),
        ("IPADDR=192.0.2.9\nPREFIX=24\nIPADDR1=192.0.2.10\nPREFIX1=24\n", ["192.0.2.9/24", "192.0.2.10/24"]),
    ],
)
def test_ifcfg_has_addresses_in_several_forms(tmp_path: Path, text: str, static: list[str]) -> None:
    (found,) = claimed(tmp_path, {"etc/sysconfig/network-scripts/ifcfg-fab0": f"DEVICE=fab0\n{text}"})
    assert found["addresses"] == static


@pytest.mark.parametrize("key", ["MASTER", "BRIDGE", "TEAM_MASTER", "OVS_BRIDGE"])
def test_ifcfg_names_who_takes_the_port(tmp_path: Path, key: str) -> None:
    (found,) = claimed(tmp_path, {"etc/sysconfig/network-scripts/ifcfg-fab0": f"DEVICE=fab0\n{key}=x0\n"})
    assert found["member_of"] == "x0"


STANZA = "iface fab0 inet dhcp\n"
SOURCED = {
    "in the file": ({"etc/network/interfaces": f"auto lo fab0\n{STANZA}"}, "/etc/network/interfaces"),
    "indented": ({"etc/network/interfaces": f"  {STANZA}"}, "/etc/network/interfaces"),
    "source": (
        {"etc/network/interfaces": "source /etc/network/interfaces.d/*\n", "etc/network/interfaces.d/x": STANZA},
        "/etc/network/interfaces.d/x",
    ),
    "source of another folder": (
        {"etc/network/interfaces": "source /etc/net/*.cfg\n", "etc/net/rail.cfg": STANZA}, "/etc/net/rail.cfg",
    ),
    "source, relative": (
        {"etc/network/interfaces": "source interfaces.d/*.cfg\n", "etc/network/interfaces.d/a.cfg": STANZA},
        "/etc/network/interfaces.d/a.cfg",
    ),
    "source in a source": (
        {"etc/network/interfaces": "source /a\n", "a": "source /b\n", "b": STANZA}, "/b",
    ),
    "source-directory": (
        {"etc/network/interfaces": "source-directory /etc/net\n", "etc/net/rail": STANZA, "etc/net/old.bak": STANZA},
        "/etc/net/rail",
    ),
    "a loop": ({"etc/network/interfaces": f"source /etc/network/interfaces\n{STANZA}"}, "/etc/network/interfaces"),
    "no main file": ({"etc/network/interfaces.d/x": STANZA}, "/etc/network/interfaces.d/x"),
}  # fmt: skip


@pytest.mark.parametrize("case", SOURCED)
def test_ifupdown_is_followed_into_what_it_sources(tmp_path: Path, case: str) -> None:
    files, where = SOURCED[case]
    (found,) = claimed(tmp_path, files)
    assert (found["port"], found["file"], found["dhcp"]) == ("fab0", where, True)


def test_what_ifupdown_does_not_source_is_no_claim(tmp_path: Path) -> None:
    assert ports(tmp_path, {"etc/network/interfaces": "auto lo\n", "etc/network/interfaces.d/x": STANZA}) == []
    commented = f"# source /etc/network/interfaces.d/*\n#{STANZA}"
    assert ports(tmp_path, {"etc/network/interfaces": commented}) == []


IFUPDOWN = {
    "netmask": (
        "iface fab0 inet static\n  address 192.0.2.9\n  netmask 255.255.255.0\n", {"addresses": ["192.0.2.9/24"]},
    ),
    "prefix": ("iface fab0 inet static\n  address 192.0.2.9/24\n", {"addresses": ["192.0.2.9/24"]}),
    "continued": ("iface fab0 inet \\\n  static\n  address 192.0.2.9/24\n", {"addresses": ["192.0.2.9/24"]}),
    "next stanza": (
        "iface fab0 inet static\n  address 192.0.2.9/24\nauto x\niface x inet static\n  address 192.0.2.8/24\n",
        {"addresses": ["192.0.2.9/24"]},
    ),
    "IPv6 alone": ("iface fab0 inet6 auto\n", {"dhcp": False}),
    "a bond's member by itself": ("iface fab0 inet manual\n  bond-master bond7\n", {"member_of": "bond7"}),
    "a bond's member by the bond": ("iface bond7 inet dhcp\n  bond-slaves ens1 fab0\n", {"member_of": "bond7"}),
    "options without a blank before": (
        "auto fab0\niface fab0 inet static\naddress 192.0.2.9\nnetmask 255.255.255.0\n",
        {"addresses": ["192.0.2.9/24"]},
    ),
    "a bond's member, without a blank": ("iface bond7 inet dhcp\nbond-slaves fab0\n", {"member_of": "bond7"}),
    "no family": ("auto fab0\niface fab0\n  address 192.0.2.9/24\n", {"addresses": ["192.0.2.9/24"], "dhcp": False}),
    "no family, DHCP": ("iface fab0\n  use dhcp\n", {"dhcp": True}),
    "a bridge's port": ("iface br0 inet dhcp\n  bridge_ports fab0\n", {"member_of": "br0"}),
}  # fmt: skip


@pytest.mark.parametrize("case", IFUPDOWN)
def test_stanzas_of_ifupdown(tmp_path: Path, case: str) -> None:
    text, wanted = IFUPDOWN[case]
    (found,) = claimed(tmp_path, {"etc/network/interfaces": text})
    assert found["port"] == "fab0"
    assert {key: found[key] for key in wanted} == wanted


NETPLAN = {
    "block": "network:\n  ethernets:\n    rail:\n      match: {name: 'en*'}\n      set-name: fab0\n",
    "flow": "network: {version: 2, ethernets: {rail: {match: {driver: mlx5_core}, set-name: fab0}}}\n",
    "quoted": 'network:\n  ethernets:\n    "rail":\n      dhcp4: true\n',
}


@pytest.mark.parametrize("case", NETPLAN)
def test_the_file_of_netplan_is_named_in_every_style(tmp_path: Path, case: str) -> None:
    files = {
        "run/systemd/network/10-netplan-rail.network": "[Match]\nPermanentMACAddress=00:11:22:33:44:55\nName=fab0\n",
        "etc/netplan/50-cloud-init.yaml": "network: {version: 2}\n",
        "etc/netplan/60-rail.yaml": NETPLAN[case],
    }
    (found,) = claimed(tmp_path, files)
    assert (found["port"], found["manager"], found["file"]) == ("fab0", "netplan", "/etc/netplan/60-rail.yaml")


def test_files_that_netplan_merges_are_all_named(tmp_path: Path) -> None:
    files = {
        "run/systemd/network/10-netplan-fab0.network": "[Match]\nName=fab0\n",
        "etc/netplan/50-cloud-init.yaml": "network: {ethernets: {fab0: {dhcp4: true}}}\n",
        "etc/netplan/60-rail.yaml": "network:\n  ethernets:\n    fab0:\n      mtu: 9000\n",
        "lib/netplan/60-rail.yaml": "network: {}\n",
        "etc/netplan/70-other.yaml": "network: {ethernets: {fab01: {}}}\n",
    }
    (found,) = claimed(tmp_path, files)
    assert found["file"] == "/etc/netplan/50-cloud-init.yaml, /etc/netplan/60-rail.yaml"


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("driver=!mlx5_core;", ["eno1"]),
        ("driver=mlx5_core;tg3;", ["fab0", "eno1"]),
        ("path=!pci-0000:3b:*;", ["eno1"]),
        ("path=pci-*;&!pci-0000:3c:*;", ["fab0"]),
    ],
)
def test_networkmanager_takes_drivers_and_places_with_its_signs(tmp_path: Path, text: str, taken: list[str]) -> None:
    card(tmp_path, "fab0", "0000:3b:00.0", "mlx5_core")
    card(tmp_path, "eno1", "0000:3c:00.1", "tg3")
    profile = f"[connection]\ntype=ethernet\n[match]\n{text}\n[ipv4]\nmethod=auto\n"
    said = claimed(tmp_path, {"etc/NetworkManager/system-connections/x.nmconnection": profile}, [PORT, OTHER])
    assert [one["port"] for one in said] == taken


def test_old_keyfiles_have_numbers_and_semicolons(tmp_path: Path) -> None:
    profile = (
        "[connection]\ntype=802-3-ethernet\n[802-3-ethernet]\nmac-address=0;17;34;51;68;85;\n"
        "[ipv4]\nmethod=manual\naddresses1=192.0.2.9;24;192.0.2.1;\n"
    )
    (found,) = claimed(tmp_path, {"etc/NetworkManager/system-connections/x": profile})
    assert (found["port"], found["addresses"]) == ("fab0", ["192.0.2.9/24"])


def test_a_profile_that_netplan_wrote_is_its_files(tmp_path: Path) -> None:
    """What lies in /run is written anew at the next start."""
    files = {
        "etc/netplan/01.yaml": "network:\n  renderer: NetworkManager\n  ethernets:\n    rail:\n      dhcp4: true\n",
        "run/NetworkManager/system-connections/netplan-rail.nmconnection": (
            "[connection]\nid=netplan-rail\ntype=ethernet\ninterface-name=fab0\n[ipv4]\nmethod=auto\n"
        ),
    }
    (found,) = claimed(tmp_path, files)
    assert (found["file"], found["rendered"], found["manager"]) == (
        "/etc/netplan/01.yaml",
        "/run/NetworkManager/system-connections/netplan-rail.nmconnection",
        "NetworkManager",
    )


def test_an_empty_address_begins_anew(tmp_path: Path) -> None:
    text = "[Match]\nName=fab0\n[Network]\nAddress=192.0.2.8/24\nAddress=\nAddress=192.0.2.9/24\n"
    (found,) = claimed(tmp_path, {"etc/systemd/network/20.network": text})
    assert found["addresses"] == ["192.0.2.9/24"]


def test_ifcfg_counts_its_addresses_as_far_as_they_go(tmp_path: Path) -> None:
    text = "DEVICE=fab0\n" + "".join(f"IPADDR{n}=192.0.2.{n}\nPREFIX{n}=24\n" for n in range(12))
    (found,) = claimed(tmp_path, {"etc/sysconfig/network-scripts/ifcfg-fab0": text})
    assert found["addresses"] == [f"192.0.2.{n}/24" for n in range(12)]
