"""What the suites share: the request, a suite's part of the plan, and rounds over pairs of fabric ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from validation.criterion import Criterion
from validation.fabric import Fabric
from validation.load import ConfigError
from validation.model import Endpoint, LeftOut, Measurement, Node, Port, Topology
from validation.schedule import directed_rounds, evenly, tournament_rounds

FULL_MESH_ENDPOINTS = 32
"""Up to this many fabric ports every ordered pair is measured: 62 rounds of a few seconds. Project default."""

SAMPLED_ROUNDS = 8
"""Rounds (each in both directions) of a larger fleet: every node meets 8 partners. Project default."""


class PlanError(ConfigError):
    """A plan that cannot be made, or would measure nothing."""


@dataclass(frozen=True)
class Request:
    """What a suite is asked to plan. `criteria` are those that can be measured and apply to the fabric. `words` are the
    options that are no numbers.
    """

    topology: Topology
    fabric: Fabric
    criteria: tuple[Criterion, ...]
    options: dict[str, int]
    words: dict[str, str] = field(default_factory=dict)

    def serving(self, kind: str) -> tuple[str, ...]:
        """Ids of the criteria that measurements of this kind serve."""
        return tuple(c.id for c in self.criteria if c.kind == kind)


@dataclass
class Part:
    """A suite's share of the plan: rounds of measurements, and what was left out.

    `excused`: nothing is planned because of what the nodes are, which is no mistake in the inventory.
    """

    rounds: list[list[Measurement]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    excused: bool = False

    def leave_out(self, why: str, *criteria: str) -> None:
        """Something is not planned, so that these criteria have no measurement for it; said once."""
        left = LeftOut(why=why, criteria=criteria)
        if left not in self.left_out:
            self.left_out.append(left)


@lru_cache(maxsize=65536)  # a port of a fleet is in many pairs
def _network(port: Port) -> str:
    try:
        return str(ipaddress.ip_interface(f"{port.address}/{port.prefix}").network)
    except ValueError as e:
        raise PlanError(f"port {port.interface}: {e}; correct its address in the inventory") from None


def _port_pairs(a: Node, b: Node) -> list[tuple[Endpoint, Endpoint]]:
    """Ports of two nodes that stand in the same subnet: other combinations are different rails."""
    return [
        (Endpoint(node=a.name, port=p.interface), Endpoint(node=b.name, port=q.interface))
        for p in a.ports
        for q in b.ports
        if _network(p) == _network(q)
    ]


def on_one_host(nodes: Iterable[Node], fabric: Fabric) -> str | None:
    """The host on which all of these virtual machines run, where the inventory declares it of all of them, else None.

    Only under the profile of a fabric between virtual machines.
    """
    found = {node.hypervisor_host for node in nodes}
    return found.pop() if fabric.hypervisors and len(found) == 1 else None


def transport_of(request: Request, hosts: Iterable[Node]) -> str:
    """What carries a job between these hosts: the fabric's RDMA where the first port of each has it, else TCP."""
    return request.fabric.transport if all(host.ports[0].rdma for host in hosts) else "tcp"


def pair_rounds(
    topology: Topology, fabric: Fabric, what: str, make: Callable[[Endpoint, Endpoint], Measurement], part: Part
) -> list[list[Measurement]]:
    """Rounds over all ordered pairs of fabric ports, one measurement per node at a time; larger fleets are sampled.

    Two virtual machines of one host are no pair: what they say to each other stays in their host. What is not measured
    is said in `part.left_out`, each thing once.
    """
    nodes = [n for n in topology.nodes if n.ports]
    bare = sorted(n.name for n in topology.nodes if not n.ports)
    if bare:
        part.leave_out(f"nodes without a fabric port: {', '.join(bare)}")
    if len(nodes) < 2:
        part.leave_out("pairs of fabric ports: fewer than two nodes have one")
        return []
    names = [n.name for n in nodes]
    ports = sum(len(n.ports) for n in nodes)
    if ports > FULL_MESH_ENDPOINTS:
        total = len(names) * (len(names) - 1)
        matchings = directed_rounds(names, evenly(SAMPLED_ROUNDS, tournament_rounds(len(names))))
        planned = sum(len(m) for m in matchings)
        part.leave_out(
            f"{what}: sampled {planned} of {total} ordered node pairs ({ports} fabric ports, above "
            f"{FULL_MESH_ENDPOINTS} a full mesh is not measured)",
        )
    else:
        matchings = directed_rounds(names)
    rounds: list[list[Measurement]] = []
    inside = {n.hypervisor_host for n in nodes if fabric.hypervisors and n.hypervisor_host}
    for host in sorted(inside):
        mine = [n.name for n in nodes if n.hypervisor_host == host]
        if len(mine) > 1:
            part.leave_out(f"pairs of {', '.join(mine)}: virtual machines of one host, {host}, are no pair of a fabric")
    for matching in matchings:
        matching = [(a, b) for a, b in matching if not on_one_host((topology.node(a), topology.node(b)), fabric)]
        combinations = [_port_pairs(topology.node(a), topology.node(b)) for a, b in matching]
        for (a, b), found in zip(matching, combinations, strict=True):
            if not found:
                part.leave_out(f"{a} and {b}: no two ports in the same subnet")
        # a node with several ports takes them one after another, so that no measurement disturbs another
        for turn in range(max(map(len, combinations), default=0)):
            rounds.append([make(*found[turn]) for found in combinations if turn < len(found)])
    return rounds


def pair_id(kind: str, source: Endpoint, destination: Endpoint) -> str:
    """`tcp-bandwidth.gpu1-fab0.gpu2-fab0`."""
    return f"{kind}.{source.node}-{source.port}.{destination.node}-{destination.port}"
