"""Waivers: a named person's decision to accept what does not pass, as data (`waivers.yml`). See docs/verdicts.md."""

from __future__ import annotations

import datetime
from pathlib import Path

from pydantic import Field

from validation.load import load_yaml
from validation.model import Model


class Waiver(Model):
    """A named person's decision to accept a criterion that does not pass, until a date.

    `subject` None waives the whole criterion. `expires` is the last day on which the waiver counts.
    """

    criterion: str
    subject: str | None = None
    who: str = Field(min_length=1)
    when: datetime.date
    why: str = Field(min_length=1)
    expires: datetime.date


class WaiverFile(Model):
    """A waivers file: `waivers:` with a list."""

    waivers: tuple[Waiver, ...] = ()


def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """The waivers of a file."""
    return load_yaml(path, WaiverFile).waivers
