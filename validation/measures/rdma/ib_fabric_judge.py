"""Judging an InfiniBand fabric as one node sees it: a subnet manager, every declared port, links as sold, no errors.

The links of declared ports are judged; the rest of the fabric belongs to others and is reported. Tested on what the
tools print on a simulated fabric (ibsim), never on InfiniBand hardware: the judgement says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement, unusable
from validation.judging.methods import method
from validation.measures.rdma.ib_fabric import IbFabricFacts, IbLink
from validation.measures.rdma.ports import RdmaPort
from validation.measures.rdma.ports_judge import BEFORE, port_of
from validation.model import Bound, Endpoint, Judgement, ReasonCode, Result, VerdictName
from validation.model.judgement import CLUSTER
from validation.rules.criterion import Criterion

LANE_GBPS = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
"""Speed as ibnetdiscover writes it -> the rate that a lane is sold as, Gbit/s (InfiniBand specification, volume 2)."""

MAXIMA = {
    **dict.fromkeys(("LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors"), 2**4 - 1),
    **dict.fromkeys(("LinkDownedCounter", "LinkErrorRecoveryCounter"), 2**8 - 1),
    **dict.fromkeys(("PortXmitConstraintErrors", "PortRcvConstraintErrors"), 2**8 - 1),
    **dict.fromkeys(("SymbolErrorCounter", "PortRcvErrors", "PortRcvRemotePhysicalErrors"), 2**16 - 1),
    **dict.fromkeys(("PortRcvSwitchRelayErrors", "PortXmitDiscards", "VL15Dropped"), 2**16 - 1),
}
"""Where PortCounters stop (InfiniBand specification, volume 1, 16.1.3.5), by ibqueryerrors' names."""

REBOOTS = "LinkDownedCounter"  # each restart of a node counts, so a total says nothing
RECORDED = "tested on recordings of a simulated fabric only, never on InfiniBand hardware"
SHOWN = 4

Key = tuple[str, int]
"""GUID and number of a port."""


@dataclass
class Reading:
    """A result's facts by port; `wrong` and `odd` say in words what is a fault, and what contradicts itself."""

    when: str
    facts: IbFabricFacts
    wrong: list[str] = field(default_factory=list)
    links: dict[Key, tuple[IbLink, Key]] = field(default_factory=dict)  # port -> its link, the port at the other end
    names: dict[Key, str] = field(default_factory=dict)
    errors: dict[Key, dict[str, int]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)

    @property
    def masters(self) -> list[str]:
        """GUIDs of the master subnet managers."""
        return sorted({m.guid for m in self.facts.subnet_managers if m.state == "MASTER"})


def gbps_of(link: IbLink) -> float | None:
    """Gbit/s of a link; None where its rate is not told, or told in two ways."""
    lane, lanes = LANE_GBPS.get(link.rates[0].speed), link.rates[0].lanes
    return lanes * lane if len(link.rates) == 1 and lanes is not None and lane is not None else None


def read(result: Result, facts: IbFabricFacts, when: str) -> Reading:
    """The facts of an ib-fabric result."""
    found = Reading(when, facts)
    for link in facts.links:
        found.names[link.here.key] = str(link.here)
        if link.there is None:
            continue
        found.names[link.there.key] = str(link.there)
        for one, other in ((link.here.key, link.there.key), (link.there.key, link.here.key)):
            if one in found.links:
                found.odd.append(f"{found.names[one]} has two links")
            found.links[one] = (link, other)
    for error in facts.errors:
        found.errors[error.port.key] = error.counters
        found.names.setdefault(error.port.key, str(error.port))
    for manager in facts.subnet_managers:
        if manager.state != "MASTER":
            found.wrong.append(f"subnet manager is not master{when}: {manager}")
    _counted(found, result)
    return found


