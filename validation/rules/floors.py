"""Security floors: from which release on a component has the fixes of its maker's advisories; data of a criterion."""

from __future__ import annotations

import datetime
import re

from pydantic import Field, field_validator, model_validator

from validation.base.counting import number_of
from validation.model.base import Model

STALE_DAYS = 60
"""Age in days from which floors get a note in the verdict, and no judgement another word: makers publish advisories
every month or two. Project default."""

_NUMBERS = re.compile(r"(?:\d+:)?v?(\d+(?:[.-]\d+)*)(.*)")
_EARLY = re.compile(r"^[-.~]?(rc|beta|alpha)", re.IGNORECASE)


def numbers(version: str) -> tuple[int, ...] | None:
    """`5:29.7.0-1~debian.12` as (29, 7, 0, 1); None for what is no version, or one before a release (`1.4.0-rc.2`)."""
    found = _NUMBERS.match(version)
    if found is None or _EARLY.match(found[2]):
        return None
    return tuple(map(int, re.split(r"[.-]", found[1])))


class Floor(Model):
    """The first release with the fixes, and the advisory that says so. `date` is the advisory's."""

    floor: str
    advisory: str = Field(min_length=1)
    date: datetime.date
    url: str = Field(pattern=r"^https://")

    @field_validator("floor")
    @classmethod
    def _version(cls, floor: str) -> str:
        if numbers(floor) is None:
            raise ValueError(f"{floor!r} is no version")
        return floor

    def reached(self, version: tuple[int, ...]) -> bool:
        """True for the floor and everything after it."""
        wanted = numbers(self.floor) or ()
        return (version + (0,) * (len(wanted) - len(version))) >= wanted


class Component(Model):
    """A component's floors: one for all releases, or one for each line of releases (`580`, `1.3`) that has fixes.

    `kernel_flavour`, `os`: the floor is of that system's kernels of that flavour only. `rebuilt`: distributions put
    fixes into their own packages of it without a new version, so that the version of such a package tells nothing.
    """

    title: str
    all: Floor | None = None
    lines: dict[str, Floor] = Field(default={})
    os: str = ""
    kernel_flavour: str = ""
    rebuilt: bool = False

    @model_validator(mode="after")
    def _one(self) -> Component:
        if (self.all is None) == (not self.lines):
            raise ValueError("give either all, one floor of all releases, or lines")
        for line, floor in self.lines.items():
            own = numbers(line)
            if own is None or (numbers(floor.floor) or ())[: len(own)] != own:
                raise ValueError(f"lines: {floor.floor} is no release of line {line}")
        return self

    def of(self, version: tuple[int, ...]) -> Floor | str | None:
        """The floor of a version; in words why there is none for its line; None for a line after all that are known."""
        if self.all is not None:
            return self.all
        known = {numbers(line) or (): floor for line, floor in self.lines.items()}
        for line, floor in known.items():
            if version[: len(line)] == line:
                return floor
        if version > max(known):
            return None
        fixed = ", ".join(floor.floor for floor in self.lines.values())
        return f"its line gets no fixes, releases with them are {fixed} ({self.lines[max(self.lines)].advisory})"


class Floors(Model):
    """All components' floors. `as_of`: the day up to which advisories were looked through."""

    as_of: datetime.date
    sources: tuple[str, ...] = Field(min_length=1)
    components: dict[str, Component] = Field(min_length=1)

    def remark(self, day: datetime.date | None) -> str:
        """In words that the floors were old on that day; "" where they were not."""
        if day is None or (day - self.as_of).days <= STALE_DAYS:
            return ""
        age = (day - self.as_of).days
        return (
            f"the floors are of {self.as_of}, {number_of(age, 'day')} before the run: later advisories are not in them"
        )
