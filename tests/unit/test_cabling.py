"""Cables judged: a good map, each planted fault in one sentence, and what nobody heard is never a wrong cable."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pydantic import ValidationError

from tests.support.site import criterion, hardware, lab, plan_of, plugged, result, verdict_of, write_run
from tests.support.tool_documents import doc
from toolkit import cables as mapped
from toolkit.cables import refuse_twins
from toolkit.cli import cli
from toolkit.errors import UsageFault
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.fabric import cabling_probe as probe
from validation.measures.fabric.cabling import Optic, Peer, crossed
from validation.model import Cable, Topology
from validation.model.cables import same_switch

NODES = ("gpu1", "gpu2", "gpu3")
Ends = dict[str, dict[str, Any]]


def good() -> Ends:
    """eth1 of each node in leaf1, eth2 in leaf2."""
    return {node: {f"eth{rail}": (f"leaf{rail}", f"Eth1/{n}") for rail in (1, 2)} for n, node in enumerate(NODES, 1)}


def the_map(rails: bool = False) -> tuple[Cable, ...]:
    return tuple(
        Cable(node=node, port=port, switch=switch, switch_port=at, rail=port[-1] if rails else None)
        for node, ports in good().items()
        for port, (switch, at) in ports.items()
    )


def judged(ends: Ends, cables: tuple[Cable, ...] = (), topology: Topology | None = None, **changes: Any) -> Any:
    """node -> its judgement."""
    site = (topology or hardware(NODES)).model_copy(update={"cables": cables})
    plan = plan_of(site, ("preflight",))
    results = [result(m, facts=plugged(ends[m.nodes[0]], **changes)) for m in plan.measurements if m.kind == "cabling"]
    assert len(results) == len(site.nodes)
    return {one.subject: one for one in criterion(verdict_of(site, plan, results), "pf.cabling").judgements}


def a_run(folder: Path, ends: Ends) -> Path:
    """The folder of a run that found these."""
    site = hardware(NODES)
    plan = plan_of(site, ("preflight",))
    results = [result(m, facts=plugged(ends[m.nodes[0]])) for m in plan.measurements if m.kind == "cabling"]
    return write_run(folder / plan.run, site, plan, results, judged=False)


def swapped() -> Ends:
    """eth1 of gpu2 and gpu3."""
    ends = good()
    ends["gpu2"]["eth1"], ends["gpu3"]["eth1"] = ends["gpu3"]["eth1"], ends["gpu2"]["eth1"]
    return ends


def crossed_in(node: str) -> Ends:
    """eth1 and eth2 of one node."""
    ends = good()
    ends[node] = {"eth1": ends[node]["eth2"], "eth2": ends[node]["eth1"]}
    return ends


def outcomes(found: Any) -> dict[str, str]:
    return {node: one.verdict for node, one in found.items()}


def test_a_good_site_passes_with_its_map_and_without() -> None:
    for cables in ((), the_map(), the_map(rails=True)):
        assert outcomes(judged(good(), cables)) == dict.fromkeys(NODES, "pass")


def test_a_swap_is_named_at_both_ends_and_nowhere_else() -> None:
    found = judged(swapped(), the_map())
    assert outcomes(found) == {"gpu1": "pass", "gpu2": "fail", "gpu3": "fail"}
    assert found["gpu2"].reason == "leaf1 Eth1/3 is gpu2 eth1, should be gpu3 eth1"
    assert found["gpu3"].reason == "leaf1 Eth1/2 is gpu3 eth1, should be gpu2 eth1"
    assert outcomes(judged(swapped())) == dict.fromkeys(NODES, "pass"), "the same rail: only a map can know"


@pytest.mark.parametrize("cables", [(), the_map(), the_map(rails=True)], ids=["no map", "map", "map with rails"])
def test_ports_of_one_node_that_reach_each_others_rail(cables: tuple[Cable, ...]) -> None:
    found = judged(crossed_in("gpu3"), cables)
    assert outcomes(found) == {"gpu1": "pass", "gpu2": "pass", "gpu3": "fail"}
    mine, theirs = ("rail 2", "rail 1") if cables and cables[0].rail else ("leaf2", "leaf1")
    assert f"eth1 reaches {mine}, eth1 of the other nodes {theirs}" in found["gpu3"].reason
    assert ("leaf2 Eth1/3 is gpu3 eth1, should be gpu3 eth2" in found["gpu3"].reason) == bool(cables)


def test_of_two_nodes_nobody_knows_which_is_crossed() -> None:
    ends = {"gpu1": {"eth1": "a", "eth2": "b"}, "gpu2": {"eth1": "b", "eth2": "a"}}
    assert set(crossed(ends)) == {"gpu1", "gpu2"}
    assert "one of them is in the wrong switch" in crossed(ends)["gpu1"]["eth1"]


def test_switches_of_other_racks_are_no_other_rails() -> None:
    rack = {"gpu1": ("a", "b"), "gpu2": ("a", "b"), "gpu3": ("c", "d"), "gpu4": ("c", "d"), "gpu5": ("c", "d")}
    assert crossed({node: dict(zip(("eth1", "eth2"), ends, strict=True)) for node, ends in rack.items()}) == {}
    assert crossed({node: {"eth1": leaf, "eth2": leaf} for node, leaf in (("gpu1", "a"), ("gpu2", "b"))}) == {}


def test_two_neighbours_at_a_port_are_unsettled_and_never_wrong() -> None:
    ends = good()
    ends["gpu2"]["eth1"] = [("leaf1", "Eth1/2"), ("leaf1", "Eth1/3")]
    found = judged(ends, the_map())
    assert outcomes(found) == {"gpu1": "pass", "gpu2": "not-measured", "gpu3": "pass"}
    assert found["gpu2"].reason.startswith("eth1 is unsettled, it heard leaf1 Eth1/2 and leaf1 Eth1/3")


def test_what_nobody_heard_is_not_measured() -> None:
    ends = good()
    ends["gpu2"]["eth1"] = []
    found = judged(ends, the_map())
    assert (found["gpu2"].verdict, found["gpu2"].reason) == ("not-measured", "no switch is heard on eth1")
    silent: Ends = {node: {"eth1": [], "eth2": []} for node in NODES}
    assert judged(silent, the_map())["gpu1"].reason == "lldpd heard no switch on gpu1"
    deaf = judged(silent, the_map(), listeners={"lldpd": "lldpd is not installed"})
    assert deaf["gpu1"].reason == "nothing listens for switches on gpu1"
    assert outcomes(judged(silent, topology=lab(NODES))) == dict.fromkeys(NODES, "not-applicable")


def test_cables_that_the_map_does_not_have_and_one_too_many() -> None:
    ends = good()
    ends["gpu1"]["eth1"] = ("leaf9", "Eth1/1")
    cables = [*the_map(), Cable(node="gpu3", port="eth7", switch="leaf1", switch_port="Eth1/9")]
    found = judged(ends, tuple(cables))
    assert found["gpu1"].reason == "leaf9 Eth1/1 is gpu1 eth1, which should be in leaf1 Eth1/1"
    assert found["gpu3"].verdict == "pass", "a drawing has the cables of other ports too"
    assert "1 cable of the map at other ports (eth7)" in found["gpu3"].reason
    lost = judged(good(), tuple(one for one in the_map() if one.node != "gpu2"))
    assert lost["gpu2"].reason.startswith("leaf1 Eth1/2 is gpu2 eth1, and neither is in the map of cables")


def test_names_that_systems_write_differently_are_one_port() -> None:
    ends = good()
    ends["gpu1"] = {"eth1": ("leaf1.example.com", "Ethernet1/1"), "eth2": ("LEAF2", "ethernet 1/1")}
    assert outcomes(judged(ends, the_map())) == dict.fromkeys(NODES, "pass")


CMIS = """\
	Vendor name                               : ACME
	Vendor PN                                 : Q-400
	Vendor SN                                 : SN1
	Module temperature                        : 41.50 degrees C / 106.70 degrees F
	Transmit avg optical power (Channel 1)    : 1.1220 mW / 0.50 dBm
	Rcvr signal avg optical power(Channel 1)  : 0.9550 mW / -0.20 dBm
	Rcvr signal avg optical power(Channel 2)  : 0.0000 mW / -inf dBm
	Laser rx power low alarm threshold        : 0.0400 mW / -13.98 dBm
	Laser rx power high alarm threshold       : 2.1878 mW / 3.40 dBm
	Laser tx power low alarm threshold        : 0.1000 mW / -10.00 dBm
