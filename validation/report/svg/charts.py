"""Small figures: how criteria came out, values against their bound, scaling against the ideal. All inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from validation.base.counting import number_of
from validation.report.numbers import number, percent, quantity, unit_text
from validation.report.svg.colour import ALARM, BLUE, GREEN, INK, LINE, MUTED, PAPER, VIOLET
from validation.report.svg.drawing import CHARACTER, element, frame, path, rect, short, text, titled
from validation.report.svg.plots import ends

_MAX_DOTS = 150
_DOT_PX = 4  # values closer than this are one dot, where there are more than _MAX_DOTS
TALLY_COLOURS = {
    "pass": GREEN,
    "fail": ALARM,
    "waived": VIOLET,
    "not-measured": "#8a94a1",
    "not-applicable": "#d5dbe2",
}


@dataclass(frozen=True)
class Dot:
    """A measured value on a bound strip; `failed` ones are drawn as crosses, so that colour is not needed."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    failed: bool = False


NEUTRAL = "#46525f"
"""In place of green where nothing is accepted."""


def tally(counts: dict[str, int], neutral: bool = False) -> Markup:
    """One bar, divided by verdict: how many criteria passed, failed, were waived, not measured, not applicable.

    `neutral`: without green, of what accepts nothing.
    """
    colours = {**TALLY_COLOURS, **({"pass": NEUTRAL} if neutral else {})}
    total = sum(counts.values())
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    width, height = 640, 12
    body, x = [], 0.0
    for name, count in counts.items():
        if not count or not total:
            continue
        part = width * count / total
        words_of = element("title", f"{count} {name}")
        body.append(rect(x, 0, max(part - 2, 1), height, words_of, fill=colours[name]))
        x += part
    return frame(
        "tally", "Criteria by verdict", f"{number_of(total, 'criterion')}: {words}.", width, height, body, stretch=True
    )


def _thinned(dots: Sequence[Dot], at: Callable[[float], float]) -> Sequence[Dot]:
    """`dots`, or, of more than a strip can show, one for all of a kind that would lie on each other."""
    if len(dots) <= _MAX_DOTS:
        return dots
    places: dict[tuple[bool, int], list[Dot]] = {}
    for dot in dots:
        places.setdefault((dot.failed, round(at(dot.value) / _DOT_PX)), []).append(dot)
    out = []
    for (failed, _), group in places.items():
        lows = [d.low for d in group if d.low is not None]
        highs = [d.high for d in group if d.high is not None]
        others = f" and {len(group) - 1} more close to it" if len(group) > 1 else ""
        span = min(lows, default=None), max(highs, default=None)
        out.append(Dot(group[0].label + others, group[0].value, *span, failed=failed))
    return out


def bound_strip(
    id_: str,
    dots: Sequence[Dot],
    unit: str,
    floor: float | None = None,
    maximum: float | None = None,
    ceiling: float | None = None,
) -> Markup:
    """All measured values of a criterion on one axis, with the bound and the ceiling drawn in.

    The axis begins at the smallest number shown, not at zero; its ends are labelled.
    """
    marks = [(v, name) for v, name in ((floor, "floor"), (maximum, "maximum"), (ceiling, "ceiling")) if v is not None]
    numbers = [d.value for d in dots] + [v for v, _ in marks]
    numbers += [v for d in dots for v in (d.low, d.high) if v is not None]
    low, high = ends(numbers, 0.08, 0.05)
    left, width, height, axis = 10, 640, 88, 36
    span = (width - 2 * left) / (high - low)

    def at(value: float) -> float:
        return left + (value - low) * span

    good = at(floor if floor is not None else low), at(maximum if maximum is not None else ceiling or high)
    body = [
        rect(good[0], axis - 12, max(good[1] - good[0], 0), 24, fill="#e6eef6"),
        path("M", left, axis, "H", width - left, stroke=LINE),
    ]
    for value, name in sorted(marks):
        x = at(value)
        words = f"{name} {number(value)}"
        half = len(words) * 3.4
        centre = min(max(x, left + half), width - left - half)
        # floor and ceiling are often close together: one label above the axis, the other below
        baseline = axis + 32 if name == "ceiling" else axis - 23
        body.append(path("M", x, axis - 17, "v34", stroke=INK, thick=1.6))
        body.append(text(centre, baseline, words, 11, "middle"))
    for dot in _thinned(dots, at):
        x = at(dot.value)
        colour = ALARM if dot.failed else BLUE
        drawn = []
        if dot.low is not None and dot.high is not None:
            drawn.append(path("M", at(dot.low), axis, "H", at(dot.high), stroke=colour, thick=2))
        if dot.failed:
            drawn.append(path("M", x - 5, axis - 5, "l10 10m0 -10l-10 10", stroke=colour, thick=2.4))
        else:
            drawn.append(element("circle", cx=x, cy=axis, r=4.5, fill=colour, fill_opacity=0.75, stroke=PAPER))
        body.append(titled(f"{dot.label}: {quantity(dot.value, unit)}", *drawn))
    body.append(text(left, height - 4, number(low), fill=MUTED))
    body.append(text(width - left, height - 4, f"{number(high)} {unit_text(unit)}", 11, "end", MUTED))
    words = ", ".join(f"{name} {number(v)}" for v, name in marks)
    failed = sum(d.failed for d in dots)
    description = (
        f"{len(dots)} values from {number(min(d.value for d in dots))} to {number(max(d.value for d in dots))} "
        f"{unit_text(unit)}; {words or 'no bound'}; {failed} outside their bound."
        if dots
        else f"No value was measured; {words}."
    )
    return frame(id_, "Measured values against the bound", description, width, height, body)


@dataclass(frozen=True)
class ScalingBar:
    """One training measurement: its rate and what the same ranks would give if they scaled perfectly (images/s)."""

    label: str
    rate: float
    ideal: float
    efficiency: float | None


def scaling(bars: Sequence[ScalingBar]) -> Markup:
    """Measured training rate as a filled bar inside the outline of the ideal one."""
    width, row = 640, 34
    left = min(max(150, 14 + max(len(b.label) for b in bars) * 12.5 * CHARACTER), width / 2)
    height = row * len(bars) + 26
    top = max(max(b.rate, b.ideal) for b in bars)
    span = (width - left - 150) / top
    outline = {"fill": "none", "stroke": INK, "dash": "3 2"}
    body = []
    for index, bar in enumerate(bars):
        y = index * row + 4
        words = number(bar.rate) + (f"  ({percent(bar.efficiency)})" if bar.efficiency is not None else "")
        end = left + max(bar.rate, bar.ideal) * span + 10
        body += [
            text(left - 12, y + 17, short(bar.label, left - 12, 12.5), 12.5, "end"),
            rect(left, y + 2, bar.rate * span, 20, fill=BLUE),
            rect(left, y, bar.ideal * span, 24, **outline),
            text(end, y + 17, words, 12.5),
        ]
    key = height - 8
    body += [
        rect(left, key - 9, 14, 9, fill=BLUE),
        text(left + 20, key, "measured, images/s", fill=MUTED),
        rect(left + 140, key - 9, 14, 9, **outline),
        text(left + 160, key, "ideal: ranks \u00d7 the rate of one rank", fill=MUTED),
    ]
    description = "; ".join(f"{b.label}: {number(b.rate)} images/s of {number(b.ideal)} ideal" for b in bars)
    return frame("scaling", "Training rate against ideal scaling", description, width, height, body)
