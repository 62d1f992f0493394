"""Judging the MTU of a pair: of its IP path as measured, and on RDMA fabrics of the RDMA ports at its ends."""

from __future__ import annotations

from collections.abc import Sequence

from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import judge_values
from validation.measures.rdma.ports_judge import BEFORE, port_of
from validation.model import Endpoint, Judgement
from validation.rules.criterion import Criterion


@method("mtu", "value, and on RDMA fabrics the active MTU of the ports")
def judge_mtu(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """One judgement for each pair: the path MTU, and where that passes the active MTU of the RDMA ports at its ends."""
    judged = judge_values(case, criterion)
    if not case.fabric.needs_rdma:
        return judged
    return [(_rdma(case, criterion, j) or j) if j.verdict == "pass" else j for j in judged]


def _rdma(case: Case, criterion: Criterion, passed: Judgement) -> Judgement | None:
    """What RDMA makes of a pair whose path MTU is right; None where it is right too, or both ends carry TCP only."""
    found: list[tuple[Endpoint, int]] = []
    evidence = list(passed.evidence)
    wanted = case.fabric.rdma_mtu
    bound = case.bounds["rdma_mtu"]
    for end in passed.about.ends:
        port = next((p for p in case.topology.node(end.node).ports if p.interface == end.port), None)
        id_ = f"{BEFORE}.{end.node}"
        if port is None or not port.rdma:
            continue  # a port that carries TCP only has no such MTU
        if id_ not in case.planned:
            why = f"the RDMA MTU of {end} is not known because reading it was not planned"
            return judgement(criterion, passed.about, "not-measured", "missing-metric", why, evidence, bound=bound)
        evidence.append(id_)
        gone = unusable(case, criterion, passed.about, [id_], bound)
        if gone is not None:
            return gone
        seen = port_of(case, end)
        if seen is None or seen.active_mtu_bytes is None:
            unread = (seen.active_mtu_unread if seen else "") or "ibv_devinfo does not say it"
            why = unread if seen is not None and seen.device else "it has no RDMA device"
            why = f"the RDMA MTU of {end} is not known because {why}"
            return judgement(criterion, passed.about, "not-measured", "missing-metric", why, evidence, bound=bound)
        found.append((end, seen.active_mtu_bytes))
    if all(mtu == wanted for _, mtu in found):
        return None
    least = float(min(mtu for _, mtu in found))
    why = f"path MTU as wanted, but of RDMA: {', '.join(f'{end} {mtu}' for end, mtu in found)} bytes, {wanted} wanted"
    summary = Summary(median=least, mad=0.0, low=least, high=least, count=len(found))
    return judgement(
        criterion, passed.about, "fail", "not-equal", why, evidence, summary=summary, bound=bound
    )  # fmt: skip
