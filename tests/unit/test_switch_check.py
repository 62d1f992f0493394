"""Switches held against hosts: a good pair has no difference, each planted fault is the only one and has both lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import warm
from toolkit.errors import UsageFault
from toolkit.inventory_source import InventoryError
from toolkit.switches import keys, wanted
from toolkit.switches.check import Checked, check
from toolkit.switches.config import Switch
from toolkit.switches.lines import SwitchFault
from toolkit.switches.read import read_file, read_text
from toolkit.switches.render import render

DATA = Path(__file__).parents[1] / "data/switches"
SYSTEMS: tuple[keys.System, ...] = ("sonic", "os10")
PORT = {"sonic": "Eth1/{}", "os10": "ethernet1/1/{}"}
ENDS = (("gpu1", "eth1"), ("gpu2", "eth1"), ("head", "eth1"), ("head", "eth2"))


def inventory(folder: Path, system: str, **more: Any) -> Path:
    """Two GPU servers with a port each and a head with a bond, all at leaf1."""
    ports = {name: [{"interface": "eth1", "address": f"192.0.2.{n}/24"}] for n, name in enumerate(("gpu1", "gpu2"), 1)}
    bond = [{"interface": "bond0", "address": "192.0.2.9/24", "bond_members": ["eth1", "eth2"]}]
    hosts = {
        "gpu_servers": {"hosts": {name: {"fabric_ports": mine} for name, mine in ports.items()}},
        "heads": {"hosts": {"head": {"fabric_ports": bond}}},
    }
    for number, name in enumerate(("gpu1", "gpu2", "head"), 31):
        at = hosts["heads" if name == "head" else "gpu_servers"]["hosts"][name]
        at["ansible_host"] = f"198.51.100.{number}"  # type: ignore[assignment]
    cables = [
        {"node": node, "port": port, "switch": "leaf1", "switch_port": PORT[system].format(n)}
        for n, (node, port) in enumerate(ENDS, 1)
    ]
    (folder / "group_vars").mkdir(exist_ok=True)
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
    given = {"roce_enabled": True, "cables": cables, **more}
    (folder / "group_vars/all.yml").write_text(yaml.safe_dump({k: v for k, v in given.items() if v is not None}))
    return folder


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, wanted.Site]:
    with warm.asking_ansible():
        return {system: wanted.read(inventory(tmp_path_factory.mktemp(system), system)) for system in SYSTEMS}


def changed(system: str, *changes: tuple[str, str]) -> Switch:
    text = (DATA / f"{system}.txt").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return read_text(text, f"{system}.txt", "leaf1")


def only(checked: Checked, what: str) -> tuple[str, str, str]:
    """Sentence, host's line and switch's line of the one kind of difference that there is."""
    assert {one.what for one in checked.differences} == {what}, [str(one) for one in checked.differences]
    one = checked.differences[0]
    return str(one), one.host_line, one.switch_line


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_good_pair_has_no_difference(sites: dict[str, wanted.Site], system: keys.System) -> None:
    checked = check(sites[system], [read_file(DATA / f"{system}.txt")])
    assert (checked.differences, checked.unchecked, checked.not_compared, checked.ports) == ((), (), (), 4)


PLANTED: tuple[tuple[str, str, tuple[tuple[str, str], ...], str, str], ...] = (
    # system, what, changes, words, the switch's line
    ("sonic", "mtu", ((" mtu 9216\n speed", " mtu 1500\n speed"),), "MTU 1500 is less than the host's 9000",
     "mtu 1500"),
    ("os10", "mtu", ((" no switchport\n mtu 9216", " no switchport\n mtu 9000"),), "9032 with the frame's 32",
     "mtu 9000"),
    ("sonic", "pfc", ((" priority-flow-control priority 3\n", ""),), "PFC is one-sided", "no PFC of priority 3"),
    ("os10", "pfc", ((" priority-flow-control mode on\n", ""),), "PFC is one-sided", "no PFC of priority 3"),
    ("sonic", "pfc", ((" priority-flow-control priority 3\n", " priority-flow-control priority 3\n"
                       " priority-flow-control priority 4\n"),), "PFC is on 2 priorities, 3 and 4", "priority 4"),
    ("os10", "pfc", (("pfc-cos 3", "pfc-cos 3-4"),), "PFC is on 2 priorities, 3 and 4", "pfc-cos 3-4"),
    ("sonic", "pfc", ((" priority-flow-control priority 3\n", " priority-flow-control priority 4\n"),),
     "the switch pauses 4", "priority 4"),
    ("sonic", "dscp", ((" dscp 24,26 traffic-class 3\n", " dscp 24 traffic-class 3\n"),),
     "DSCP 26 of RoCE is not mapped", "no DSCP 26"),
    ("os10", "dscp", ((" qos-group 3 dscp 24,26\n", " qos-group 3 dscp 24\n"),),
     "DSCP 26 of RoCE is not mapped", "no DSCP 26"),
    ("sonic", "dscp", ((" qos-map dscp-tc ROCE\n", ""),), "the port has no qos-map dscp-tc", "interface Eth1/1"),
    ("os10", "dscp", ((" trust-map dscp rDSCP\n", ""),), "the port has no trust-map dscp", "interface ethernet1/1/1"),
    ("sonic", "cnp", (("25,27-47,49-63 traffic-class 0", "25,27-63 traffic-class 0"),
                       (" dscp 48 traffic-class 6\n", "")), "are in a droppable queue", "25,27-63 traffic-class 0"),
    ("os10", "cnp", (("  priority\n", "  bandwidth percent 1\n"),), "are in a droppable queue", "qos-group 6 dscp 48"),
    ("os10", "cnp", ((" qos-group 6 dscp 48\n", ""), ("dscp 24,26", "dscp 24,26,48")), "in queue 3 with RoCE",
     "24,26,48"),
    ("sonic", "cnp", ((" dscp 48 traffic-class 6\n", ""),), "DSCP 48 of congestion notifications is not mapped",
     "no DSCP 48"),
    ("sonic", "ecn", ((" ecn green\n", ""),), "ECN is off in queue 3", "queue 3 wred-policy ROCE"),
    ("os10", "ecn", (("  random-detect ECN\n", ""),), "ECN is off in queue 3", "no ECN in queue 3"),
    ("sonic", "priority", ((" pfc-priority 3 queue 3\n", " pfc-priority 3 queue 4\n"),),
     "PFC of priority 3 stops queue 4, and RoCE is in queue 3", "pfc-priority 3 queue 4"),
    ("sonic", "priority", ((" traffic-class 3 priority-group 3\n", " traffic-class 3 priority-group 7\n"),),
     "RoCE fills priority group 7", "priority-group 7"),
    ("os10", "priority", ((" match qos-group 3\n", " match qos-group 6\n"),),
     "stops queue 6, and RoCE is in queue 3", "pfc-cos 3"),
    ("os10", "pause", ((" flowcontrol receive off\n", " flowcontrol receive on\n"),), "global pause is on",
     "receive on"),
    ("sonic", "lacp", ((" channel-group 10\n", " mtu 9216\n"),), "LACP is missing: the host's bond0 speaks it",
     "no line channel-group"),
    ("os10", "lacp", (("channel-group 10 mode active", "channel-group 10 mode on"),), "the channel group is static",
     "mode on"),
    ("sonic", "lacp", ((" no shutdown\n queue", " channel-group 10\n no shutdown\n queue"),),
     "so the switch keeps it down", "channel-group 10"),
    ("sonic", "port", ((" no shutdown\n queue", " shutdown\n queue"),), "gpu1 eth1 is in it", "shutdown"),
)  # fmt: skip


@pytest.mark.parametrize(("system", "what", "changes", "words", "line"), PLANTED)
def test_each_planted_fault_is_named_with_both_lines(
    sites: dict[str, wanted.Site], system: str, what: str, changes: tuple[tuple[str, str], ...], words: str, line: str
) -> None:
    said, host, switch = only(check(sites[system], [changed(system, *changes)]), what)
    assert words in said
    assert re.match(r"leaf1 (Eth1/|ethernet1/1/)\d \((gpu1 eth1|head eth1)\): ", said)
    assert line in switch
    assert re.match(rf"{system}\.txt:\d+: ", switch)
    assert re.search(r"(?:all\.yml|hosts\.yml|defaults/main\.yml)(?::\d+)?: \S", host)


def test_a_host_without_roce_at_a_switch_with_it(tmp_path: Path) -> None:
    with warm.asking_ansible():
        site = wanted.read(inventory(tmp_path, "sonic", roce_enabled=False))
    said, host, _ = only(check(site, [changed("sonic")]), "pfc")
    assert "the host has no RoCE settings" in said
    assert re.search(r"all\.yml:\d+: roce_enabled: false$", host)


def test_two_hosts_in_one_channel_group_and_a_bond_in_two(sites: dict[str, wanted.Site]) -> None:
    other = "interface PortChannel11\n mtu 9216\n!\ninterface PortChannel10"
    switch = changed("sonic", ("interface PortChannel10", other), (" channel-group 10", " channel-group 11"))
    said, _, line = only(check(sites["sonic"], [switch]), "lacp")
    assert "head eth1 of the same bond0 is in group 11" in said
    assert "channel-group 10" in line


def test_without_a_map_ports_in_use_are_compared_and_lacp_is_not(tmp_path: Path) -> None:
    with warm.asking_ansible():
        site = wanted.read(inventory(tmp_path, "sonic", cables=None))
    checked = check(site, [changed("sonic", (" mtu 9216\n speed", " mtu 1500\n speed"))])
    assert checked.ports == 4
    assert str(checked.differences[0]).startswith("leaf1 Eth1/1: MTU 1500")
    assert checked.unchecked == ("LACP: without a map of cables nobody knows which port is of which host",)


def test_what_cannot_be_compared_is_named(sites: dict[str, wanted.Site]) -> None:
    switch = changed("sonic", ("interface Eth1/2\n", "interface Eth1/9\n"))
    checked = check(sites["sonic"], [switch])
    assert (checked.differences, checked.ports) == ((), 3)
    assert checked.unchecked == ("sonic.txt has no port Eth1/2, which gpu2 eth1 is in: it is cut or of another switch",)
    assert check(sites["sonic"], []).unchecked == (
        "leaf1 is in the map of cables, and its configuration was not given",
    )


FOREIGN = (
    ("!Command: show running-config\nfeature lldp\ninterface Ethernet1/1\n  mtu 9216\n", "Cisco NX-OS"),
    ("! device: leaf1 (DCS-7060, EOS-4.30)\ninterface Ethernet1\n   mtu 9214\n", "Arista EOS"),
    ("set system host-name leaf1\nset interfaces et-0/0/1 mtu 9216\n", "Juniper Junos"),
    ("nv set interface swp1 link mtu 9216\n", "NVIDIA Cumulus Linux"),
    ('{"PORT": {"Ethernet0": {"mtu": "9100"}}}', "community SONiC"),
    ("hostname x\ninterface TenGigabitEthernet 1/1\n mtu 9216\n", "Dell OS9"),
    ("% Error: Invalid input detected\n", "the switch answered: % Error"),
    ("", "no port is in it"),
    ("\x00\x01\x02 rubbish", "no port is in it"),
)


@pytest.mark.parametrize(("text", "words"), FOREIGN)
def test_a_file_of_another_system_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(SwitchFault) as fault:
        read_text(text, "leaf1.txt", "leaf1")
    assert words in str(fault.value)
    assert str(fault.value).startswith("leaf1.txt: ")
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("named", [True, False])
def test_a_configuration_that_was_pasted_twice_is_refused(system: keys.System, named: bool) -> None:
    text = (DATA / f"{system}.txt").read_text()
    once = text if named else re.sub(r"(?m)^hostname .*\n", "", text)
    read_text(once, "leaf1.txt", "leaf1")
    with pytest.raises(SwitchFault, match=r"leaf1\.txt:\d+: .* is at line \d+ too, so the file holds more than one"):
        read_text(once + once, "leaf1.txt", "leaf1")


@pytest.mark.parametrize("system", SYSTEMS)
def test_output_that_was_cut_is_refused_or_its_ports_are_named(
    sites: dict[str, wanted.Site], system: keys.System
) -> None:
    """At every line: never a difference that is not there."""
    lines = (DATA / f"{system}.txt").read_text().splitlines(keepends=True)
    refused = 0
    for end in range(len(lines)):
        try:
            checked = check(sites[system], [read_text("".join(lines[:end]), "leaf1.txt", "leaf1")])
        except SwitchFault:
            refused += 1
            continue
        missing = 4 - checked.ports
        assert checked.differences == (), (end, [str(one) for one in checked.differences])
        assert len(checked.unchecked) == missing, end
    assert refused > len(lines) / 2


def test_a_pager_and_values_that_cannot_be() -> None:
    with pytest.raises(SwitchFault, match=r"sonic\.txt:\d+: was cut by the pager"):
        changed("sonic", ("!\nqos map tc-pg ROCE", "--more--\nqos map tc-pg ROCE"))
    with pytest.raises(SwitchFault, match=r"dscp 24,260 traffic-class 3: 24,260 is no dscp from 0 to 63"):
        changed("sonic", ("dscp 24,26", "dscp 24,260"))
    with pytest.raises(SwitchFault, match="`qos wred-policy ROCE` is not in the file"):
        changed("sonic", ("qos wred-policy ROCE\n", "qos wred-policy OTHER\n"))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    "more", [{}, {"roce_dscp": 46, "roce_priority": 5, "roce_cnp_dscp": 10, "roce_cnp_priority": 7, "fabric_mtu": 4200}]
)
def test_what_is_rendered_has_no_difference(tmp_path: Path, system: keys.System, more: dict[str, int]) -> None:
    with warm.asking_ansible():
        site = wanted.read(inventory(tmp_path, system, **more))
    text = render(site, "leaf1", system)
    switch = read_text(text, "leaf1.cfg", "leaf1")
    assert switch.system == system
    checked = check(site, [switch])
    assert (checked.differences, checked.unchecked, checked.not_compared, checked.ports) == ((), (), (), 4)
    if not more:
        for old in (" priority-flow-control", " qos-map", "dscp 26" if system == "os10" else "dscp 26 "):
            broken = read_text("\n".join(row for row in text.splitlines() if old not in row), "leaf1.cfg", "leaf1")
            assert check(site, [broken]).differences, old


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"roce_enabled": False}, "roce_enabled is false"),
        ({"roce_priority": 6}, "need a priority and a DSCP each"),
        ({"roce_dscp": 48}, "need a priority and a DSCP each"),
        ({"cables": None}, "give it the variable cables"),
        ({"fabric_mtu": 9200}, "need an MTU of 9232 bytes"),
    ],
)
def test_what_cannot_be_rendered(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with warm.asking_ansible():
        site = wanted.read(inventory(tmp_path, "os10", **more))
    with pytest.raises(UsageFault, match=words):
        render(site, "leaf1", "os10")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"roce_dscp": 70}, r"all\.yml:\d+: head: roce_dscp: "),
        ({"cables": [{"node": "gpu1", "port": "eth1", "switch": "leaf1"}]}, r"cables, entry 1: switch_port: "),
        ({"cables": [{"node": n, "port": "eth1", "switch": "leaf1", "switch_port": p}
                     for n, p in (("gpu1", "Eth1/1"), ("gpu2", "Ethernet 1/1"))]},
         r"all\.yml:\d+: cables, entries 1 and 2: leaf1 Ethernet 1/1 has two cables, of gpu1 eth1 and gpu2 eth1"),
        ({"switches": {"leaf1": {"address": "192.0.2.1", "system": "eos"}}}, "switches: leaf1: system: "),
        ({"switches_password": "hunter2hunter2"},
         r"all\.yml:\d+: switches_password is written here in plain text"),
    ],
)  # fmt: skip
def test_an_inventory_that_cannot_be_used(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises((UsageFault, InventoryError), match=words), warm.asking_ansible():
        wanted.read(inventory(tmp_path, "sonic", **more))


def test_of_the_password_its_own_line_is_read_and_no_file_beside_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the rack of admin1\n")
    with warm.asking_ansible():
        site = wanted.read(inventory(tmp_path, "sonic", switches_password="{{ 'admin' ~ 1 }}"))
    assert site.password == "admin1"


def test_every_line_that_is_rendered_is_in_the_table() -> None:
    keys.known("sonic", ("interface Eth1/1", "mtu 9216"))
    with pytest.raises(keys.OutOfRange, match="9217 is no mtu from 1280 to 9216"):
        keys.known("sonic", ("interface Eth1/1", "mtu 9217"))
    with pytest.raises(keys.OutOfRange, match="has no line"):
        keys.known("os10", ("interface ethernet1/1/1", "qos-map dscp-tc X"))
