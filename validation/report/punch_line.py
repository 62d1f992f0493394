"""The punch list of a run on one line."""

from __future__ import annotations

from validation.model import VerdictDoc
from validation.model.points import counted


def punch_line(verdict: VerdictDoc, most: int) -> str:
    """How many points are open and closed, and which are open; "" where the run has no punch list."""
    said = counted(verdict.points)
    held = [point.id for point in verdict.points if point.state == "open"]
    whole = f"{said}; open: {', '.join(held)}" if held else said
    return whole if len(whole) <= most else said
