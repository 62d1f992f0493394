"""A run as it is judged: all that its verdict follows from, read and typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from validation.judging.accepted import AcceptedRates
from validation.model import Plan, Result, RunInfo, Topology
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric
from validation.rules.profile import Profile
from validation.rules.punch import Point
from validation.rules.waiver import Waiver


@dataclass(frozen=True)
class Evidence:
    """What is wrong with results. `faults`: measurement -> why its results prove nothing."""

    faults: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunData:
    """`results` may hold several lines of a measurement; none of them counts where `evidence` has something against
    one. `points`: of the site's punch list. Without a profile everything that the criteria require is owed.
    `accepted`: what the site trained at when it was accepted.
    """

    info: RunInfo
    topology: Topology
    plan: Plan
    fabric: Fabric
    criteria: Sequence[Criterion]
    results: Sequence[Result]
    waivers: Sequence[Waiver] = ()
    profile: Profile | None = None
    evidence: Evidence = Evidence()
    accepted: AcceptedRates | None = None
    points: Sequence[Point] = ()
