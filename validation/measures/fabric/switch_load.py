"""Facts of kinds incast and all-to-all: what many ports carried at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, json_object, number, short
from validation.measures.rdma.counters import gaps, growth, of_loss, pauses
from validation.model import Bound, Endpoint, Judgement, Measurement, Sample, Subject
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive
from validation.probes import ProbeDoc
from validation.rules.bounds import CEILING_SLACK
from validation.rules.criterion import Criterion


def jain(rates: Sequence[float]) -> float:
    """The index of fairness: 1 where all are equal, 1/n where one has everything (Jain, Chiu and Hawe, 1984,
    DEC-TR-301)."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


class SwitchSession(Model):
    """What one node sent to another. `retransmits`: TCP segments that it sent again, None over RDMA."""

    sender: Name
    receiver: Name
    seconds: Positive
    bytes: Count = Field(gt=0)
    retransmits: Count | None = None

    @property
    def gbps(self) -> float:
        """Of the session by itself."""
        return self.bytes * 8 / self.seconds / 1e9


class SwitchPort(Model):
    """A node's port. `window_s`: from the first begin to the last end of what it received, None where it only sent;
    `at_once_s`: how much of that all of its senders sent. `before`, `after`: what the port counts."""

    node: Name
    before: dict[str, Count]
    after: dict[str, Count]
    window_s: Positive | None = None
    at_once_s: Positive | None = None


class SwitchLoadFacts(Facts):
    """`seconds`: asked of each session."""

    type: Literal["switch-load"] = "switch-load"
    tool: Literal["iperf3", "perftest"]
    seconds: Positive
    sessions: tuple[SwitchSession, ...] = Field(min_length=2)
    ports: tuple[SwitchPort, ...] = Field(min_length=2)

    def received(self, port: SwitchPort) -> float:
        """Gbit/s that arrived at a port, over its whole window: less than the sum of its sessions' rates."""
        assert port.window_s is not None
        return sum(s.bytes for s in self.sessions if s.receiver == port.node) * 8 / port.window_s / 1e9

    @property
    def receivers(self) -> list[SwitchPort]:
        """Ports at which something arrived."""
        return [port for port in self.ports if port.window_s is not None]

    @property
    def fairness(self) -> float:
        """Of all sessions."""
        return jain([one.gbps for one in self.sessions])

    def fairness_at(self, port: SwitchPort) -> float:
        """Of the sessions that a port received."""
        return jain([one.gbps for one in self.sessions if one.receiver == port.node])

    @property
    def retransmits(self) -> int | None:
        """Of all sessions; None where one does not count them."""
        found = [one.retransmits for one in self.sessions]
        return None if None in found else sum(one for one in found if one is not None)


# ----------------------------------------------------------------------------------------------------------------------
# Incast and all to all: what each end printed, joined session by session and held against the ports' own counters.


MOST_GBPS = 1e5  # no port is so fast; against numbers that are none
SHORTEST = {"iperf3": 0.9, "perftest": 0.4}
"""Least share of the seconds asked for that a session may have measured: perftest leaves out either end."""
LONGEST = 1.5
"""How much longer than asked, and a second, a session may take until all has arrived. Project default."""
AT_ONCE = 0.5
"""Least share of the seconds asked for in which all senders of a port sent: what comes together loads a switch.
Project default, for nodes of a lab take turns at being late."""
CLOCK_S = 0.5  # by what an end may be seen later than it was
WORD_BYTES = 4  # of port_rcv_data: InfiniBand specification, volume 1, 16.1.3.5