"""


def test_a_module_without_light_is_named() -> None:
    """Constructed after the format of ethtool's own source."""
    found = probe.optic(CMIS)
    assert found is not None
    assert (found["serial"], found["temperature_c"], found["rx_dbm"]) == ("SN1", 41.5, [-0.2, -99.0])
    assert found["limits"] == {"rx_low_dbm": -13.98, "rx_high_dbm": 3.4, "tx_low_dbm": -10.0}
    ports = [{**port, "optic": found} for port in plugged(good()["gpu1"])["ports"]]
    said = judged(good(), the_map(), ports=ports)["gpu1"]
    assert said.reason.count("the module of eth1 receives no light, its alarm is below -13.98") == 1
    assert probe.optic("netlink error: Operation not permitted\n") is None


def frame(*tlvs: tuple[int, bytes], kind: bytes = b"\x88\xcc") -> bytes:
    body = b"".join(struct.pack(">H", (number << 9) | len(value)) + value for number, value in (*tlvs, (0, b"")))
    return bytes.fromhex("0180c200000e020000000001") + kind + body


LEAF = ((1, b"\x04\x02\0\0\0\0\x01"), (2, b"\x05Eth1/7"), (3, b"\0\x78"), (4, b"to gpu2"), (5, b"leaf1"))


