"""Hosts and switches held against each other: every difference with both lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from toolkit.switches.config import Port, Said, Switch
from toolkit.switches.keys import System
from toolkit.switches.lines import Line
from toolkit.switches.wanted import HostPort, Site
from validation.base.counting import number_of

What = Literal["port", "mtu", "dscp", "priority", "pfc", "ecn", "cnp", "pause", "lacp"]

FRAME_BYTES: dict[System, int] = {"sonic": 0, "os10": 32}
"""What a switch's MTU counts beyond the IP packet: OS10 counts the frame, 1532 for packets of 1500 by default."""


@dataclass(frozen=True)
class Difference:
    """A thing that a host and its switch do not agree on. `host`, a node and its port, and `node` are "" where the map
    does not name one."""

    what: What
    switch: str
    switch_port: str
    host: str
    node: str
    words: str
    host_line: str
    switch_line: str

    def __str__(self) -> str:
        """Where, and what."""
        at = f"{self.switch} {self.switch_port}"
        return f"{at} ({self.host}): {self.words}" if self.host else f"{at}: {self.words}"


@dataclass(frozen=True)
class Compared:
    """A port of a switch that was compared, with the node and port in it; "" where the map does not name one."""

    switch: str
    switch_port: str
    node: str
    port: str


@dataclass(frozen=True)
class Open(Compared):
    """One of the map that was not compared, and why."""

    why: str


@dataclass(frozen=True)
class Checked:
    """The outcome: what differs, what could not be checked and why, and which ports were."""

    differences: tuple[Difference, ...]
    unchecked: tuple[str, ...]
    compared: tuple[Compared, ...]
    not_compared: tuple[Open, ...] = ()

    @property
    def ports(self) -> int:
        """How many ports were compared."""
        return len(self.compared)


@dataclass(frozen=True)
class _End:
    """A port of a switch with the host's port that is held against it."""

    site: Site
    switch: Switch
    port: Port
    host: HostPort
    mapped: bool

    def differs(self, what: What, words: str, variable: str, line: Line | str,
                path: tuple[int | str, ...] = ()) -> Difference:  # fmt: skip
        """A difference, with the host's line of a variable and the switch's."""
        return Difference(
            what, self.switch.name, self.port.name, str(self.host) if self.mapped else "",
            self.host.node if self.mapped else "", words,
            self.site.where(self.host, variable, path),
            str(line) if isinstance(line, Line) else f"{self.port.line}: {line}",
        )  # fmt: skip


def check(site: Site, switches: Sequence[Switch]) -> Checked:
    """All ports of the map, or without one all ports in use of the switches that were read."""
    ends, unchecked = _mapped(site, switches) if site.cables else _unmapped(site, switches)
    found = [difference for end in ends for difference in _differences(end)]
    found += _bundles(ends)
    compared = (
        Compared(end.switch.name, end.port.name, *((end.host.node, end.host.port) if end.mapped else ("", "")))
        for end in ends
    )
    return Checked(tuple(found), tuple(unchecked), tuple(compared), tuple(_open(site, switches)))


def _open(site: Site, switches: Sequence[Switch]) -> Iterator[Open]:
    """Ports of hosts that the map has, and that no switch was read of."""
    named = {switch.name: switch for switch in switches}
    for cable in site.cables:
        switch = named.get(cable.switch)
        if (cable.node, cable.port) not in site.by_cable or (switch and switch.port(cable.switch_port) is not None):
            continue
        why = f"its configuration has no port {cable.switch_port}" if switch else f"{cable.switch} was not read"
        yield Open(cable.switch, cable.switch_port, cable.node, cable.port, why)


def _mapped(site: Site, switches: Sequence[Switch]) -> tuple[list[_End], list[str]]:
    ends, unchecked = [], []
    named = {switch.name: switch for switch in switches}
    wanted = list(dict.fromkeys(cable.switch for cable in site.cables))
    for name in wanted:
        if name not in named:
            unchecked.append(f"{name} is in the map of cables, and its configuration was not given")
    unchecked += [f"{name} has no cable in the map, and nothing of it was checked" for name in named
                  if name not in wanted]  # fmt: skip
    for cable in site.cables:
        switch = named.get(cable.switch)
        host = site.by_cable.get((cable.node, cable.port))
        if switch is None:
            continue
        port = switch.port(cable.switch_port)
        if host is None:
            unchecked.append(f"{cable} is in the map, and the inventory has no such Ethernet fabric port")
        elif port is None:
            unchecked.append(f"{switch.source} has no port {cable.switch_port}, which {cable} is in: it is cut or of "
                             "another switch")  # fmt: skip
        else:
            ends.append(_End(site, switch, port, host, True))
    return ends, unchecked


