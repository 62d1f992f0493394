"""A trend as text for a terminal, and as one HTML file in the style of the report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from statistics import median

from jinja2 import Environment

from validation.base.counting import number_of
from validation.report import numbers
from validation.report.pages import environment
from validation.report.svg.drawing import Figure
from validation.report.svg.plots import Axis, Series, ends, line_chart
from validation.trend.model import Drift, Quantity, Trend

_NAMED = 3
"""Subjects with a curve of their own in a chart: those that drifted the most."""
_TEXT_ROWS = 20


def change_text(drift: Drift) -> str:
    """ "+4.1 %"."""
    return f"{drift.change * 100:+.1f} %"


def kind_text(drift: Drift) -> str:
    """What sort of drift, in words."""
    return "against the runs before" if drift.kind == "step" else "over all runs"


def tested_text(trend: Trend) -> str:
    """How many questions were asked, and how often that raises a false alarm."""
    return (
        f"{numbers.plural(trend.tested, 'question')} of figures, corrected for their number (Holm): the trend of an "
        f"unchanged site raises any alarm in {trend.level * 100:g} % of all cases"
    )


def as_text(trend: Trend) -> str:
    """Headline first, then what drifted."""
    lines = ["REHEARSAL on virtual parts: nothing here is an acceptance."] if trend.rehearsal else []
    lines += ["CONSTRUCTED EXAMPLE: the data were made up; no machine was measured."] if trend.constructed else []
    lines += [f"{trend.site}, {trend.fabric}, {trend.headline}"]
    lines += [f"first {trend.runs[0].run}, newest {trend.runs[-1].run}", ""]
    for drift in trend.drifts[:_TEXT_ROWS]:
        lines.append(
            f"  {'worse ' if drift.worse else 'better'} {drift.criterion}  {drift.subject}  "
            f"{numbers.quantity(drift.expected, drift.unit)} -> {numbers.quantity(drift.value, drift.unit)}  "
            f"{change_text(drift)}  {kind_text(drift)}"
        )
    if len(trend.drifts) > _TEXT_ROWS:
        lines.append(f"  and {len(trend.drifts) - _TEXT_ROWS} more; the page and trend.json have all")
    lines += [f"tested: {tested_text(trend)}", *(f"note: {note}" for note in trend.notes)]
    return "\n".join(lines) + "\n"


# --- HTML ------------------------------------------------------------------------------------------------------


def _over(trend: Trend, quantity: Quantity) -> list[tuple[float, float, float, float, int]]:
    """Day, median, lowest, highest and number of subjects, of each run that has any."""
    found = []
    for index, run in enumerate(trend.runs):
        values = [v for line in quantity.lines if (v := line.values[index]) is not None]
        if values:
            found.append((run.day, median(values), min(values), max(values), len(values)))
    return found


def _chart(trend: Trend, quantity: Quantity, number: int) -> Figure | None:
    """The middle of all subjects with the range of them, and those that drifted by themselves; None of one run."""
    over = _over(trend, quantity)
    if len(over) < 2 or over[-1][0] <= over[0][0]:
        return None
    drifted = [d.subject for d in trend.drifts if d.criterion == quantity.criterion]
    lines = {line.subject: line for line in quantity.lines}
    named = [lines[s] for s in dict.fromkeys(drifted) if s in lines][:_NAMED]
    many = len(quantity.lines) > 1
    series = [
        Series(
            f"middle of {len(quantity.lines)}, and the range of them" if many else quantity.lines[0].subject,
            tuple((day, middle) for day, middle, *_ in over),
            tuple((day, low, high) for day, _, low, high, _ in over) if many else (),
        )
    ]
    for line in named if many else ():
        points = [(run.day, v) for run, v in zip(trend.runs, line.values, strict=True) if v is not None]
        series.append(Series(line.subject, tuple(points)))
    low, high = ends([v for _, _, lowest, highest, _ in over for v in (lowest, highest)], 0.15, 0.1)
    unit = numbers.unit_text(quantity.unit)
    first = datetime.fromisoformat(trend.runs[0].created.replace("Z", "+00:00"))
    whole = over[-1][0] - over[0][0] >= 3

    def moment(day: float) -> str:
        return f"{first + timedelta(days=day):{'%m-%d' if whole else '%m-%d %H:%M'}}"

    marks = sorted({over[round(i * (len(over) - 1) / 4)][0] for i in range(5)} if whole else {over[0][0], over[-1][0]})
    title = " ".join(filter(None, (quantity.criterion, quantity.case)))
    svg = line_chart(
        f"trend-{number}",
        f"{title} over {number_of(len(over), 'run')}",
        "; ".join(f"{moment(day)}: {numbers.number(middle)}" for day, middle, *_ in over) + ".",
        Axis("when the run began (UTC)", over[0][0], over[-1][0], marks=tuple(marks), words=moment),
        Axis(unit, low, high),
        series,
    )
    caption = f"{quantity.statement}{f' ({quantity.case})' if quantity.case else ''}, {unit}, by run."
    return Figure(f"trend-{number}", caption, svg)


Told = tuple[str, float, float, float, int]
"""A run's name, then median, lowest, highest and number of subjects."""


def _rows(trend: Trend, quantity: Quantity) -> list[Told]:
    judged = [
        run.run
        for index, run in enumerate(trend.runs)
        if any(line.values[index] is not None for line in quantity.lines)
    ]
    over = _over(trend, quantity)
    return [(run, mid, low, high, count) for run, (_, mid, low, high, count) in zip(judged, over, strict=True)]


@cache
def _environment() -> Environment:
    return environment("validation.trend", change_text=change_text, kind_text=kind_text, tested_text=tested_text)


def as_html(trend: Trend) -> str:
    """One file: no script, nothing from elsewhere."""
    parts: Sequence[tuple[Quantity, Figure | None, list[Told]]] = [
        (quantity, _chart(trend, quantity, number), _rows(trend, quantity))
        for number, quantity in enumerate(trend.quantities, 1)
    ]
    tone = "rejected" if trend.worse else "rehearsal" if trend.rehearsal or trend.constructed else "accepted"
    template = _environment().get_template("trend.html")
    return template.render(t=trend, rehearsal=trend.rehearsal, constructed=trend.constructed, parts=parts, tone=tone)
