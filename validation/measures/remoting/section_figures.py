"""GPUs over the network: copy matrices through the engine, fractions of memory, remote against native."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from markupsafe import Markup

from validation.base.counting import number_of
from validation.kinds.record import names
from validation.measures.remoting.facts import CopyFacts, FractionFacts, Remoting
from validation.measures.remoting.links_figures import links_figures
from validation.measures.remoting.model_figures import model_figure
from validation.measures.remoting.neighbours import NeighbourFacts
from validation.measures.remoting.shares import SharesFacts
from validation.measures.remoting.train import RemoteTrainFacts
from validation.measures.remoting.training_figures import answers_figure, engine_words, move_figures, training_figure
from validation.measures.remoting.worlds import WorldsFacts
from validation.model import CriterionVerdict, Endpoint, Judgement, Measurement, VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, interval, number, plural, quantity
from validation.report.published import remote_ratios
from validation.report.svg.colour import BLUE, INK, LINE, MUTED, PALE
from validation.report.svg.drawing import DataTable, Figure, frame, path, rect, short, text
from validation.report.svg.heatmap import Cell, Heatmap, heat_map
from validation.report.svg.plots import Span, interval_chart
from validation.report.unplanned import unplanned
from validation.rules.criterion import Criterion

_SIDES = (
    ("GB/s", "Bandwidth of copies", "dark = more = better", False),
    ("us", "Latency of a copy of 4 bytes", "pale = shorter = better", True),
)
_FILLS = (PALE, "#b9cfe4")
#: Facts that ratios are of.
_RATED: tuple[type[Remoting], ...] = (RemoteTrainFacts, WorldsFacts, SharesFacts, NeighbourFacts)


def remoting_figures(documents: RunDocuments, verdict: VerdictDoc) -> tuple[Figure, ...]:
    """Figures of the suite remoting; empty frames with the reason where something was not measured."""
    if links := links_figures(documents) if documents.topology.here is not None else ():
        return links
    figures = [*_matrices(documents), *_fractions(documents), training_figure(documents), model_figure(documents)]
    figures.append(answers_figure(documents))
    for id_, words, published in (
        ("rm.ratio", "Remote over native throughput, one GPU", remote_ratios(documents.reference)),
        ("rm.layout", "Layouts L4, L2R2, R4 over N4 (native)", ()),
        ("rm.fraction", "Aggregate of fractions over one full GPU", ()),
        ("rm.scale", "Scaling efficiency over GPU servers, from one client", ()),
        ("rm.noise", "A tenant of half a GPU beside a neighbour that does its worst, over the same alone", ()),
    ):
        criterion = next((c for c in verdict.criteria if c.id == id_), None)
        if criterion is not None:
            figures.append(_ratios(documents, criterion, words, published, documents.catalogue.get(id_)))
    return (*figures, *move_figures(documents))


def _ends(facts: CopyFacts) -> dict[int | None, Endpoint]:
    """The client's memory (None) and device numbers as the matrix names them -> label "where/what" of the drawing."""
    ends: dict[int | None, Endpoint] = {None: Endpoint(node=facts.client, port="host")}
    for i, device in enumerate(facts.devices):
        ends[i] = Endpoint(node=device.server, port=str(i)) if device.server else Endpoint(node=f"GPU {i}")
    return ends


def _matrices(documents: RunDocuments) -> list[Figure]:
    planned = [m for m in documents.plan.measurements if m.kind == "remoting-copy"]
    if not planned:
        why = unplanned(documents, "remoting", ("rm.matrix",))
        return [
            Figure("copies", "Copies between a client's memory and remote GPUs.", empty=why, criteria=("rm.matrix",))
        ]
    figures = []
    for measurement in planned:
        result = documents.latest.get(measurement.id)
        facts = result.facts_of(CopyFacts) if result is not None and result.status == "ok" else None
        caption = f"Copies through the engine, client {measurement.nodes[0]}."
        if facts is None:
            why = documents.lost(measurement.id)
            figures.append(
                Figure(
                    f"copies-{measurement.nodes[0]}", caption, empty=f"Not measured: {why}.", criteria=("rm.matrix",)
                )
            )
        else:
            figures += _maps(measurement, facts)
    return figures


