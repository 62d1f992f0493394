"""Burn-in: every node's GPUs, or processors where it has none, under load at the same time, and the fabric with them.

Each fabric port sends to the next node's port of its network, in a ring, so that each sends and receives at once.
"""

from __future__ import annotations

import ipaddress

from validation.measures.compute.burn_in import OWN_S, asked
from validation.model import Endpoint, Measurement, Node, Param, Topology
from validation.plan.offered import MINUTES, MOST_MINUTES
from validation.plan.request import Part, Request, Suite, on_one_host, on_one_node, pair_id

SESSIONS = 240  # of traffic, at most
SHORTEST_S = 10  # of a session
PORTS = 5301  # where the tools of the first fabric port meet, and one more for each that shares a node's address
STREAMS = 4


def plan(request: Request) -> Part:
    """One round of all nodes; virtual nodes share a host, so there one node after another."""
    part, topology = Part(), request.topology
    criteria = request.serving("burn-in")
    seconds = 60.0 * request.options.get("minutes", MINUTES)
    found = []
    for node in topology.nodes if criteria else ():
        params = asked(node, topology, seconds)
        if request.options.get("anyway"):
            params["anyway"] = True
        if topology.here is not None and topology.here.gpu_trouble:
            part.leave_out(f"burn-in of GPUs: {topology.here.gpu_trouble}", *criteria)
            params["gpus"] = 0
        found.append(
            on_one_node(
                node,
                "burn-in",
                "burn-in",
                criteria,
                estimated_s=round(seconds + OWN_S / 4, 1),
                timeout_s=round(seconds + 2 * OWN_S + 60, 1),
                params=params,
            )
        )
    part.rounds = [[m] for m in found] if topology.virtual else [found] if found else []
    _fabric(request, part, seconds)
    return part


def _fabric(request: Request, part: Part, seconds: float) -> None:
    """Traffic of every port, in the round in which its node burns in."""
    criteria, topology = request.serving("soak-fabric"), request.topology
    if not criteria:
        return
    if topology.here is not None:
        part.leave_out("traffic beside the burn-in: one machine by itself has no neighbour", *criteria)
        return
    pairs = ring(topology)
    if not pairs or not part.rounds:
        part.leave_out("traffic beside the burn-in: no two nodes have ports in one network", *criteria)
        return
    if (host := on_one_host(topology.nodes, request.fabric)) is not None:
        part.leave_out(f"traffic beside the burn-in: all nodes are virtual machines of {host}", *criteria)
        return
    session_s = max(SHORTEST_S, int(seconds / SESSIONS))
    for number, (source, destination) in enumerate(pairs):
        hosts = [topology.node(end.node) for end in (source, destination)]
        rdma = not topology.virtual and all(_rdma(n, e) for n, e in zip(hosts, (source, destination), strict=True))
        params: dict[str, Param] = {
            "seconds": seconds,
            "session_s": session_s,
            "streams": STREAMS,
            "port": PORTS + number % 1000,
            "transport": request.fabric.transport if rdma else "tcp",
        }
        at = next(i for i, one in enumerate(part.rounds) if any(m.nodes == (source.node,) for m in one))
        sent = Measurement(
            id=pair_id("soak-fabric", source, destination),
            suite="burn-in",
            kind="soak-fabric",
            nodes=(source.node, destination.node),
            endpoints=(source, destination),
            params=params,
            criteria=criteria,
            estimated_s=round(seconds + OWN_S / 4, 1),
            timeout_s=round(seconds + 3 * session_s + 2 * OWN_S + 60, 1),
        )
        part.rounds[at] = [*part.rounds[at], sent]


def _rdma(node: Node, end: Endpoint) -> bool:
    return any(port.rdma for port in node.ports if port.interface == end.port)


def ring(topology: Topology) -> list[tuple[Endpoint, Endpoint]]:
    """Each fabric port and the next of its network, of another node; the last one's next is the first."""
    networks: dict[str, list[Endpoint]] = {}
    for node in topology.nodes:
        for port in node.ports:
            network = str(ipaddress.ip_interface(f"{port.address}/{port.prefix}").network)
            networks.setdefault(network, []).append(Endpoint(node=node.name, port=port.interface))
    found = []
    for ends in networks.values():
        for at, source in enumerate(ends):
            others = [*ends[at + 1 :], *ends[:at]]
            target = next((end for end in others if end.node != source.node), None)
            if target is not None:
                found.append((source, target))
    return found


SUITE = Suite(
    "burn-in",
    50,
    plan,
    numbers={"minutes": "minutes of the burn-in's load"},
    most={"minutes": (MOST_MINUTES, "a week")},
)
