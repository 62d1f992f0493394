"""Cables: each fabric port is in the switch port that the map wants, and cards of one kind reach the same rail.

Judged by what switches send of themselves (LLDP). What nobody heard is not known, and two different neighbours at one
port are one that has just changed: neither is ever a wrong cable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from validation.base.counting import number_of
from validation.base.visible import visible
from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.kinds.record import Kind, on_node
from validation.measures.node.hardware import missing
from validation.model import Bound, Job, Judgement, Measurement, Node, Sample, Scalar, Topology
from validation.model.base import Model
from validation.model.cables import Cable, plain_port, same_port, same_switch, short_switch
from validation.model.facts import Count, Facts, Name, once
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion

Decibel = Annotated[float, Field(ge=-99, le=99)]
DARK_DBM = -99.0
"""No light at all, as the probe writes it."""
LONGEST = 255
"""Characters of a name, as IEEE 802.1AB has it."""
MOST_OF = 2
"""So many other nodes are more than one that may itself be wrong."""
MOST_NAMED = 3
"""Neighbours of a port in a sentence."""
Sent = Annotated[str, AfterValidator(lambda text: visible(text)[:LONGEST])]
"""What somebody at the other end of a cable sent: one line, without anything that could not be seen."""


class Peer(Model):
    """A neighbour by LLDP: the switch's name, chassis, port and the port's description; `by`: who heard it."""

    by: Name
    switch: Sent
    chassis: Sent
    port: Sent
    description: Sent
    age_s: Count | None

    @property
    def name(self) -> str:
        """The switch without its domain, or its chassis where it sends no name."""
        return short_switch(self.switch) or self.chassis

    @property
    def label(self) -> str:
        """The port's name: of one that is told by its MAC address, the description."""
        return self.description if self.description and self.port.count(":") == 5 else self.port

    def __str__(self) -> str:
        """`leaf1 Eth1/7`."""
        return f"{self.name} {self.label}"

    def cable(self, cables: tuple[Cable, ...]) -> Cable | None:
        """The cable that the map has in this switch port; by its description only where none is in the port itself."""
        here = [cable for cable in cables if same_switch(cable.switch, self.switch or self.name)]
        for name in filter(None, (self.port, self.description)):
            found = next((cable for cable in here if same_port(cable.switch_port, name)), None)
            if found is not None:
                return found
        return None


class Optic(Model):
    """A transceiver. Powers of each lane and alarm thresholds in dBm; -99: no light at all."""

    vendor: Sent
    part: Sent
    serial: Sent
    temperature_c: float | None
    tx_dbm: tuple[Decibel, ...]
    rx_dbm: tuple[Decibel, ...]
    limits: dict[Literal["tx_low_dbm", "tx_high_dbm", "rx_low_dbm", "rx_high_dbm"], Decibel]

    def faults(self, heard: bool) -> list[str]:
        """Powers beyond the module's own alarm thresholds, in words.

        Lanes that are dark both ways are unused, as by a breakout cable, where the port `heard` a switch.
        """
        lanes = range(max(len(self.tx_dbm), len(self.rx_dbm)))
        both = [(self.tx_dbm[lane : lane + 1], self.rx_dbm[lane : lane + 1]) for lane in lanes]
        unused = {lane for lane, ends in enumerate(both) if heard and set(ends) == {(DARK_DBM,)}}
        found = []
        for side, words, values in (("tx", "sends", self.tx_dbm), ("rx", "receives", self.rx_dbm)):
            low, high = (self.limits.get(f"{side}_{end}_dbm") for end in ("low", "high"))  # type: ignore[call-overload]
            for lane, value in enumerate(values):
                shown = "no light" if value == DARK_DBM else f"{value:g} dBm"
                if lane in unused:
                    continue
                if low is not None and value < low:
                    found.append(f"{words} {shown}, its alarm is below {low:g}")
                elif high is not None and value > high:
                    found.append(f"{words} {shown}, its alarm is above {high:g}")
        return list(dict.fromkeys(found))


class PluggedPort(Model):
    """A physical port, the fabric port that it carries (`of`), and who is at the other end."""

    interface: Name
    of: Name
    heard: tuple[Peer, ...]
    optic: Optic | None

    @property
    def peers(self) -> tuple[Peer, ...]:
        """Each neighbour once, however many programs heard it."""
        return tuple({(peer.name.lower(), plain_port(peer.label)): peer for peer in self.heard}.values())