def _counted(raw: Any, what: str) -> dict[str, int]:
    return {str(name): int(count(value, f"{what}: {name}")) for name, value in raw.items()}


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """Of an incast `incast_gbps` of its receiver, of all to all `all_to_all_port_gbps` of each port in the order of
    their names; beside it Jain's index of all sessions, and over TCP the segments that were sent again.
    """
    kind = doc["kind"]
    printed = json_object(doc["stdout"], f"{kind}: the report")
    ends: dict[str, dict[str, Any]] = {}
    for part in ("sending", "serving"):
        texts: Any = printed[part]
        ends[part] = {node: json_object(text, f"{kind}: {node}, {part}") for node, text in texts.items()}
    everybody = [(node, one) for part in ends.values() for node, one in part.items()]
    for node, one in everybody:
        for key in ("seconds", "streams", "transport"):
            expect(params, key, one[key], f"{kind}: {key} of {node}")
    transport, asked = everybody[0][1]["transport"], number(everybody[0][1]["seconds"], f"{kind}: seconds")
    tool = "iperf3" if transport == "tcp" else "perftest"
    names = {str(one["address"]): node for node, one in everybody}
    if len(names) != len({node for node, _ in everybody}):
        raise ParseError(f"{kind}: {number_of(len(names), 'address')} of {len({node for node, _ in everybody})} nodes")
    sessions = _sessions(kind, ends, names, asked, tool)
    ports = [_port(kind, node, ends, names, sessions, asked) for node in sorted({node for node, _ in everybody})]
    raw = {"tool": tool, "seconds": asked, "sessions": sessions, "ports": ports}
    facts = as_facts(SwitchLoadFacts, raw, kind)
    receivers = facts.receivers
    if len(facts.sessions) < 2 or (kind == "incast") != (len(receivers) == 1):
        raise ParseError(f"{kind}: {number_of(len(facts.sessions), 'session')} to {number_of(len(receivers), 'port')}")
    metric = "incast" if kind == "incast" else "all_to_all"
    rate = "incast_gbps" if kind == "incast" else "all_to_all_port_gbps"
    samples = [Sample(metric=rate, value=facts.received(port), unit="Gbit/s") for port in receivers]
    samples.append(Sample(metric=f"{metric}_fairness", value=facts.fairness, unit="ratio"))
    if facts.retransmits is not None:
        samples.append(Sample(metric="retransmits", value=facts.retransmits, unit="count"))
    return samples, facts


def _sessions(
    kind: str, ends: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], asked: float, tool: str
) -> list[dict[str, Any]]:
    """Every session that a sender tells of, in their order; each has its other end, and no other end is left."""
    waiting = {
        (names.get(str(one["peer"])), node, count(one["port"], f"{kind}: port"))
        for node, report in ends["serving"].items()
        for one in report["sessions"]
    }
    planned, found = len(waiting), []
    for node, report in ends["sending"].items():
        for one in report["sessions"]:
            what = f"{kind}: {node} to {short(str(one['peer']))}"
            receiver = names.get(str(one["peer"]))
            key = (node, receiver, count(one["port"], f"{what}: port"))
            if key not in waiting:
                raise ParseError(f"{what}: nobody served it, or it stands twice")
            waiting.remove(key)
            seconds, moved = number(one["seconds"], f"{what}: seconds"), int(count(one["bytes"], f"{what}: bytes"))
            if not SHORTEST[tool] * asked <= seconds <= LONGEST * asked + 1:
                raise ParseError(f"{what}: {seconds:.4g} s of the {asked:g} s that were asked for")
            if not moved or moved * 8 / seconds / 1e9 > MOST_GBPS:
                raise ParseError(f"{what}: {number_of(moved, 'byte')} in {seconds:.4g} s")
            resent = one["retransmits"]
            resent = None if resent is None else int(count(resent, f"{what}: retransmits"))
            found.append(
                {"sender": node, "receiver": receiver, "seconds": seconds, "bytes": moved, "retransmits": resent}
            )
    if waiting or planned != sum(len(report["sessions"]) for report in ends["serving"].values()):
        raise ParseError(f"{kind}: {number_of(len(found), 'session')} were sent, {planned} were served")
    return found


