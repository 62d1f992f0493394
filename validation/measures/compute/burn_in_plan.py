"""Burn-in: every node's GPUs, or processors where it has none, under load at the same time, fabric and storage too.

Each fabric port sends to the next node's port of its network, in a ring, so that each sends and receives at once. Each
node writes and reads the storage that it declares. What is longer than a segment is cut into segments, one round after
another: each is kept when it ends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from validation.measures.compute.burn_in import OWN_S, asked
from validation.measures.compute.segments import Segment
from validation.measures.storage.plan import VIRTUAL_SIZE_MIB
from validation.measures.storage.soak_storage_probe import SAID_EACH
from validation.model import Endpoint, Measurement, Node, Param, Topology
from validation.plan.offered import MINUTES, MOST_MINUTES
from validation.plan.request import Part, Request, Suite, on_one_host, on_one_node, pair_id
from validation.rules.soak import soak

SESSIONS = 240  # of traffic, at most
SHORTEST_S = 10  # of a session
PORTS = 5301  # where the tools of the first fabric port meet, and one more for each that shares a node's address
STREAMS = 4
FILE_MIB = 1024  # that a node writes and reads again and again, where its storage is not declared smaller
ANSWER_S = 60.0  # in which a storage under load has to answer
Pairs = Sequence[tuple[Endpoint, Endpoint]]


def plan(request: Request) -> Part:
    """A round of all nodes for each segment; virtual nodes share a host, so there one node after another."""
    part = Part()
    if not request.serving("burn-in"):
        return part
    seconds = float(request.options.get("load_s", 60 * request.options.get("minutes", MINUTES)))
    lengths = soak().segments(seconds, request.options.get("segment_s"))
    pairs, stored = _pairs(request, part), _stored(request, part)
    for number, length in enumerate(lengths, 1):
        segment = Segment(number, len(lengths)) if len(lengths) > 1 else Segment(0, 0)
        found = [_loaded(request, part, node, segment, length) for node in request.topology.nodes]
        rounds = [[m] for m in found] if request.topology.virtual else [found]
        for beside in (*_fabric(request, pairs, segment, length), *_storage(request, stored, segment, length)):
            at = next(i for i, one in enumerate(rounds) if any(m.nodes == beside.nodes[:1] for m in one))
            rounds[at].append(beside)
        part.rounds += rounds
    return part


def _loaded(request: Request, part: Part, node: Node, segment: Segment, seconds: float) -> Measurement:
    """One node's GPUs or processors in a segment."""
    topology, criteria = request.topology, request.serving("burn-in")
    params: dict[str, Param] = {**asked(node, topology, seconds), **segment.params}
    if segment.of:
        params["steps"] = soak().words
    if request.options.get("anyway"):
        params["anyway"] = True
    if topology.here is not None and topology.here.gpu_trouble:
        part.leave_out(f"burn-in of GPUs: {topology.here.gpu_trouble}", *criteria)
        params["gpus"] = 0
    return on_one_node(
        node,
        "burn-in",
        "burn-in",
        criteria,
        estimated_s=round(seconds + OWN_S / 4, 1),
        timeout_s=round(seconds + 2 * OWN_S + 60, 1),
        params=params,
        suffix=segment.suffix,
    )


def _pairs(request: Request, part: Part) -> Pairs:
    """Ports that send to each other beside the load; none, and why."""
    criteria, topology = request.serving("soak-fabric"), request.topology
    if not criteria:
        return ()
    if topology.here is not None:
        part.leave_out("traffic beside the burn-in: one machine by itself has no neighbour", *criteria)
        return ()
    pairs = ring(topology)
    if not pairs:
        part.leave_out("traffic beside the burn-in: no two nodes have ports in one network", *criteria)
    if (host := on_one_host(topology.nodes, request.fabric)) is not None and pairs:
        part.leave_out(f"traffic beside the burn-in: all nodes are virtual machines of {host}", *criteria)
        return ()
    return pairs


def _fabric(request: Request, pairs: Pairs, segment: Segment, seconds: float) -> list[Measurement]:
    """Traffic of every port, in the round in which its node burns in."""
    topology, session_s, found = request.topology, max(SHORTEST_S, int(seconds / SESSIONS)), []
    for number, (source, destination) in enumerate(pairs):
        hosts = [topology.node(end.node) for end in (source, destination)]
        rdma = not topology.virtual and all(_rdma(n, e) for n, e in zip(hosts, (source, destination), strict=True))
        params: dict[str, Param] = {
            "seconds": seconds,
            "session_s": session_s,
            "streams": STREAMS,
            "port": PORTS + number % 1000,
            "transport": request.fabric.transport if rdma else "tcp",
            **segment.params,
        }
        sent = Measurement(
            id=pair_id(f"soak-fabric{segment.suffix}", source, destination),
            suite="burn-in",
            kind="soak-fabric",
            nodes=(source.node, destination.node),
            endpoints=(source, destination),
            params=params,
            criteria=request.serving("soak-fabric"),
            estimated_s=round(seconds + OWN_S / 4, 1),
            timeout_s=round(seconds + 3 * session_s + 2 * OWN_S + 60, 1),
        )
        found.append(sent)
    return found


def _stored(request: Request, part: Part) -> list[tuple[Node, str]]:
    """Nodes and their storage that is used beside the load; none, and why."""
    criteria = request.serving("soak-storage")
    found = [(node, one.name) for node in request.topology.nodes for one in node.storage if criteria]
    if criteria and not found:
        part.leave_out("storage beside the burn-in: no storage is declared (host variable storage)", *criteria)
    return found


def _storage(
    request: Request, stored: Sequence[tuple[Node, str]], segment: Segment, seconds: float
) -> list[Measurement]:
    """Each node's storage, in the round in which it burns in."""
    found = []
    for node, name in stored:
        size = next(one.size_gib for one in node.storage if one.name == name)
        mib = VIRTUAL_SIZE_MIB if node.virtual else FILE_MIB
        size_mib = min(mib, round(size * 1024)) if size else mib
        last_s = 2 * (size_mib / SAID_EACH + 1) * ANSWER_S  # a last pass, as slow as a worker may be
        params: dict[str, Param] = {
            "name": name,
            "seconds": seconds,
            "size_mib": size_mib,
            "answer_s": ANSWER_S,
            **segment.params,
        }
        found.append(
            on_one_node(
                node,
                "burn-in",
                "soak-storage",
                request.serving("soak-storage"),
                estimated_s=round(seconds + OWN_S / 4, 1),
                timeout_s=round(seconds + 2 * OWN_S + 2 * ANSWER_S + last_s, 1),
                params=params,
                suffix=f"{segment.suffix}-{name}",
            )
        )
    return found


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
    numbers={
        "minutes": "minutes of the burn-in's load",
        "segment_s": "seconds of a segment of the burn-in, which is kept when it ends",
        "load_s": "seconds of the burn-in's load instead of minutes, for a trial of the burn-in itself",
    },
    most={"minutes": (MOST_MINUTES, "a week"), "segment_s": (24 * 3600, "a day"), "load_s": (3600, "an hour")},
)
