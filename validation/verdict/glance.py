"""A verdict at a glance: what failed by how much, who is suspected, what was not measured. Typed, for whoever shows it.

No I/O. Nothing is taken from a sentence of the verdict: figures come from its judgements, repeats from the results.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from validation.judging.methods import METHODS
from validation.model import CriterionVerdict, Endpoint, Finding, Judgement, Plan, Result, Topology, VerdictDoc
from validation.model.judgement import others
from validation.rules.criterion import Criterion
from validation.verdict.judge import SCOPES
from validation.verdict.unmeasured import Unmeasured, title, unmeasured

PAUSE_S = 60.0
"""Two measurements further apart than this are of two sittings: the time between them is not the run's."""

Relation = Literal["needs", "at most", "wanted"]


@dataclass(frozen=True)
class Failure:
    """A criterion that failed. `value`: the median of what failed, None where it is no figure; `limit`: the bound,
    a number or what it should have been. `failed` of `of` `things`; `reason`: of the first that failed.
    """

    id: str
    title: str
    value: float | None
    unit: str
    relation: Relation | None
    limit: float | str | None
    failed: int
    of: int
    things: str
    reason: str


@dataclass(frozen=True)
class Suspected:
    """A finding. `pairs` of its `of` pairs fail, both 0 where it is of no pairs; `repeated` of these failures were
    measured once more and came out the same.
    """

    finding: Finding
    pairs: int
    of: int
    repeated: int


@dataclass(frozen=True)
class Group:
    """Failures that have the same suspects; of failures without a suspect, and of suspects without a failure, the
    other part is empty.
    """

    failures: tuple[Failure, ...]
    suspects: tuple[Suspected, ...]


@dataclass(frozen=True)
class Open:
    """A criterion that was measured and keeps a run incomplete, and why."""

    id: str
    title: str
    reason: str


@dataclass(frozen=True)
class Waived:
    """What one person waived for one reason: criteria, each with the subject where it is for one alone. Dates are ISO
    8601.
    """

    criteria: tuple[tuple[str, str], ...]
    who: str
    when: str
    until: str
    why: str


@dataclass(frozen=True)
class Glance:
    """A verdict at a glance. `open` and `owed`: what keeps the run incomplete, measured and not measured at all, the
    latter by reason. `took_s`: None where nothing was measured.
    """

    verdict: VerdictDoc
    counts: Mapping[str, int]
    groups: tuple[Group, ...]
    open: tuple[Open, ...]
    owed: tuple[Unmeasured, ...]
    waived: tuple[Waived, ...]
    unmeasured: tuple[Unmeasured, ...]
    took_s: float | None


def glance(
    verdict: VerdictDoc, criteria: Sequence[Criterion], plan: Plan, topology: Topology, results: Sequence[Result]
) -> Glance:
    """Of a run. `results`: all lines of it, with what they say of when they were taken."""
    known = {criterion.id: criterion for criterion in criteria}
    failed = [one for one in verdict.criteria if one.verdict == "fail"]
    tries = Counter(result.measurement for result in results)
    incomplete = verdict.outcome == "incomplete"
    whys = unmeasured(verdict, criteria, plan, topology)
    return Glance(
        verdict=verdict,
        counts=Counter(one.verdict for one in verdict.criteria),
        groups=tuple(_groups(verdict, failed, known, tries)),
        open=tuple(_open(verdict, known)) if incomplete else (),
        owed=tuple(_owed(verdict, whys)) if incomplete else (),
        waived=tuple(_waived(verdict)),
        unmeasured=whys,
        took_s=took_s(results),
    )


def took_s(results: Iterable[Result]) -> float | None:
    """Seconds from the first measurement's begin to the last one's end, without pauses; None without times."""
    times = [result.provenance.times for result in results]
    spans = sorted((begin, end) for begin, end in times if begin is not None and end is not None)
    if not spans:
        return None
    total, until = 0.0, spans[0][0]
    for begin, end in spans:
        gap = (begin - until).total_seconds()
        total += max(0.0, (end - max(begin, until)).total_seconds()) + (gap if 0 < gap <= PAUSE_S else 0.0)
        until = max(until, end)
    return total


def _groups(
    verdict: VerdictDoc,
    failed: Sequence[CriterionVerdict],
    known: Mapping[str, Criterion],
    tries: Mapping[str, int],
) -> Iterable[Group]:
    by: dict[tuple[int, ...], list[CriterionVerdict]] = {}
    for one in failed:
        named = tuple(n for n, finding in enumerate(verdict.findings) if one.id in finding.criteria)
        by.setdefault(named, []).append(one)
    told: set[int] = set()
    for named, some in by.items():
        suspects = tuple(_suspected(verdict.findings[n], some, tries) for n in named)
        told |= set(named)
        yield Group(tuple(_failure(one, known[one.id]) for one in some), suspects)
    for n, finding in enumerate(verdict.findings):
        if n not in told:
            yield Group((), (_suspected(finding, (), tries),))


