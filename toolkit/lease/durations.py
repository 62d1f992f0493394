"""Times as a user writes them: 90m, 2h, 1h30m, 45s, 2d. Standard library only: machines of the pool read them too."""

from __future__ import annotations

import re

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
MOST_S = 366 * UNITS["d"]
FORM = "give a number with its unit, as 90m, 2h, 1h30m or 2d"
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])", re.ASCII)


def seconds_of(text: str) -> int:
    """The seconds of a time, at least 1. ValueError, in words for the user, for what is none, for 0, and for more than
    a year."""
    text = text.strip().lower()
    found = _PART.findall(text)
    order = [list(UNITS).index(unit) for _, unit in found]
    if not found or "".join(number + unit for number, unit in found) != text or sorted(set(order)) != order:
        raise ValueError(f"{text[:40]!r} is no time; {FORM}")
    seconds = sum(float(number) * UNITS[unit] for number, unit in found)
    if not 0 < seconds <= MOST_S:
        raise ValueError(f"{text[:40]}: give a time above 0 and up to a year")
    return max(round(seconds), 1)