def _maps(measurement: Measurement, facts: CopyFacts) -> list[Figure]:
    ends = _ends(facts)
    emulated = " GPUs are emulated." if facts.emulated else ""
    engine = f"engine {facts.engine} {facts.engine_release}" + (" by verbs" if facts.transport == "verbs" else "")
    figures = []
    for side, (unit, title, better, high_is_bad) in enumerate(_SIDES):
        shown = "µs" if unit == "us" else unit
        cells = {}
        for pair in facts.matrix:
            source, target = ends[pair.source], ends[pair.target]
            value = pair.us if side else pair.gb_s
            cells[source, target] = Cell(
                number(value, 3), f"{source} to {target}: {quantity(value, unit)}", "ok", value
            )
        values = [c.value for c in cells.values() if c.value is not None]
        top = max(values, default=1.0)
        id_ = f"copies-{measurement.nodes[0]}-{'bandwidth' if side == 0 else 'latency'}"
        svg = heat_map(
            Heatmap(
                id=id_,
                title=f"{title}, {shown}",
                description=f"{number_of(len(values), 'ordered pair')} of client memory and "
                f"{plural(len(ends) - 1, 'GPU')}, "
                + (f"from {number(min(values))} to {number(top)} {shown}." if values else "none has a value."),
                labels=tuple(ends.values()),
                cells=cells,
                unit=shown,
                top=top,
                top_label=f"{number(top)} {shown}",
                better=f"{better}; logarithmic",
                log_from=min(values, default=None),
                high_is_bad=high_is_bad,
                with_diagonal=True,
            )
        )
        labels = tuple(ends.values())
        rows = tuple((str(a), *(cells[a, b].text if (a, b) in cells else NONE for b in labels)) for a in labels)
        table = DataTable(
            f"{title}, {shown}; the row is the source.", ("Source", *map(str, labels)), rows, in_figure=True
        )
        caption = (
            f"{title} in {shown}, client {measurement.nodes[0]}, {engine}; the row is the source, the diagonal a copy "
            f"inside a GPU. The values are reported; what is judged is that no pair is missing.{emulated}"
        )
        figures.append(Figure(id_, caption, svg, table, None, ("rm.matrix",)))
    return figures


def _fractions(documents: RunDocuments) -> list[Figure]:
    planned = [m for m in documents.plan.measurements if m.kind == "remoting-fraction"]
    caption = "Memory of the fractions of a GPU, as their tenants could fill it."
    if not planned:
        why = unplanned(documents, "remoting", ("rm.memory",))
        return [Figure("fractions", caption, empty=why, criteria=("rm.memory",))]
    bars, rows, emulated = [], [], False
    for measurement in planned:
        result = documents.latest.get(measurement.id)
        server, parts = str(measurement.params.get("server", "")), names(measurement, "parts")
        if result is None or result.status != "ok":
            lost = documents.lost(measurement.id)
            rows.append((server, NONE, " + ".join(parts), "not measured", lost, NONE, NONE))
            continue
        facts = result.facts_of(FractionFacts)
        error = result.values("memory_error_mib")
        listed = [part.memory_mib for part in facts.parts] if facts is not None else []
        whole = number(facts.memory_mib) if facts is not None else NONE
        deviation = number(max(error)) if error else NONE
        context = number(facts.context_mib) if facts is not None else NONE
        held = " + ".join(number(v) for v in listed) or NONE
        engine = engine_words(facts) if facts is not None else NONE
        rows.append((server, engine, " + ".join(parts), held, context, whole, deviation))
        if facts is not None:
            emulated |= facts.emulated
            bars.append((f"{server}: {_words(parts)}", listed, facts.memory_mib))
    head = (
        "Server",
        "Engine",
        "Parts",
        "Memory of each, MiB",
        "Of it a context, MiB",
        "Whole GPU, MiB",
        "Largest deviation, MiB",
    )
    table = DataTable("Fractions of memory.", head, tuple(rows))
    caption += " GPUs are emulated." if emulated else ""
    if not bars:
        why = "Not drawn: no result has the memory of its parts; what is known is in the table."
        return [Figure("fractions", caption, None, table, why, ("rm.memory",))]
    return [Figure("fractions", caption, _stacks(bars), table, None, ("rm.memory",))]