def _port(
    kind: str,
    node: str,
    ends: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
    sessions: list[dict[str, Any]],
    asked: float,
) -> dict[str, Any]:
    """A node's port: what it counts, and when what it received came."""
    serves = ends["serving"].get(node)
    report = serves or ends["sending"][node]  # the serving end's readings are the first and the last
    before, after = (_counted(report[when], f"{kind}: {node}, {when}") for when in ("before", "after"))
    found: dict[str, Any] = {"node": node, "before": before, "after": after}
    if serves is None:
        return found
    took = {one["sender"]: one["seconds"] for one in sessions if one["receiver"] == node}
    moved = sum(one["bytes"] for one in sessions if one["receiver"] == node)
    spans = []
    for one in serves["sessions"]:
        end = number(one["ended_s"], f"{kind}: {node}: end of a session")
        seconds = took[names[str(one["peer"])]]
        if end < seconds - CLOCK_S:
            raise ParseError(f"{kind}: {node}: a session of {seconds:.4g} s ended after {end:.4g} s")
        spans.append((end - seconds, end))
    begins, stops = zip(*spans, strict=True)
    window, together = max(stops) - min(begins), min(stops) - max(begins)
    if together < AT_ONCE * min(took.values()):
        words = f"all of its senders sent in {max(together, 0):.3g} s of {window:.3g} s together"
        raise ParseError(f"{kind}: {node}: {words}, so that nothing was loaded by all of them")
    for name, unit in (("rx_bytes", 1), ("port_rcv_data", WORD_BYTES)):
        counted = (after.get(name, 0) - before.get(name, 0)) * unit
        mine = (name == "rx_bytes") == (report["transport"] == "tcp")
        if mine and name in before and name in after and 0 <= counted < moved:
            raise ParseError(
                f"{kind}: {node}: its port counted {number_of(counted, 'byte')}, {moved} are said to have arrived there"
            )
    return {**found, "window_s": window, "at_once_s": together}


# ----------------------------------------------------------------------------------------------------------------------
# Judging incast and all to all: goodput against what a port carries, fairness, over RDMA lost packets. Pure.


FAIR = 0.8
"""Least index of Jain of the sessions' rates. Project default: of eight senders one that gets nothing leaves 0.875, two
leave 0.75."""


