"""Cables as real lldpd hears them, each machine a namespace of network, mounts and name; one of them swapped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from validation.base.project import ROOT
from validation.kinds import parse
from validation.measures.fabric.cabling import CablingFacts

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for network namespaces of its own"),
]
PREPARED = (
    "mount -t sysfs -o ro sysfs /sys && mount -t tmpfs tmpfs /run && mkdir /run/lldpd && hostname {name}"
    " && mount -t tmpfs tmpfs /etc/lldpd.d && echo '{settings}' >/etc/lldpd.d/test.conf"
    " && ip link set lo up && echo && exec cat"
)
SETTINGS = "configure lldp portidsubtype ifname\nconfigure lldp tx-interval 1"
"""Read by lldpd before it sends: a port that is named later has two entries at the other end for a while."""
WIRES = (
    # switch, its port, node, its port; eth1 of gpu2 and gpu3 are swapped
    ("leaf1", "swp1", "gpu1", "eth1"), ("leaf1", "swp2", "gpu3", "eth1"), ("leaf1", "swp3", "gpu2", "eth1"),
    ("leaf2", "swp1", "gpu1", "eth2"), ("leaf2", "swp2", "gpu2", "eth2"), ("leaf2", "swp3", "gpu3", "eth2"),
)  # fmt: skip


class Machines:
    """Machines of a test, each with namespaces of its own, and what runs in them."""

    def __init__(self) -> None:
        self.held: dict[str, subprocess.Popen[str]] = {}
        self.running: list[subprocess.Popen[bytes]] = []

    def add(self, name: str) -> None:
        """A machine of that name."""
        command = ["unshare", "--net", "--mount", "--uts", "sh", "-c", PREPARED.format(name=name, settings=SETTINGS)]
        held = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert held.stdout is not None
        assert held.stdout.readline() == "\n", name
        self.held[name] = held

    def within(self, name: str, command: Sequence[str]) -> list[str]:
        """The command, in a machine."""
        return ["nsenter", f"--target={self.held[name].pid}", "--net", "--mount", "--uts", "--", *command]

    def run(self, name: str, *command: str) -> str:
        """What a command prints in a machine."""
        return subprocess.run(self.within(name, command), capture_output=True, text=True, check=True, cwd=ROOT).stdout

    def start(self, name: str, *command: str) -> None:
        """Keep a command running in a machine."""
        self.running.append(subprocess.Popen(self.within(name, command), stderr=subprocess.DEVNULL))

    def wire(self, switch: str, switch_port: str, node: str, port: str) -> None:
        """A cable."""
        peer = ("peer", "name", port, "netns", str(self.held[node].pid))
        self.run(switch, "ip", "link", "add", switch_port, "type", "veth", *peer)
        self.run(switch, "ip", "link", "set", switch_port, "up")
        self.run(node, "ip", "link", "set", port, "up")

    def lldpd(self, name: str) -> None:
        """lldpd, whose ports have their names."""
        self.start(name, "lldpd", "-d")

    def shown(self, name: str) -> str:
        """What lldpcli shows, nothing while lldpd starts."""
        command = self.within(name, ["lldpcli", "show", "neighbors"])
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def probe(self, name: str, *interfaces: str) -> dict[str, Any]:
        """What the probe says there."""
        asked = json.dumps({"interfaces": interfaces, "virtual": True})
        document = json.loads(self.run(name, sys.executable, "-m", "validation.probes", "cabling", asked))
        assert document["error"] is None
        return dict(document)

    def close(self) -> None:
        """End what was started."""
        for process in (*self.running, *self.held.values()):
            process.terminate()
        for process in (*self.running, *self.held.values()):
            process.wait(10)


def until(done: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def facts(document: dict[str, Any]) -> CablingFacts:
    samples, found = parse("cabling", document, {})  # type: ignore[arg-type]
    assert [one.metric for one in samples] == ["ports_with_switch"]
    assert isinstance(found, CablingFacts)
    return found


def ends(found: CablingFacts) -> dict[str, list[str]]:
    return {port.interface: [str(peer) for peer in port.peers] for port in found.ports}


@pytest.fixture
def machines() -> Iterator[Machines]:
    made = Machines()
    yield made
    made.close()


def test_swapped_cables_are_heard_by_lldpd_where_they_are(machines: Machines) -> None:
    names = sorted({name for wire in WIRES for name in (wire[0], wire[2])})
    for name in names:
        machines.add(name)
    for wire in WIRES:
        machines.wire(*wire)
    for name in names:
        machines.lldpd(name)
    nodes = ("gpu1", "gpu2", "gpu3")
    for node in nodes:
        until(lambda node=node: machines.shown(node).count("SysName") == 2)  # type: ignore[misc]
    found = {node: ends(facts(machines.probe(node, "eth1", "eth2"))) for node in nodes}
    assert found == {
        "gpu1": {"eth1": ["leaf1 swp1"], "eth2": ["leaf2 swp1"]},
        "gpu2": {"eth1": ["leaf1 swp3"], "eth2": ["leaf2 swp2"]},
        "gpu3": {"eth1": ["leaf1 swp2"], "eth2": ["leaf2 swp3"]},
    }


def test_nothing_listens_and_the_physical_port_is_looked_at(machines: Machines) -> None:
    machines.add("leaf1")
    machines.add("head")
    machines.wire("leaf1", "swp1", "head", "eth1")
    machines.run("head", "ip", "link", "add", "link", "eth1", "name", "above", "type", "macvlan")
    said = facts(machines.probe("head", "above"))
    assert [(port.interface, port.of, port.peers) for port in said.ports] == [("eth1", "above", ())]
    assert said.listeners["lldpd"] != ""


def test_systemd_networkd_hears_what_role_fabric_switches_on(machines: Machines, tmp_path: Path) -> None:
    """Real systemd-networkd with the line that the role writes, real lldpd at the other end."""
    machines.add("leaf1")
    machines.add("gpu1")
    machines.wire("leaf1", "swp7", "gpu1", "eth1")
    machines.lldpd("leaf1")
    template = (ROOT / "roles/fabric/templates/port.network.j2").read_text()
    assert "\nLLDP=yes\n" in template
    link = tmp_path / "port.network"
    link.write_text("[Match]\nName=eth1\n[Network]\nAddress=192.0.2.1/24\nLinkLocalAddressing=no\nLLDP=yes\n")
    begin = (
        "mkdir -p /run/systemd/network /run/systemd/netif/links"
        " /run/systemd/netif/leases /run/systemd/netif/lldp /run/dbus && chown -R systemd-network: /run/systemd/netif"
        f" && cp {link} /run/systemd/network/"
    )
    machines.run("gpu1", "sh", "-c", begin)
    machines.start("gpu1", "/lib/systemd/systemd-networkd")
    until(lambda: machines.run("gpu1", "ls", "/run/systemd/netif/lldp") != "")
    heard = facts(machines.probe("gpu1", "eth1"))
    assert ends(heard) == {"eth1": ["leaf1 swp7"]}
    assert [peer.by for port in heard.ports for peer in port.heard] == ["systemd-networkd"]
    assert heard.listeners["systemd-networkd"] == ""