def test_frames_as_systemd_networkd_keeps_them() -> None:
    whole = frame(*LEAF)
    raw = struct.pack("<Q", len(whole)) + whole
    assert probe.frames(raw + raw) == [whole, whole]
    assert probe.frames(raw + raw[:-1]) == [whole], "cut"
    assert probe.frames(b"\xff" * 40) == []
    expected = {"switch": "leaf1", "chassis": "02:00:00:00:00:01", "port": "Eth1/7", "description": "to gpu2"}
    assert probe.neighbour(whole) == {**expected, "age_s": None}
    assert probe.neighbour(frame(*LEAF, kind=b"\x08\x00")) is None
    for end in range(len(whole)):
        probe.neighbour(whole[:end])


def test_what_a_stranger_sends_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    ends = good()
    ends["gpu1"]["eth1"] = ("leaf\x1b[2J\n\u202e" + "x" * 3000, "<b>&")
    said = judged(ends, the_map())["gpu1"]
    assert said.verdict == "fail"
    assert said.reason.startswith("leaf\\u001b[2J\\u000a\\u202exxx")
    assert len(said.reason) < 400
    ends["gpu2"]["eth1"] = [("y" * 300, f"Eth1/{n}") for n in range(200)]
    unsettled = judged(ends, the_map())["gpu2"]
    assert (unsettled.verdict, len(unsettled.reason) < 1000) == ("not-measured", True)
    assert "and 197 more: wait" in unsettled.reason
    done = CliRunner().invoke(cli, ["inventory", "cables", str(a_run(tmp_path, ends))])
    assert done.exit_code == 3
    assert len(yaml.safe_load(done.stdout)["cables"]) == 4
    assert re.search(r"gpu1 eth1: heard leaf.* no name for a map, and is left out\n", done.stderr)


def test_one_wrong_cable_between_racks_is_its_nodes_alone() -> None:
    ends = {f"a{n}": {"eth0": "leaf1", "eth1": "leaf2"} for n in range(1, 5)}
    ends |= {f"b{n}": {"eth0": "leaf3", "eth1": "leaf4"} for n in range(1, 9)}
    ends["a4"]["eth1"] = "leaf3"
    assert crossed(ends) == {"a4": {"eth1": "eth1 reaches leaf3, eth1 of the other nodes leaf2"}}
    ends["a4"] = {"eth0": "leaf1", "eth1": "leaf1"}
    assert crossed(ends) == {"a4": {"eth1": "eth1 reaches leaf1, eth1 of the other nodes leaf2"}}
    shared = {f"a{n}": {"eth0": "spine", "eth1": "leaf2"} for n in range(4)} | {"b": {"eth0": "spine", "eth1": "leaf3"}}
    assert crossed(shared) == {}, "a switch of another rack is no wrong one"


def test_what_networkd_left_behind_is_not_believed_where_it_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_runs", lambda program: False)
    assert probe.of_networkd(["eth1"], tmp_path, tmp_path, []) == ({}, "systemd-networkd does not run")
    monkeypatch.setattr(probe, "_runs", lambda program: True)
    assert probe.of_networkd(["eth1"], tmp_path, tmp_path, [])[1] == ""


def test_members_of_a_bond_may_be_in_each_others_switch() -> None:
    site, ends = hardware(NODES), crossed_in("gpu3")
    plan, results = plan_of(site, ("preflight",)), []
    for m in (one for one in plan.measurements if one.kind == "cabling"):
        facts = plugged(ends[m.nodes[0]])
        facts["ports"] = [port | {"of": "bond0"} for port in facts["ports"]]
        results.append(result(m, facts=facts))
    found = criterion(verdict_of(site, plan, results), "pf.cabling").judgements
    assert {one.verdict for one in found} == {"not-applicable"}, "nothing is compared"


