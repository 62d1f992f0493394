"""The clocks of nodes, held against each other's and that of the machine that validates, which is one voice more.

What all have in common is nobody's fault: a clock is wrong where most others agree on another time. Of two that differ
(one node and the machine that validates) nobody knows which, and the difference is only told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import NamedTuple

from validation.judging.case import Case
from validation.model.times import moment

APART_S = 60.0
"""By how much clocks may differ. chrony keeps them within a millisecond, and munge, by which Slurm knows who asks,
bears 300 s (munge(7)). Project default."""


class Clock(NamedTuple):
    """By how many seconds a node's clock is ahead of that of the machine that validates: at least, and at most. It was
    read at some moment of a look that took as long as the two are apart."""

    least_s: float
    most_s: float

    def apart_s(self, usual_s: float) -> float:
        """By how much it is ahead of a clock that is `usual_s` ahead: 0 where it may be the same, below 0 behind."""
        return max(self.least_s - usual_s, 0.0) + min(self.most_s - usual_s, 0.0)


@dataclass(frozen=True)
class Clocks:
    """`usual_s`: by how much most clocks are ahead of that of the machine that validates; `agree` of `all` do."""

    known: Mapping[str, Clock]
    usual_s: float = 0.0
    agree: int = 1
    all: int = 1

    def wrong(self, node: str) -> str:
        """Why a node's clock is wrong, "" where it is right or nobody knows."""
        apart = self.known[node].apart_s(self.usual_s) if node in self.known else 0.0
        if abs(apart) <= APART_S or 2 * self.agree <= self.all:
            return ""
        return f"its clock is {_span(apart)} {self.agree} of {self.all} clocks, the nodes' and this machine's"

    def told(self, node: str) -> str:
        """How far a node's clock is from that of the machine that validates, "" where that is next to nothing."""
        apart = self.known[node].apart_s(0.0) if node in self.known else 0.0
        return f"its clock is {_span(apart)} that of the machine that validates" if abs(apart) > APART_S else ""


def clocks(case: Case, times_s: Mapping[str, float | None]) -> Clocks:
    """The clocks of nodes; `times_s`: what each said at its look, in seconds since 1970."""
    known: dict[str, Clock] = {}
    for m in case.plan.measurements:
        said = times_s.get(m.nodes[0]) if m.kind == "facts" else None
        result = case.usable(m.id) if said is not None else None
        if result is not None and said is not None:
            begun, ended = moment(result.provenance.started), moment(result.provenance.ended)
            if begun is not None and ended is not None:
                known[m.nodes[0]] = Clock(said - ended.timestamp(), said - begun.timestamp())
    usual = median_low([0.0, *((one.least_s + one.most_s) / 2 for one in known.values())])
    agree = sum(abs(one.apart_s(usual)) <= APART_S for one in (Clock(0.0, 0.0), *known.values()))
    return Clocks(known, usual, agree, len(known) + 1)


def _span(apart_s: float) -> str:
    """`3 h ahead of`, `90 s behind`."""
    seconds = abs(apart_s)
    unit, size = next(((u, s) for u, s in (("days", 86400), ("h", 3600), ("min", 60)) if seconds >= 1.5 * s), ("s", 1))
    return f"{seconds / size:.3g} {unit} {'ahead of' if apart_s > 0 else 'behind'}"
