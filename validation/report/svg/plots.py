"""Line charts and interval charts as inline SVG: what differs is told by marker and dash as well as by colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from validation.report.numbers import number
from validation.report.svg.colour import ALARM, BLUE, BROWN, GREEN, INK, LINE, MUTED, VIOLET
from validation.report.svg.drawing import CHARACTER, cross, frame, marker, path, short, text

COLOURS = (BLUE, BROWN, GREEN, VIOLET)
DASHES = (None, "7 3", "2 3", "9 3 2 3")
_WIDTH, _HEIGHT = 540, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, _WIDTH - 26, 22, _HEIGHT - 44  # edges of the plot


@dataclass(frozen=True)
class Series:
    """A curve. `band` are (x, low, high) around it; `hollow` marks points that were not measured here; `line` False:
    points only; `like`: the number of the curve whose colour, dash and marker it has.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float, float], ...] = ()
    hollow: bool = False
    line: bool = True
    markers: bool = True
    like: int | None = None


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, some five of them."""
    if high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** floor(log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, floor(high / step + 1e-9) + 1)]


def ends(values: Sequence[float], margin: float, alone: float) -> tuple[float, float]:
    """Ends of an axis: `margin` of the values' range beyond them, `alone` of the value where all are one.

    It begins below zero only where a value does.
    """
    low, high = min(values), max(values)
    room = (high - low) * margin or abs(high) * alone or 1.0
    return (max(low - room, 0.0) if low >= 0 else low - room), high + room


@dataclass(frozen=True)
class Axis:
    """An axis in its own unit. `marks` fixes the ticks; None: round numbers."""

    title: str
    low: float
    high: float
    log: bool = False
    marks: tuple[float, ...] | None = None
    words: Callable[[float], str] = "{:g}".format

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the low end."""
        if self.log:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)

    @property
    def at(self) -> list[float]:
        """Values of the ticks."""
        if self.marks is not None:
            return list(self.marks)
        if not self.log:
            return ticks(self.low, self.high)
        powers = range(-12, 13)
        return [10.0**p for p in powers if self.low * 0.999 <= 10.0**p <= self.high * 1.001]


