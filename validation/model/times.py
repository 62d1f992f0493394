"""Times in a run's documents. All are written in UTC; a time in another form is none, whatever instant it names."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache

STAMP = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)Z", re.ASCII)
"""How the name of a run begins: when it was begun."""
CLOCK_S = 60.0
"""By how much times of a run may contradict each other: somebody may set the clock meanwhile. Project default."""
_UTC = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?(Z|\+00:00)", re.ASCII)


@lru_cache(maxsize=1 << 14)  # the times of a result are looked at again and again
def moment(text: str) -> datetime.datetime | None:
    """A time in UTC (`2026-11-21T10:15:00Z`, or `.000+00:00` at its end), None where it is none."""
    found = _UTC.fullmatch(text)
    if found is None:
        return None
    try:
        return datetime.datetime.fromisoformat(f"{found[1]}{(found[2] or '.0').ljust(7, '0')}+00:00")
    except ValueError:
        return None


def begun(run: str) -> datetime.datetime | None:
    """When a run was begun, by its name; None where the name does not tell."""
    found = STAMP.match(run)
    return moment(f"{found[1]}T{found[2]}:{found[3]}:{found[4]}Z") if found else None


def day_of(run: str, created: str) -> datetime.date | None:
    """The day of a run in UTC, by its name and by `created`; the later one where they differ. None: not known."""
    known = [when.date() for when in (begun(run), moment(created)) if when is not None]
    return max(known) if moment(created) is not None else None
