"""Judging incast and all to all: goodput against what a port carries, fairness, over RDMA lost packets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.fabric.switch_load_facts import SwitchLoadFacts, SwitchPort
from validation.measures.rdma.counters import gaps, growth, of_loss, pauses
from validation.model import Bound, Endpoint, Judgement, Measurement, Subject
from validation.rules.bounds import CEILING_SLACK
from validation.rules.criterion import Criterion

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
