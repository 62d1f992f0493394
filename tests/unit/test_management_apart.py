"""Whether a node is managed by another port and network than the fabric's, from the addresses that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.site import LAB, criterion, healthy, plan_of, results_of, verdict_of
from validation.model import Judgement, Port, SshTarget, Topology
from validation.probes.node_state import made_of

PLAN = plan_of(LAB, ("preflight",))
SSH = {n.name: n.ssh.host for n in LAB.nodes}
FABRIC = {n.name: n.ports[0].address for n in LAB.nodes}


def judged(
    addresses: list[tuple[str, str]], host: str | None = None, ports: Mapping[str, Port] | None = None
) -> Judgement | None:
    """Of gpu2 with these addresses; the others are managed by eth0. `host`: by which the inventory reaches it.
    `ports`: nodes with another fabric port."""

    def change(m: Any) -> Any:
        if m.kind != "facts":
            return None
        name = m.nodes[0]
        mine = [("eth0", SSH[name]), ("fab0", FABRIC[name])] if name != "gpu2" else addresses
        over = {"br0": ["bond0", "eno1", "fab0"], "bond1": ["eno1", "eno2"]}
        found = [{"interface": i, "address": a, "over": over.get(i, [])} for i, a in mine]
        state = {"addresses": found, "utc_offset_s": 0, "name_servers": [], "file_systems": []}
        return healthy(m, facts={"state": {**state, "others_busy_processors": 0.1}, "cpu_count": 4})

    nodes = tuple(
        n.model_copy(update={"ssh": SshTarget(host=host)}) if n.name == "gpu2" and host else n for n in LAB.nodes
    )
    nodes = tuple(n.model_copy(update={"ports": (ports[n.name],)}) if n.name in (ports or {}) else n for n in nodes)
    site: Topology = LAB.model_copy(update={"nodes": nodes})
    verdict = verdict_of(site, PLAN, results_of(PLAN, change))
    mine: dict[str, Judgement] = {str(j.about).partition("/")[0]: j for j in criterion(verdict, "pf.apart").judgements}
    assert {mine[name].verdict for name in ("head", "client1", "gpu1")} == {"pass"}
    assert criterion(verdict, "pf.apart").verdict != "fail"
    return mine.get("gpu2")


def test_another_port_and_network_pass_and_are_named() -> None:
    found = judged([("eth0", SSH["gpu2"]), ("fab0", FABRIC["gpu2"])])
    assert found is not None
    assert found.verdict == "pass"
    assert found.reason == f"managed by eth0 ({SSH['gpu2']}), fabric: fab0 ({FABRIC['gpu2']}/24)"


@pytest.mark.parametrize(
    ("addresses", "host", "words"),
    [
        ([("fab0", FABRIC["gpu2"])], FABRIC["gpu2"], "fab0 is a fabric port"),
        (
            [("eth0", "10.78.0.200"), ("fab0", FABRIC["gpu2"])],
            "10.78.0.200",
            "10.78.0.200 is in the fabric's network 10.78.0.0/24",
        ),
        ([("fab0.100", "10.9.0.2"), ("fab0", FABRIC["gpu2"])], "10.9.0.2", "fab0.100 is a VLAN of a fabric port"),
        ([("br0", "10.9.0.2"), ("fab0", FABRIC["gpu2"])], "10.9.0.2", "br0 is made of fab0, a fabric port"),
    ],
)
def test_one_network_for_both_is_reported_and_no_fault(addresses: list[tuple[str, str]], host: str, words: str) -> None:
    found = judged(addresses, host)
    assert found is not None
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")
    assert found.reason == f"reported: no network of its own for management: {words}"


def test_another_nodes_fabric_network_is_the_fabrics_too() -> None:
    port = LAB.node("gpu1").ports[0].model_copy(update={"address": "10.9.0.1"})
    found = judged([("eth0", "10.9.0.2"), ("fab0", FABRIC["gpu2"])], "10.9.0.2", {"gpu1": port})
    assert found is not None
    assert found.reason.endswith("10.9.0.2 is in the fabric's network 10.9.0.0/24")


@pytest.mark.parametrize(
    ("host", "words"),
    [(None, "something on the way translates it"), ("gpu2.example", "the inventory names the node gpu2.example")],
)
def test_what_cannot_be_known_is_reported(host: str | None, words: str) -> None:
    found = judged([("eth0", "10.0.2.15"), ("fab0", FABRIC["gpu2"])], host)
    assert found is not None
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")
    assert words in found.reason


def test_a_node_that_is_reached_by_its_loopback_has_no_network_of_management() -> None:
    assert judged([("fab0", FABRIC["gpu2"])], "127.0.0.1") is None


def test_a_bond_of_other_ports_is_apart() -> None:
    found = judged([("bond1", SSH["gpu2"]), ("fab0", FABRIC["gpu2"])])
    assert found is not None
    assert found.verdict == "pass"


def test_what_an_interface_is_made_of_is_read_of_ip() -> None:
    """VLAN on a bridge on a bond of two ports; both ends of a veth lie on nothing."""
    listed: list[dict[str, Any]] = [
        {"ifname": "lo"}, {"ifname": "fab0", "master": "bond0"}, {"ifname": "fab1", "master": "bond0"},
        {"ifname": "bond0", "master": "br0"}, {"ifname": "br0"}, {"ifname": "br0.7", "link": "br0"},
        {"ifname": "veth0", "link": "veth1"}, {"ifname": "veth1", "link": "veth0", "master": "docker0"},
        {"ifname": "eth0", "link_index": 12, "link_netnsid": 0}, {"ifname": "docker0"},
    ]  # fmt: skip
    assert made_of(listed) == {
        "bond0": ["fab0", "fab1"],
        "br0": ["bond0", "fab0", "fab1"],
        "br0.7": ["bond0", "br0", "fab0", "fab1"],
        "docker0": ["veth1"],
    }
