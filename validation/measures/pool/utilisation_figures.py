"""What was leased and used of the pool over time, as its monitoring recorded it."""

from __future__ import annotations

from statistics import median

from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import duration, number
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart
from validation.report.unplanned import unplanned

_KIND = "utilisation"
_SERIES = {
    "leased_ratio": "GPUs leased",
    "gpu_utilization_ratio": "GPU utilisation",
    "gpu_memory_ratio": "GPU memory used",
}
_CAPTION = "Pool over time, as the head's Prometheus recorded it."
_LEAST = 2  # readings; one is no course over time


def utilisation_figure(documents: RunDocuments) -> Figure:
    """Shares of the pool over the recorded time; readings are apart by the step of the query."""
    planned = [m for m in documents.plan.measurements if m.kind == _KIND]
    if not planned:
        return Figure(_KIND, _CAPTION, empty=unplanned(documents, "operations", ("op.util", "op.leased")))
    result = documents.latest.get(planned[0].id)
    if result is None or result.status != "ok":
        why = documents.lost(planned[0].id)
        return Figure(_KIND, _CAPTION, empty=f"Not measured: {why}.", criteria=("op.util", "op.leased"))
    found = {name: result.values(name) for name in _SERIES}
    emulated = " The GPUs are emulated: their figures show that recording works, and nothing of hardware."
    caption = _CAPTION + (emulated if result.plain.get("emulated") else "")
    rows = tuple(
        (
            _SERIES[name],
            str(len(values)),
            *(f"{number(v * 100)} %" for v in (values[0], min(values), median(values), max(values), values[-1])),
        )
        if values
        else (_SERIES[name], "0", *["not measured"] * 5)
        for name, values in found.items()
    )
    table = DataTable(
        "Readings of each series.", ("Series", "Readings", "Oldest", "Least", "Median", "Most", "Newest"), rows
    )
    longest = max(len(v) for v in found.values())
    step = result.plain.get("step_s")
    if longest < _LEAST or not isinstance(step, (int, float)):
        why = (
            f"{longest} reading was recorded so far, and a course over time needs more"
            if longest < _LEAST
            else "the result does not say how far its readings are apart"
        )
        return Figure(
            _KIND, caption, None, table, f"Not drawn: {why}. The readings are in the table.", ("op.util", "op.leased")
        )
    span_s = (longest - 1) * float(step)
    scale, unit = (86400, "days") if span_s > 2 * 86400 else (3600, "hours") if span_s > 7200 else (60, "minutes")
    series = [
        Series(
            _SERIES[name],
            tuple(((i - len(values) + 1) * float(step) / scale, value * 100) for i, value in enumerate(values)),
            markers=len(values) <= 24,
        )
        for name, values in found.items()
        if values
    ]
    svg = line_chart(
        "utilisation-chart",
        "Pool over time",
        "; ".join(f"{row[0]}: median {row[4]}, from {row[3]} to {row[5]}" for row in rows) + ".",
        Axis(f"{unit} before the end of the recording", -span_s / scale, 0.0),
        Axis("% of the pool", 0.0, 100.0),
        series,
    )
    return Figure(
        _KIND,
        f"{caption} {duration(span_s)}, a reading every {number(float(step))} s.",
        svg,
        table,
        None,
        ("op.util", "op.leased"),
    )


FIGURES = (Drawn("operation", 10, lambda documents, verdict: (utilisation_figure(documents),)),)
