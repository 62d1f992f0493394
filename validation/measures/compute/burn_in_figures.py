"""What a burn-in did to each GPU over its time: use, temperature, power, and what it proves of how long they last."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from validation.analysis.mtbf import proved
from validation.base.counting import number_of
from validation.measures.compute.burn_facts import BurnDevice, BurnFacts, failures
from validation.measures.compute.segments import lost, segment_of
from validation.model import Measurement
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, duration, number, plural
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, ends, line_chart

MOST_NODES = 8
"""Nodes whose courses are drawn; of more the tables have the figures."""
MOST_CURVES = 4
"""GPUs with a curve each; of more there is the median, shaded to the least and the most of all."""
_QUANTITIES = (("use", "GPU utilisation, %", 1), ("heat", "Temperature, C", 2), ("power", "Power, W", 3))
_CRITERIA = ("bi.exact", "bi.events", "bi.rate", "bi.clocks")
_Found = tuple[Measurement, BurnFacts]


def burn_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """Tables and courses of a burn-in, where the run has one."""
    planned = [m for m in documents.plan.measurements if m.kind == "burn-in"]
    found: list[_Found] = []
    why, ended, without = "", list[str](), list[str]()
    for m in planned:
        if words := lost([one for one in documents.results if one.measurement == m.id]):
            ended.append(f"of {segment_of(m).words} of {m.nodes[0]} {words}")
        result = documents.latest.get(m.id)
        facts = result.facts_of(BurnFacts) if result is not None and result.status == "ok" else None
        if facts is not None:
            found.append((m, facts))
        else:
            why = f"{m.nodes[0]}: {documents.lost(m.id)}"
            without += [f"{segment_of(m).words} of {why}"] if result is not None else []
    if not planned:
        return ()
    if not found:
        return (Figure("burn-in", "Burn-in.", None, None, f"Not measured: {why}.", _CRITERIA),)
    last = {m.nodes[0]: (m, facts) for m, facts in found}  # of segments the last one's course
    drawn = [figure for m, facts in list(last.values())[:MOST_NODES] for figure in _courses(m.nodes[0], facts)]
    return (
        Figure("burn-in", _caption(found, ended, without), None, _table(list(last.values())), None, _CRITERIA),
        *drawn,
    )


def _caption(found: Sequence[_Found], ended: Sequence[str], without: Sequence[str]) -> str:
    """`ended`: of segments with attempts that came to no end. `without`: those that were tried and gave no result."""
    mine: dict[str, list[BurnFacts]] = {}
    for m, facts in found:
        mine.setdefault(m.nodes[0], []).append(facts)
    gpus = sum(max(one.gpus for one in each) for each in mine.values())
    longest = max(sum(one.seconds for one in each) for each in mine.values())
    what = plural(gpus, "GPU") if gpus else "the processors"
    emulated = " GPUs are emulated: no figure here is a GPU's." if any(facts.emulated for _, facts in found) else ""
    hours = sum(facts.gpu_hours for _, facts in found)
    proof = proved(hours, failures(found), gpus) if hours else ""
    if proof:
        proof += " Failures are wrong results and GPUs that came to no end; errors that GPUs count: bi.events."
    if ended:  # a node that went down is a failure or none, which nobody can tell from here
        more = f"; attempts of {plural(len(ended) - 1, 'more segment')} were lost too" if len(ended) > 1 else ""
        proof = f"No mean time between failures: {ended[0]}{more}." if hours else ""
    elif without:  # a GPU that vanished is a failure, and an order that was refused is none
        more = f"; {plural(len(without) - 1, 'more segment')} gave none either" if len(without) > 1 else ""
        proof = f"No mean time between failures: no result of {without[0]}{more}." if hours else ""
    said = f"Burn-in of {what} of {plural(len(mine), 'node')} for {duration(longest)}.{emulated}"
    return f"{said} {proof}".strip()


def _span(device: BurnDevice, name: str) -> str:
    value = getattr(device.watch, name) if device.watch is not None else None
    return NONE if value is None else f"{value.median:.0f} ({value.least:.0f} to {value.most:.0f})"


def _table(found: Sequence[_Found]) -> DataTable:
    rows = []
    for m, facts in found:
        for one in facts.devices:
            part = max(1, len(one.rates) // 4)
            ends_ = [number(median(each)) for each in (one.rates[:part], one.rates[-part:]) if each]
            rate = f"{', '.join(ends_)} {one.unit}" if ends_ else NONE
            slow = one.watch.slowed_words if one.watch is not None else ""
            wrong = str(one.wrong + sum(one.bad.values()))
            rows.append((
                m.nodes[0], one.words, rate, str(one.checks), wrong,
                *(_span(one, name) for name in ("utilisation_percent", "temperature_c", "power_w", "sm_mhz")),
                one.fault or slow or "none",
            ))  # fmt: skip
    head = (
        "Node",
        "Device",
        "Rate, first and last quarter",
        "Results",
        "Wrong",
        "Use, %",
        "C",
        "W",
        "MHz",
        "Slowed down",
    )
    return DataTable("Each device: of use, heat, power and clock median, least and most.", head, tuple(rows))


def _courses(node: str, facts: BurnFacts) -> list[Figure]:
    """A chart of each quantity that anything says."""
    gpus = [one for one in facts.devices if len(one.course) > 1]
    last = max((one.course[-1][0] for one in gpus), default=0.0)
    scale, unit = (3600.0, "hours") if last > 7200 else (60.0, "minutes") if last > 120 else (1.0, "seconds")
    figures = []
    for key, title, at in _QUANTITIES:
        curves = {one.words: _points(one, at, scale) for one in gpus}
        curves = {name: points for name, points in curves.items() if len(points) > 1}
        if not curves:
            continue
        values = [y for points in curves.values() for _, y in points]
        low, high = (0.0, 100.0) if key == "use" else ends(values, 0.15, 0.2)
        spread = f"From {number(min(values))} to {number(max(values))}, median {number(median(values))}."
        id_ = f"burn-{key}-{node}"
        x, y = Axis(f"{unit} of load", 0.0, last / scale), Axis(title, low, high)
        svg = line_chart(f"{id_}-chart", f"{title} of {node}", spread, x, y, curves_of(curves))
        emulated = " The GPUs are emulated." if facts.emulated else ""
        caption = f"{title}, of {plural(len(curves), 'GPU')} of {node} during the burn-in. {spread}{emulated}"
        figures.append(Figure(id_, caption, svg, None, None, ("bi.clocks",)))
    return figures


def _points(device: BurnDevice, at: int, scale: float) -> tuple[tuple[float, float], ...]:
    return tuple((point[0] / scale, value) for point in device.course if (value := point[at]) is not None)


def curves_of(curves: dict[str, tuple[tuple[float, float], ...]]) -> list[Series]:
    """Each GPU's curve; of many the median of all, shaded to the least and the most."""
    if len(curves) <= MOST_CURVES:
        return [Series(name, points, markers=False) for name, points in curves.items()]
    together = [sorted(y for _, y in at) for at in zip(*curves.values(), strict=False)]
    times = [x for x, _ in min(curves.values(), key=len)]
    middle = tuple((x, median(ys)) for x, ys in zip(times, together, strict=False))
    band = tuple((x, ys[0], ys[-1]) for x, ys in zip(times, together, strict=False))
    return [
        Series(
            f"median of {number_of(len(curves), 'GPU')}, shaded to the least and the most", middle, band, markers=False
        )
    ]


FIGURES = (Drawn("gpu", 20, lambda documents, verdict: burn_figures(documents)),)
