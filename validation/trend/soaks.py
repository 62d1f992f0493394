"""What the burn-ins of a site found: of each subject by the newest run that burnt it in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from validation.model import VerdictDoc
from validation.run.read import Run

SUITE = "burn-in"
_BROKEN = ("missing-result", "tool-failed", "missing-metric")
"""Why a judgement was not made though the load was to run: a segment that failed. A bound that a rehearsal does not
judge is none of these."""
_SEEN = ("pass", "fail", "waived")

Found = Literal["failed", "broken-off"]
_FOUND: tuple[Found, ...] = ("failed", "broken-off")


class SoakFinding(NamedTuple):
    """What a criterion of the burn-in found of a subject, in how many segments."""

    criterion: str
    subject: str
    found: Found
    segments: int


def soaks_of(runs: Sequence[tuple[Run, VerdictDoc]]) -> tuple[SoakFinding, ...]:
    """Of judged runs, in any order; failures first. A later run that does not burn nodes in says nothing of them. What
    was found of a node ends when the site, by the inventory of its newest run, has the node no more."""
    known: dict[tuple[str, tuple[str, ...]], dict[str, tuple[int, int]]] = {}
    newest_first = sorted(runs, key=lambda pair: (pair[0].info.created, pair[0].info.run), reverse=True)
    for run, verdict in newest_first:
        known = {**_of_one(run, verdict), **known}
    here = next((_nodes_of(run) for run, _ in newest_first if run.info.unit is None or run.info.part is not None), None)
    findings = [
        SoakFinding(criterion, subject, found, count)
        for (criterion, nodes), subjects in sorted(known.items())
        if here is None or here.issuperset(nodes)
        for subject, counts in subjects.items()
        for found, count in zip(_FOUND, counts, strict=True)
        if count
    ]
    return tuple(sorted(findings, key=lambda one: _FOUND.index(one.found)))


def _nodes_of(run: Run) -> frozenset[str]:
    """All nodes of the site, those of its other units too, which a unit's run of before does not know."""
    elsewhere = run.info.part.elsewhere if run.info.part is not None else ()
    return frozenset((*(node.name for node in run.topology.nodes), *elsewhere))


def _of_one(run: Run, verdict: VerdictDoc) -> dict[tuple[str, tuple[str, ...]], dict[str, tuple[int, int]]]:
    """Criterion and the nodes of a subject -> its subjects, which may be their GPUs, with what was found of each."""
    suite = {criterion.id for criterion in run.criteria if criterion.suite == SUITE}
    found: dict[tuple[str, tuple[str, ...]], dict[str, tuple[int, int]]] = {}
    for criterion in verdict.criteria:
        for one in criterion.judgements if criterion.id in suite else ():
            broken = one.reason_code in _BROKEN
            if broken or one.verdict in _SEEN:
                subjects = found.setdefault((criterion.id, tuple(end.node for end in one.about.ends)), {})
                failed, broken_off = subjects.get(one.subject, (0, 0))
                subjects[one.subject] = failed + (one.verdict == "fail"), broken_off + broken
    return found