def _counted(found: Reading, result: Result) -> None:
    """Numbers that must fit: masters to fabrics, what was checked for errors to what is there, samples to facts."""
    when, facts = found.when, found.facts
    if len(found.masters) > facts.subnets:
        masters = ", ".join(found.masters)
        found.wrong.append(f"{len(found.masters)} masters in {_plural(facts.subnets, 'fabric')}{when}: {masters}")
    elif not found.masters and not found.wrong:
        found.odd.append(f"subnet_managers names none{when}")
    for checked, listed, what in (
        (facts.nodes_checked, facts.nodes, f"at least {number_of(facts.nodes, 'node')}"),
        (facts.ports_checked, facts.ports, number_of(facts.ports, "port")),
    ):
        if checked < listed or listed < 1:
            found.odd.append(f"error counters were checked {checked} of {what}{when}")
    if facts.unanswered:
        found.odd.append(f"{facts.unanswered} queries for error counters were not answered{when}")
    for metric, count in (("ib_links", len(found.links) // 2), ("ib_error_ports", len(found.errors))):
        said = [s.value for s in result.samples if s.metric == metric]
        if said != [count] and not found.odd:
            found.odd.append(
                f"{metric} is {', '.join(map('{:g}'.format, said)) or 'not reported'}, the facts show {count}"
            )


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


@method("ib-fabric", "what the InfiniBand fabric says of itself, before and after the load")
def judge_ib_fabric(case: Case, criterion: Criterion) -> list[Judgement]:
    """The whole fabric, once: as it was before anything ran, and as it was after the load."""
    rate = case.fabric.line_rate_gbps
    bound = Bound(
        metric="ib_fabric",
        unit="",
        equal=(
            f"one master subnet manager; every declared port there, its link at {rate:g} Gbit/s; no new errors of "
            "those links, or without a second reading none beyond the tool's thresholds"
        ),
        derivation=(
            f"{case.fabric.name}: {case.fabric.sources.line_rate_gbps}",
            "a link's rate is its width times the rate of a lane at its speed (4x EDR = 2x HDR = 100 Gbit/s)",
            f"this release's judging: {RECORDED}",
        ),
        source=criterion.source,
    )
    ids = [m.id for m in case.serving(criterion)]
    if not ids:
        return []
    first = facts_for(case, criterion, CLUSTER, ids[0], IbFabricFacts, bound)
    if isinstance(first, Judgement):
        return [first]
    results = [r for id_ in ids if (r := case.usable(id_)) is not None]
    known = [(r, facts) for r in results if (facts := r.facts_of(IbFabricFacts)) is not None]
    readings = [read(r, facts, " at the end of the run" if i else "") for i, (r, facts) in enumerate(known)]
    evidence, wrong, unknown = list(ids), [], []
    if len(ids) == 1 and len(case.plan.suites) > 1:
        unknown.append("no second reading was planned")
    unknown += [f"{r.measurement} has a result, but no facts in it" for r in results if r not in [k[0] for k in known]]
    for reading in readings:
        wrong += reading.wrong
        unknown += reading.odd
    declared = _declared(case, readings, evidence, wrong, unknown)
    for reading in readings:
        _rates(case, reading, declared, wrong, unknown)
    mine = declared | {reading.links[port][1] for reading in readings for port in declared if port in reading.links}
    _new_errors(readings, mine, wrong, unknown)
    last = readings[-1]
    text = (
        f"{_plural(len(last.links) // 2, 'link')}, {_plural(len(last.errors), 'port')} with errors, "
        f"masters {', '.join(last.masters) or 'none'} ({RECORDED}){_rest(last, mine)}"
    )

    def say(verdict: VerdictName, code: ReasonCode, why: str) -> list[Judgement]:
        return [judgement(criterion, CLUSTER, verdict, code, why, evidence, text=text, bound=bound)]

    if wrong:
        return say("fail", "not-equal", "; ".join(dict.fromkeys(wrong)))
    late = unusable(case, criterion, CLUSTER, ids, bound)
    if late is not None:
        return [late]
    if unknown:
        why = f"not judged because {'; '.join(dict.fromkeys(unknown))}; {text}"
        return say("not-measured", "missing-metric", why)
    return say("pass", "within-bounds", text)


def _declared(
    case: Case, readings: Sequence[Reading], evidence: list[str], wrong: list[str], unknown: list[str]
) -> set[Key]:
    """The declared RDMA ports as the fabric names them; what cannot be found is said."""
    found: set[Key] = set()
    for node in case.topology.nodes:
        id_ = f"{BEFORE}.{node.name}"
        ports = case.usable(id_)
        for port in (p for p in node.ports if p.rdma):
            guid = _port_guid(port_of(case, Endpoint(node=node.name, port=port.interface)))
            evidence += [id_] if id_ not in evidence and ports is not None else []
            if guid is None:
                unknown.append(f"{node.name}/{port.interface}: its GUID is not known")
                continue
            for reading in readings:
                there = {key for key in reading.links if key[0] == guid}
                found |= there
                if not there:
                    wrong.append(f"{node.name}/{port.interface} ({guid}) has no link in the fabric{reading.when}")
    return found


def _rates(case: Case, reading: Reading, declared: set[Key], wrong: list[str], unknown: list[str]) -> None:
    """The links of declared ports at the profile's rate."""
    wanted = case.fabric.line_rate_gbps
    for port in sorted(declared & set(reading.links)):
        link, other = reading.links[port]
        words = f"link {reading.names[port]} - {reading.names[other]} runs at {link.rate}{reading.when}"
        rate = gbps_of(link)
        if rate is None:
            unknown.append(f"{words}, which is not one known rate")
        elif rate != wanted:
            wrong.append(f"{words}, {wanted:g} Gbit/s wanted")


def _new_errors(readings: Sequence[Reading], mine: set[Key], wrong: list[str], unknown: list[str]) -> None:
    """Errors at both ends of the declared ports' links: those that are new; of one reading all but restarts."""
    first, last = readings[0], readings[-1]
    for port in sorted(mine & (set(first.errors) | set(last.errors))):
        before, after = first.errors.get(port, {}), last.errors.get(port, {})
        name = last.names[port] if port in last.names else first.names[port]
        if len(readings) == 1:
            said = [f"{counter} {value}" for counter, value in before.items() if counter != REBOOTS]
            wrong += [f"errors: {name}: {', '.join(said)}"] if said else []
            continue
        new = [f"{c} +{v - before.get(c, 0)}" for c, v in after.items() if v > before.get(c, 0)]
        wrong += [f"errors during the run: {name}: {', '.join(new)}"] if new else []
        for counter, value in before.items():
            if after.get(counter, 0) < value:
                unknown.append(f"{name}: {counter} fell from {value} during the run")
            elif value == MAXIMA.get(counter):
                clear = "clear it with ibqueryerrors -k and measure again"
                unknown.append(f"{name}: {counter} is at its maximum of {value} and cannot grow: {clear}")


def _rest(reading: Reading, mine: set[Key]) -> str:
    """What the fabric has beyond the declared ports' links, and totals from before: told, not judged."""
    said = []
    others = Counter(link.rate for port, (link, other) in reading.links.items() if port not in mine and port < other)
    if others:
        words = ", ".join(rate if count == 1 else f"{count} x {rate}" for rate, count in sorted(others.items()))
        said.append(f"{_plural(sum(others.values()), 'other link')}: {words}")
    errors = [
        f"{reading.names[port]}: {', '.join(f'{name} {value}' for name, value in counters.items())}"
        for port, counters in reading.errors.items()
    ]
    if errors:
        more = f" and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
        said.append(f"errors since the counters were cleared: {'; '.join(errors[:SHOWN])}{more}")
    return f"; reported, not judged: {'; '.join(said)}" if said else ""


def _port_guid(port: RdmaPort | None) -> str | None:
    """A port's GUID as ibnetdiscover writes it: the lower half of its first GID."""
    return f"0x{int(port.gids[0].gid) & (2**64 - 1):016x}" if port is not None and port.gids else None
