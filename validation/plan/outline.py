"""A plan in a few lines: rounds, measurements and time of each kind, also of a fleet whose pairs are millions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from pydantic import Field

from validation.kinds import job_for
from validation.model import LeftOut, Measurement, Plan, Topology
from validation.model.base import Model
from validation.model.coverage import Coverage
from validation.plan.request import PairRound
from validation.plan.suites import Planned

PROBE_CPU_S = 0.012
"""CPU seconds of the controller for each probe that it starts over ssh, its own and of the ssh program. Measured:
benchmarks/controller.py."""
RECORD_S = 0.02
"""Seconds of the controller for each measurement that it writes down and flushes to the disk, one after another.
Measured on a busy machine: benchmarks/README.md."""


class Step(Model):
    """What is planned of one kind of measurement. `probes` are started for it; `measuring_s` is the longest of each
    round, added up; `controller_s` what starting the probes and writing the results takes beside it."""

    suite: str
    kind: str
    rounds: int = Field(ge=0)
    measurements: int = Field(ge=0)
    probes: int = Field(ge=0)
    measuring_s: float
    controller_s: float

    @property
    def predicted_s(self) -> float:
        """Both."""
        return self.measuring_s + self.controller_s


class Outline(Model):
    """A plan without its measurements. `cores` is how many processors of the controller the prediction is made for."""

    fabric: str
    suites: tuple[str, ...]
    nodes: int
    ports: int
    cores: int = Field(ge=1)
    steps: tuple[Step, ...]
    coverage: tuple[Coverage, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def rounds(self) -> int:
        """Of all kinds."""
        return sum(step.rounds for step in self.steps)

    @property
    def measurements(self) -> int:
        """Of all kinds."""
        return sum(step.measurements for step in self.steps)

    @property
    def measuring_s(self) -> float:
        """Of all kinds."""
        return sum(step.measuring_s for step in self.steps)

    @property
    def predicted_s(self) -> float:
        """Seconds until the last result is there, without repeats."""
        return sum(step.predicted_s for step in self.steps)


def planned(plan: Plan) -> Planned:
    """What was planned, of a plan that is made already."""
    rounds = tuple([plan.measurement(id_) for id_ in ids] for ids in plan.rounds)
    return Planned(suites=plan.suites, rounds=rounds, left_out=plan.left_out, coverage=plan.coverage)


def outline(fabric: str, topology: Topology, what: Planned, cores: int) -> Outline:
    """`cores`: processors of the machine that will run the validation."""
    rounds: Counter[tuple[str, str]] = Counter()
    measurements: Counter[tuple[str, str]] = Counter()
    probes: Counter[tuple[str, str]] = Counter()
    measuring: dict[tuple[str, str], float] = defaultdict(float)
    for one in what.rounds:
        first = one[0]
        key = (first.suite, first.kind)
        rounds[key] += 1
        # of a round of pairs all are alike, and one is made
        all_ = [first] if isinstance(one, PairRound) else one
        measuring[key] += max(m.estimated_s for m in all_)
        for m, count in _alike(all_, len(one)):
            measurements[m.suite, m.kind] += count
            probes[m.suite, m.kind] += count * job_for(m, topology).probes
    steps = tuple(
        Step(
            suite=key[0],
            kind=key[1],
            rounds=rounds[key],
            measurements=measurements[key],
            probes=probes[key],
            measuring_s=round(measuring[key], 1),
            controller_s=round(probes[key] * PROBE_CPU_S / cores + measurements[key] * RECORD_S, 1),
        )
        for key in measurements
    )
    return Outline(
        fabric=fabric,
        suites=what.suites,
        nodes=len(topology.nodes),
        ports=sum(len(node.ports) for node in topology.nodes),
        cores=cores,
        steps=steps,
        coverage=what.coverage,
        left_out=what.left_out,
    )


def _alike(round_: Sequence[Measurement], count: int) -> list[tuple[Measurement, int]]:
    """One measurement of each kind, and how many of it there are; of a single one as many as `count`."""
    if len(round_) == 1:
        return [(round_[0], count)]
    kinds: dict[str, list[Measurement]] = defaultdict(list)
    for m in round_:
        kinds[m.kind].append(m)
    return [(some[0], len(some)) for some in kinds.values()]