class CablingFacts(Facts):
    """The ends of a node's cables. `listeners`: program -> why it could not be asked, "" where it was."""

    type: Literal["cabling"] = "cabling"
    ports: tuple[PluggedPort, ...]
    listeners: dict[str, str]

    @field_validator("ports")
    @classmethod
    def _ports_once(cls, ports: tuple[PluggedPort, ...]) -> tuple[PluggedPort, ...]:
        return once(ports, "interface")


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many ports heard a switch, and the facts, which are in the report too."""
    facts = as_facts(CablingFacts, doc["facts"], "cabling")
    report = json_object(doc["stdout"], "cabling: the report")
    if {key: value for key, value in report.items() if key != "printed"} != doc["facts"]:
        raise ParseError("cabling: the facts are not those of the report")
    heard = sum(bool(port.heard) for port in facts.ports)
    return [Sample(metric="ports_with_switch", value=heard, unit="count")], facts


Reach = dict[str, dict[str, str]]
"""node -> port -> the rail that it reaches."""


def _rail(peer: Peer, cables: tuple[Cable, ...]) -> str:
    """The rail that the map gives a switch port, else the switch."""
    cable = peer.cable(cables)
    return f"rail {cable.rail}" if cable is not None and cable.rail else peer.name


def _reaches(case: Case, criterion: Criterion) -> list[Reach]:
    """What is compared: the nodes that have the same fabric ports. Names of ports of other machines mean nothing."""
    found: dict[tuple[str, ...], Reach] = {}
    for measurement in case.serving(criterion):
        result = case.usable(measurement.id)
        facts = result.facts_of(CablingFacts) if result is not None else None
        if facts is not None:
            carried = Counter(port.of for port in facts.ports)  # members of a bond may be in each other's switch
            alone = [port for port in facts.ports if carried[port.of] == 1]
            ends = {port.interface: port.peers[0] for port in alone if len(port.peers) == 1}
            alike = found.setdefault(tuple(sorted(port.interface for port in facts.ports)), {})
            alike[measurement.nodes[0]] = {name: _rail(peer, case.topology.cables) for name, peer in ends.items()}
    return list(found.values())


def _beside(reach: Reach) -> set[frozenset[str]]:
    return {frozenset((a, b)) for ports in reach.values() for a in ports.values() for b in ports.values() if a != b}


def compared(reach: Reach) -> set[str]:
    """The nodes that reach several rails, and of which each port has another node's port to be compared with."""
    beside = _beside(reach)

    def has_twin(node: str, name: str, mine: str) -> bool:
        there = [ports[name] for other, ports in reach.items() if other != node and name in ports]
        return any(theirs == mine or frozenset((theirs, mine)) in beside for theirs in there)

    return {
        node
        for node, ports in reach.items()
        if len(set(ports.values())) > 1 and all(has_twin(node, name, mine) for name, mine in ports.items())
    }


def crossed(reach: Reach) -> dict[str, dict[str, str]]:
    """node -> port -> a sentence, of ports that reach another rail than the same port of the other nodes.

    A rail is expected at a port where most nodes that share another port's rail have it there, or where the node itself
    has it at another port and other nodes have both. Rails of another rack are neither.
    """
    found: dict[str, dict[str, str]] = {}
    for node, ports in reach.items():
        for name, mine in ports.items():
            words = _misplaced(reach, node, name, mine)
            if words is not None:
                found.setdefault(node, {})[name] = words
    return found


def _misplaced(reach: Reach, node: str, name: str, mine: str) -> str | None:
    others = {other: ports for other, ports in reach.items() if other != node and name in ports}
    elsewhere = {rail for other, rail in reach[node].items() if other != name}
    pairs = Counter(
        rail for ports in others.values() if mine in ports.values() for rail in set(ports.values()) - {mine}
    )
    swapped = {rail for rail, count in pairs.items() if rail in elsewhere and count >= min(2, len(others))}
    mates = [ports for ports in others.values() if any(ports.get(o) == r for o, r in reach[node].items() if o != name)]
    of_another = any(rail == mine for ports in others.values() for port, rail in ports.items() if port != name)
    own = sum(ports[name] == mine for ports in others.values()) + 1
    for rail, count in Counter(ports[name] for ports in mates).most_common(1) if of_another else ():
        if rail != mine and count >= MOST_OF and count > sum(ports[name] == mine for ports in mates) + 1:
            return f"{name} reaches {mine}, {name} of the other nodes {rail}"
    for rail, count in Counter(ports[name] for ports in others.values() if ports[name] in swapped).most_common(1):
        if count > own:
            return f"{name} reaches {mine}, {name} of the other nodes {rail}"
        if count == own:
            twin = next(other for other, ports in others.items() if ports[name] == rail)
            return f"{name} reaches {mine} and {name} of {twin} {rail}: one of them is in the wrong switch"
    return None


