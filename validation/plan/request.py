"""What the suites share: the request, a suite's part of the plan, and rounds over pairs of fabric ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import overload

from validation.model import Coverage, Endpoint, LeftOut, Measurement, Node, Param, Port, Topology
from validation.model.base import Same
from validation.model.load import ConfigError
from validation.plan.pairing import End, Pairing, pair_up
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric

PORTS = "fabric ports"
RDMA_PORTS = "fabric ports with RDMA"


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
    """A suite's share of the plan: rounds of measurements, what was left out, and what its pairs of ports cover.

    `excused`: nothing is planned because of what the nodes are, which is no mistake in the inventory.
    """

    rounds: list[Sequence[Measurement]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
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


def on_one_host(nodes: Iterable[Node], fabric: Fabric) -> str | None:
    """The host on which all of these virtual machines run, where the inventory declares it of all of them, else None.

    Only under the profile of a fabric between virtual machines.
    """
    found = {node.hypervisor_host for node in nodes}
    return found.pop() if fabric.hypervisors and len(found) == 1 else None


def transport_of(request: Request, hosts: Iterable[Node]) -> str:
    """What carries a job between these hosts: the fabric's RDMA where the first port of each has it, else TCP."""
    return request.fabric.transport if all(host.ports[0].rdma for host in hosts) else "tcp"


class PairRound(Sequence[Measurement]):
    """A round of one kind of measurement, made one by one as they are looked at: of a fleet there are millions."""

    __slots__ = ("make", "pairs")

    def __init__(
        self, pairs: Sequence[tuple[Endpoint, Endpoint]], make: Callable[[Endpoint, Endpoint], Measurement]
    ) -> None:
        """`make`: the measurement of a pair."""
        self.pairs = pairs
        self.make = make

    @overload
    def __getitem__(self, at: int) -> Measurement: ...
    @overload
    def __getitem__(self, at: slice) -> PairRound: ...
    def __getitem__(self, at: int | slice) -> Measurement | PairRound:
        """One of them, or a part of the round."""
        return PairRound(self.pairs[at], self.make) if isinstance(at, slice) else self.make(*self.pairs[at])

    def __len__(self) -> int:
        """How many there are; none is made for it."""
        return len(self.pairs)

    def only(self, which: Callable[[Endpoint, Endpoint], bool]) -> PairRound:
        """The round of those pairs that `which` picks."""
        return PairRound([pair for pair in self.pairs if which(*pair)], self.make)


def pair_rounds(
    topology: Topology,
    fabric: Fabric,
    what: str,
    make: Callable[[Endpoint, Endpoint], Measurement],
    part: Part,
) -> list[PairRound]:
    """Rounds over ordered pairs of fabric ports, one measurement per node at a time: all of few, a part of many.

    Two virtual machines of one host are no pair: what they say to each other stays in their host. What is covered is
    said in `part.coverage`, `what` being what the ports are called there, and what is not measured in `part.left_out`;
    each thing once.
    """
    nodes = [n for n in topology.nodes if n.ports]
    bare = sorted(n.name for n in topology.nodes if not n.ports)
    if bare:
        part.leave_out(f"nodes without a fabric port: {', '.join(bare)}")
    if len(nodes) < 2:
        part.leave_out("pairs of fabric ports: fewer than two nodes have one")
        return []
    inside = {n.hypervisor_host for n in nodes if fabric.hypervisors and n.hypervisor_host}
    for host in sorted(inside):
        mine = [n.name for n in nodes if n.hypervisor_host == host]
        if len(mine) > 1:
            part.leave_out(f"pairs of {', '.join(mine)}: virtual machines of one host, {host}, are no pair of a fabric")
    found = _paired(Same(topology.nodes), bool(fabric.hypervisors), what)
    for words in found.strangers:
        part.leave_out(words)
    if found.rounds and found.coverage not in part.coverage:
        part.coverage.append(found.coverage)
    if found.rounds and not found.coverage.whole:
        part.leave_out(found.coverage.brief)
    return [PairRound(pairs, make) for pairs in found.rounds]


@lru_cache(maxsize=4)  # all kinds of measurements have the same pairs
def _paired(nodes: Same[Node], hypervisors: bool, what: str) -> Pairing:
    ends = [
        End(
            at=Endpoint(node=node.name, port=port.interface),
            apart=f"host {node.hypervisor_host}" if hypervisors and node.hypervisor_host else f"node {node.name}",
            network=_network(port),
            leaf=port.leaf,
        )
        for node in nodes.things
        for port in node.ports
    ]
    return pair_up(ends, what)


def pair_id(kind: str, source: Endpoint, destination: Endpoint) -> str:
    """`tcp-bandwidth.gpu1-fab0.gpu2-fab0`."""
    return f"{kind}.{source.node}-{source.port}.{destination.node}-{destination.port}"


def on_one_node(
    node: Node,
    suite: str,
    kind: str,
    criteria: tuple[str, ...],
    *,
    estimated_s: float,
    timeout_s: float,
    params: Mapping[str, Param] | None = None,
    suffix: str = "",
) -> Measurement:
    """A measurement in which one node takes part: `gpu-health.gpu1`, with a suffix `gpu-health-after.gpu1`."""
    return Measurement(
        id=f"{kind}{suffix}.{node.name}",
        suite=suite,
        kind=kind,
        nodes=(node.name,),
        params=dict(params or {}),
        criteria=criteria,
        estimated_s=estimated_s,
        timeout_s=timeout_s,
    )


@dataclass(frozen=True)
class Suite:
    """A suite, as the module that plans it brings it: `SUITE` there, found by walking the measurements.

    `place`: suites are planned in the order of these. `numbers` and `words`: options that it takes, each with what it
    is. `most`: the most of an option, and what that is in words. `closing`: rounds after all those of the others.
    """

    name: str
    place: int
    plan: Callable[[Request], Part]
    numbers: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    most: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    closing: Callable[[Request], list[list[Measurement]]] | None = None
