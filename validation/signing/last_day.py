"""How long a signed paper holds: its last day, and what ends it before."""

from __future__ import annotations

import re
from datetime import date, timedelta

from validation.model.load import ConfigError

DAYS = 365
"""From the day of the run to the last day of its paper, where no other was named. Project default: as long as NVIDIA's
certificates hold."""
MOST_DAYS = 1096
"""At most: three years. Project default: nothing of a measurement tells how machines are after that."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
ENDS = "a change of firmware, GPU driver or parts, which toolkit check looks for"
"""What ends a paper before its last day, as the statement has it."""


def chosen(said: date | None, ran: date, signed: date) -> date:
    """The last day of the paper of a run of the day `ran`. ConfigError, one line, where `said` cannot be it."""
    last = said if said is not None else ran + timedelta(days=DAYS)
    if said is not None and last < signed:
        raise ConfigError(f"--until: {last} has passed on the day of the signature ({signed}); give a later day")
    if (last - ran).days > MOST_DAYS:
        raise ConfigError(
            f"--until: {last} is {(last - ran).days} days after the run ({ran}), at most {MOST_DAYS} are allowed; give "
            "an earlier day"
        )
    return last


def day_of(text: str) -> date | None:
    """The day that a statement has, in the one form that sorts as days do (2027-11-21); None where it has none."""
    try:
        return date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def too_late(last_day: str, ran: date) -> bool:
    """Whether a statement names a later day than `sign` takes; a day more, for zones."""
    last = day_of(last_day)
    return last is not None and (last - ran).days > MOST_DAYS + 1


def expired(last_day: str, today: date) -> bool:
    """Whether the last day of a paper has passed; a paper without one has none that could."""
    last = day_of(last_day)
    return last is not None and today > last
