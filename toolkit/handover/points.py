"""From a run to its site's punch list: which points it closed, which it keeps, and which it found. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from toolkit.handover.punch_file import next_ids
from validation.base.counting import number_of
from validation.model import CriterionVerdict, Judgement, RunInfo, VerdictDoc
from validation.model.judgement import others
from validation.rules.punch import Point
from validation.verdict.punch import follow, is_elsewhere

DAYS = 30
"""From the day of the run to the last day of a point that failed, where none was named. Project default."""


@dataclass(frozen=True)
class Found:
    """A criterion that failed or was waived, of one node or of all. `due`: the waiver's last day, where one counts."""

    criterion: str
    node: str | None
    text: str
    waived: bool
    owner: str | None = None
    due: date | None = None


@dataclass(frozen=True)
class Updated:
    """`points`: the whole list as it is now. `closed`, `reopened` and `new`: what the run changed of it."""

    points: tuple[Point, ...]
    closed: tuple[Point, ...]
    reopened: tuple[Point, ...]
    new: tuple[Point, ...]


def updated(
    points: Sequence[Point], verdict: VerdictDoc, info: RunInfo, owner: str | None, due: date | None
) -> Updated | None:
    """The list after a run, whose day is known; None where something new was found and nobody was named who is to do
    it.
    """
    day = info.day
    assert day is not None
    judged = {one.id: one.judgements for one in verdict.criteria}
    states = {one.id: one for one in follow(points, judged, verdict.run, day, info.part)}
    now, closed, reopened = [], [], []
    for point in points:
        state = states[point.id]
        if point.open and state.state == "closed":
            point = point.model_copy(
                update={"closed": max(day, point.opened), "closed_by": verdict.run, "closed_why": state.why}
            )
            closed.append(point)
        elif state.reopened:
            point = point.model_copy(update={"closed": None, "closed_by": None, "closed_why": None,
                                             "due": max(point.due, day)})  # fmt: skip
            reopened.append(point)
        now.append(point)
    mine = [point for point in now if point.open and not is_elsewhere(point, info.part)]
    found = [one for one in findings(verdict) if not any(_covers(point, one) for point in mine)]
    if any(one.owner is None for one in found) and owner is None:
        return None
    new = []
    for id_, one in zip(next_ids(now), found, strict=False):
        last = due or one.due or day + timedelta(days=DAYS)
        said = {
            "id": id_,
            "grade": "B" if one.waived else "A",
            "text": one.text,
            "criterion": one.criterion,
            "node": one.node,
            "unit": info.unit if one.node is None else None,
            "owner": owner or one.owner,
            "due": max(last, day),
            "blocking": not one.waived,
            "opened": day,
            "opened_by": verdict.run,
        }
        new.append(Point.model_validate(said))
    return Updated((*now, *new), tuple(closed), tuple(reopened), tuple(new))


def findings(verdict: VerdictDoc) -> Iterator[Found]:
    """What failed and what was waived, one for each criterion and node; of pairs and jobs one for each criterion."""
    for criterion in verdict.criteria:
        for word in ("fail", "waived"):
            odd = [j for j in others(criterion.judgements) if j.verdict == word]
            nodes = {j.about.ends[0].node for j in odd if j.about.kind == "node" and len(j.about.ends) == 1}
            if odd and all(j.about.kind == "node" for j in odd):
                for node in sorted(nodes):
                    yield _found(criterion, [j for j in odd if j.about.ends[0].node == node], node)
            elif odd:
                yield _found(criterion, odd, None)
            elif word == "waived" and criterion.verdict == "waived" and not criterion.judgements:
                yield Found(criterion.id, None, f"{criterion.statement} Waived: {criterion.reason}", True)


def _found(criterion: CriterionVerdict, odd: Sequence[Judgement], node: str | None) -> Found:
    first, waived = odd[0], odd[0].waived
    more = f" (and {number_of(len(odd) - 1, 'more subject')})" if odd[1:] else ""
    where = "" if node else f"{first.subject}: "
    reason = first.reason if waived is None else f"waived until {waived.until}: {waived.why}"
    return Found(
        criterion=criterion.id,
        node=node,
        text=" ".join(f"{where}{reason}{more}".split())[:400],
        waived=waived is not None,
        owner=waived.who if waived else None,
        due=date.fromisoformat(waived.until) if waived else None,
    )


def _covers(point: Point, one: Found) -> bool:
    return point.criterion == one.criterion and point.node in (None, one.node)
