"""Fabrics of real machines of which it is known what is wrong: every metric has a value of its own. Invented numbers.

A site is a shape (nodes, rails, leaf switches) over a fabric profile; a fault is what it takes of a measurement, and
whom it may be put down to. What a verdict accuses is read from its typed parts; what else names a part, from its notes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from tests.support.site import (
    CRITERIA,
    NONE_AGAIN,
    addressed,
    around,
    healthy_rdma,
    node,
    plan_of,
    result,
    run_info,
    switch_parsed,
)
from validation.judging.case import make_case
from validation.judging.run_data import RunData
from validation.model import Measurement, Plan, Port, Result, Sample, Subject, Topology, VerdictDoc
from validation.rules.bounds import bounds_of
from validation.rules.fabric import Fabric, load_fabric
from validation.verdict.equals import slower
from validation.verdict.judge import judge

SHAPES = {"two": (2, 1, 0), "three": (3, 1, 0), "six": (6, 1, 0), "rails": (4, 2, 0), "leaves": (6, 1, 3)}
"""Name -> nodes, rails, leaf switches (0: nobody declared any)."""
SHARE = {"write": 0.972, "send": 0.966, "read": 0.958}
LATENCY = {"write": 0.41, "send": 0.44, "read": 0.52}  # of the most that is allowed
TOGETHER = 1.985
"""Of both ways at once a port carries somewhat less than twice what it carries one way."""


@dataclass(frozen=True)
class Way:
    """Where the data of a measurement went: from which port to which, or both ways at once."""

    sender: str
    receiver: str
    both: bool
    op: str

    @property
    def ends(self) -> set[str]:
        """The two ports."""
        return {self.sender, self.receiver}


Takes = Callable[[Way], float]
"""What is left of the rate of a measurement."""


@dataclass(frozen=True)
class Fault:
    """`ports` at fault, in which `direction`; or a `pair` of them, a `rail` (the network), a `leaf` and its ways."""

    name: str
    takes: Takes
    ports: frozenset[str] = frozenset()
    direction: str = "both"
    pair: tuple[str, ...] = ()
    rail: str = ""
    leaf: str = ""
    fails: bool = False
    shapes: tuple[str, ...] = tuple(SHAPES)
    rdma: bool = False  # of RDMA alone

    @property
    def parts(self) -> set[str]:
        """Ports that may be part of what is accused."""
        return set(self.ports) | set(self.pair)


@dataclass(frozen=True)
class Accused:
    """What a verdict holds against somebody: `kind` and `names` of the part, the direction in which; by what words."""

    kind: str
    names: tuple[str, ...]
    direction: str
    together: bool  # of measurements both ways at once
    words: str


def name(n: int, rail: int = 0) -> str:
    return f"gpu{n}/fab{rail}"


@cache
def site(shape: str) -> Topology:
    """Real machines, as far as the inventory says."""
    nodes, rails, leaves = SHAPES[shape]

    def one(n: int) -> Port | tuple[Port, ...]:
        leaf = f"leaf{n % leaves}" if leaves else None
        return tuple(
            Port(interface=f"fab{r}", address=f"10.{78 + r}.0.{10 + n}", prefix=24, leaf=leaf) for r in range(rails)
        )

    made = tuple(node(f"gpu{n}", n, ports=one(n), virtual=None) for n in range(1, nodes + 1))
    return Topology(site="customer", nodes=made)


@cache
def planned(shape: str, fabric: str) -> Plan:
    return plan_of(site(shape), ("transport",), fabric)


def faults(shape: str) -> Iterator[Fault]:
    """All that a shape can have; those below a bound, and those that pass."""
    nodes, rails, _ = SHAPES[shape]
    yield Fault("none", lambda w: 1.0)
    for n in (1, nodes):
        port = name(n)
        mine = frozenset({port})
        for words, share, fails in (("weak", 0.945, False), ("sick", 0.4, True)):
            for direction, hit in (
                ("sending", lambda w, p=port: w.sender == p or (w.both and p in w.ends)),
                ("receiving", lambda w, p=port: w.receiver == p or (w.both and p in w.ends)),
                ("both", lambda w, p=port: p in w.ends),
            ):
                takes = lambda w, hit=hit, share=share: share if hit(w) else 1.0  # noqa: E731
                yield Fault(f"{words} {direction} {port}", takes, mine, direction, fails=fails)
            takes = lambda w, p=port, share=share: share if w.both and p in w.ends else 1.0  # noqa: E731
            yield Fault(f"{words} together {port}", takes, mine, "together", fails=fails, rdma=True)
        takes = lambda w, p=port: 0.4 if w.op == "read" and w.sender == p and not w.both else 1.0  # noqa: E731
        yield Fault(f"sick reads of {port}", takes, mine, "sending", fails=True, rdma=True)
    a, b = name(1), name(2)
    yield Fault("sick link", lambda w: 0.4 if w.ends == {a, b} else 1.0, pair=(a, b), fails=True)
    yield Fault("sick way", lambda w: 0.4 if (w.sender, w.receiver) == (a, b) and not w.both else 1.0, pair=(a, b),
                fails=True)  # fmt: skip
    if rails > 1:
        yield Fault("sick rail", lambda w: 0.4 if w.sender.endswith("fab1") else 1.0, rail="10.79.0.0/24", fails=True)
        whole = frozenset(name(2, r) for r in range(rails))
        yield Fault("sick node", lambda w: 0.4 if w.ends & whole else 1.0, whole, fails=True)
    if shape == "leaves":
        leaf = {f"{n.name}/{p.interface}": p.leaf for n in site(shape).nodes for p in n.ports}
        yield Fault("sick leaf", lambda w: 0.4 if "leaf1" in {leaf[e] for e in w.ends} else 1.0, leaf="leaf1",
                    fails=True)  # fmt: skip


def measured(m: Measurement, fabric: Fabric, takes: Takes) -> Result:
    """What ports of that fabric carry, less what a fault takes."""
    bounds = bounds_of(fabric)
    chance = random.Random(m.id)
    own = 1 + chance.uniform(-0.003, 0.003)
    if m.kind == "path-mtu":
        return result(m, [Sample(metric="path_mtu_bytes", value=fabric.mtu, unit="bytes")])
    if m.kind in ("incast", "all-to-all"):
        samples, facts = switch_parsed(m, 0.95 * fabric.line_rate_gbps)
        return result(m, samples, facts=facts)
    one, other = map(str, m.endpoints)
    op, both = str(m.params.get("op", "")), bool(m.params.get("bidirectional"))
    way = Way(other, one, both, op) if op == "read" else Way(one, other, both, op)
    left = own * takes(way)
    if m.kind == "tcp-bandwidth":
        rate = 0.985 * fabric.line_rate_gbps * left
        samples = [*around(rate, 12, "Gbit/s", "tcp_bandwidth_gbps", seed=m.id), *NONE_AGAIN]
        return result(m, samples, facts={"receiver_mean_gbps": rate})
    if m.kind == "tcp-latency":
        most = bounds["tcp_rtt"].maximum if "tcp_rtt" in bounds else None
        return result(m, around(0.4 * (most or 50) * own, 20, "us", "tcp_rtt_us", 0.05, seed=m.id))
    done = healthy_rdma(m, device="mlx5_0")
    value = done.samples[0].value
    if m.kind == "rdma-bandwidth":
        value = SHARE[op] * fabric.line_rate_gbps * (TOGETHER if both else 1.0) * left
        if fabric.transport == "ib":
            value *= min(1.0, (bounds["rdma_bandwidth"].ceiling or 1e9) / fabric.line_rate_gbps / 0.98)
    elif m.kind == "rdma-latency":
        value = LATENCY[op] * (bounds["rdma_read_latency" if op == "read" else "rdma_write_latency"].maximum or 5) * own
    elif m.kind == "rdma-gpu":
        value = 0.9 * fabric.line_rate_gbps * left
    facts = done.plain | {"active_mtu": fabric.rdma_mtu, "peer_active_mtu": fabric.rdma_mtu}
    if fabric.transport == "ib":
        facts |= {
            "link_layer": "InfiniBand",
            "peer_link_layer": "InfiniBand",
            "roce_version": "",
            "peer_roce_version": "",
        }
    samples = [done.samples[0].model_copy(update={"value": value}), *done.samples[1:]]
    return result(m, samples, facts=facts)


def judged(shape: str, fabric: str, fault: Fault) -> tuple[VerdictDoc, list[Accused]]:
    """The verdict on such a site, and all that it accuses."""
    topology, plan, profile = site(shape), planned(shape, fabric), load_fabric(fabric)
    results = addressed(topology, [measured(m, profile, fault.takes) for m in plan.measurements])
    verdict = judge(RunData(run_info(topology, plan, fabric=fabric), topology, plan, profile, CRITERIA, results))
    case = make_case(topology, plan, profile, CRITERIA, results)
    return verdict, list(accused(verdict, topology, slower(case, {c.id: c.judgements for c in verdict.criteria})))


def accused(verdict: VerdictDoc, topology: Topology, told: Iterable[object] = ()) -> Iterator[Accused]:
    """Findings, judgements that fail or have a remark, parts slower than their equals, and notes that name a part."""
    for finding in verdict.findings:
        yield _of(finding.about, finding.text, finding.kind)
    for criterion in verdict.criteria:
        for one in criterion.judgements:
            if one.verdict == "fail" or one.reason_code == "remarked":
                yield _of(one.about, f"{one.criterion} {one.subject}: {one.reason}", "judgement")
    words = set()
    for one in told:
        suspect, sort = one.suspect, one.sort  # type: ignore[attr-defined]
        words.add(one.words)  # type: ignore[attr-defined]
        yield Accused(suspect.kind, suspect.subject, suspect.direction, sort.both_ways, one.words)  # type: ignore[attr-defined]
    names = {n.name for n in topology.nodes}
    for note in verdict.notes:
        if note not in words and any(n in note for n in names):
            yield Accused("note", tuple(n for n in names if n in note), "", False, note)


def _of(about: Subject, words: str, kind: str) -> Accused:
    direction = next((d for d in ("sending", "receiving") if f"fails when {d}" in words), "both")
    if kind == "judgement":
        kind = f"judged {about.kind}"
    names = tuple(map(str, about.ends)) or (about.op,)
    return Accused(kind, names, direction, "both ways at once" in words or about.both_ways, words)


def false(one: Accused, fault: Fault, topology: Topology) -> bool:
    """Whether an accusation is not what was planted."""
    ports = {f"{n.name}/{p.interface}": n.name for n in topology.nodes for p in n.ports}
    rails = {
        f"{n.name}/{p.interface}": f"10.{78 + int(p.interface[-1])}.0.0/24" for n in topology.nodes for p in n.ports
    }
    leaves = {f"{n.name}/{p.interface}": p.leaf for n in topology.nodes for p in n.ports}
    hit = {port for port in ports if port in fault.parts or rails[port] == fault.rail or leaves[port] == fault.leaf}
    if one.kind in ("judged pair", "pair", "link"):
        return not hit & set(one.names)
    if one.kind == "port":
        return one.names[0] not in fault.ports or not _right_way(one, fault)
    if one.kind == "node":
        mine = {port for port, owner in ports.items() if owner == one.names[0]}
        return not mine <= fault.ports or not _right_way(one, fault)
    if one.kind == "rail":
        return one.names != (fault.rail,)
    if one.kind in ("leaf", "uplink", "leaves"):
        return fault.leaf not in one.names
    if one.kind == "cluster":
        planted = f"rail {fault.rail}" if fault.rail else f"leaf {fault.leaf}" if fault.leaf else "?"
        return planted not in one.names[0] and planted not in one.words
    return True


def _right_way(one: Accused, fault: Fault) -> bool:
    if one.together or fault.direction == "together":
        return one.direction == "both" and (one.together or fault.direction != "together")
    return one.direction == fault.direction


@dataclass
class Walked:
    """What a walk came to."""

    runs: int = 0
    accusations: int = 0
    wrong: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def walk(self, shape: str, fabric: str, fault: Fault) -> None:
        """One site: every accusation is held against what was planted."""
        verdict, found = judged(shape, fabric, fault)
        where = f"{shape} over {fabric}, {fault.name}"
        self.runs += 1
        self.accusations += len(found)
        self.wrong += [f"{where}: {one}" for one in found if false(one, fault, site(shape))]
        if fault.fails and not verdict.findings:
            self.unseen.append(where)
        if fault.name == "none" and any(c.verdict == "fail" for c in verdict.criteria):
            self.unseen.append(f"{where}: a healthy site fails")
