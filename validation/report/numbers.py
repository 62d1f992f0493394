"""How numbers, units and times are written in a report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from math import floor, log10

_UNITS = {"us": "µs", "ratio": "%"}
_THIN_SPACE = "\u2009"
NONE = "\u2013"
"""Stands where there is no value."""

_TIMES = " \u00d7 "


def unit_text(unit: str) -> str:
    """The unit as it is printed: `us` becomes µs; a ratio is printed in per cent."""
    return _UNITS.get(unit, unit)


def number(value: float, significant: int = 4) -> str:
    """`value` to `significant` digits, never in scientific notation, thousands apart by a thin space."""
    if value == 0:
        return "0"
    digits = significant - 1 - floor(log10(abs(value)))
    if digits <= 0:
        return f"{round(value):,}".replace(",", _THIN_SPACE)
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if float(value).is_integer() else text


def scaled(value: float, unit: str) -> float:
    """`value` in the unit that `unit_text` prints."""
    return round(value * 100, 12) if unit == "ratio" else value


def quantity(value: float | None, unit: str, significant: int = 4) -> str:
    """Number and unit, e.g. "0.9412 Gbit/s"; a dash where there is no value."""
    if value is None:
        return NONE
    name, text = unit_text(unit), number(scaled(value, unit), significant)
    return f"{text} {name}" if name else text


def interval(low: float | None, high: float | None, unit: str = "") -> str | None:
    """A 95 % interval as "low - high" with a proper dash; None where there is none, or where it is a single point."""
    if low is None or high is None or low == high:
        return None
    return f"{number(scaled(low, unit))} {NONE} {number(scaled(high, unit))}"


def percent(share: float) -> str:
    """A share of one as per cent with one decimal."""
    return f"{share * 100:.1f} %"


def duration(seconds: float) -> str:
    """Seconds as a person says them: "8.2 s", "3 min 05 s", "2 h 10 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def moment(text: str) -> str:
    """An ISO 8601 time in UTC as "2026-11-21 10:15:00 UTC"; text that is no time is returned as it is."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return text
    if when.tzinfo is not None:
        when = when.astimezone(timezone.utc)
    return when.strftime("%Y-%m-%d %H:%M:%S") + " UTC"


def typeset(text: str) -> str:
    """Words with the signs that print has, for >=, <=, the x of a product, us, and the arrows between endpoints.

    What is to be typed stands in backticks in a message, and in quotes here.
    """
    text = re.sub(r"`([^`]+)`", "\u201c\\1\u201d", text)
    text = text.replace(">=", "≥").replace("<=", "≤")
    text = re.sub(r"(?<=\w)<>(?=\w)", " ↔ ", text)
    text = re.sub(r"(?<=\w)>(?=\w)", " → ", text)
    return re.sub(r"(?<=\d) us\b", " µs", re.sub(r"(?<=[\d)]) x (?=[\d(a-z])", _TIMES, text))


def plural(count: int, word: str, many: str | None = None) -> str:
    """Count and word, as in "1 node", "4 nodes", "2 criteria"."""
    return f"{count} {word if count == 1 else many or word + 's'}"


def size_words(size_bytes: float) -> str:
    """A message size as 64 B, 4 KiB, 8 MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {name}"
    return f"{size_bytes:g} B"


def many(names: Sequence[str], most: int = 6) -> str:
    """Names in a row, the rest counted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
