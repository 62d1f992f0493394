"""Bandwidth and latency between all pairs of fabric ports, as heat maps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from validation.model import Bound, CriterionVerdict, Endpoint, Judgement, Measurement
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, number, quantity, unit_text
from validation.report.svg.drawing import DataTable
from validation.report.svg.heatmap import MAX_WITH_NUMBERS, Cell, CellState, Heatmap, heat_map

_MAX_STRETCH = 2.5


@dataclass(frozen=True)
class Matrix:
    """A heat map with its caption and its numbers. `criterion` links it to its row in the criteria table."""

    criterion: str
    caption: str
    figure: Markup
    measured: int
    pairs: int
    judged: bool
    table: DataTable


@dataclass(frozen=True)
class _Spec:
    criterion: str
    kind: str
    metric: str
    unit: str
    title: str
    better: str
    op: str = ""  # of RDMA: the operation whose judgements are drawn

    def draws(self, measurement: Measurement) -> bool:
        """True for the measurements that the matrix shows."""
        asked = measurement.params
        mine = measurement.kind == self.kind and self.criterion in measurement.criteria
        return mine and (not self.op or (asked.get("op") == self.op and not asked.get("bidirectional")))


_SPECS = (
    _Spec("tr.tcpbw", "tcp-bandwidth", "tcp_bandwidth_gbps", "Gbit/s", "TCP bandwidth", "dark = more = better"),
    _Spec("tr.ipoib", "tcp-bandwidth", "tcp_bandwidth_gbps", "Gbit/s", "TCP bandwidth over InfiniBand",
          "dark = more = better"),
    _Spec("tr.netlat", "tcp-latency", "tcp_rtt_us", "us", "TCP round-trip time", "pale = shorter = better"),
    *(
        _Spec("tr.rdmabw", "rdma-bandwidth", f"rdma_{op}_bandwidth_gbps", "Gbit/s", f"RDMA {op} bandwidth",
              "dark = more = better", op)
        for op in ("write", "read", "send")
    ),
    *(
        _Spec("tr.rdmalat", "rdma-latency", f"rdma_{op}_latency_us", "us", f"RDMA {op} latency",
              "pale = shorter = better", op)
        for op in ("write", "read", "send")
    ),
)  # fmt: skip


_Cells = dict[tuple[Endpoint, Endpoint], Cell]


def matrices(documents: RunDocuments) -> tuple[Matrix, ...]:
    """One matrix for each transport metric that was planned. Cells show what was judged, or, where the run has not
    been judged, the median of what was measured.
    """
    return tuple(_matrix(documents, spec) for spec in _SPECS if any(map(spec.draws, documents.plan.measurements)))


def _labels(documents: RunDocuments, rdma: bool = False) -> tuple[Endpoint, ...]:
    """All fabric ports, or those on which RDMA is asked for."""
    ports = ((node, port) for node in documents.topology.nodes for port in node.ports)
    return tuple(Endpoint(node=node.name, port=port.interface) for node, port in ports if port.rdma or not rdma)


def _judged(documents: RunDocuments, criterion: str) -> CriterionVerdict | None:
    if documents.verdict is None:
        return None
    return next((c for c in documents.verdict.criteria if c.id == criterion), None)


def _state(judgement: Judgement) -> CellState:
    if judgement.verdict in ("fail", "waived"):
        return "fail"
    if judgement.verdict == "pass" or judgement.reason_code in ("virtual", "reported"):
        return "ok"
    return "unusable" if judgement.value is not None else "missing"


def _judged_cells(judgements: Iterable[Judgement], unit: str, op: str) -> _Cells:
    cells = {}
    for judgement in judgements:
        about = judgement.about
        if about.kind != "pair" or about.op not in ("", op) or about.both_ways:
            continue
        source, destination = about.ends
        text = number(judgement.value, 3) if judgement.value is not None else ""
        found = quantity(judgement.value, unit) if judgement.value is not None else "not measured"
        title = f"{source} to {destination}: {found}. {judgement.verdict}: {judgement.reason}"
        cells[source, destination] = Cell(text, title, _state(judgement), judgement.value)
    return cells


def _measured_cells(documents: RunDocuments, spec: _Spec) -> _Cells:
    cells = {}
    pairs = {m.id: m.endpoints for m in documents.plan.measurements if spec.draws(m) and len(m.endpoints) == 2}
    for result in documents.latest.values():
        values = result.values(spec.metric)
        if result.status == "ok" and values and result.measurement in pairs:
            source, destination = pairs[result.measurement]
            value = median(values)
            title = f"{source} to {destination}: {quantity(value, spec.unit)}, not judged"
            cells[source, destination] = Cell(number(value, 3), title, "ok", value)
    return cells


def suspects(
    documents: RunDocuments, criterion: str
) -> tuple[frozenset[Endpoint], frozenset[tuple[Endpoint, Endpoint]]]:
    """Endpoints and pairs that the findings name under `criterion`; a node stands for all its ports."""
    endpoints: set[Endpoint] = set()
    pairs: set[tuple[Endpoint, Endpoint]] = set()
    for finding in documents.verdict.findings if documents.verdict else ():
        if criterion not in finding.criteria:
            continue
        about = finding.about
        if about.kind == "pair":
            one, other = about.ends
            pairs |= {(one, other), (other, one)} if about.both_ways else {(one, other)}
        elif about.kind in ("port", "node"):
            endpoints |= set(about.ends)
    named = {e for e in _labels(documents) if e in endpoints or Endpoint(node=e.node) in endpoints}
    return frozenset(named), frozenset(pairs)


def _matrix(documents: RunDocuments, spec: _Spec) -> Matrix:
    criterion = _judged(documents, spec.criterion)
    labels = _labels(documents, bool(spec.op))
    judgements = criterion.judgements if criterion else ()
    cells = _judged_cells(judgements, spec.unit, spec.op) if criterion else _measured_cells(documents, spec)
    # a bound that was not applied, for the ports are virtual, would stretch the scale beyond all that was measured
    applied = [j for j in judgements if j.bound is not None and j.reason_code != "virtual"]
    bound: Bound | None = next((j.bound for j in applied if j.about.op == spec.op and not j.about.both_ways), None)
    values = [c.value for c in cells.values() if c.value is not None]
    limits = [b for b in (bound.ceiling, bound.floor) if b is not None] if bound else []
    top = max([*values, *limits], default=1.0)
    limit, name = None, ""
    if bound is not None and bound.floor is not None:
        limit, name = bound.floor, "floor"
    elif bound is not None and bound.maximum is not None:
        limit, name = bound.maximum, "maximum"
        # typical cells take the middle of the scale, so that a slow one stands out; a generous maximum would wash all
        # cells out, so it is then named but does not stretch the scale
        top = max(top, 2 * median(values)) if values else limit
        top = limit if top < limit <= _MAX_STRETCH * top else top
    # the diagonal is no pair; cells that do not belong to two known ports cannot be drawn
    known = frozenset(labels)
    drawn = {pair: cell for pair, cell in cells.items() if pair[0] in known and pair[1] in known}
    pairs = len({m.endpoints for m in documents.plan.measurements if spec.draws(m)})
    ends, marked_pairs = suspects(documents, spec.criterion)
    measured = sum(1 for c in drawn.values() if c.value is not None)
    unit = unit_text(spec.unit)
    marked = [*sorted(map(str, ends)), *sorted(f"{a} to {b}" for a, b in marked_pairs)]
    at_top = "ceiling " if bound is not None and bound.ceiling == top else ""
    description = (
        f"{measured} of {pairs} planned ordered pairs have a value, "
        + (f"from {number(min(values))} to {number(max(values))} {unit}. " if values else "none. ")
        + (f"{name} {number(limit)} {unit}. " if limit is not None else "")
        + (f"Suspect: {', '.join(marked)}." if marked else "")
    )
    figure = heat_map(
        Heatmap(
            id=f"matrix-{spec.kind}" + (f"-{spec.op}" if spec.op else ""),
            title=f"{spec.title}, {unit}",
            description=description,
            labels=labels,
            cells=drawn,
            unit=unit,
            top=top,
            top_label=f"{at_top}{number(top)} {unit}",
            bound=limit if limit is not None and limit <= top else None,
            bound_label=f"{name} {number(limit)}" if limit is not None else "",
            better=spec.better + (f"; {name} {number(limit)} {unit}" if limit is not None and limit > top else ""),
            suspect=ends,
            suspect_pairs=marked_pairs,
            high_is_bad=spec.unit != "Gbit/s",
        )
    )
    judged = "" if criterion else " Not judged: medians of the samples."
    caption = (
        f"{spec.title} in {unit}; the row sends, the column receives.{judged}"
        if spec.unit == "Gbit/s"
        else f"{spec.title} in {unit}; the row asks, the column answers.{judged}"
    )
    return Matrix(
        criterion=spec.criterion,
        caption=caption,
        figure=figure,
        measured=measured,
        pairs=pairs,
        judged=bool(judgements),
        table=_numbers(spec, labels, drawn),
    )


def _numbers(spec: _Spec, labels: tuple[Endpoint, ...], cells: _Cells) -> DataTable:
    """All values as a matrix; of many ports one line each, with its typical and its worst value."""
    unit = unit_text(spec.unit)
    if len(labels) <= MAX_WITH_NUMBERS:

        def words(source: Endpoint, destination: Endpoint) -> str:
            if source == destination:
                return NONE
            cell = cells.get((source, destination))
            missed = " (bound missed)" if cell is not None and cell.state == "fail" else ""
            return f"{cell.text}{missed}" if cell is not None and cell.text else "not measured"

        rows = tuple((str(a), *(words(a, b) for b in labels)) for a in labels)
        return DataTable(
            f"{spec.title}, {unit}; the row is the source.", ("Source", *map(str, labels)), rows, in_figure=True
        )
    ways: tuple[dict[Endpoint, list[tuple[float, str]]], ...] = ({}, {})
    for (source, destination), cell in cells.items():
        if cell.value is not None:
            ways[0].setdefault(source, []).append((cell.value, str(destination)))
            ways[1].setdefault(destination, []).append((cell.value, str(source)))
    worst = min if spec.unit == "Gbit/s" else max

    def line(label: Endpoint) -> tuple[str, ...]:
        out = [str(label)]
        for way in ways:
            found = way.get(label, [])
            value, other = worst(found) if found else (None, NONE)
            out += [number(median(v for v, _ in found)) if found else "not measured", quantity(value, ""), other]
        return tuple(out)

    head = ("Port", "Median as source", "Worst", "to", "Median as destination", "Worst", "from")
    caption = f"{spec.title} of each port, {unit}. Each pair's value is in annex A."
    return DataTable(caption, head, tuple(line(label) for label in labels))