def test_a_map_without_anything_is_no_map() -> None:
    assert mapped.site_cables(Path("inventories/lab"), "gpu1", [None, None]) == ()


def test_lanes_that_a_breakout_cable_leaves_dark_are_no_fault() -> None:
    limits = {"tx_low_dbm": -10.0, "rx_low_dbm": -13.98}
    levels = (0.5, 0.5, -99.0, -99.0)
    optic = Optic(vendor="", part="", serial="", temperature_c=None, tx_dbm=levels, rx_dbm=levels, limits=limits)
    assert optic.faults(heard=True) == []
    assert len(optic.faults(heard=False)) == 2
    half = optic.model_copy(update={"rx_dbm": (0.5, -99.0, -99.0, -99.0)})
    assert half.faults(heard=True) == ["receives no light, its alarm is below -13.98"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("leaf1", "LEAF1.example.net", True), ("leaf1.dc1", "leaf1.dc1", True), ("leaf1.dc1", "leaf1.dc2", False),
        ("10.0.0.1", "10.0.0.2", False), ("10.0.0.1", "10", False), ("leaf1", "leaf2", False),
    ],
)  # fmt: skip
def test_switches_are_told_apart_by_their_domain_where_both_have_one(one: str, other: str, same: bool) -> None:
    assert same_switch(one, other) is same
    pair = [Cable(node=f"n{n}", port="e0", switch=name, switch_port="Eth1/1") for n, name in enumerate((one, other))]
    if same:
        with pytest.raises(UsageFault, match="has two cables"):
            refuse_twins(pair, str)
    else:
        refuse_twins(pair, str)


def test_a_port_that_yaml_reads_as_a_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="put the name in quotes"):
        Cable.model_validate(yaml.safe_load("{node: n1, port: e0, switch: leaf1, switch_port: 1:7}"))


def test_nodes_with_other_ports_are_not_compared_and_nothing_is_said_of_them() -> None:
    """A storage node's eth1 is another card than a GPU node's."""
    ends = good()
    ends["gpu3"] = {"eth1": ("leaf2", "Eth1/3"), "eth2": ("leaf1", "Eth1/3"), "eth3": ("leaf1", "Eth1/9")}
    assert outcomes(judged(ends)) == {"gpu1": "pass", "gpu2": "pass"}
    racks = {node: {"eth1": (f"{node}-a", "1"), "eth2": (f"{node}-b", "1")} for node in NODES}
    assert outcomes(judged(racks)) == dict.fromkeys(NODES, "not-applicable"), "nothing was compared"


def test_a_rail_that_the_map_declares_is_meant() -> None:
    ends = crossed_in("gpu3")
    meant = tuple(
        Cable(node=node, port=port, switch=switch, switch_port=at, rail=switch[-1])
        for node, ports in ends.items()
        for port, (switch, at) in ports.items()
    )
    assert outcomes(judged(ends, meant)) == dict.fromkeys(NODES, "pass")
    bare = tuple(cable.model_copy(update={"rail": None}) for cable in meant)
    assert judged(ends, bare)["gpu3"].verdict == "fail"


def test_a_ports_description_is_no_other_port() -> None:
    """SONiC sends its own name as description; anybody may write anything there."""
    found = {"by": "lldpd", "switch": "leaf1", "chassis": "", "age_s": None}
    wanted = (
        Cable(node="gpu1", port="eth1", switch="leaf1", switch_port="Ethernet0"),
        Cable(node="gpu2", port="eth1", switch="leaf1", switch_port="Ethernet4"),
    )
    assert Peer(**found, port="etp1", description="Ethernet0").cable(wanted) == wanted[0]
    assert Peer(**found, port="Ethernet4", description="Ethernet0").cable(wanted) == wanted[1]


def test_the_facts_are_those_of_the_report() -> None:
    facts = plugged(good()["gpu1"])
    printed = json.dumps({**facts, "printed": ["$ lldpcli"]})
    samples, _ = parse("cabling", doc("cabling", printed, facts))
    assert [(one.metric, one.value) for one in samples] == [("ports_with_switch", 2)]
    for text in ("", printed[:-1], json.dumps({**facts, "listeners": {}})):
        with pytest.raises(ParseError, match="cabling"):
            parse("cabling", doc("cabling", text, facts))


