"""Whether what runs beside a burn-in did run beside it. Pure."""

from __future__ import annotations

from validation.judging.case import Case
from validation.measures.compute.burn_in import burn_id
from validation.measures.compute.segments import segment_of, span
from validation.model import Measurement


def idle(case: Case, m: Measurement, what: str, least: float) -> str:
    """Why the node was not under load in the least share of the time of a measurement, in words; "" where it was.

    `what` of the node the measurement loads.
    """
    mine, burn = case.usable(m.id), case.usable(burn_id(m.nodes[0], segment_of(m)))
    if burn is None:
        return f"{m.nodes[0]} has no burn-in that came to its end, and so its {what} was loaded alone"
    if mine is None:
        return f"{m.id} has no result"
    (begin, end), (first, last) = span(mine), span(burn)
    share = (min(end, last) - max(begin, first)) / max(end - begin, 1e-9)
    if share >= least:
        return ""
    return f"{m.nodes[0]} was under load in {max(share, 0):.0%} of the time alone"
