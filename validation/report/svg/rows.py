"""What drawings of rows over one axis share: the hatching, the axis, and the key below."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from validation.report.numbers import number
from validation.report.svg.colour import BLUE, INK, LINE, MUTED, PALE
from validation.report.svg.drawing import CHARACTER, element, path, rect, text
from validation.report.svg.plots import ticks

WIDTH = 640
KEY = 46  # below the axis


def hatching(id_: str, thick: float) -> tuple[Markup, str]:
    """The pattern of a drawing, its lines so thick, and the fill that takes it."""
    ground = element(
        "pattern", rect(0, 0, 6, 6, fill=PALE), path("M", 0, 0, "V", 6, stroke=BLUE, thick=thick), id=f"{id_}-hatch",
        width=6, height=6, patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
    )  # fmt: skip
    return element("defs", ground), f"url(#{id_}-hatch)"


def axis_below(left: float, right: float, top: float, base: float, words: str) -> list[Markup]:
    """From zero to `top`, between these two places, with lines over all rows above `base`."""
    drawn = []
    for value in ticks(0.0, top):
        x = left + value * (right - left) / top
        drawn.append(path("M", x, 4, "V", base, stroke=LINE, thick=0.7))
        drawn.append(text(x, base + 15, number(value), 11, "middle", MUTED))
    return [*drawn, text((left + right) / 2, base + 32, words, 11, "middle", MUTED)]


def key_below(left: float, base: float, fills: Iterable[tuple[str, str]]) -> list[Markup]:
    """What each fill is."""
    drawn, across, y = [], left, base + KEY
    for name, fill in fills:
        drawn.append(rect(across, y, 18, 11, fill=fill, stroke=INK, thick=0.8))
        drawn.append(text(across + 25, y + 10, name))
        across += 44 + len(name) * 11 * CHARACTER
    return drawn
