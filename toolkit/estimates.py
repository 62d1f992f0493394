"""How long the rest of a run takes: the plan's estimates, what they are worth on such nodes, and this run's pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from validation.model import Measurement, Plan, Topology

ANYWHERE: Mapping[str, float] = {"facts": 4.0}
"""Kind -> what it takes, as a share of the plan's estimate: Python starts on the node for the first time."""

VIRTUAL: Mapping[str, float] = {
    "gpu-health": 0.15,
    "gpu-container": 0.07,
    "tcp-latency": 1.1,
    "incast": 0.53,
    "all-to-all": 0.58,
    "gpu-copies": 0.2,
    "gpu-load": 0.17,
    "gpu-tools": 0.06,
    "training-short": 0.55,
    "training-turns": 0.55,
    "training-long": 0.65,
    "collectives": 0.3,
}
"""The same of virtual nodes, whose GPUs are emulated and whose ranks share this machine's processors: between the
recorded lab runs on two processors, quiet and beside other work (tests/data/durations). The plan's own estimates stay
above them on purpose: time limits are made of those.
"""

TRUST_S = 20.0
"""The expectation counts as much as this many measured seconds: what begins a run says little of the rest."""


def expected_s(plan: Plan, topology: Topology) -> dict[str, float]:
    """Measurement -> seconds that it probably takes on these nodes."""
    virtual = {node.name for node in topology.nodes if node.virtual}
    found = {}
    for m in plan.measurements:
        share = ANYWHERE.get(m.kind, 1.0)
        if virtual.issuperset(m.nodes):
            share = VIRTUAL.get(m.kind, share)
        found[m.id] = m.estimated_s * share
    return found


def total_s(plan: Plan, expected: Mapping[str, float]) -> float:
    """Seconds of a whole plan."""
    return sum(max((expected[id_] for id_ in ids), default=0.0) for ids in plan.rounds)


class Clock:
    """Time that is left: what is expected of each round, corrected by how long things really took."""

    def __init__(self, now: Callable[[], float] = time.monotonic, expected: Mapping[str, float] | None = None) -> None:
        """`now` in seconds; `expected`: as of `expected_s`, None: the plan's own estimates, which nothing is known to
        speak for.
        """
        self._now = now
        self._expected = expected
        self._trust_s = 0.0 if expected is None else TRUST_S
        self._rounds: list[dict[str, float]] = []
        self._estimate: list[float] = []
        self._estimated = 0.0
        self._began = now()
        self._round_began = self._began
        self._real = 0.0

    def takes_s(self, m: Measurement) -> float:
        """Seconds that a measurement is expected to take."""
        return m.estimated_s if self._expected is None else self._expected.get(m.id, m.estimated_s)

    def plan(self, plan: Plan, done: Collection[str]) -> None:
        """Rounds that are still to be run, each with its measurements' estimates in seconds."""
        rounds = [[id_ for id_ in ids if id_ not in done] for ids in plan.rounds]
        self._rounds = [{id_: self.takes_s(plan.measurement(id_)) for id_ in ids} for ids in rounds if ids]
        self._began = self._round_began = self._now()
        self._estimate = [max(ids.values()) for ids in self._rounds]

    def again(self, rounds: Sequence[Sequence[Measurement]]) -> None:
        """Further rounds, before those that are left."""
        self._rounds[:0] = [{m.id: self.takes_s(m) for m in some} for some in rounds]
        self._estimate[:0] = [max(self.takes_s(m) for m in some) for some in rounds]

    def finished(self, id_: str) -> None:
        """A measurement is over; a round that is over corrects the estimates."""
        if not self._rounds:
            return
        self._rounds[0].pop(id_, None)
        if not self._rounds[0]:
            self._rounds.pop(0)
            self._estimated += self._estimate.pop(0)
            self._real += self._now() - self._round_began
            self._round_began = self._now()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first measurement."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Seconds that are left, as far as one can tell."""
        known = self._estimated + self._trust_s
        factor = (self._real + self._trust_s) / known if known else 1.0
        if not self._rounds:
            return 0.0
        now = max(0.0, self._estimate[0] * factor - (self._now() - self._round_began))  # of a late round nothing
        return now + sum(self._estimate[1:]) * factor
