"""A file of another manager claims a port in every spelling that the manager reads, and no other port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.network_claims import LINKS, OTHER, PORT, card, claimed, network, ports
from tests.support.node_modules import load

MACS = ["00:11:22:33:44:55", "00-11-22-33-44-55", "0011.2233.4455", "0:11:22:33:44:55", "00:11:22:33:44:55".upper()]


@pytest.mark.parametrize("key", ["MACAddress", "PermanentMACAddress"])
@pytest.mark.parametrize(
    "value",
    [*MACS, f"{MACS[0]} 66:77:88:99:aa:bb", "66-77-88-99-AA-BB 0011.2233.4455", f"66:77:88:99:aa:bb\t{MACS[1]}"],
)
def test_networkd_takes_a_hardware_address_in_three_forms(tmp_path: Path, key: str, value: str) -> None:
    text = f"[Match]\n{key}={value}\n[Network]\nDHCP=yes\n"
    assert ports(tmp_path, {"etc/systemd/network/20-x.network": text}) == ["fab0"]


@pytest.mark.parametrize("value", ["00:11:22:33:44:5", "00-11-22-33-44-77", "nonsense", "0011.2233.44"])
def test_another_address_is_no_claim(tmp_path: Path, value: str) -> None:
    text = f"[Match]\nMACAddress={value}\n[Network]\nDHCP=yes\n"
    assert ports(tmp_path, {"etc/systemd/network/20-x.network": text}) == []


MATCH = {
    "glob": ("Name=fab*", ["fab0"]),
    "list": ("Name=ens1 fab0", ["fab0"]),
    "two lines go on": ("Name=ens1\nName=fab0", ["fab0"]),
    "an empty line begins anew": ("Name=fab0\nName=\nName=eno1", ["eno1"]),
    "all but": ("Name=!fab0 ib*", ["eno1"]),
    "set": ("Name=fab[01]", ["fab0"]),
    "question mark": ("Name=fab?", ["fab0"]),
    "all keys have to": ("Name=fab*\nMACAddress=00:11:22:33:44:66", []),
    "continued": ("Name=ens1 \\\n  fab0", ["fab0"]),
    "wireless": ("Type=wlan", []),
    "kind of link": ("Type=infiniband", ["ib0"]),
    "not of this kind": ("Type=!infiniband", ["fab0", "eno1"]),
    "a network without cable": ("SSID=guests", []),
    "comments": ("# Name=eno1\n; Name=eno1\nName=fab0", ["fab0"]),
    "infiniband address": ("MACAddress=80:00:00:28:fe:80:00:00:00:00:00:00:7C:FE:90:03:00:29:26:52", ["ib0"]),
}


@pytest.mark.parametrize("case", MATCH)
def test_a_match_section_is_read_as_networkd_reads_it(tmp_path: Path, case: str) -> None:
    text, wanted = MATCH[case]
    files = {"etc/systemd/network/20-x.network": f"[Match]\n{text}\n[Network]\nDHCP=ipv4\n"}
    assert ports(tmp_path, files) == wanted


MACHINE = {
    "proc/sys/kernel/hostname": "gpu1\n",
    "proc/sys/kernel/osrelease": "6.8.0-87-generic\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n",
    "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse2\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "run/udev/data/n2": "E:ID_NET_DRIVER=mlx5_core\nE:ID_BUS=pci\n",
}
NET = {"fab0", "eno1", "ib0"}
OF_MACHINE = {
    "this host": ("Host=gpu1", NET),
    "hosts by pattern": ("Host=gpu*", NET),
    "another host": ("Host=head", set()),
    "another host, and a port": ("Host=head\nName=fab0", set()),
    "all hosts but this": ("Host=!gpu1\nName=fab0", set()),
    "all hosts but another": ("Host=!head\nName=fab0", {"fab0"}),
    "machine-id": ("Host=0123456789abcdef0123456789abcdef\nName=fab0", {"fab0"}),
    "another machine-id": ("Host=1123456789abcdef0123456789abcdef\nName=fab0", set()),
    "in a container": ("Virtualization=container\nName=fab0", set()),
    "in a VM": ("Virtualization=vm\nName=fab0", set()),
    "in KVM": ("Virtualization=kvm\nName=fab0", set()),
    "virtual": ("Virtualization=yes\nName=fab0", set()),
    "not virtual": ("Virtualization=no\nName=fab0", {"fab0"}),
    "not in a container": ("Virtualization=!container\nName=fab0", {"fab0"}),
    "a word of the kernel's command line": ("KernelCommandLine=quiet\nName=fab0", {"fab0"}),
    "a key of the kernel's command line": ("KernelCommandLine=root\nName=fab0", {"fab0"}),
    "not on the kernel's command line": ("KernelCommandLine=ip=dhcp\nName=fab0", set()),
    "not with a word": ("KernelCommandLine=!quiet\nName=fab0", set()),
    "kernel from": ("KernelVersion=>=5.15\nName=fab0", {"fab0"}),
    "kernel before": ("KernelVersion=<5.15\nName=fab0", set()),
    "kernel by pattern": ("KernelVersion=6.8.*\nName=fab0", {"fab0"}),
    "another architecture": ("Architecture=s390x\nName=fab0", set()),
    "this architecture": ("Architecture=native\nName=fab0", {"fab0"}),
    "firmware": ("Firmware=uefi\nName=fab0", set()),
    "credential": ("Credential=net\nName=fab0", set()),
    "one of two": ("Host=|head\nVirtualization=|no\nName=fab0", {"fab0"}),
    "none of two": ("Host=|head\nVirtualization=|yes\nName=fab0", set()),
    "property": ("Property=ID_NET_DRIVER=mlx5_core\nName=fab0", {"fab0"}),
    "another property": ("Property=ID_NET_DRIVER=ixgbe\nName=fab0", set()),
    "one property is not enough": ("Property=ID_BUS=pci ID_NET_DRIVER=ixgbe\nName=fab0", set()),
    "without a property": ("Property=!ID_NET_DRIVER=ixgbe\nName=fab0", {"fab0"}),
    "wireless as systemd ships it": ("Type=wlan\nWLANInterfaceType=ad-hoc", set()),
    "wireless by its form alone": ("WLANInterfaceType=ad-hoc", set()),
    "no form of wireless": ("WLANInterfaceType=!ap\nName=fab0", {"fab0"}),
    "station": ("BSSID=00:11:22:33:44:55", set()),
    "kind": ("Kind=bond", set()),
    "no kind": ("Kind=!*\nName=fab0", {"fab0"}),
    "a key that nobody knows": ("Nmae=fab0", set()),
    "such a key beside another": ("Nmae=eno1\nName=fab0", {"fab0"}),
    "nothing": ("", set()),
    "empty": ("Name=", set()),
    "wanted and refused": ("Name=fab* eno*\nName=!eno1", {"fab0"}),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_MACHINE)
def test_every_key_of_a_match_section_counts(tmp_path: Path, case: str) -> None:
    text, wanted = OF_MACHINE[case]
    links = [{**link, "ifindex": number} for number, link in enumerate(LINKS, 1)]
    files = {"etc/systemd/network/20-x.network": f"[Match]\n{text}\n[Network]\nDHCP=yes\n"}
    assert set(ports(tmp_path, {**MACHINE, **files}, links)) == wanted


def test_a_link_of_a_kind_is_found_by_it_and_by_its_driver(tmp_path: Path) -> None:
    """Without their kind a bond of a fabric and a lab's port are no other's by Kind= and Driver=."""
    links = [
        {**PORT, "ifname": "bond0", "linkinfo": {"info_kind": "bond"}},
        {**OTHER, "linkinfo": {"info_kind": "veth"}},
    ]
    for number, (text, wanted) in enumerate(
        {"Kind=bond": "bond0", "Type=bond": "bond0", "Driver=veth": "eno1"}.items()
    ):
        files = {"etc/systemd/network/20-x.network": f"[Match]\n{text}\n"}
        assert ports(tmp_path / str(number), files, links) == [wanted]


def test_other_names_of_a_port_count(tmp_path: Path) -> None:
    links = [{**PORT, "altnames": ["enp8s0f0np0"]}]
    assert ports(tmp_path, {"etc/systemd/network/20-x.network": "[Match]\nName=enp8*\n"}, links) == ["fab0"]


def test_a_renamed_port_keeps_its_permanent_address(tmp_path: Path) -> None:
    links = [{**PORT, "address": "02:00:00:00:00:01", "permaddr": "00:11:22:33:44:55"}]
    permanent = {"etc/systemd/network/20-x.network": "[Match]\nPermanentMACAddress=00-11-22-33-44-55\n"}
    assert ports(tmp_path / "a", permanent, links) == ["fab0"]
    assert (
        ports(tmp_path / "b", {"etc/systemd/network/20-x.network": "[Match]\nMACAddress=00-11-22-33-44-55\n"}, links)
        == []
    )


def test_drop_ins_are_read_with_their_file(tmp_path: Path) -> None:
    files = {
        "etc/systemd/network/20-x.network": "[Match]\nName=fab0\n",
        "etc/systemd/network/20-x.network.d/10-bond.conf": "[Network]\nBond=bond7\n",
    }
    assert [one["member_of"] for one in claimed(tmp_path, files)] == ["bond7"]


LINK_FILES = {
    "address": ("MACAddress=00-11-22-33-44-55", {"fab0": "rail0"}),
    "dots": ("PermanentMACAddress=0011.2233.4455", {"fab0": "rail0"}),
    "another": ("MACAddress=00:11:22:33:44:99", {}),
    "the kernel's first name is not known any more": ("OriginalName=*", {}),
    "a place that is not known": ("MACAddress=00:11:22:33:44:55\nPath=pci-0000:08:*", {}),
}


@pytest.mark.parametrize("case", LINK_FILES)
def test_a_port_that_udev_will_call_otherwise_is_told(tmp_path: Path, case: str) -> None:
    match, wanted = LINK_FILES[case]
    claimed(tmp_path, {"etc/systemd/network/10-rail.link": f"[Match]\n{match}\n[Link]\nName=rail0\n"})
    found = network.renamed(LINKS, tmp_path)
    assert {port: one["name"] for port, one in found.items()} == wanted
    observed = {"network": {"running": [], "claims": [], "networkmanager": {}, "renames": found}}
    declared = {"fabric_ports": [{"interface": "fab0", "address": "10.0.0.1/24"}], "port_manager": "systemd-networkd"}
    notes = load("plugins/plugin_utils/claims.py").claim_notes(observed, declared)
    assert [note.partition(" from ")[0] for note in notes] == [
        f"fabric port {p} is called {n}" for p, n in wanted.items()
    ]


def test_a_port_that_has_the_name_already_is_not_told(tmp_path: Path) -> None:
    claimed(tmp_path, {"etc/systemd/network/10-x.link": "[Match]\nMACAddress=00:11:22:33:44:55\n[Link]\nName=fab0\n"})
    assert network.renamed(LINKS, tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("[Match]\nPath=pci-0000:3b:00.0\n", ["fab0"]),
        ("[Match]\nPath=pci-0000:3c:*\n", ["eno1"]),
        ("[Match]\nPath=!pci-0000:3c:*\n", ["fab0"]),
        ("[Match]\nPath=pci-0000:99:00.0\n", []),
    ],
)
def test_networkd_takes_a_port_by_its_place(tmp_path: Path, text: str, taken: list[str]) -> None:
    card(tmp_path, "fab0", "0000:3b:00.0", "mlx5_core")
    card(tmp_path, "eno1", "0000:3c:00.1", "tg3")
    said = claimed(tmp_path, {"etc/systemd/network/20.network": f"{text}[Network]\nDHCP=yes\n"}, [PORT, OTHER])
    assert [one["port"] for one in said] == taken


@pytest.mark.parametrize(
    ("place", "told"), [("pci-0000:3b:00.0", {"fab0"}), ("pci-0000:3c:*", {"eno1"}), ("pci-0000:99:*", set())]
)
def test_a_port_that_udev_names_by_its_place_is_told(tmp_path: Path, place: str, told: set[str]) -> None:
    card(tmp_path, "fab0", "0000:3b:00.0", "mlx5_core")
    card(tmp_path, "eno1", "0000:3c:00.1", "tg3")
    claimed(tmp_path, {"etc/systemd/network/10-rail.link": f"[Match]\nPath={place}\n[Link]\nName=rail0\n"})
    assert set(network.renamed([PORT, OTHER], tmp_path)) == told
