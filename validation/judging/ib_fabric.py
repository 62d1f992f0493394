"""Judging an InfiniBand fabric as one node sees it: a subnet manager, every declared port, links as sold, no errors.

The links of declared ports are judged; the rest of the fabric belongs to others and is reported. Tested on what the
tools print on a simulated fabric (ibsim), never on InfiniBand hardware: the judgement says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from validation.criterion import Criterion
from validation.judging.case import Case, judgement, unusable
from validation.judging.rdma_ports import BEFORE
from validation.model import Bound, Judgement, ReasonCode, Result, VerdictName
from validation.model_verdict import CLUSTER

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
COUNTS = ("unanswered", "subnets", "nodes", "nodes_checked", "ports", "ports_checked")
LISTS = ("subnet_managers", "links", "errors")
SHOWN = 4

Key = tuple[str, str]
"""GUID and number of a port."""
_END = r"(.*) port (\d+) (0x[0-9a-f]{16})"
LINK = re.compile(rf"(.+?) \| {_END} \|(?: {_END})?")
ERRORS = re.compile(rf"{_END}: (\w+ \d+(?:, \w+ \d+)*)")
MASTER = re.compile(r"MASTER lid \d+ guid (0x[0-9a-f]+) priority \d+")


@dataclass
class Reading:
    """A result's facts, taken apart; `odd` says in words what of them is absent or cannot be read."""

    when: str
    masters: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    links: dict[Key, tuple[str, Key]] = field(default_factory=dict)  # port -> rate, the port at the other end
    names: dict[Key, str] = field(default_factory=dict)
    errors: dict[Key, dict[str, int]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    listed: bool = False  # whether there is a list of links at all

    def rate_of(self, port: Key) -> float | None:
        """Gbit/s of a port's link; None where its words say none."""
        width, _, speed = self.links[port][0].partition("x ")
        lane = LANE_GBPS.get(speed)
        return int(width) * lane if width.isdigit() and lane is not None else None


def read(result: Result, when: str) -> Reading:
    """The facts of an ib-fabric result."""
    found, facts = Reading(when), result.facts
    counts = {key: value for key in COUNTS if type(value := facts.get(key)) is int}
    lists = {key: value for key in LISTS if isinstance(value := facts.get(key), list)}
    found.odd += [f"{key} is not told{when}" for key in (*COUNTS, *LISTS) if key not in {**counts, **lists}]
    found.listed = "links" in lists
    for line in lists.get("links", []):
        if (link := LINK.fullmatch(line)) is None:
            found.odd.append(f"a link that cannot be read: {line[:60]!r}")
            continue
        here = (link[4], link[3])
        found.names[here] = f"{link[2]} port {link[3]} {link[4]}"
        if link[5] is None:
            continue
        there = (link[7], link[6])
        found.names[there] = f"{link[5]} port {link[6]} {link[7]}"
        for one, other in ((here, there), (there, here)):
            if one in found.links:
                found.odd.append(f"{found.names[one]} has two links")
            found.links[one] = (link[1], other)
    for line in lists.get("errors", []):
        if (error := ERRORS.fullmatch(line)) is None:
            found.odd.append(f"errors that cannot be read: {line[:60]!r}")
            continue
        pairs = (words.split() for words in error[4].split(", "))
        found.errors[error[3], error[2]] = {name: int(value) for name, value in pairs}
        found.names.setdefault((error[3], error[2]), f"{error[1]} port {error[2]} {error[3]}")
    for line in lists.get("subnet_managers", []):
        if line.startswith("MASTER ") and (master := MASTER.fullmatch(line)):
            found.masters.add(master[1])
        else:
            found.wrong.append(f"subnet manager is not master{when}: {line}")
    _counted(found, counts, result)
    return found


def _counted(found: Reading, counts: dict[str, int], result: Result) -> None:
    """Numbers that must fit: masters to fabrics, what was checked for errors to what is there, samples to facts."""
    when, subnets = found.when, counts.get("subnets", 1)
    if len(found.masters) > subnets:
        masters = ", ".join(sorted(found.masters))
        found.wrong.append(f"{len(found.masters)} masters in {_plural(subnets, 'fabric')}{when}: {masters}")
    elif not found.masters and not found.wrong:
        found.odd.append(f"subnet_managers names none{when}")
    for what, least in (("nodes", "at least "), ("ports", "")):
        listed, checked = counts.get(what, 0), counts.get(f"{what}_checked", 0)
        if checked < listed or listed < 1:
            found.odd.append(f"error counters were checked {checked} of {least}{listed} {what}{when}")
    if counts.get("unanswered"):
        found.odd.append(f"{counts['unanswered']} queries for error counters were not answered{when}")
    for metric, count in (("ib_links", len(found.links) // 2), ("ib_error_ports", len(found.errors))):
        said = [s.value for s in result.samples if s.metric == metric]
        if said != [count] and not found.odd:
            found.odd.append(f"{metric} is {', '.join(map('{:g}'.format, said)) or 'not told'}, the facts show {count}")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


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
    gone = unusable(case, criterion, CLUSTER, ids[:1], bound)
    if gone is not None:
        return [gone]
    results = [r for id_ in ids if (r := case.usable(id_)) is not None]
    readings = [read(r, " at the end of the run" if i else "") for i, r in enumerate(results)]
    evidence, wrong, unknown = list(ids), [], []
    if len(ids) == 1 and len(case.plan.suites) > 1:
        unknown.append("no second reading was planned")
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
        f"masters {', '.join(sorted(last.masters)) or 'none'} ({RECORDED}){_rest(last, mine)}"
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
            guid = _port_guid(ports, port.interface)
            evidence += [id_] if id_ not in evidence and ports is not None else []
            if guid is None:
                unknown.append(f"{node.name}/{port.interface}: its GUID is not known")
                continue
            for reading in readings:
                there = {key for key in reading.links if key[0] == guid}
                found |= there
                if not there and reading.listed:
                    wrong.append(f"{node.name}/{port.interface} ({guid}) has no link in the fabric{reading.when}")
    return found


def _rates(case: Case, reading: Reading, declared: set[Key], wrong: list[str], unknown: list[str]) -> None:
    """The links of declared ports at the profile's rate."""
    wanted = case.fabric.line_rate_gbps
    for port in sorted(declared & set(reading.links)):
        words, other = reading.links[port]
        link = f"link {reading.names[port]} - {reading.names[other]}"
        rate = reading.rate_of(port)
        if rate is None:
            unknown.append(f"{link} runs at {words}{reading.when}, which is no rate")
        elif rate != wanted:
            wrong.append(f"{link} runs at {words}{reading.when}, {wanted:g} Gbit/s wanted")


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
                unknown.append(f"{name}: {counter} stands at its maximum of {value} and cannot grow: {clear}")


def _rest(reading: Reading, mine: set[Key]) -> str:
    """What the fabric has beyond the declared ports' links, and totals from before: told, not judged."""
    said = []
    others = Counter(rate for port, (rate, other) in reading.links.items() if port not in mine and port < other)
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


def _port_guid(ports: Result | None, interface: str) -> str | None:
    """A port's GUID as ibnetdiscover writes it: the lower half of its first GID."""
    gids = ports.facts.get(f"{interface}.gids") if ports is not None else None
    for line in gids if isinstance(gids, list) else []:
        found = re.search(r"((?:[0-9a-f]{4}:){7}[0-9a-f]{4})", str(line))
        if found:
            return "0x" + "".join(found[1].split(":")[4:])
    return None
