"""Tables and times as the lease commands print them; no library, because nodes have none."""

from __future__ import annotations

import time
from collections.abc import Sequence

EMULATED = "Emulated: host memory in place of a GPU, for a lab."


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, two spaces apart, the last one as long as it likes."""
    widths = [max(len(str(row[i])) for row in [titles, *rows]) for i in range(len(titles))]
    padded = [[str(cell).ljust(width) for cell, width in zip(row, widths)] for row in [titles, *rows]]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def clock(when: float | None, now: float | None = None) -> str:
    """16:20 today, Mon 16:20 within the week, else the date; 'no limit' without an end."""
    if when is None:
        return "no limit"
    now = time.time() if now is None else now
    then, today = time.localtime(when), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if abs(when - now) < 6 * 86400 else "%Y-%m-%d %H:%M", then)


def until(when: float | None) -> str:
    """For a sentence: until 16:20, or until it is released."""
    return f"until {clock(when)}" if when is not None else "until it is released"


def several(count: int, noun: str) -> str:
    """1 GPU, 2 GPUs."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shortened(text: str, most: int) -> str:
    """Its beginning, where it is longer."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