def _unmapped(site: Site, switches: Sequence[Switch]) -> tuple[list[_End], list[str]]:
    kinds = {(port.values, port.mtu): port for port in reversed(site.ports)}
    if len(kinds) > 1:
        return [], ["the hosts' ports differ in their variables, so only a map of cables says which is where: "
                    "give the inventory the variable cables"]  # fmt: skip
    host = next(iter(kinds.values()), None)
    if host is None:
        return [], ["the inventory has no Ethernet fabric port"]
    ends = [_End(site, switch, port, host, False) for switch in switches for port in switch.ports if not port.down]
    unchecked = ["LACP: without a map of cables nobody knows which port is of which host"] if any(
        port.bond for port in site.ports) else []  # fmt: skip
    used = {end.switch.name for end in ends}
    unchecked += [f"{one.source}: every port is shut down, and nothing of it was compared" for one in switches
                  if one.name not in used]  # fmt: skip
    return ends, unchecked


def _differences(end: _End) -> Iterator[Difference]:
    port, host = end.port, end.host
    if port.down is not None:
        yield end.differs("port", f"the port is shut down, and {host} is in it", "roce_enabled", port.down)
        return
    yield from _mtu(end)
    if end.mapped:
        yield from _lacp(end)
    if not host.values.roce_enabled:
        for priority, line in port.pfc.items():
            words = f"PFC is one-sided: the switch pauses priority {priority}, and the host has no RoCE settings"
            yield end.differs("pfc", words, "roce_enabled", line)
        return
    for line in port.pause:
        yield end.differs("pause", "global pause is on, which stops PFC and every other traffic", "roce_priority", line)
    queue = _queue(port, host.values.roce_dscp)
    yield from _mapping(end, "dscp", "RoCE", "roce_dscp", host.values.roce_dscp, queue)
    yield from _flow_control(end, queue)
    if isinstance(queue, Said):
        yield from _marking(end, queue)
    yield from _cnp(end, queue)


def _mtu(end: _End) -> Iterator[Difference]:
    port, host, more = end.port, end.host, FRAME_BYTES[end.switch.system]
    path = host.mtu_path
    if port.mtu is None:
        words = f"no MTU is set, so the system's default counts, and the host sends packets of {host.mtu} bytes"
        yield end.differs("mtu", words, "fabric_mtu", "no line mtu", path)
    elif port.mtu.value < host.mtu + more:
        counted = f", {host.mtu + more} with the frame's {more}" if more else ""
        words = f"MTU {port.mtu.value} is less than the host's {host.mtu} bytes{counted}"
        yield end.differs("mtu", words, "fabric_mtu", port.mtu.line, path)


def _queue(port: Port, dscp: int) -> Said[int] | None:
    """The queue of a DSCP with the line that says it; None where a step is missing."""
    group = port.dscp.get(dscp)
    return port.queue.get(group.value) if group is not None else None


def _mapping(end: _End, what: What, who: str, variable: str, dscp: int,
             queue: Said[int] | None) -> Iterator[Difference]:  # fmt: skip
    port = end.port
    if queue is not None:
        return
    for step in ("dscp", "queue"):
        if step in port.lacking:
            words = f"DSCP {dscp} of {who} is not mapped: the port has no {port.lacking[step]}"
            yield end.differs(what, words, variable, f"no line {port.lacking[step]}")
            return
    group = port.dscp.get(dscp)
    if group is None:
        others = next(iter(port.dscp.values()), None)
        words = f"DSCP {dscp} of {who} is not mapped, so it travels with all other traffic"
        line = f"{others.line.source}: the port's map has no DSCP {dscp}" if others else "the port's map is empty"
        yield end.differs(what, words, variable, line if not others else _no(others.line, f"DSCP {dscp}"))
    else:
        words = f"traffic class {group.value} of DSCP {dscp} ({who}) has no queue"
        yield end.differs(what, words, variable, group.line)


def _no(near: Line, what: str) -> Line:
    """A line of what a map does not have, at the place of one that it has."""
    return Line(near.source, near.number, f"{near.text} (the map has no {what})")


