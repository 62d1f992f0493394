"""RDMA between the memory of GPUs of two nodes: what was carried, beside what host memory carries; reported."""

from __future__ import annotations

from collections.abc import Mapping

from validation.analysis.stats import summarize
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.measures.gpu.copies_judge import without_gpus
from validation.model import Judgement, Measurement
from validation.rules.bounds import CEILING_SLACK
from validation.rules.criterion import Criterion

HOST = "rdma_write_bandwidth_gbps"


@method("rdma-gpu", "RDMA between the memory of GPUs of a pair's nodes, beside that of hosts", counts="results")
def judge_rdma_gpu(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each ordered pair of ports whose nodes have GPUs."""
    return [*without_gpus(case, criterion), *(_pair(case, criterion, m) for m in case.serving(criterion))]


def _pair(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    subject, ids, metric = subject_of(m), (m.id,), criterion.metric or ""
    if gone := unusable(case, criterion, subject, ids, None):
        return gone
    result = case.latest[m.id]
    facts: Mapping[str, object] = result.plain
    lacking = [
        f"{node}: {facts[key]}" for node, key in zip(m.nodes, ("no_gpu", "peer_no_gpu"), strict=True) if facts.get(key)
    ]
    if lacking:
        return judgement(criterion, subject, "not-measured", "no-bound", "; ".join(lacking), ids)
    values = result.values(metric)
    if not values:
        why = f"{m.id} has a result, but no {metric} in it"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    summary = summarize(values)
    line = case.bounds.get("rdma_bandwidth")
    ways = " to ".join(
        f"GPU {facts.get(f'{end}gpu_address')} of {node} ({facts.get(f'{end}gpu_memory')})"
        for node, end in zip(m.nodes, ("", "peer_"), strict=True)
    )
    said = f"{summary.median:.4g} {criterion.unit}, {ways}"
    if line is not None and line.ceiling is not None and summary.median > line.ceiling * CEILING_SLACK:
        why = f"{said}: more than the {line.ceiling:g} {criterion.unit} of the line"
        return judgement(criterion, subject, "not-measured", "above-ceiling", why, ids, summary=summary)
    if host := _host(case, m):
        said += f"; host memory {host:.4g} {criterion.unit}"
    why = f"reported, not judged: {said}"
    return judgement(criterion, subject, "not-applicable", "reported", why, ids, summary=summary)


def _host(case: Case, m: Measurement) -> float | None:
    """What host memory carried between the same ports, in the median of its runs."""
    same = [
        value
        for one in case.plan.measurements
        if one.kind == "rdma-bandwidth" and one.endpoints == m.endpoints and not one.params.get("bidirectional")
        if one.params.get("op") == "write" and (found := case.usable(one.id)) is not None
        for value in found.values(HOST)
    ]
    return summarize(same).median if same else None
