"""Why criteria were not measured, by reason: one line where one would be too many. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from textwrap import shorten

from validation.kinds import KINDS
from validation.model import CriterionVerdict, Plan, ReasonCode, Topology, VerdictDoc
from validation.model.judgement import others
from validation.rules.criterion import Criterion
from validation.rules.virtual import CONTAINERS

LONGEST = 64
"""Characters of a criterion's title."""
_NETWORK = ("pair", "port")
_BETWEEN_NODES = ("incast", "all-to-all", "soak-fabric")
_OF_GPUS = ("gpu-", "dcgm-", "burn-", "remoting-", "collectives")
_TRAINING = ("training-", "tf-cnn-")


class Why(Enum):
    """A reason, in two to five words."""

    SUITE = "suite not selected"
    PLAN = "not planned"
    RELEASE = "no measurement in this release"
    EMULATED_GPUS = "emulated GPUs"
    PROCESSORS = "no GPUs"
    LINKS = "virtual links"
    CONTAINER = "container"
    MACHINE = "virtual machine"
    HOST = "within one host"
    NOISY = "too noisy"
    NO_RESULT = "no result"
    TOOL = "tool failed"
    LACKING = "figure lacking"
    NO_BOUND = "no bound known"
    CEILING = "above what is possible"


_CODES: dict[ReasonCode, Why] = {
    "no-probe": Why.RELEASE,
    "not-the-fabric": Why.HOST,
    "too-noisy": Why.NOISY,
    "missing-result": Why.NO_RESULT,
    "tool-failed": Why.TOOL,
    "missing-metric": Why.LACKING,
    "no-bound": Why.NO_BOUND,
    "above-ceiling": Why.CEILING,
}


@dataclass(frozen=True)
class Unmeasured:
    """A reason and the ids of the criteria that were not measured for it."""

    why: Why
    criteria: tuple[str, ...]


def unmeasured(
    verdict: VerdictDoc, criteria: Sequence[Criterion], plan: Plan, topology: Topology
) -> tuple[Unmeasured, ...]:
    """Every criterion that was not measured, by reason, the most frequent first."""
    known = {criterion.id: criterion for criterion in criteria}
    found: dict[Why, list[str]] = {}
    for one in verdict.criteria:
        if one.verdict == "not-measured":
            found.setdefault(_why(one, known.get(one.id), plan, topology), []).append(one.id)
    return tuple(Unmeasured(why, tuple(ids)) for why, ids in sorted(found.items(), key=lambda item: -len(item[1])))


def _why(one: CriterionVerdict, criterion: Criterion | None, plan: Plan, topology: Topology) -> Why:
    if one.reason_code == "not-selected":
        return Why.PLAN if criterion is not None and criterion.suite in plan.suites else Why.SUITE
    if one.reason_code == "virtual":
        return _virtual(one, criterion, topology)
    return _CODES[one.reason_code]


def _virtual(one: CriterionVerdict, criterion: Criterion | None, topology: Topology) -> Why:
    """What of virtual nodes keeps them from proving it."""
    kind = criterion.kind or "" if criterion is not None else ""
    if criterion is not None and (criterion.scope in _NETWORK or kind in _BETWEEN_NODES):
        return Why.LINKS
    if kind.startswith((*_OF_GPUS, *_TRAINING)):
        emulated = not kind.startswith(_TRAINING) and any(node.emulated_gpus for node in topology.nodes)
        return Why.EMULATED_GPUS if emulated else Why.PROCESSORS
    about = {end.node for j in others(one.judgements) if j.verdict == "not-measured" for end in j.about.ends}
    nodes = [node for node in topology.nodes if node.virtual and (not about or node.name in about)]
    contained = all(node.virtual in CONTAINERS for node in nodes)
    return Why.CONTAINER if contained else Why.MACHINE


def title(criterion: Criterion) -> str:
    """A criterion in a few words: what its kind measures, where that is what it judges, else the heading of
    its statement.
    """
    kind = KINDS.get(criterion.kind or "")
    if kind is not None and criterion.metric and criterion.metric == kind.headline:
        return kind.title
    return shorten(criterion.heading, LONGEST, placeholder=" ...")
