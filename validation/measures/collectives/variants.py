"""Judging NCCL with something switched off: NVLS, the ways inside a node, all rails but one. Each switch is traced.

A switch that had no effect makes a figure that looks fine: what was switched off must be gone from NCCL's own log, or
nothing is judged.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from validation.analysis.stats import Summary, summarize
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import where
from validation.kinds.record import names
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.collectives.judge import fabric_gb_s
from validation.measures.rdma.ports_judge import port_of
from validation.model import Bound, Endpoint, Judgement, Measurement, Node, ReasonCode, Subject
from validation.rules.bounds import CEILING_SLACK
from validation.rules.criterion import Criterion

METRIC = "all_reduce_busbw_gb_s"


def _subject(job: Measurement, words: str) -> Subject:
    return where(names(job, "hosts"), f"{words}, {number_of(job.params['ranks'], 'rank')}")


def _facts(case: Case, criterion: Criterion, subject: Subject, job: Measurement) -> CollectivesFacts | Judgement:
    """A job's facts; a judgement where it was no NCCL."""
    facts = facts_for(case, criterion, subject, job.id, CollectivesFacts, None)
    if isinstance(facts, Judgement) or facts.backend == "nccl":
        return facts
    why = "not every rank had a GPU of its own: without NCCL"
    return judgement(criterion, subject, "not-measured", "missing-metric", why, (job.id,))


def _at(facts: CollectivesFacts, size: int) -> float | None:
    """Bus bandwidth of all-reduce at a size, rounded to whole elements of each rank."""
    close = [row for row in facts.rows if row.op == "all_reduce" and abs(row.bytes - size) < 4 * facts.world_size + 1]
    return close[0].busbw_gb_s if close else None


def _largest(facts: CollectivesFacts) -> int:
    return max((row.bytes for row in facts.rows if row.op == "all_reduce"), default=0)


def _ratio(value: float) -> Summary:
    return Summary(value, 0.0, value, value, 1)


# --- NVLS


