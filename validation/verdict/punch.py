"""The points of a punch list as of a run: each is closed by it, or kept, with the reason. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence

from validation.base.counting import be, number_of
from validation.model import Judgement, UnitPart
from validation.model.judgement import Judgements, others
from validation.model.points import PointState
from validation.rules.punch import Point

_OPEN = {"fail": "fails", "not-measured": "was not measured", "waived": "is waived, not passed"}
BY_HAND = "no criterion measures it, so a person closes it"
ELSEWHERE = "it is of another unit than this run, which neither closes it nor is kept back by it"


def follow(
    points: Sequence[Point],
    judged: Mapping[str, Sequence[Judgement]],
    run: str,
    day: datetime.date | None,
    part: UnitPart | None = None,
) -> tuple[PointState, ...]:
    """What the run says of each point. `judged`: criterion id -> its judgements, waivers already applied; `day` is the
    run's, `part` what its unit is of the site.
    """
    return tuple(_one(point, judged, run, day, part) for point in points)


def is_elsewhere(point: Point, part: UnitPart | None) -> bool:
    """Whether a point is of nodes that are not of the run's unit. One of the whole site is of each unit, too, and one
    of a pair of both its ends' units.
    """
    if part is None:
        return False
    nodes = {word.partition("/")[0] for word in re.split("[>, ]+", point.node or "") if word}
    return point.unit in part.apart or bool(nodes and nodes <= set(part.elsewhere))


def _one(
    point: Point,
    judged: Mapping[str, Sequence[Judgement]],
    run: str,
    day: datetime.date | None,
    part: UnitPart | None,
) -> PointState:
    proved, against, why = (False, False, BY_HAND) if point.criterion is None else _said(point, judged)
    elsewhere = is_elsewhere(point, part)
    less = ELSEWHERE if elsewhere else _older(point, run, day) or _narrow(point, part)
    if elsewhere:
        proved, against, why = False, False, less
    elif proved and less:
        proved, why = False, less
    by, reopened = point.closed_by, False
    if point.open:
        closed, by = proved, run if proved else None
    else:
        closed, reopened = not against, against
        by = None if against else by
        when = f"closed on {point.closed}: {point.closed_why}"
        why = f"was {when}; and now: {why}" if against else when
    return PointState(
        id=point.id,
        grade=point.grade,
        text=point.text,
        criterion=point.criterion,
        node=point.node,
        owner=point.owner,
        due=point.due.isoformat(),
        blocking=point.blocking,
        opened=point.opened.isoformat(),
        opened_by=point.opened_by,
        state="closed" if closed else "open",
        closed_by=by,
        why=why,
        reopened=reopened,
        late=not closed and day is not None and day > point.due,
        unit=point.unit,
        elsewhere=elsewhere,
    )


def _narrow(point: Point, part: UnitPart | None) -> str:
    """Why the run of a unit proves nothing of a point that is of more than the unit; "" where it is of no more."""
    if part is None or point.node is not None or point.unit in part.within:
        return ""
    return f"this run is of a part of {f'unit {point.unit}' if point.unit else 'the site'}, and the point of all of it"


def _older(point: Point, run: str, day: datetime.date | None) -> str:
    """Why a run proves nothing of a point that was found after it; "" where it was found before."""
    if point.opened_by is not None and run < point.opened_by:  # both begin with the time at which they began
        return f"this run is older than {point.opened_by}, which found it"
    if day is not None and day < point.opened:
        return f"this run is of {day}, and the point was opened on {point.opened}"
    return ""


def _said(point: Point, judged: Mapping[str, Sequence[Judgement]]) -> tuple[bool, bool, str]:
    """Whether the run proves that a point is done, whether it shows the contrary, and why."""
    assert point.criterion is not None
    all_ = judged.get(point.criterion, ())
    mine = [
        j for j in (all_ if point.node is not None else others(all_)) if point.node is None or concerns(j, point.node)
    ]
    passed = sum(j.verdict == "pass" for j in mine)
    if point.node is None and isinstance(all_, Judgements):
        passed += len(all_) - len(mine)
    where = f" of {point.node}" if point.node else ""
    for verdict, words in (
        ("fail", "fails"),
        ("not-measured", "was not measured"),
        ("waived", "is waived, not passed"),
    ):
        odd = [j for j in mine if j.verdict == verdict]
        if odd:
            about = f" ({odd[0].subject})" if odd[0].subject != point.node else ""
            return False, verdict == "fail", f"{point.criterion}{where} {words}{about}: {odd[0].reason}"
    if not passed:
        return False, False, f"this run judged nothing{where} by {point.criterion}"
    return True, False, f"{point.criterion} passes{where}: {number_of(passed, 'judgement')}"


def concerns(judgement: Judgement, node: str) -> bool:
    """Whether a judgement is about a node, or about the very subject of that name."""
    return judgement.subject == node or any(end.node == node for end in judgement.about.ends)


def blocked(points: Sequence[PointState]) -> str:
    """Words where open points keep a run from being accepted; "" where none does."""
    held = [point.id for point in points if point.keeps_back]
    if not held:
        return ""
    shown = ", ".join(held[:8]) + (f" and {len(held) - 8} more" if held[8:] else "")
    return f"{number_of(len(held), 'blocking point')} of the punch list {be(len(held))} open: {shown}"
