"""The points of a punch list in a verdict. Read through validation.model, like all documents of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from validation.model.base import Model


class PointState(Model):
    """A point of the run's punch list, and what the run says of it. Dates are ISO 8601.

    `grade`: its class; `opened_by` and `closed_by`: runs, None where a person did it. `why`: why it is closed, or why
    this run keeps it. `reopened`: the list has it as closed, and its criterion does not pass in this run. `late`: it is
    open after its last day, by the day of the run. `unit`: the unit whose run found it; None: it is of a node or of all
    the site. `elsewhere`: it is of another unit than the run, which therefore changes nothing of it.
    """

    id: str
    grade: Literal["A", "B", "C"]
    text: str
    criterion: str | None
    node: str | None
    owner: str
    due: str
    blocking: bool
    opened: str
    opened_by: str | None
    state: Literal["open", "closed"]
    closed_by: str | None
    why: str
    reopened: bool
    late: bool
    unit: str | None = None
    elsewhere: bool = False

    @property
    def keeps_back(self) -> bool:
        """Whether nothing is accepted because of it."""
        return self.blocking and self.state == "open" and not self.elsewhere


def counted(points: Sequence[PointState]) -> str:
    """`2 open (1 A, 1 C; 1 blocking, 1 late, 1 of other units), 3 closed`; "" where there is no point."""
    if not points:
        return ""
    held = [point for point in points if point.state == "open"]
    grades = ", ".join(f"{n} {grade}" for grade in "ABC" if (n := sum(p.grade == grade for p in held)))
    marks = {
        "blocking": sum(p.blocking for p in held),
        "late": sum(p.late for p in held),
        "opened again": sum(p.reopened for p in held),
        "of other units": sum(p.elsewhere for p in held),
    }
    more = [f"{n} {word}" for word, n in marks.items() if n]
    said = "; ".join(part for part in (grades, ", ".join(more)) if part)
    return f"{len(held)} open{f' ({said})' if said else ''}, {len(points) - len(held)} closed"
