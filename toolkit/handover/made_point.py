"""A point that a person opens or closes on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import date

from pydantic import ValidationError

from toolkit.errors import UsageFault
from toolkit.handover.punch_file import next_ids
from validation.model.base import explain
from validation.rules.punch import Point
from validation.run.catalogue import load_criteria


def made_point(
    points: Sequence[Point], today: date, nodes: Sequence[str], *, due: date, criterion: str | None, **said: object
) -> Point:
    """The next point of a list, opened today; UsageFault, one line, where something of it cannot be used.

    `nodes`: those that there are. said: the other fields of a Point.
    """
    known = [c.id for c in load_criteria()]
    if criterion is not None and criterion not in known:
        near = difflib.get_close_matches(criterion, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "toolkit criteria lists them"
        raise UsageFault(f"--criterion: unknown criterion {criterion!r}; {hint}")
    node = said.get("node")
    if node is not None and node not in nodes:
        near = difflib.get_close_matches(str(node), nodes, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(nodes[:10])}"
        raise UsageFault(f"--node: the inventory has no node {node!r}; {hint}")
    if due < today:
        raise UsageFault(f"--due: {due} has passed; give a day to come")
    new = next(iter(next_ids(points)))
    return _checked({"id": new, **said, "due": due, "criterion": criterion, "opened": today})


def closed(point: Point, why: str, day: date) -> Point:
    """The point, closed by a person."""
    return _checked({**dict(point), "closed": max(day, point.opened), "closed_by": None, "closed_why": why})


def _checked(said: dict[str, object]) -> Point:
    try:
        return Point.model_validate(said)
    except ValidationError as fault:
        place, words = explain(fault)
        raise UsageFault(f"{'.'.join(map(str, place))}: {words}") from None
