"""Bandwidth by message size against the line rate, from the RDMA measurements of other sizes than the judged one."""

from __future__ import annotations

from math import floor, log10
from statistics import median

from validation.model import Measurement, Result
from validation.report.documents import RunDocuments
from validation.report.numbers import number, plural, quantity, size_words
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart

_KIND = "rdma-bandwidth"
_FLAT = 0.3  # a curve that stays below this share of the line rate is drawn on a logarithmic scale


def _operation(measurement: Measurement) -> str:
    return str(measurement.params.get("op", ""))


def _run(measurement: Measurement) -> str:
    """What a curve is of: one queue pair carries less than several."""
    qps = measurement.params.get("qps", 1)
    return _operation(measurement) + (f", {plural(qps, 'queue pair')}" if isinstance(qps, int) else "")


def _values(measurement: Measurement, result: Result) -> dict[int, float]:
    """Gbit/s by message size in bytes, of one measurement of one direction of a pair."""
    size = measurement.params.get("size_bytes")
    if size == 0:
        swept = result.plain.get("sweep")
        return {int(size): rate for size, rate in swept.items()} if isinstance(swept, dict) else {}
    rates = result.values(f"rdma_{_operation(measurement)}_bandwidth_gbps")
    return {int(size): median(rates)} if isinstance(size, int) and rates else {}


def _pair(measurement: Measurement) -> str:
    return " to ".join(map(str, measurement.endpoints))


def size_figure(documents: RunDocuments) -> Figure:
    """The curve of each operation that was measured with several sizes: median, best and worst pair of each size."""
    planned = [m for m in documents.plan.measurements if m.kind == _KIND and not m.params.get("bidirectional")]
    if not planned:
        why = (
            "the sweep over message sizes is part of the RDMA measurements, and this run planned none"
            if documents.fabric.needs_rdma
            else f"the sweep over message sizes is part of the RDMA measurements, which {documents.fabric.name} has not"
        )
        return Figure("sizes", "Bandwidth by message size.", empty=f"Not measured: {why}.")
    latest = documents.latest
    by_operation: dict[str, dict[int, list[tuple[float, str]]]] = {}
    for measurement in planned:
        result = latest.get(measurement.id)
        if result is None or result.status != "ok":
            continue
        sizes = by_operation.setdefault(_run(measurement), {})
        for size, rate in _values(measurement, result).items():
            if rate > 0:
                sizes.setdefault(size, []).append((rate, _pair(measurement)))
    curves = {op: sizes for op, sizes in by_operation.items() if len(sizes) > 1}
    if not curves:
        return Figure("sizes", "Bandwidth by message size.", empty="Not measured: no run with another message size.")
    return _drawn(documents, curves)


def _drawn(documents: RunDocuments, curves: dict[str, dict[int, list[tuple[float, str]]]]) -> Figure:
    lab = documents.topology.lab_link
    line_gbps = lab.rate_gbps if lab else documents.fabric.line_rate_gbps
    name = "declared rate of the lab link" if lab else "line rate"
    rates = [r for sizes in curves.values() for found in sizes.values() for r, _ in found]
    every = sorted({size for sizes in curves.values() for size in sizes})
    log = max(rates) < _FLAT * line_gbps or min(rates) * 300 < max(rates)
    low = 10.0 ** floor(log10(min(rates))) if log else 0.0
    series = []
    for op, sizes in curves.items():
        middle = tuple((size, median(r for r, _ in sizes[size])) for size in sorted(sizes))
        band = tuple((size, min(sizes[size])[0], max(sizes[size])[0]) for size in sorted(sizes))
        series.append(Series(f"{op}: median of the pairs, shaded to worst and best", middle, band))
    step = -(-len(every) // 7)
    figure = line_chart(
        "sizes-chart",
        "RDMA bandwidth by message size",
        f"From {size_words(every[0])} to {size_words(every[-1])}; highest {number(max(rates))} Gbit/s, {name} "
        f"{number(line_gbps)} Gbit/s.",
        Axis("message size", every[0], every[-1], log=True, marks=tuple(every[::step]), words=size_words),
        Axis("Gbit/s" + (" (logarithmic)" if log else ""), low, max(line_gbps, *rates) * 1.12, log=log),
        series,
        limits=((line_gbps, f"{name} {quantity(line_gbps, 'Gbit/s')}"),),
    )
    rows = []
    for op, sizes in curves.items():
        for size, found in sorted(sizes.items()):
            worst, rate = min(found), median(r for r, _ in found)
            typical = (number(rate), f"{rate / line_gbps * 100:.1f} %")
            extremes = (number(worst[0]), worst[1], number(max(found)[0]))
            rows.append((op, size_words(size), *typical, *extremes, str(len(found))))
    head = ("Operation", "Size", "Median, Gbit/s", "Share of the rate", "Worst", "Pair", "Best", "Runs")
    pairs = {pair for sizes in curves.values() for found in sizes.values() for _, pair in found}
    caption = (
        f"Bandwidth by message size, one direction, {plural(len(pairs), 'ordered pair')}; dashed: {name}. "
        "Sizes other than the judged one are reported and not judged."
    )
    return Figure(
        "sizes",
        caption,
        figure,
        DataTable(f"RDMA bandwidth by message size; rate = {name}.", head, tuple(rows)),
        criteria=("tr.rdmabw",),
    )
