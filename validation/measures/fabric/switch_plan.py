"""Tests of the switches in suite transport: incast and all to all, among the ports of one network (of one rail).

Incast inside a leaf switch: what several senders have for one receiver piles up at that receiver's switch port, in its
buffer, and nowhere else; so sets of ports can be loaded at the same time. Of up to 64 ports each receives once, of more
one of each set. All to all: sets that are spread over the leaf switches, all at the same time, so that every port sends
and receives at its full rate and what joins the leaf switches is loaded, too.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil

from validation.base.counting import number_of
from validation.model import Endpoint, Measurement, Node, Param, Port
from validation.model.base import Same
from validation.plan.pairing import ALL_PAIRS_PORTS
from validation.plan.request import Part, Request

SENDERS = 8
"""Of an incast, at most. Project default: more than a leaf switch has uplinks for one of its ports in usual fabrics."""
TOGETHER = 16
"""Ports of one all to all, at most: each has as many tools as there are others, twice. Project default."""
LEAST = 3  # ports: two senders and a receiver
SECONDS, LAB_SECONDS = 5, 2
OWN_S = 2.5  # start and end of the probes; perftest's own second
FIRST_PORT = 20000  # the port of a pair is that of its sender's place
End = tuple[Node, Port]


def plan(request: Request, part: Part) -> None:
    """Add the rounds of both kinds; what cannot be, and what is only sampled, is said in the part."""
    incast, everybody = request.serving("incast"), request.serving("all-to-all")
    both = (*incast, *everybody)
    if not both:
        return
    topology = request.topology
    if topology.lab_link is not None and topology.lab_link.emulated:
        part.leave_out("incast and all to all: what emulated machines carry says nothing of a switch", *both)
        return
    if request.options.get("quick"):
        part.leave_out("incast and all to all: only where the run is not to be quick", *both)
        return
    rails = [rail for rail in _rails(request) if len(rail) >= LEAST]
    if not rails:
        part.leave_out(f"incast and all to all: no {LEAST} nodes have ports in one network", *both)
        return
    if topology.virtual:
        part.leave_out("incast and all to all in a rehearsal: one set of ports, and one of them receives")
        rails = rails[:1]
    if incast:
        _incasts(request, part, rails, incast)
    if everybody:
        for rail in rails:
            ordered = sorted(rail, key=lambda end: end[1].leaf or "")
            sets = _spread(ordered, TOGETHER)[: 1 if topology.virtual else None]
            part.rounds.append([_measurement(request, "all-to-all", one, everybody) for one in sets])


def _rails(request: Request) -> list[list[End]]:
    """Ports that reach each other, one of each node: the nodes' first of a network, their second, and so on. Of
    virtual machines of one host one, for what these tell each other stays in their host."""
    found: dict[tuple[str, int], list[End]] = defaultdict(list)
    hosts: dict[tuple[str, int], set[str]] = defaultdict(set)
    for node in request.topology.nodes:
        nth: dict[str, int] = defaultdict(int)
        for port in node.ports:
            network = str(ipaddress.ip_interface(f"{port.address}/{port.prefix}").network)
            key = (network, nth[network])
            nth[network] += 1
            host = node.hypervisor_host if request.fabric.hypervisors else None
            if host is not None and host in hosts[key]:
                continue
            hosts[key] |= {host} if host is not None else set()
            found[key].append((node, port))
    return list(found.values())


def _spread(ends: Sequence[End], most: int) -> list[list[End]]:
    """Equal sets of at most so many, neighbours in different ones."""
    count = ceil(len(ends) / most)
    return [list(ends[number::count]) for number in range(count)]


def _neighbours(ends: Sequence[End], most: int) -> list[list[End]]:
    """Equal sets of at most so many, neighbours in the same."""
    count = ceil(len(ends) / most)
    at = [round(number * len(ends) / count) for number in range(count + 1)]
    return [list(ends[first:last]) for first, last in pairwise(at)]


def _incasts(request: Request, part: Part, rails: Sequence[Sequence[End]], criteria: tuple[str, ...]) -> None:
    """Rounds of incasts: in each every set has another receiver."""
    ports = sum(len(node.ports) for node in request.topology.nodes)
    received = 0
    for rail in rails:
        leaves: dict[str, list[End]] = defaultdict(list)
        for end in rail:
            leaves[end[1].leaf or ""].append(end)
        groups = list(leaves.values()) if min(map(len, leaves.values())) >= LEAST else [list(rail)]
        sets = [one for group in groups for one in _neighbours(group, SENDERS + 1)]
        if request.topology.virtual:
            sets = sets[:1]
        once = request.topology.virtual or ports > ALL_PAIRS_PORTS
        for turn in range(1 if once else max(map(len, sets))):
            turned = [[*one[turn:], *one[:turn]] for one in sets if turn < len(one)]
            part.rounds.append([_measurement(request, "incast", one, criteria) for one in turned])
            received += len(turned)
    if ports > ALL_PAIRS_PORTS and not request.topology.virtual:
        part.leave_out(
            f"incast of more than {ALL_PAIRS_PORTS} ports: {received} of {number_of(ports, 'port')} "
            "receive, one of each set"
        )


@lru_cache(maxsize=4)  # it looks at every node, for each of a fleet's thousands of sets
def _virtual(nodes: Same[Node], lab: bool) -> bool:
    return lab or any(node.virtual for node in nodes.things)


def _transport(request: Request, ends: Sequence[End], virtual: bool) -> str:
    """The fabric's RDMA where all of them have it; in a lab TCP."""
    rdma = request.fabric.needs_rdma and not virtual and all(port.rdma for _, port in ends)
    return request.fabric.transport if rdma else "tcp"


def _streams(virtual: bool, streams: int, transport: str, sessions: int) -> int:
    """Of each session, so that a port has about as many as a measurement of two ports."""
    return 1 if transport != "tcp" or virtual else max(1, ceil(streams / sessions))


def _measurement(request: Request, kind: str, ends: Sequence[End], criteria: tuple[str, ...]) -> Measurement:
    virtual = _virtual(Same(request.topology.nodes), request.topology.lab_link is not None)
    transport = _transport(request, ends, virtual)
    seconds = LAB_SECONDS if virtual else SECONDS
    first = ends[0]
    params: dict[str, Param] = {
        "seconds": seconds,
        "streams": _streams(virtual, request.fabric.tcp_streams, transport, len(ends) - 1),
        "port": FIRST_PORT,
        "transport": transport,
    }
    return Measurement(
        id=f"{kind}.{first[0].name}-{first[1].interface}",
        suite="transport",
        kind=kind,
        nodes=tuple(node.name for node, _ in ends),
        endpoints=tuple(Endpoint(node=node.name, port=port.interface) for node, port in ends),
        params=params,
        criteria=criteria,
        estimated_s=seconds + OWN_S,
        timeout_s=4 * seconds + 90,
    )