def test_a_port_below_two_vlans_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "physical", lambda name: ["eth1"])
    monkeypatch.setattr(probe, "of_lldpd", lambda said: ({}, ""))
    monkeypatch.setattr(probe, "of_networkd", lambda *rest: ({}, ""))
    monkeypatch.setattr(probe, "of_network_manager", lambda said: ({}, ""))
    found = probe.probe(probe.Asked(["eth1.7", "eth1.8"], virtual=True))
    assert [port["interface"] for port in found["facts"]["ports"]] == ["eth1"]
    parse("cabling", found)


def test_ages_of_lldpd() -> None:
    assert probe._age("1 day, 02:03:04") == 93784
    assert probe._age("0 day, 00:00:05") == 5
    assert probe._age("") is None


def test_the_map_of_a_run_is_the_inventorys_and_what_was_not_heard_is_named(tmp_path: Path) -> None:
    ends = good()
    ends["gpu3"]["eth2"] = []
    run = a_run(tmp_path, ends)
    done = CliRunner().invoke(cli, ["inventory", "cables", str(run)])
    assert (done.exit_code, done.stderr) == (3, "gpu3 eth2: heard no switch, and is left out\n")
    written = yaml.safe_load(done.stdout)["cables"]
    assert mapped.check(written, str) == the_map()[:-1]
    assert written[0] == {"node": "gpu1", "port": "eth1", "switch": "leaf1", "switch_port": "Eth1/1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"1: no column node, port, switch, switch_port"),
        ("node,port,switch\n", r"1: no column switch_port"),
        ("node,port,switch,switch_port\n", r":1: only a first line, and no cable"),
        ("node,port,switch,switch_port\ngpu1," + "e" * 200_000 + ",leaf1,Eth1/1\n", r":2: field larger"),
        ("node,port,switch,rail\ngpu1,eth1,leaf1,1\n", r":1: no column switch_port; the first line is node,port,"),
        ("node,port,switch,switch_port\ngpu1,eth1,leaf1\n", r":2: has another number of columns"),
        ("node,port,switch,switch_port\ngpu1,eth1,leaf1,\n", r":2, entry 1: switch_port: "),
        ("node,port,switch,switch_port\ngpu1,e1,leaf1.example.com,Eth1/1\n\ngpu2,e1,leaf1,ethernet 1/1\n",
         ":4, entries 1 and 2: leaf1 ethernet 1/1 has two cables, of gpu1 e1 and gpu2 e1"),
        ("node,port,switch,switch_port\ngpu1,e1,leaf1,Eth1/1\ngpu1,e1,leaf1,Eth1/2\n", "gpu1 e1 is in two ports"),
        ("\udcff", "not UTF-8 text"),
    ],
)  # fmt: skip
def test_drawings_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "d.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    done = CliRunner().invoke(cli, ["inventory", "cables", "--csv", str(tmp_path / "d.csv")])
    assert done.exit_code == 2
    assert re.search(words, done.output), done.output
    assert done.output.count("\n") == 1


def test_a_drawing_of_a_spreadsheet(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(
        "\ufeffnode;port;switch;switch_port;rail;note\ngpu1;eth1;leaf1;Eth1/1;1;x\n".encode()
    )
    done = CliRunner().invoke(cli, ["inventory", "cables", "--csv", str(tmp_path / "d.csv")])
    [cable] = mapped.check(yaml.safe_load(done.stdout)["cables"], str)
    assert cable == Cable(node="gpu1", port="eth1", switch="leaf1", switch_port="Eth1/1", rail="1")


def test_the_map_of_sixty_nodes_is_judged_in_a_moment() -> None:
    """480 ports; two cables swapped."""
    nodes = [f"gpu{n}" for n in range(1, 61)]
    ends: Ends = {node: {f"eth{r}": (f"leaf{r}", f"Eth1/{n}") for r in range(8)} for n, node in enumerate(nodes, 1)}
    wanted = tuple(
        Cable(node=node, port=port, switch=switch, switch_port=at)
        for node, ports in ends.items() for port, (switch, at) in ports.items()
    )  # fmt: skip
    ends["gpu7"]["eth3"], ends["gpu9"]["eth3"] = ends["gpu9"]["eth3"], ends["gpu7"]["eth3"]
    site = hardware(nodes).model_copy(update={"cables": wanted})
    plan = plan_of(site, ("preflight",))
    results = [result(m, facts=plugged(ends[m.nodes[0]])) for m in plan.measurements if m.kind == "cabling"]
    judgements = criterion(verdict_of(site, plan, results), "pf.cabling").judgements
    assert {one.subject for one in judgements if one.verdict == "fail"} == {"gpu7", "gpu9"}
    assert len(judgements) == 60