def _flow_control(end: _End, queue: Said[int] | None) -> Iterator[Difference]:
    port, wanted = end.port, end.host.values.roce_priority
    others = sorted(set(port.pfc) - {wanted})
    if wanted not in port.pfc:
        why = f"the port has no {port.lacking['pfc']}" if "pfc" in port.lacking else f"not of priority {wanted}"
        there = f"the switch pauses {_list(others)}" if others else f"the switch has none ({why})"
        words = f"PFC is one-sided: the host pauses priority {wanted}, {there}"
        line: Line | str = port.pfc[others[0]] if others else f"no PFC of priority {wanted}"
        yield end.differs("pfc", words, "roce_priority", line)
        return
    if others:
        count = number_of(len(port.pfc), "priority", "priorities")
        words = f"PFC is on {count}, {_list(sorted(port.pfc))}, and the host has {wanted} only"
        yield end.differs("pfc", words, "roce_priority", port.pfc[others[0]])
    paused = port.paused.get(wanted)
    if queue is None:
        return
    if paused is None:
        lacks = port.lacking.get("paused", f"queue of priority {wanted}")
        words = f"PFC of priority {wanted} stops no queue: the port has no {lacks}"
        yield end.differs("priority", words, "roce_priority", port.pfc[wanted])
    elif paused.value != queue.value:
        words = f"PFC of priority {wanted} stops queue {paused.value}, and RoCE is in queue {queue.value}"
        yield end.differs("priority", words, "roce_priority", paused.line)
    group, room = port.group.get(port.dscp[end.host.values.roce_dscp].value), port.group_of.get(wanted)
    if group is not None and group.value != (room.value if room else wanted):
        words = f"RoCE fills priority group {group.value}, and PFC of priority {wanted} is sent for group " \
                f"{room.value if room else wanted}"  # fmt: skip
        yield end.differs("priority", words, "roce_priority", group.line)


def _list(priorities: Iterable[int]) -> str:
    return " and ".join(map(str, priorities))


def _marking(end: _End, queue: Said[int]) -> Iterator[Difference]:
    if queue.value not in end.port.ecn:
        words = f"ECN is off in queue {queue.value}, which RoCE is in, so no sender slows down before PFC stops it"
        line = end.port.dropped.get(queue.value, f"no ECN in queue {queue.value}")
        yield end.differs("ecn", words, "roce_dscp", line)


def _cnp(end: _End, roce: Said[int] | None) -> Iterator[Difference]:
    port, dscp = end.port, end.host.values.roce_cnp_dscp
    queue = _queue(port, dscp)
    if queue is None:
        if _steps(port):
            return  # reported for RoCE: the whole map is missing
        yield from _mapping(end, "cnp", "congestion notifications", "roce_cnp_dscp", dscp, queue)
        return
    if roce is not None and queue.value == roce.value:
        words = f"congestion notifications (DSCP {dscp}) are in queue {queue.value} with RoCE, behind what they warn of"
        yield end.differs("cnp", words, "roce_cnp_dscp", port.dscp[dscp].line)
    elif queue.value in port.dropped:
        words = f"congestion notifications (DSCP {dscp}) are in queue {queue.value}, which drops early"
        yield end.differs("cnp", words, "roce_cnp_dscp", port.dropped[queue.value])
    elif queue.value not in port.strict:
        first = f"and the host sends priority {end.host.values.roce_cnp_priority} first"
        words = f"congestion notifications (DSCP {dscp}) are in a droppable queue: {queue.value} is not strict, {first}"
        yield end.differs("cnp", words, "roce_cnp_priority", port.dscp[dscp].line)


def _steps(port: Port) -> bool:
    return "dscp" in port.lacking or "queue" in port.lacking


def _lacp(end: _End) -> Iterator[Difference]:
    port, host = end.port, end.host
    if host.lacp and port.channel is None:
        words = f"LACP is missing: the host's {host.bond} speaks it, and the port is in no channel group"
        yield end.differs("lacp", words, "fabric_mtu", "no line channel-group", host.bond_path)
    elif host.lacp and not port.lacp and port.channel is not None:
        words = f"LACP is missing: the host's {host.bond} speaks it, and the channel group is static"
        yield end.differs("lacp", words, "fabric_mtu", port.channel.line, host.bond_path)
    elif not host.lacp and port.channel is not None and port.lacp:
        words = "the port speaks LACP, and the host's port is in no bond by LACP, so the switch keeps it down"
        yield end.differs("lacp", words, "fabric_mtu", port.channel.line, host.bond_path)


def _bundles(ends: Sequence[_End]) -> Iterator[Difference]:
    """Members of one bond at one switch are in one channel group, and of no other bond's."""
    first: dict[tuple[str, str, str], _End] = {}
    owner: dict[tuple[str, int], _End] = {}
    for end in ends:
        host, channel = end.host, end.port.channel
        if not (end.mapped and host.lacp and host.bond and channel is not None):
            continue
        mate = first.setdefault((host.node, host.bond, end.switch.name), end)
        if mate.port.channel is not None and mate.port.channel.value != channel.value:
            words = f"channel group {channel.value}, and {mate.host} of the same {host.bond} is in group " \
                    f"{mate.port.channel.value}"  # fmt: skip
            yield end.differs("lacp", words, "fabric_mtu", channel.line, host.bond_path)
            continue
        other = owner.setdefault((end.switch.name, channel.value), end)
        if (other.host.node, other.host.bond) != (host.node, host.bond):
            words = f"channel group {channel.value} has ports of two hosts, {other.host} too"
            yield end.differs("lacp", words, "fabric_mtu", channel.line, host.bond_path)
