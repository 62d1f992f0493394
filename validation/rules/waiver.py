"""Waivers: a named person's decision to accept what fails, as data (`waivers.yml`): docs/how-to/acceptance.md."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from validation.base.counting import number_of
from validation.model import Model
from validation.model.load import ConfigError, Source, line_of, load_yaml

MAX_DAYS = 366
"""Longest time from decision to last day: a year, a leap year's too. Project default: what is to last longer is
agreed on in the acceptance profile, where it is left out with its reason."""

FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters that print as nothing: the fillers of Hangul, the only ones in Unicode."""


def _said(text: str) -> str:
    words = " ".join(text.split())
    if not any(c.isalnum() and c not in FILLERS for c in words):
        raise ValueError("is blank; write it out")
    return words


Words = Annotated[str, AfterValidator(_said)]


class Waiver(Model):
    """A named person's decision to accept a criterion that does not pass, until a date.

    `subject` is as the verdict names it ("gpu1", "gpu1/fab0>gpu2/fab0"); None waives the whole criterion. `who`
    decided, on the day `when`, and `why`. `expires` is the last day on which the waiver counts, at most MAX_DAYS later.
    """

    criterion: Words
    subject: Words | None = None
    who: Words
    when: datetime.date
    why: Words
    expires: datetime.date

    @field_validator("expires")
    @classmethod
    def _ends(cls, expires: datetime.date, given: ValidationInfo) -> datetime.date:
        when = given.data.get("when")
        if when is not None and expires < when:
            raise ValueError(f"{expires} lies before the decision ({when}); correct one of the dates")
        if when is not None and (expires - when).days > MAX_DAYS:
            raise ValueError(
                f"{expires} is {number_of((expires - when).days, 'day')} after the decision ({when}), at "
                f"most {MAX_DAYS} are "
                "allowed; choose an earlier day, or leave the criterion out of the acceptance profile"
            )
        return expires

    def __str__(self) -> str:
        """`waiver of tr.tcpbw for gpu1 (A. Person)`, as notes name it."""
        return f"waiver of {self.criterion}" + (f" for {self.subject}" if self.subject else "") + f" ({self.who})"


class WaiverFile(Model):
    """A waivers file: `waivers:` with a list."""

    waivers: tuple[Waiver, ...] = Field(default=())


def load_waivers(
    source: Path | Source, criteria: Iterable[str], today: datetime.date | None = None
) -> tuple[Waiver, ...]:
    """The waivers of a file. `criteria` are the ids that exist; `today` where a decision of tomorrow is to be refused.

    ConfigError with file and line for anything malformed, an unknown criterion, and the same thing waived twice.
    """
    waivers = load_yaml(source, WaiverFile).waivers
    path = source.path if isinstance(source, Source) else source
    known = list(criteria)
    seen: dict[tuple[str, str | None], int] = {}
    for position, waiver in enumerate(waivers):

        def fault(key: str, words: str, position: int = position) -> ConfigError:
            line = line_of(source, "waivers", position, key)
            return ConfigError(f"{path}:{line}: waivers.{position}.{key}: {words}")

        if waiver.criterion not in known:
            near = difflib.get_close_matches(waiver.criterion, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "toolkit profiles show elastic lists them"
            raise fault("criterion", f"unknown criterion {waiver.criterion!r}; {hint}")
        what = (waiver.criterion, waiver.subject)
        if what in seen:
            line = line_of(source, "waivers", seen[what], "criterion")
            raise fault("criterion", f"the same is waived in line {line} already; keep one of them")
        seen[what] = position
        if today is not None and waiver.when > today:
            raise fault("when", f"{waiver.when} has not come yet; a decision is dated the day on which it is taken")
    return waivers
