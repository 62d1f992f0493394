"""A punch list: what is left to do at a site, as data (`punch.yml`): docs/how-to/punch-list.md."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, StringConstraints, field_validator

from validation.model import Model
from validation.model.load import ConfigError, Source, line_of, load_yaml
from validation.rules.waiver import Words

Grade = Literal["A", "B", "C"]
"""A: the system cannot be used as ordered; B: it can, with a limit; C: it can, and something is to be tidied up."""
GRADES: tuple[Grade, ...] = ("A", "B", "C")
MOST_POINTS = 1000
"""Of a list, at most. Project default: a list that is longer is no list of what is left."""

MOST_LETTERS = 2000
"""Of a text, at most. Project default: a point is a sentence or two."""


def _short(text: str) -> str:
    if len(text) > MOST_LETTERS:
        raise ValueError(f"has {len(text)} characters; {MOST_LETTERS} are the most")
    return text


Text = Annotated[Words, AfterValidator(_short)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class Point(Model):
    """Something that is left to do. `criterion`: by which a run closes or keeps it; None where only a person can.

    `node`: the node, or the subject as a verdict names it; None for all of the criterion. `due` is the last day,
    `opened` and `closed` are days; `opened_by` and `closed_by` the runs, None where a person did it. `blocking`: no
    run is accepted while it is open. `unit`: the group of the inventory whose run found it; with neither node nor unit
    it is of the whole site.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: Name
    grade: Grade = Field(alias="class")
    text: Text
    criterion: Text | None = None
    node: Text | None = None
    unit: Text | None = None
    owner: Text
    due: datetime.date
    blocking: StrictBool
    opened: datetime.date
    opened_by: Text | None = None
    closed: datetime.date | None = None
    closed_by: Text | None = None
    closed_why: Text | None = None

    @field_validator("grade", mode="before")
    @classmethod
    def _known(cls, grade: object) -> object:
        if grade not in GRADES:
            raise ValueError(f"unknown class {grade!r}; it is one of {', '.join(GRADES)}")
        return grade

    @property
    def open(self) -> bool:
        """Whether the list has it as open."""
        return self.closed is None


class PunchFile(Model):
    """A punch list: `points:` with a list."""

    points: tuple[Point, ...] = Field(default=(), max_length=MOST_POINTS)

    @field_validator("points", mode="before")
    @classmethod
    def _none(cls, points: object) -> object:
        return () if points is None else points


def load_points(source: Path | Source, criteria: Iterable[str], today: datetime.date | None = None
                ) -> tuple[Point, ...]:  # fmt: skip
    """The points of a file. `criteria` are the ids that exist; `today` where a day to come is to be refused.

    ConfigError with file and line for anything malformed, an unknown criterion or class, a day that does not fit, and
    an id that is there twice.
    """
    points = load_yaml(source, PunchFile).points
    path = source.path if isinstance(source, Source) else source
    known = list(criteria)
    seen: dict[str, int] = {}

    def fault(position: int, key: str, words: str) -> ConfigError:
        line = line_of(source, "points", position, key)
        return ConfigError(f"{path}:{line}: points.{position}.{key}: {words}")

    for position, point in enumerate(points):
        folded = point.id.casefold()
        if folded in seen:
            line = line_of(source, "points", seen[folded], "id")
            raise fault(position, "id", f"{point.id} is the id of the point in line {line} already; take another")
        seen[folded] = position
        if point.criterion is not None and point.criterion not in known:
            near = difflib.get_close_matches(point.criterion, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "toolkit criteria lists them"
            raise fault(position, "criterion", f"unknown criterion {point.criterion!r}; {hint}")
        for key, words in _faults(point, today):
            raise fault(position, key, words)
    return points


def _faults(point: Point, today: datetime.date | None) -> Iterable[tuple[str, str]]:
    """Where a point contradicts itself, or is of a day that has not come: key and words."""
    if point.due < point.opened:
        yield "due", f"{point.due} is before the day on which it was opened ({point.opened}); correct one of the dates"
    if today is not None and point.opened > today:
        yield "opened", f"{point.opened} has not come yet; a point is dated the day on which it was found"
    if point.closed is None:
        for key, value in (("closed_by", point.closed_by), ("closed_why", point.closed_why)):
            if value is not None:
                yield key, "the point has no day on which it was closed; write closed: DAY, or remove this line"
        return
    if point.closed < point.opened:
        yield "closed", f"{point.closed} is before the day on which it was opened ({point.opened}); correct it"
    if today is not None and point.closed > today:
        yield "closed", f"{point.closed} has not come yet; a point is closed on the day of the proof"
    if point.closed_why is None:
        yield "closed", "nothing says why it was closed; write closed_why"
