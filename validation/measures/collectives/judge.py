"""Judging collective operations: bus bandwidth between a published floor and what the links allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

from validation.analysis.denial import loss_of
from validation.analysis.stats import summarize
from validation.base.counting import number_of
from validation.judging.attempts import Attempt, decide
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import against, impossible, samples_of, subject_of
from validation.kinds.record import names
from validation.measures.collectives.bounds import LEAST_BYTES, Layout, bound
from validation.measures.collectives.facts import CollectivesFacts
from validation.model import Bound, Judgement, Measurement, Node, ReasonCode, Subject
from validation.probes.collectives_rank import OPS
from validation.rules.bounds import CEILING_SLACK
from validation.rules.criterion import Criterion

_SUFFIX = "_busbw_gb_s"


@method(
    "collectives",
    "bus bandwidth of collective operations against published floors and what links and ports allow",
    figures=True,
    counts="jobs",
)
def judge_collectives(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each job, of the operation whose metric the criterion has, at the largest size of the job.

    Of a criterion without a metric one for each other operation.
    """
    ops = [criterion.metric.removesuffix(_SUFFIX)] if criterion.metric else [op for op in OPS if op != "all_reduce"]
    return [_figure(case, _of(criterion, op), op, job) for job in case.serving(criterion) for op in ops]


def _of(criterion: Criterion, op: str) -> Criterion:
    return criterion.model_copy(update={"metric": f"{op}{_SUFFIX}", "unit": "GB/s"})


def _figure(case: Case, criterion: Criterion, op: str, job: Measurement) -> Judgement:
    subject, metric = subject_of(job), criterion.metric or ""
    if op != "all_reduce":
        subject = subject.model_copy(update={"op": f"{op}, {subject.op}"})
    facts = facts_for(case, criterion, subject, job.id, CollectivesFacts, None)
    if isinstance(facts, Judgement):
        return facts
    gap = next((gap.why for gap in facts.left_out if gap.op == op), "")
    if gap and not any(row.op == op for row in facts.rows):
        if criterion.bound.kind == "report":
            return judgement(criterion, subject, "not-applicable", "reported", f"not measured: {gap}", [job.id])
        return judgement(criterion, subject, "not-measured", "missing-metric", gap, [job.id])
    limit = None if case.virtual else _bound(case, criterion, op, job, facts)
    attempts = []
    for result in case.tries(job.id):
        values = samples_of(criterion, job, result)
        if isinstance(values, str):
            return judgement(criterion, subject, "not-measured", "missing-metric", values, [job.id], bound=limit)
        most = limit.ceiling * CEILING_SLACK if limit and limit.ceiling and facts.backend == "nccl" else math.inf
        wrong = impossible(values, criterion.unit or "", metric, most)
        if wrong:
            summary = summarize(values)
            return judgement(
                criterion, subject, "not-measured", "above-ceiling", wrong, [job.id], summary=summary, bound=limit
            )
        attempts.append(Attempt(tuple(values), loss_of([result])))
    return decide(attempts, lambda values: _judged(case, criterion, job, subject, facts, limit, values))


def _judged(
    case: Case,
    criterion: Criterion,
    job: Measurement,
    subject: Subject,
    facts: CollectivesFacts,
    limit: Bound | None,
    values: list[float],
) -> Judgement:
    summary, ids = summarize(values), [job.id]
    op = (criterion.metric or "").removesuffix(_SUFFIX)
    largest = max((row.bytes for row in facts.rows if row.op == op), default=0)
    shown = f"{summary.median:.4g} GB/s at {number_of(largest, 'byte')} by {facts.by}"

    def unsaid(code: ReasonCode, why: str) -> Judgement:
        return judgement(criterion, subject, "not-measured", code, why, ids, summary=summary, bound=limit)

    if criterion.bound.kind == "report":
        why = f"reported, not judged: {shown}"
        return judgement(criterion, subject, "not-applicable", "reported", why, ids, summary=summary, bound=limit)
    if case.virtual:
        return unsaid("virtual", f"{criterion.rehearsal.why}: measured {shown}, not judged")
    if facts.backend != "nccl":
        return unsaid("missing-metric", f"not every rank had a GPU of its own: measured {shown}, not judged")
    if limit is None or limit.floor is None:
        where = f"{facts.world_size} x {facts.gpu_model or 'GPUs of several models'}"
        return unsaid("no-bound", f"no floor is known for {where} on {case.fabric.name}; measured {shown}")
    if largest < LEAST_BYTES:
        return unsaid("missing-metric", f"too small to be judged, {LEAST_BYTES} bytes are needed: measured {shown}")
    found = against(criterion, subject, ids, summary, limit, values)
    return found.model_copy(update={"reason": f"{found.reason}; {facts.slowed}"}) if facts.slowed else found


def _bound(case: Case, criterion: Criterion, op: str, job: Measurement, facts: CollectivesFacts) -> Bound | None:
    metric, share = criterion.metric or "", criterion.bound.value or 0.0
    return bound(op, _layout(case, job, facts), metric, share, criterion.source)


def _layout(case: Case, job: Measurement, facts: CollectivesFacts) -> Layout:
    """Where the ranks were."""
    nodes = len(set(facts.hosts)) or 1
    return Layout(
        gpus=facts.world_size // nodes,
        nodes=nodes,
        model=facts.gpu_model,
        fabric_gb_s=fabric_gb_s(case, job, [case.nodes[name] for name in names(job, "hosts")]),
        sharp=facts.sharp,
    )


def fabric_gb_s(case: Case, job: Measurement, hosts: Sequence[Node]) -> float | None:
    """Each way, of the host that has least. A port's rate is what the inventory declares, else the fabric's."""
    rates = []
    for host in hosts:
        # as in validation/measures/collectives/kinds.py: over TCP NCCL is told of all ports
        ports = [p for p in host.ports if p.rdma or job.params.get("transport") == "tcp"] or list(host.ports[:1])
        share = case.fabric.data_gbps / case.fabric.line_rate_gbps
        rates.append(sum((p.rate_gbps or case.fabric.line_rate_gbps) * share for p in ports) / 8)
    return min(rates) if rates else None