@method("nccl-nvls", "all-reduce with NVLS and without it, traced in NCCL's log", figures=True, counts="jobs")
def judge_nvls(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each node: all-reduce as NCCL takes it beside that without NVLS, at the same size."""
    return [_nvls(case, criterion, job) for job in case.serving(criterion)]


def _nvls(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject = _subject(job, "NVLS on and off")
    usual = f"collectives.inside.{names(job, 'hosts')[0]}"
    ids = [usual, job.id]
    off = _facts(case, criterion, subject, job)
    if isinstance(off, Judgement):
        return off
    if usual not in case.planned:
        why = f"{usual} is not part of this run, and there is nothing to compare with"
        return judgement(criterion, subject, "not-measured", "no-bound", why, [job.id])
    on = _facts(case, criterion, subject, case.plan.measurement(usual))
    if isinstance(on, Judgement):
        return on
    if off.path.nvls:
        why = "NCCL_NVLS_ENABLE=0 had no effect: the log shows NVLS all the same"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    size = _largest(off)
    with_, without = _at(on, size), _at(off, size)
    if without is None or with_ is None:
        why = f"no all-reduce of {number_of(size, 'byte')} in both jobs"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    shown = f"{with_:.4g} GB/s as NCCL takes it, {without:.4g} without NVLS, at {number_of(size, 'byte')}"
    if not on.path.nvls:
        why = f"NCCL takes no NVLS on these GPUs, says its log: {shown}"
        return judgement(criterion, subject, "not-applicable", "not-applicable", why, ids)
    ratio, floor = with_ / without, criterion.bound.value or 1.0
    lines = (f"{criterion.bound.words} ({criterion.source})", shown)
    bound = Bound(metric="nvls_gain", unit="ratio", floor=floor, derivation=lines, source=criterion.source)
    why = f"{shown}: {ratio:.3g} times as fast"
    if ratio < floor:
        return judgement(criterion, subject, "fail", "below-floor", why, ids, summary=_ratio(ratio), bound=bound)
    return judgement(criterion, subject, "pass", "within-bounds", why, ids, summary=_ratio(ratio), bound=bound)


# --- the network alone


@method("nccl-isolated", "all-reduce over the network alone, proved by NCCL's log", figures=True, counts="jobs")
def judge_isolated(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each job without peer access, shared memory and NVLink across nodes: all over RDMA, by the log."""
    return [_isolated(case, criterion, job) for job in case.serving(criterion)]


def _isolated(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject, ids = _subject(job, "the network alone"), [job.id]
    facts = _facts(case, criterion, subject, job)
    if isinstance(facts, Judgement):
        return facts
    text = "; ".join(map(str, facts.path.channels))
    if not text:
        why = f"the log of {job.id} does not tell what NCCL took"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    rates = [value for result in case.tries(job.id) for value in result.values(METRIC)]
    summary = summarize(rates) if rates else None
    shown = f"{summary.median:.4g} GB/s at {number_of(_largest(facts), 'byte')}; {text}" if summary else text
    inside = [str(c) for c in facts.path.channels if not c.transport.startswith("NET/")]
    if inside:
        why = f"NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 had no effect: {', '.join(inside)}"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids, text=text)
    hosts = [case.nodes[name] for name in names(job, "hosts")]
    bound, code = _ceiling(case, criterion, job, facts, hosts), "within-bounds"
    most = bound.ceiling * CEILING_SLACK if bound is not None and bound.ceiling else float("inf")
    if summary is not None and summary.median > most:
        why = f"{shown}: above {most:.4g} GB/s, which the ports cannot carry: it went another way"
        return judgement(
            criterion, subject, "not-measured", "above-ceiling", why, ids, summary=summary, bound=bound, text=text
        )
    sockets = [str(c) for c in facts.path.channels if not c.transport.startswith("NET/IB")]
    if sockets:
        why = f"{', '.join(sockets)}: not the fabric's RDMA"
        return judgement(criterion, subject, "fail", "not-working", why, ids, summary=summary, bound=bound, text=text)
    return judgement(criterion, subject, "pass", code, shown, ids, summary=summary, bound=bound, text=text)  # type: ignore[arg-type]


def _ceiling(
    case: Case, criterion: Criterion, job: Measurement, facts: CollectivesFacts, hosts: Sequence[Node]
) -> Bound | None:
    """Each rank sends 2 (N-1)/N of the message through its node's ports, which its node's ranks share."""
    ports = fabric_gb_s(case, job, hosts)
    if ports is None or facts.sharp:
        return None
    each = facts.world_size // (len(set(facts.hosts)) or 1)
    value = ports / each
    line = f"ceiling: {ports:g} GB/s of a node's ports / {number_of(each, 'GPU')} = {value:.4g} GB/s"
    return Bound(metric=METRIC, unit="GB/s", ceiling=value, derivation=(line,), source=criterion.source)


# --- rail by rail


@method("nccl-rails", "all-reduce over each rail alone against the other rails", figures=True, counts="rails")
def judge_rails(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each rail alone against the median of the others, of the same nodes."""
    found: list[Judgement] = []
    groups: dict[tuple[str, ...], list[Measurement]] = defaultdict(list)
    for job in case.serving(criterion):
        groups[names(job, "hosts")].append(job)
    for jobs in groups.values():
        rates: dict[str, float] = {}
        for job in jobs:
            gone = _rail(case, criterion, job, rates)
            if gone is not None:
                found.append(gone)
        found += [_beside(case, criterion, job, rates) for job in jobs if job.id in rates]
    return found


def _words(job: Measurement) -> str:
    return f"rail {job.id.rpartition('.')[2]} alone"


def _rail(case: Case, criterion: Criterion, job: Measurement, rates: dict[str, float]) -> Judgement | None:
    """A rail's rate into `rates`, or why it has none that was taken over it alone."""
    subject, ids = _subject(job, _words(job)), [job.id]
    facts = _facts(case, criterion, subject, job)
    if isinstance(facts, Judgement):
        return facts
    across = [c for c in facts.path.channels if c.across]
    sockets = [str(c) for c in across if not c.transport.startswith("NET/IB")]

    def say(verdict: str, code: ReasonCode, why: str) -> Judgement:
        return judgement(criterion, subject, verdict, code, why, ids)  # type: ignore[arg-type]

    if sockets:
        return say("fail", "not-working", f"{', '.join(sockets)}: not the rail's RDMA")
    if not across or not facts.path.devices:
        return say("not-measured", "missing-metric", f"the log of {job.id} does not tell what NCCL took between nodes")
    wanted, number = set(), int(str(job.params["rail"]))
    for host in (case.nodes[name] for name in names(job, "hosts")):
        port = [p for p in host.ports if p.rdma][number]
        seen = port_of(case, Endpoint(node=host.name, port=port.interface))
        wanted |= {f"{seen.device}:{seen.port}"} if seen is not None and seen.device else set()
    astray = sorted(set(facts.path.devices) - wanted)
    if wanted and astray:
        why = f"{', '.join(astray)} taken, the rail is {', '.join(sorted(wanted))}"
        return say("not-measured", "missing-metric", f"it was not alone: {why}")
    rate = _at(facts, _largest(facts))
    if rate is None:
        return say("not-measured", "missing-metric", "no all-reduce in it")
    rates[job.id] = rate
    return None


def _beside(case: Case, criterion: Criterion, job: Measurement, rates: dict[str, float]) -> Judgement:
    subject, mine = _subject(job, _words(job)), rates[job.id]
    others = [rate for id_, rate in rates.items() if id_ != job.id]
    if not others:
        why = f"{mine:.4g} GB/s, and no other rail has a figure to hold it against"
        return judgement(criterion, subject, "not-measured", "no-bound", why, [job.id])
    median, floor = statistics.median(others), criterion.bound.value or 1.0
    ratio = mine / median
    why = f"{mine:.4g} GB/s, {ratio - 1:+.1%} of the median {median:.4g} of the other {len(others)}"
    lines = (f"{criterion.bound.words} ({criterion.source})",)
    bound = Bound(metric="rail_ratio", unit="ratio", floor=floor, derivation=lines, source=criterion.source)
    ids = sorted(rates)
    if ratio < floor:
        return judgement(criterion, subject, "fail", "below-floor", why, ids, summary=_ratio(ratio), bound=bound)
    return judgement(criterion, subject, "pass", "within-bounds", why, ids, summary=_ratio(ratio), bound=bound)