def line_chart(
    id_: str,
    title: str,
    description: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    limits: Sequence[tuple[float, str]] = (),
) -> Markup:
    """Curves over one pair of axes. `limits` are horizontal lines with their words."""

    def px(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * x.share(value)

    def py(value: float) -> float:
        return _TOP + (_BOTTOM - _TOP) * (1 - min(max(y.share(value), 0.0), 1.0))

    body = [text(_LEFT, 12, y.title, fill=MUTED)]
    for value in y.at:
        body.append(path("M", _LEFT, py(value), "H", _RIGHT, stroke=LINE, thick=0.7))
        body.append(text(_LEFT - 7, py(value) + 4, y.words(value), 11, "end", MUTED))
    body.append(path("M", _LEFT, _BOTTOM, "H", _RIGHT, stroke=INK))
    for value in x.at:
        body.append(path("M", px(value), _BOTTOM, "v5", stroke=INK))
        body.append(text(px(value), _BOTTOM + 18, x.words(value), 11, "middle", MUTED))
    body.append(text((_LEFT + _RIGHT) / 2, _BOTTOM + 35, x.title, 11, "middle", MUTED))
    last = 14.0  # of the axis' own words
    for value, words in sorted(limits, reverse=True):
        at = py(value)
        body.append(path("M", _LEFT, at, "H", _RIGHT, stroke=INK, thick=1.4, dash="5 3"))
        last = at - 5 if at - 5 - last > 12 else at + 13
        body.append(text(_LEFT + 6, last, words))
    across, row = float(_LEFT), _HEIGHT + 6  # of the legend
    for number_, one in enumerate(series):
        index = number_ if one.like is None else one.like
        body += _curve(one, index, px, py)
        colour, label = COLOURS[index % len(COLOURS)], short(one.label, _WIDTH - _LEFT - 60, 11)
        wide = 44 + len(label) * 11 * CHARACTER
        if across > _LEFT and across + wide > _WIDTH:
            across, row = float(_LEFT), row + 18
        if one.line:
            body.append(path("M", across, row, "h26", stroke=colour, thick=1.8, dash=DASHES[index % len(DASHES)]))
        if one.markers:
            body.append(marker(index, across + 13, row, colour, one.hollow))
        body.append(text(across + 32, row + 4, label))
        across += wide
    return frame(id_, title, description, _WIDTH, row + 12, body)


def _curve(one: Series, index: int, px: Callable[[float], float], py: Callable[[float], float]) -> list[Markup]:
    colour = COLOURS[index % len(COLOURS)]

    def way(points: Sequence[tuple[float, float]]) -> list[float]:
        return [place for x, y in points for place in (px(x), py(y))]

    out = []
    if len(one.band) > 1:
        around = [(x, high) for x, _, high in one.band] + [(x, low) for x, low, _ in reversed(one.band)]
        out.append(path("M", *way(around), "z", fill=colour, fill_opacity=0.15))
    elif one.band:
        x, low, high = one.band[0]
        out.append(path("M", px(x), py(low), "V", py(high), stroke=colour, thick=2))
    if one.line and len(one.points) > 1:
        out.append(path("M", *way(one.points), stroke=colour, thick=1.8, dash=DASHES[index % len(DASHES)]))
    if one.markers or len(one.points) == 1:
        out += [marker(index, px(x), py(y), colour, one.hollow) for x, y in one.points]
    return out


@dataclass(frozen=True)
class Span:
    """A value with its interval in one row. `failed` gets a cross; `published` marks a figure from elsewhere."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    failed: bool = False
    published: bool = False


def interval_chart(
    id_: str, title: str, description: str, spans: Sequence[Span], axis: str, bound: tuple[float, str] | None = None
) -> Markup:
    """Values with their intervals, one row each, and the bound as a line through all of them."""
    left, right, row = 250, 58, 26
    height = 34 + row * len(spans) + 34
    found = [v for s in spans for v in (s.value, s.low, s.high) if v is not None] + ([bound[0]] if bound else [])
    low, high = ends(found, 0.12, 0.1)

    def px(value: float) -> float:
        return left + (_WIDTH - left - right) * (value - low) / (high - low)

    base = 28 + row * len(spans)
    body = []
    for value in ticks(low, high):
        body.append(path("M", px(value), 24, "V", base, stroke=LINE, thick=0.7))
        body.append(text(px(value), base + 16, f"{value:g}", 11, "middle", MUTED))
    body.append(text((left + _WIDTH - right) / 2, base + 32, axis, 11, "middle", MUTED))
    if bound:
        half = len(bound[1]) * 11 * CHARACTER / 2
        centre = min(max(px(bound[0]), left + half - 60), _WIDTH - half - 2)
        body.append(text(centre, 13, bound[1], 11, "middle", font_weight=600))
        body.append(path("M", px(bound[0]), 18, "V", base, stroke=INK, thick=1.6, dash="5 3"))
    for index, span in enumerate(spans):
        x, y = px(span.value), 38 + row * index
        colour = ALARM if span.failed else MUTED if span.published else BLUE
        body.append(text(left - 12, y + 4, short(span.label, left - 12, 10.5), 10.5, "end"))
        if span.low is not None and span.high is not None:
            one, other = px(span.low), px(span.high)
            bar = ("M", one, y, "H", other, "M", one, y - 4, "v8", "M", other, y - 4, "v8")
            body.append(path(*bar, stroke=colour, thick=1.8))
        mark = cross(x, y, 5) if span.failed else marker(3 * span.published, x, y, colour, span.published)
        body += [mark, text(_WIDTH - right + 10, y + 4, number(span.value), 11.5)]
    return frame(id_, title, description, _WIDTH, height, body)
