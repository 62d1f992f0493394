"""Small figures: how criteria came out, values against their bound, scaling against the ideal. All inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from validation.report.colour import INK
from validation.report.drawing import ALARM, BLUE, GREEN, LINE, MUTED, VIOLET, frame
from validation.report.numbers import number, percent, quantity, unit_text

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


def tally(counts: dict[str, int]) -> Markup:
    """One bar, divided by verdict: how many criteria passed, failed, were waived, not measured, not applicable."""
    total = sum(counts.values())
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    width, height = 640, 12
    body, x = [], 0.0
    for name, count in counts.items():
        if not count or not total:
            continue
        part = width * count / total
        body.append(
            f'<rect x="{x:.2f}" y="0" width="{max(part - 2, 1):.2f}" height="{height}" '
            f'fill="{TALLY_COLOURS[name]}"><title>{count} {escape(name)}</title></rect>'
        )
        x += part
    return frame("tally", "Criteria by verdict", f"{total} criteria: {words}.", width, height, body, stretch=True)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


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
        ends = (min(lows, default=None), max(highs, default=None))
        out.append(Dot(group[0].label + others, group[0].value, *ends, failed=failed))
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
    low, high = _spread(numbers)
    low = max(low, 0.0) if min(numbers) >= 0 else low
    left, width, height, axis = 10, 640, 88, 36
    span = (width - 2 * left) / (high - low)

    def at(value: float) -> float:
        return left + (value - low) * span

    body = []
    good = (floor if floor is not None else low, maximum if maximum is not None else ceiling or high)
    body.append(
        f'<rect x="{at(good[0]):.1f}" y="{axis - 12}" width="{max(at(good[1]) - at(good[0]), 0):.1f}" height="24" '
        f'fill="#e6eef6"/>'
    )
    body.append(f'<path d="M{left} {axis}H{width - left}" stroke="{LINE}"/>')
    for value, name in sorted(marks):
        x = at(value)
        text = f"{name} {number(value)}"
        half = len(text) * 3.4
        centre = min(max(x, left + half), width - left - half)
        # floor and ceiling are often close together: one label above the axis, the other below
        baseline = axis + 32 if name == "ceiling" else axis - 23
        body.append(f'<path d="M{x:.1f} {axis - 17}v34" stroke="{INK}" stroke-width="1.6"/>')
        body.append(
            f'<text x="{centre:.1f}" y="{baseline}" text-anchor="middle" font-size="11" fill="{INK}">'
            f"{escape(text)}</text>"
        )
    for dot in _thinned(dots, at):
        x = at(dot.value)
        colour = ALARM if dot.failed else BLUE
        label = escape(f"{dot.label}: {quantity(dot.value, unit)}")
        body.append(f"<g><title>{label}</title>")
        if dot.low is not None and dot.high is not None:
            body.append(f'<path d="M{at(dot.low):.1f} {axis}H{at(dot.high):.1f}" stroke="{colour}" stroke-width="2"/>')
        if dot.failed:
            body.append(f'<path d="M{x - 5:.1f} {axis - 5}l10 10m0 -10l-10 10" stroke="{colour}" stroke-width="2.4"/>')
        else:
            body.append(f'<circle cx="{x:.1f}" cy="{axis}" r="4.5" fill="{colour}" fill-opacity="0.75" stroke="#fff"/>')
        body.append("</g>")
    ends = f'y="{height - 4}" font-size="11" fill="{MUTED}"'
    body.append(f'<text x="{left}" {ends}>{number(low)}</text>')
    body.append(f'<text x="{width - left}" {ends} text-anchor="end">{number(high)} {escape(unit_text(unit))}</text>')
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
    left, width, row = 150, 640, 34
    height = row * len(bars) + 26
    top = max(max(b.rate, b.ideal) for b in bars)
    span = (width - left - 150) / top
    body = []
    for index, bar in enumerate(bars):
        y = index * row + 4
        body.append(
            f'<text x="{left - 12}" y="{y + 17}" text-anchor="end" font-size="12.5" fill="{INK}">'
            f"{escape(bar.label)}</text>"
            f'<rect x="{left}" y="{y + 2}" width="{bar.rate * span:.1f}" height="20" fill="{BLUE}"/>'
            f'<rect x="{left}" y="{y}" width="{bar.ideal * span:.1f}" height="24" fill="none" stroke="{INK}" '
            f'stroke-dasharray="3 2"/>'
        )
        text = number(bar.rate) + (f"  ({percent(bar.efficiency)})" if bar.efficiency is not None else "")
        end = left + max(bar.rate, bar.ideal) * span + 10
        body.append(f'<text x="{end:.1f}" y="{y + 17}" font-size="12.5" fill="{INK}">{escape(text)}</text>')
    key = height - 8
    body.append(
        f'<g font-size="11" fill="{MUTED}"><rect x="{left}" y="{key - 9}" width="14" height="9" fill="{BLUE}"/>'
        f'<text x="{left + 20}" y="{key}">measured, images/s</text>'
        f'<rect x="{left + 140}" y="{key - 9}" width="14" height="9" fill="none" stroke="{INK}" '
        f'stroke-dasharray="3 2"/>'
        f'<text x="{left + 160}" y="{key}">ideal: ranks \u00d7 the rate of one rank</text></g>'
    )
    description = "; ".join(f"{b.label}: {number(b.rate)} images/s of {number(b.ideal)} ideal" for b in bars)
    return frame("scaling", "Training rate against ideal scaling", description, width, height, body)