def _failure(one: CriterionVerdict, criterion: Criterion) -> Failure:
    bad = [j for j in others(one.judgements) if j.verdict == "fail"]
    sorts = Counter((j.bound.metric if j.bound else "", j.about.sort) for j in bad)
    first = max(sorts, key=lambda sort: sorts[sort])
    mine = [j for j in bad if (j.bound.metric if j.bound else "", j.about.sort) == first]
    values = [j.value for j in mine if j.value is not None]
    relation, limit = _limit(mine[0])
    decided = len(one.judgements) - sum(j.verdict == "not-applicable" for j in others(one.judgements))
    return Failure(
        id=one.id,
        title=title(criterion),
        value=statistics.median(values) if values and limit is not None else None,
        unit=mine[0].bound.unit if mine[0].bound else criterion.unit or "",
        relation=relation,
        limit=limit,
        failed=len(bad),
        of=decided,
        things=METHODS[criterion.method].counts or SCOPES[criterion.scope],
        reason=mine[0].reason,
    )


def _limit(judgement: Judgement) -> tuple[Relation | None, float | str | None]:
    bound = judgement.bound
    if bound is None:
        return None, None
    if judgement.reason_code == "above-maximum" and bound.maximum is not None:
        return "at most", bound.maximum
    if bound.floor is not None:
        return "needs", bound.floor
    if bound.maximum is not None:
        return "at most", bound.maximum
    return ("wanted", bound.equal) if bound.equal is not None else (None, None)


def _suspected(finding: Finding, failed: Sequence[CriterionVerdict], tries: Mapping[str, int]) -> Suspected:
    evidence = set(finding.evidence)
    bad: list[Judgement] = []
    of = 0
    for one in failed:
        mine = [j for j in others(one.judgements) if j.verdict == "fail" and evidence.issuperset(j.evidence)]
        if len(mine) > len(bad) and mine[0].about.kind == "pair":
            bad, of = mine, len(_judged_of(finding, one, mine))
    repeated = sum(bool(j.evidence) and all(tries.get(id_, 0) > 1 for id_ in j.evidence) for j in bad)
    return Suspected(finding, len(bad), of, repeated)


def _judged_of(finding: Finding, one: CriterionVerdict, bad: Sequence[Judgement]) -> list[Judgement]:
    """Of a port or node the pairs that it is in, of the direction in which it fails; of the cluster all."""
    pairs = [
        j for j in one.judgements if j.about.kind == "pair" and (j.verdict in ("pass", "fail") or j.value is not None)
    ]
    ends = finding.about.ends
    if len(ends) != 1:
        return pairs if not ends and not finding.about.op else list(bad)
    (end,) = ends

    def here(place: Endpoint) -> bool:
        return place == end or (not end.port and place.node == end.node)

    def ways(judgement: Judgement) -> set[int]:
        return {n for flow in judgement.about.flows for n in (0, 1) if here(flow[n])}

    fails = set[int]().union(*(ways(j) for j in bad))
    return [j for j in pairs if ways(j) & fails]


_LOST = ("tool-failed", "missing-result")  # of which the verdict's list of what is missing tells


def _open(verdict: VerdictDoc, known: Mapping[str, Criterion]) -> Iterable[Open]:
    """What was measured and does not decide."""
    virtual = verdict.sign_off == "REHEARSAL"
    for one in verdict.criteria:
        mine = [j for j in others(one.judgements) if j.verdict == "not-measured"]
        mine = [j for j in mine if not (virtual and j.reason_code == "virtual")]
        mine = [j for j in mine if not (verdict.missing and j.reason_code in _LOST)]
        if one.verdict == "not-measured" and mine and one.id in known:
            yield Open(one.id, title(known[one.id]), f"{mine[0].subject}: {mine[0].reason}")


def _owed(verdict: VerdictDoc, whys: Iterable[Unmeasured]) -> Iterable[Unmeasured]:
    """What is owed of hardware and was not measured at all."""
    if verdict.sign_off == "REHEARSAL":
        return
    bare = {one.id for one in verdict.criteria if one.owed and one.verdict == "not-measured" and not one.judgements}
    for why in whys:
        ids = tuple(id_ for id_ in why.criteria if id_ in bare)
        if ids:
            yield Unmeasured(why.why, ids)


def _waived(verdict: VerdictDoc) -> Iterable[Waived]:
    by: dict[tuple[str, str, str, str], list[tuple[str, str]]] = {}
    for use in verdict.waivers:
        if use.covered:
            by.setdefault((use.who, use.when, use.expires, use.why), []).append((use.criterion, use.subject or ""))
    for (who, when, until, why), criteria in by.items():
        yield Waived(tuple(dict.fromkeys(criteria)), who, when, until, why)