def _words(parts: Sequence[str]) -> str:
    return f"{len(parts)} \u00d7 {parts[0]}" if len(set(parts)) == 1 else " + ".join(parts)


def _stacks(bars: list[tuple[str, list[float], float]]) -> Markup:
    left, width, row = 138, 540, 34
    body = []
    for index, (label, sizes, whole) in enumerate(bars):
        y, x = 8 + index * row, float(left)
        body.append(text(left - 10, y + 15, short(label, left - 12, 11.5), 11.5, "end"))
        scale = (width - left - 92) / max(whole, sum(sizes))
        for position, size in enumerate(sizes):
            wide = size * scale
            body.append(rect(x, y, wide, 22, fill=_FILLS[position % 2], stroke=BLUE, thick=0.8))
            words = number(size, 3)
            if wide > len(words) * 6.6 + 4:
                body.append(text(x + wide / 2, y + 15, words, 10.5, "middle"))
            x += wide
        end = left + whole * scale
        body += [path("M", end, y - 4, "v30", stroke=INK, thick=2), text(end + 8, y + 15, f"{number(whole)} MiB")]
    y = 8 + len(bars) * row + 10
    body.append(path("M", left, y - 6, "H", width - 90, stroke=LINE))
    body.append(text(left, y + 8, "memory of each part, MiB; upright line: the whole GPU", fill=MUTED))
    description = "; ".join(
        f"{label}: {' + '.join(number(s) for s in sizes)} of {number(w)} MiB" for label, sizes, w in bars
    )
    return frame("fractions-chart", "Fractions of a GPU's memory", description, width, y + 16, body)


def _judged(judgement: Judgement) -> str:
    """What became of a figure that is there: a table that shows it does not say that it was not measured."""
    if judgement.reason_code == "reported":
        return "reported"
    return "measured, not judged" if judgement.verdict == "not-measured" else judgement.verdict


def _engine(documents: RunDocuments, judgement: Judgement) -> str:
    """Which engine the figure was measured by."""
    for result in filter(None, map(documents.latest.get, judgement.evidence)):
        for form in _RATED:
            if (facts := result.facts_of(form)) is not None:
                return engine_words(facts)
    return NONE


def _ratios(
    documents: RunDocuments,
    criterion: CriterionVerdict,
    words: str,
    published: tuple[tuple[str, float, str], ...],
    entry: Criterion | None,
) -> Figure:
    id_ = criterion.id.replace(".", "-")
    demanded = entry.bound.said(documents.fabric) if entry else ""
    judged = [(j, j.value) for j in criterion.judgements if j.value is not None]
    rows: list[tuple[str, ...]] = [
        (j.subject, number(v), interval(j.low, j.high) or NONE, _judged(j), _engine(documents, j), "this run")
        for j, v in judged
    ]
    rows += [(case, number(value), NONE, "published, not judged", NONE, source) for case, value, source in published]
    head = ("Case", "Ratio", "95 % interval", "Verdict", "Engine", "Source")
    table = DataTable(f"{words}.", head, tuple(rows)) if rows else None
    if not judged:
        empty = f"Not measured: {criterion.reason}. Demanded: {demanded or criterion.source}."
        return Figure(id_, f"{words}.", None, table, empty, (criterion.id,))
    limit = next((j.bound.floor for j, _ in judged if j.bound is not None and j.bound.floor is not None), None)
    spans = [Span(j.subject, v, j.low, j.high, failed=j.verdict in ("fail", "waived")) for j, v in judged]
    spans += [Span(case, value, published=True) for case, value, _ in published]
    svg = interval_chart(
        f"{id_}-chart",
        words,
        f"{plural(len(judged), 'case')}, median {number(median(v for _, v in judged))}; "
        + (f"bound {number(limit)}." if limit is not None else "no bound."),
        spans,
        "ratio; bars are 95 % intervals",
        (limit, f"bound ≥ {number(limit)}") if limit is not None else None,
    )
    hollow = " Hollow diamonds: published figures of other systems, for reference." if published else ""
    return Figure(id_, f"{words}, with 95 % intervals and the bound.{hollow}", svg, table, None, (criterion.id,))


FIGURES = (Drawn("remoting", 10, remoting_figures),)
