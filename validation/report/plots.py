"""Line charts and interval charts as inline SVG: what differs is told by marker and dash as well as by colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10

from markupsafe import Markup

from validation.report.colour import INK
from validation.report.drawing import (
    ALARM,
    BLUE,
    CHARACTER,
    GREEN,
    LINE,
    MUTED,
    VIOLET,
    cross,
    frame,
    marker,
    short,
    text,
    ticks,
)
from validation.report.numbers import number

COLOURS = (BLUE, "#9a4a00", GREEN, VIOLET)
DASHES = ("", "7 3", "2 3", "9 3 2 3")
_WIDTH, _HEIGHT = 540, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 26, 22, 44


@dataclass(frozen=True)
class Series:
    """A curve. `band` are (x, low, high) around it; `hollow` marks published points; `line` False: points only."""

    label: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float, float], ...] = ()
    hollow: bool = False
    line: bool = True
    markers: bool = True


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
    legend_rows = _legend_rows([s.label for s in series])
    height = _HEIGHT + 18 * len(legend_rows)
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def px(value: float) -> float:
        return _LEFT + plot_width * x.share(value)

    def py(value: float) -> float:
        return _TOP + plot_height * (1 - min(max(y.share(value), 0.0), 1.0))

    body = [text(_LEFT, 12, y.title, 11, fill=MUTED)]
    for value in y.at:
        body.append(f'<path d="M{_LEFT} {py(value):.1f}H{_WIDTH - _RIGHT}" stroke="{LINE}" stroke-width="0.7"/>')
        body.append(text(_LEFT - 7, py(value) + 4, y.words(value), 11, "end", MUTED))
    base = _HEIGHT - _BOTTOM
    body.append(f'<path d="M{_LEFT} {base}H{_WIDTH - _RIGHT}" stroke="{INK}"/>')
    for value in x.at:
        body.append(f'<path d="M{px(value):.1f} {base}v5" stroke="{INK}"/>')
        body.append(text(px(value), base + 18, x.words(value), 11, "middle", MUTED))
    body.append(text((_LEFT + _WIDTH - _RIGHT) / 2, base + 35, x.title, 11, "middle", MUTED))
    last = 14.0  # of the axis' own words
    for value, words in sorted(limits, reverse=True):
        at = py(value)
        body.append(
            f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="{INK}" stroke-width="1.4" stroke-dasharray="5 3"/>'
        )
        label_at = at - 5 if at - 5 - last > 12 else at + 13
        body.append(text(_LEFT + 6, label_at, words, 11))
        last = label_at
    for index, one in enumerate(series):
        body += _curve(one, index, px, py)
    for row, labels in enumerate(legend_rows):
        across = float(_LEFT)
        for index, label in labels:
            body += _key(series[index], index, across, _HEIGHT + 18 * row + 6)
            across += 44 + len(label) * 11 * CHARACTER
    return frame(id_, title, description, _WIDTH, height, body)


def _legend_rows(labels: Sequence[str]) -> list[list[tuple[int, str]]]:
    rows: list[list[tuple[int, str]]] = []
    left = 0.0
    for index, label in enumerate(labels):
        label = short(label, _WIDTH - _LEFT - 60, 11)
        width = 44 + len(label) * 11 * CHARACTER
        if not rows or left + width > _WIDTH - _LEFT:
            rows.append([])
            left = 0.0
        rows[-1].append((index, label))
        left += width
    return rows


def _key(one: Series, index: int, x: float, y: float) -> list[str]:
    colour = COLOURS[index % len(COLOURS)]
    out = [text(x + 32, y + 4, short(one.label, _WIDTH - _LEFT - 60, 11), 11)]
    if one.line:
        out.insert(0, _stroke(f"M{x:.1f} {y:g}h26", colour, index))
    if one.markers:
        out.insert(1, marker(index, x + 13, y, colour, one.hollow))
    return out


def _stroke(path: str, colour: str, index: int) -> str:
    dash = DASHES[index % len(DASHES)]
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"' + (
        f' stroke-dasharray="{dash}"/>' if dash else "/>"
    )


def _curve(one: Series, index: int, px: Callable[[float], float], py: Callable[[float], float]) -> list[str]:
    colour = COLOURS[index % len(COLOURS)]
    out = []
    if len(one.band) > 1:
        there = " ".join(f"{px(x):.1f},{py(high):.1f}" for x, _, high in one.band)
        back = " ".join(f"{px(x):.1f},{py(low):.1f}" for x, low, _ in reversed(one.band))
        out.append(f'<polygon points="{there} {back}" fill="{colour}" fill-opacity="0.15"/>')
    elif one.band:
        x, low, high = one.band[0]
        out.append(f'<path d="M{px(x):.1f} {py(low):.1f}V{py(high):.1f}" stroke="{colour}" stroke-width="2"/>')
    if one.line and len(one.points) > 1:
        way = "".join(f"{'L' if i else 'M'}{px(x):.1f} {py(y):.1f}" for i, (x, y) in enumerate(one.points))
        out.append(_stroke(way, colour, index))
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
    low, high = min(found), max(found)
    margin = (high - low) * 0.12 or abs(high) * 0.1 or 1.0
    low, high = (max(low - margin, 0.0) if low >= 0 else low - margin), high + margin

    def px(value: float) -> float:
        return left + (_WIDTH - left - right) * (value - low) / (high - low)

    base = 28 + row * len(spans)
    body = []
    for value in ticks(low, high):
        body.append(f'<path d="M{px(value):.1f} 24V{base}" stroke="{LINE}" stroke-width="0.7"/>')
        body.append(text(px(value), base + 16, f"{value:g}", 11, "middle", MUTED))
    body.append(text((left + _WIDTH - right) / 2, base + 32, axis, 11, "middle", MUTED))
    if bound:
        half = len(bound[1]) * 11 * CHARACTER / 2
        centre = min(max(px(bound[0]), left + half - 60), _WIDTH - half - 2)
        body.append(text(centre, 13, bound[1], 11, "middle", weight=600))
        body.append(
            f'<path d="M{px(bound[0]):.1f} 18V{base}" stroke="{INK}" stroke-width="1.6" stroke-dasharray="5 3"/>'
        )
    for index, span in enumerate(spans):
        y = 38 + row * index
        colour = ALARM if span.failed else MUTED if span.published else BLUE
        body.append(text(left - 12, y + 4, short(span.label, left - 12, 10.5), 10.5, "end"))
        if span.low is not None and span.high is not None:
            one, other = px(span.low), px(span.high)
            ends = f"M{one:.1f} {y}H{other:.1f}M{one:.1f} {y - 4}v8M{other:.1f} {y - 4}v8"
            body.append(f'<path d="{ends}" stroke="{colour}" stroke-width="1.8" fill="none"/>')
        if span.failed:
            body.append(cross(px(span.value), y, 5))
        else:
            body.append(marker(3 if span.published else 0, px(span.value), y, colour, span.published))
        body.append(text(_WIDTH - right + 10, y + 4, number(span.value), 11.5))
    return frame(id_, title, description, _WIDTH, height, body)