@method("incast", "what a port receives from several at once, and how they share it", figures=True, counts="ports")
def judge_incast(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each port that received."""
    return [_judge(case, criterion, m, Subject.port(m.endpoints[0])) for m in case.serving(criterion)]


@method("all-to-all", "what each port receives when all send to all", figures=True, counts="sets of ports")
def judge_all_to_all(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each set of ports, by the port that received least."""
    sets = case.serving(criterion)
    return [_judge(case, criterion, m, Subject(kind="cluster", op=set_name(m))) for m in sets]


def set_name(m: Measurement) -> str:
    """`gpu1/ens31 and 15 others`: a set of ports by its first."""
    return f"{m.endpoints[0]} and {len(m.endpoints) - 1} others"


def line_of(case: Case, m: Measurement) -> Bound | None:
    """The bound of what two ports carry alone, whose ceiling is that of a port."""
    found = case.bounds if m.params["transport"] != "tcp" or case.topology.lab_link is None else case.lab_bounds
    return found.get("tcp_bandwidth" if m.params["transport"] == "tcp" else "rdma_bandwidth")


def _judge(case: Case, criterion: Criterion, m: Measurement, subject: Subject) -> Judgement:
    ids, line = [m.id], line_of(case, m)
    facts = facts_for(case, criterion, subject, m.id, SwitchLoadFacts, None)
    if isinstance(facts, Judgement):
        return facts
    result, fair = case.latest[m.id], m.kind.replace("-", "_") + "_fairness"
    for metric, many in ((criterion.metric or "", len(facts.receivers)), (fair, 1)):
        if len(result.values(metric)) != many:
            why = f"{m.id}: {number_of(len(result.values(metric)), 'sample')} of {metric}, {many} are needed"
            return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    worst = min(facts.receivers, key=facts.received)
    rate = facts.received(worst)
    summary = Summary(rate, 0.0, rate, rate, 1)
    text = "; ".join(_words(facts, worst, line, m))
    if case.virtual and criterion.rehearsal.judge == "not-judged":
        why = f"{criterion.rehearsal.why}: measured {text}, not judged"
        return judgement(criterion, subject, "not-measured", "virtual", why, ids, summary=summary, text=text)
    if line is None or line.ceiling is None:
        why = f"no bound is known for {case.fabric.name}; measured {text}"
        return judgement(criterion, subject, "not-measured", "no-bound", why, ids, summary=summary, text=text)
    floor = (criterion.bound.value or 0) * line.ceiling
    lines = (*line.derivation[:2], f"floor = {criterion.bound.value:g} x {line.ceiling:.4g} = {floor:.4g} Gbit/s")
    bound = Bound(metric=criterion.metric or "", unit="Gbit/s", floor=floor, ceiling=line.ceiling, derivation=lines,
                  source=criterion.source)  # fmt: skip
    if rate > line.ceiling * CEILING_SLACK:
        why = f"more than the {line.ceiling:.4g} Gbit/s of a port; measurement rejected: {text}"
        return judgement(criterion, subject, "not-measured", "above-ceiling", why, ids, summary=summary, bound=bound)
    if lost := _lost(facts, m):
        why = f"packets were lost: {', '.join(lost)}; {text}"
        return judgement(criterion, subject, "fail", "not-working", why, ids, summary=summary, text=text, bound=bound)
    if rate < floor:
        why = f"below the floor of {floor:.4g} Gbit/s: {text}"
        return judgement(criterion, subject, "fail", "below-floor", why, ids, summary=summary, text=text, bound=bound)
    if facts.fairness < FAIR:
        why = f"shared unfairly, index {facts.fairness:.2f} of at least {FAIR:g}: {text}"
        return judgement(criterion, subject, "fail", "below-floor", why, ids, summary=summary, text=text, bound=bound)
    if blind := _blind(facts, m):
        why = f"nothing says whether packets were lost: {blind}; {text}"
        return judgement(
            criterion, subject, "not-measured", "missing-metric", why, ids, summary=summary, text=text, bound=bound
        )
    return judgement(criterion, subject, "pass", "within-bounds", text, ids, summary=summary, text=text, bound=bound)


def _words(facts: SwitchLoadFacts, worst: SwitchPort, line: Bound | None, m: Measurement) -> Iterator[str]:
    rate = facts.received(worst)
    share = f" ({rate / line.ceiling:.2f} of a port's ceiling)" if line is not None and line.ceiling else ""
    others = [facts.received(port) for port in facts.receivers]
    where = "" if len(others) == 1 else f", which is {worst.node}'s, the least of {len(others)}"
    if len(others) > 1 and f"{max(others):.4g}" == f"{rate:.4g}":
        where = f" at each of {number_of(len(others), 'port')}"
    yield f"{rate:.4g} Gbit/s{share}{where} from {sum(s.receiver == worst.node for s in facts.sessions)} senders"
    slowest, fastest = (pick(facts.sessions, key=lambda s: s.gbps) for pick in (min, max))
    each = f"{slowest.sender} to {slowest.receiver} {slowest.gbps:.4g}, fastest {fastest.sender} to {fastest.receiver}"
    spread = f"each session {slowest.gbps:.4g}"  # where all are alike, none is the slowest
    if f"{slowest.gbps:.4g}" != f"{fastest.gbps:.4g}":
        spread = f"slowest {each} {fastest.gbps:.4g}"
    yield f"fairness {facts.fairness:.3f} ({spread} Gbit/s)"
    if facts.retransmits is not None:
        yield f"{facts.retransmits} TCP segments sent again"
    told = [
        f"{port.node} {', '.join(map(str, found))}"
        for port in facts.ports
        if (found := pauses(port.before, port.after))
    ]
    yield from told[:4]
    if len(told) > 4:
        yield f"{number_of(len(told) - 4, 'more port')} with pauses or discards"


def _lost(facts: SwitchLoadFacts, m: Measurement) -> list[str]:
    """Over RDMA: what ports lost; TCP sends again by design, and its segments are told."""
    if m.params["transport"] == "tcp":
        return []
    return [f"{port.node} {one}" for port in facts.ports for one in growth(port.before, port.after, of_loss)]


def _blind(facts: SwitchLoadFacts, m: Measurement) -> str:
    """Over RDMA: the first reason why it is not known whether a port lost something; "" where it is."""
    if m.params["transport"] == "tcp":
        return ""
    found = (f"{port.node}: {why}" for port in facts.ports for why in gaps(*_readings(port), {"lost packets": of_loss}))
    return next(found, "")


def _readings(port: SwitchPort) -> tuple[dict[str, int], dict[str, int]]:
    return port.before, port.after


def receivers(m: Measurement) -> Sequence[Endpoint]:
    """The ports that receive."""
    return m.endpoints[:1] if m.kind == "incast" else m.endpoints