def _wrong(node: str, port: PluggedPort, peer: Peer, cables: tuple[Cable, ...]) -> str | None:
    """The sentence of a cable that is not where the map wants it; None where it is. A bond stands for its ports."""
    name = port.interface
    wanted = next((cable for cable in cables if (cable.node, cable.port) == (node, name)), None)
    owner = peer.cable(cables)
    if owner is not None and (owner == wanted or (wanted is None and (owner.node, owner.port) == (node, port.of))):
        return None
    if owner is not None:
        return f"{owner.switch} {owner.switch_port} is {node} {name}, should be {owner}"
    if wanted is not None:
        return f"{peer} is {node} {name}, which should be in {wanted.switch} {wanted.switch_port}"
    return f"{peer} is {node} {name}, and neither is in the map of cables"


@method("cabling", "where each port is plugged in, against the map of cables and the same port of other nodes")
def judge_cabling(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with fabric ports."""
    bound = Bound(
        metric="cabling",
        unit="",
        equal="the switch port of the map, and the rail of the same port on the other nodes",
        derivation=(
            f"map of {len(case.topology.cables)} cables in the inventory"
            if case.topology.cables
            else "no map of cables",
            "light within the module's own alarm thresholds, where it has them",
        ),
        source=criterion.source,
    )
    reaches = _reaches(case, criterion)
    across = {node: ports for reach in reaches for node, ports in crossed(reach).items()}
    alike = set().union(*map(compared, reaches))

    def judge(node: Node, facts: CablingFacts) -> Said:
        return _judge(case, node, facts, across.get(node.name, {}), node.name in alike)

    return on_each_node(case, criterion, CablingFacts, judge, bound)


def _judge(case: Case, node: Node, facts: CablingFacts, across: dict[str, str], rails: bool) -> Said:
    cables = case.topology.cables
    declared = {cable.port for cable in cables if cable.node == node.name and cable.rail}
    wrong, open_, ends = [], [], []
    for port in facts.ports:
        peers = port.peers
        if len(peers) == 1:
            ends.append(f"{port.interface} in {peers[0]}")
            words = _wrong(node.name, port, peers[0], cables) if cables else None
            if words is not None:
                wrong.append(words)
            if port.interface in across and (words is not None or port.interface not in declared):
                wrong.append(across[port.interface])
        elif peers:
            more = [f"{len(peers) - MOST_NAMED} more"] if len(peers) > MOST_NAMED else []
            named = " and ".join([*map(str, peers[:MOST_NAMED]), *more])
            open_.append(f"{port.interface} is unsettled, it heard {named}: wait two minutes")
        else:
            open_.append(f"no switch is heard on {port.interface}")
        if port.optic is not None:
            wrong += [f"the module of {port.interface} {words}" for words in port.optic.faults(bool(peers))]
    shown = {name for port in facts.ports for name in (port.interface, port.of)}
    beside = [cable.port for cable in cables if cable.node == node.name and cable.port not in shown]
    if beside:
        ends.append(f"{number_of(len(beside), 'cable')} of the map at other ports ({', '.join(sorted(beside)[:3])})")
    text = "; ".join([*ends, *_optics(facts)])
    if wrong:
        return Said("fail", "not-equal", "; ".join(wrong), text or None)
    if not any(port.heard for port in facts.ports):
        asked = [by for by, why in facts.listeners.items() if not why]
        if node.virtual and not cables:
            return Said("not-applicable", "not-applicable", f"{node.name} is virtual, and no switch is heard: no cable")
        who = f"{', '.join(asked)} heard no switch" if asked else "nothing listens for switches"
        return Said("not-measured", missing(case), f"{who} on {node.name}", text or None)
    if open_:
        return Said("not-measured", missing(case), "; ".join(open_), text or None)
    if not cables and not rails:
        why = f"no map of cables in the inventory, and no rails to compare: {text}"
        return Said("not-applicable", "not-applicable", why, text)
    how = "as in the map" if cables else "no map of cables; the same rails as on the other nodes"
    return Said("pass", "within-bounds", f"{how}: {text}", text)


def _optics(facts: CablingFacts) -> list[str]:
    said = []
    for port in facts.ports:
        if port.optic is not None and port.optic.rx_dbm:
            light = "/".join(f"{value:g}" for value in port.optic.rx_dbm)
            said.append(f"{port.interface} receives {light} dBm")
    return said


def job(m: Measurement, topology: Topology) -> Job:
    """The probe, with the node's ports."""
    node = topology.node(m.nodes[0])
    return on_node(m, interfaces=[port.interface for port in node.ports], virtual=bool(node.virtual))


KINDS = (
    Kind(
        name="cabling",
        title="Cables: switch and port behind each fabric port",
        measures="Reads which switch port each fabric port is plugged into, and the light of its module.",
        tool="LLDP (lldpd, systemd-networkd or NetworkManager) and ethtool",
        more="explanation/measuring/nodes.md",
        job=job,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)
