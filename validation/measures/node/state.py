"""Judging the state that nodes are in: what a hand, a full disk or a forgotten program leaves behind; and their ports.

What a whole site has in common (no name server that answers, a time zone) is its own affair: a node is held against the
others.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.measures.node.clocks import APART_S, clocks
from validation.model import Bound, Endpoint, Judgement, Measurement, Node, Port, Subject
from validation.model.node_facts import NodeFacts
from validation.model.node_state import FileSystem, NodeState
from validation.rules.criterion import Criterion

MIB = 1 << 20
ROOM_BYTES = 256 * MIB
"""Room that an ordinary user must have where programs write. What stack and measurements write there is less; a
file system that is fuller fails them one by one, with other words. Project default."""
BUSY_SHARE = 0.25
"""Share of a node's processors that programs other than the measurement may take throughout. Project default: services
of a provisioned node take a hundredth, and a forgotten job at least a processor."""
DOWN = ("down", "lowerlayerdown", "notpresent", "absent", "dormant")


def states(case: Case) -> dict[str, NodeState]:
    """What is known of the nodes' state."""
    return {name: facts.state for name, facts in case.node_facts().items() if facts.state is not None}


# --- the node -------------------------------------------------------------------------------------------------


@method("state", "time zone, name servers, disks and other programs of each node, beside the others'")
def judge_state(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node: its clock and time zone are the others', a name server answers, disks have room, nobody else computes
    there.
    """
    known = states(case)
    zones = Counter(s.utc_offset_s for s in known.values() if s.utc_offset_s is not None)
    usual = zones.most_common(1)[0][0] if zones else 0
    times = clocks(case, {name: s.utc_s for name, s in known.items()})
    asked = Counter(one.address for s in known.values() for one in s.name_servers or ())
    answered = Counter(one.address for s in known.values() for one in s.name_servers or () if one.answers)
    bound = Bound(
        metric="node_state",
        unit="",
        equal=f"the others' time and zone; room: {ROOM_BYTES // MIB} MiB; a name server answers; processors free",
        derivation=(
            f"clocks may differ by {APART_S:g} s (project default)",
            f"room for ordinary users on each file system: {ROOM_BYTES // MIB} MiB, and an inode (project default)",
            f"programs other than the measurement: at most {BUSY_SHARE:g} of the processors (project default)",
        ),
        source=criterion.source,
    )

    def judge(node: Node, facts: NodeFacts) -> Said:
        state = facts.state
        if state is None:
            return Said("not-measured", "missing-metric", "the facts say nothing of the node's state")
        wrong = [*filter(None, [times.wrong(node.name)]), *_zone(state, usual, zones), *_names(state, asked, answered)]
        wrong += [*_room(state), *_busy(case, node, facts, state)]
        text = "; ".join(filter(None, [_text(state), times.told(node.name)]))
        if wrong:
            return Said("fail", "not-equal", "; ".join(wrong), text)
        if state.unread:
            return Said(
                "not-measured", "missing-metric", f"not judged because of what could not be read: {state.unread}", text
            )
        return Said("pass", "within-bounds", text, text)

    return on_each_node(case, criterion, NodeFacts, judge, bound)


def _offset(seconds: int) -> str:
    sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
    return f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def _zone(state: NodeState, usual: int, zones: Counter[int]) -> Iterator[str]:
    """Where most nodes agree, and this one does not. Of two that differ nobody is the odd one."""
    mine = state.utc_offset_s
    if mine is not None and mine != usual and 2 * zones[usual] > zones.total():
        yield (
            f"its time zone is {_offset(mine)}, of {zones[usual]} of {number_of(zones.total(), 'node')} "
            f"{_offset(usual)}"
        )


def _names(state: NodeState, asked: Counter[str], answered: Counter[str]) -> Iterator[str]:
    """A server that answers some who ask it, and not most of them, is slow: of these nodes nobody is the odd one."""
    mute = [one.address for one in state.name_servers or () if not one.answers]
    slow = any(0 < 2 * answered[address] <= asked[address] for address in mute)
    if answered.total() and mute and not slow and len(mute) == len(state.name_servers or ()):
        yield f"none of its name servers answers ({', '.join(mute)}), and those of other nodes do"


def _room(state: NodeState) -> Iterator[str]:
    for one in state.file_systems or ():
        if one.read_only and one.folder != "/":  # of some systems it is so by design
            yield f"the file system of {one.folder} is read-only"
        elif one.free_bytes < ROOM_BYTES and not one.read_only:
            yield f"the file system of {one.folder} is full: {_of(one)}"
        elif one.inodes_free == 0:
            yield f"the file system of {one.folder} has no inode left"


def _of(one: FileSystem) -> str:
    return f"{one.free_bytes / MIB:.4g} of {one.size_bytes / MIB:.4g} MiB are free, {ROOM_BYTES // MIB} MiB are needed"


def _busy(case: Case, node: Node, facts: NodeFacts, state: NodeState) -> Iterator[str]:
    """Not of a machine by itself, nor where the validation runs on the node: its own programs compute there."""
    taken, there = state.others_busy_processors, facts.cpu_count
    if taken is None or not there or case.topology.here is not None or _is_loopback(node.ssh.host):
        return
    if taken > BUSY_SHARE * there:
        who = f", most of it {', '.join(map(str, state.busiest))}" if state.busiest else ""
        yield f"other programs keep {taken:.2g} of its {there} processors busy{who}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(state: NodeState) -> str:
    said = [_offset(state.utc_offset_s)] if state.utc_offset_s is not None else []
    if state.name_servers is not None:
        answering = [one.address for one in state.name_servers if one.answers]
        said.append(f"{len(answering)} of {number_of(len(state.name_servers), 'name server')} answer")
    free = [f"{one.folder} {one.free_bytes / MIB:.4g} MiB" for one in state.file_systems or ()]
    said += [f"free: {', '.join(free)}"] if free else []
    taken = state.others_busy_processors
    said += [f"other programs take {taken:.2g} processors"] if taken is not None else []
    return "; ".join(said)


# --- its ports ------------------------------------------------------------------------------------------------


def taken_addresses(case: Case) -> dict[Endpoint, Endpoint]:
    """Fabric ports whose declared address another node has, and the interface there that has it."""
    owners = {_plain(p.address): Endpoint(node=n.name, port=p.interface) for n in case.topology.nodes for p in n.ports}
    found: dict[Endpoint, Endpoint] = {}
    for name, state in states(case).items():
        for one in state.addresses or ():
            owner = owners.get(_plain(one.address))
            if owner is not None and owner.node != name:
                found[owner] = Endpoint(node=name, port=one.interface)
    return found


@lru_cache(maxsize=50_000)
def _plain(address: str) -> str:
    try:
        return str(ipaddress.ip_interface(address).ip)
    except ValueError:
        return address


@method("ports", "addresses of each fabric port beside those of all nodes, and how often its link went")
def judge_ports(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every fabric port: up, with its declared address and no other node's, and its link stayed."""
    taken: dict[str, list[tuple[Endpoint, Endpoint]]] = {}
    for owner, thief in taken_addresses(case).items():
        taken.setdefault(thief.node, []).append((thief, owner))
    later = _later(case)
    judged = []
    for measurement in case.serving(criterion):
        node = case.topology.node(measurement.nodes[0])
        for port in node.ports:
            judged.append(_port(case, criterion, measurement, node, port, taken.get(node.name, ()), later))
    return judged


def _port(
    case: Case,
    criterion: Criterion,
    measurement: Measurement,
    node: Node,
    port: Port,
    taken: list[tuple[Endpoint, Endpoint]] | tuple[()],
    later: dict[str, tuple[int, str]],
) -> Judgement:
    end = Endpoint(node=node.name, port=port.interface)
    about = Subject.port(end)
    bound = Bound(
        metric="fabric_port",
        unit="",
        equal=f"up, {port.address}, no other node's address, its link stays",
        derivation=("the inventory's address; the kernel's count of link changes, at the begin and later in the run",),
        source=criterion.source,
    )
    facts = facts_for(case, criterion, about, measurement.id, NodeFacts, bound)
    if isinstance(facts, Judgement):
        return facts
    seen, state = facts.port(port.interface), facts.state
    last, where = later.get(port.address, (None, ""))
    ids = [measurement.id, *([where] if where else [])]
    if seen is None or state is None or (state.addresses is None and seen.operstate not in DOWN):
        why = state.unread if state is not None and state.unread else "the facts say nothing of its addresses"
        return judgement(criterion, about, "not-measured", "missing-metric", why, ids, bound=bound)
    mine = [_plain(one.address) for one in state.addresses or () if one.interface == port.interface]
    wrong = [f"{port.interface} is {seen.operstate}"] if seen.operstate in DOWN else []
    if not wrong and not {_plain(port.address)} <= set(mine):
        wrong.append(f"{port.interface} has {', '.join(mine) or 'no address'}, {_plain(port.address)} is declared")
    first_port = port.interface == node.ports[0].interface
    ports = {p.interface for p in node.ports}
    for thief, owner in taken:  # what an interface that is none of the fabric's has is told of the first port
        if thief.port == port.interface or (first_port and thief.port not in ports):
            address = next(p.address for p in case.topology.node(owner.node).ports if p.interface == owner.port)
            wrong.append(f"{thief.port} has the address of {owner} too ({address}): what is sent there may arrive here")
    changes = None if last is None or seen.carrier_changes is None else last - seen.carrier_changes
    if changes is not None and changes > 0:
        wrong.append(f"its link went down or came back {changes} times during the run")
    text = f"{seen.operstate}, {', '.join(mine) or 'no address'}" + (
        "" if changes is None else f", {changes} changes of its link during the run"
    )
    if wrong:
        return judgement(criterion, about, "fail", "not-equal", "; ".join(wrong), ids, text=text, bound=bound)
    why = text + ("" if changes is not None else "; whether its link stayed was not measured: nothing ran on it later")
    return judgement(criterion, about, "pass", "within-bounds", why, ids, text=text, bound=bound)


def _later(case: Case) -> dict[str, tuple[int, str]]:
    """Of each source address the largest count of link changes that a measurement from there saw, and which one."""
    found: dict[str, tuple[int, str]] = {}
    for m in case.plan.measurements:
        result = case.latest.get(m.id) if m.kind in ("path-mtu", "tcp-bandwidth") else None
        plain = result.plain if result is not None else {}
        said, source = plain.get("carrier_changes"), plain.get("source")
        if isinstance(said, int) and isinstance(source, str) and said > found.get(source, (-1, ""))[0]:
            found[source] = (said, m.id)
    return found
