"""The page on scale-up and scale-out: one world on one node and on several, of each network, beside tables 5 and 6.

Everything is over one base, the rate of the same world on one node. The document's tables have two bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validation.analysis.scaling import efficiency
from validation.kinds.record import names
from validation.kinds.trained import config_of, words_of
from validation.measures.training.facts import Layout, TurnsFacts
from validation.model import Measurement, VerdictDoc
from validation.report import published
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, number
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart

LABEL = "outup"
ID = "tn.outup"
SMALL = "small network"


@dataclass(frozen=True)
class LayoutCell:
    """One layout: nodes x ranks, images/s, its ratio to one node with the 95 % interval; `why` where it has none."""

    nodes: int
    layout: str
    rate: float | None = None
    ratio: str = ""
    over: float | None = None
    why: str = ""


@dataclass(frozen=True)
class WorldRow:
    """A network: its layouts in this run, and what tables 5 and 6 have of it, each over its own one node."""

    trained: str
    model: str
    cells: tuple[LayoutCell, ...]
    printed: tuple[str, ...]
    problem: str = ""

    def at(self, nodes: int) -> LayoutCell | None:
        """The layout on so many nodes."""
        return next((cell for cell in self.cells if cell.nodes == nodes), None)


@dataclass(frozen=True)
class ScaleOut:
    """The page. `nodes`: a column each; `said`: what the criterion says of it."""

    nodes: tuple[int, ...]
    systems: tuple[str, ...]
    rows: tuple[WorldRow, ...]
    base: str
    source: str
    said: str
    figure: Figure


def scale_out(documents: RunDocuments, verdict: VerdictDoc) -> ScaleOut:
    """Every network that was measured, planned or published; pure."""
    planned = [m for m in documents.plan.measurements if m.kind == "training-turns" and m.params.get("label") == LABEL]
    printed = _published(documents)
    rows = [_row(documents, m, printed) for m in planned]
    there = {row.model for row in rows}
    rows += [WorldRow(name, model, (), printed[model]) for model, name in published.NAMES.items() if model not in there]
    nodes = sorted({1, 2, *(cell.nodes for row in rows for cell in row.cells)})
    systems = published.throughput_systems(documents.reference)
    criterion = next((c for c in verdict.criteria if c.id == ID), None)
    base = (
        f"One base for all columns: the rate of the same world on one node (of the published: {systems[0]}, of another "
        "maker than the others, so that the published ratios compare machines and those of this run layouts). The "
        "document's tables have two bases"
    )
    source = f"{published.whitepaper(documents.reference)}, tables 5 and 6, {published.conditions(documents.reference)}"
    return ScaleOut(
        nodes=tuple(nodes),
        systems=systems,
        rows=tuple(rows),
        base=base,
        source=f"{source}; {published.assumed(documents.reference)}",
        said=criterion.reason if criterion else "no criterion asks for it",
        figure=_figure(documents, rows, verdict),
    )


def _published(documents: RunDocuments) -> dict[str, tuple[str, ...]]:
    """Model -> `4500 (0.927)` of each system, over the first."""
    every = published.throughput(documents.reference)
    return {
        model: tuple(f"{number(rate)} ({rate / every[name][0]:.3f})" for rate in every[name])
        for model, name in published.NAMES.items()
    }


def _row(documents: RunDocuments, m: Measurement, printed: dict[str, tuple[str, ...]]) -> WorldRow:
    result, model = documents.latest.get(m.id), config_of(m)[0]
    facts = result.facts_of(TurnsFacts) if result is not None and result.status == "ok" else None
    problem = ""
    if facts is None:
        problem = "no result" if result is None else result.error or f"{result.status}, no images/s"
    ways = [str(way) for way in names(m, "ways")]
    return WorldRow(
        words_of(m) or SMALL,
        model,
        _cells(facts, ways) if facts is not None else (),
        printed.get(model, (NONE,) * len(published.throughput_systems(documents.reference))),
        problem,
    )


def _cells(facts: TurnsFacts, ways: Sequence[str]) -> tuple[LayoutCell, ...]:
    base, found = facts.rates(ways[0]) if ways else [], []
    for way in ways:
        layout, rates = Layout.of(way), facts.rates(way)
        if layout is None:
            continue
        nodes, shown = layout.nodes, f"{layout.nodes} \u00d7 {layout.each}"
        cannot = next((turn.cannot for turn in facts.turns if turn.way == way and turn.cannot), "")
        if not rates or not base:
            found.append(
                LayoutCell(nodes, shown, why=cannot or ("not measured" if not rates else "one node has no rate"))
            )
            continue
        one = efficiency(rates, base, 1)
        ratio = f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" if way != ways[0] else "1"
        found.append(LayoutCell(nodes, shown, one.rate, ratio, one.value))
    return tuple(found)


def _figure(documents: RunDocuments, rows: Sequence[WorldRow], verdict: VerdictDoc) -> Figure:
    """Ratio to one node over the nodes that share the world."""
    caption = "Scale-up and scale-out: the same world on one node and on several, rate over that of one node."
    series = []
    for row in rows:
        points = tuple((float(cell.nodes), cell.over) for cell in row.cells if cell.over is not None)
        series += [Series(row.trained, points)] if len(points) > 1 else []
    if not series:
        criterion = next((c for c in verdict.criteria if c.id == ID), None)
        why = f"Not measured: {criterion.reason if criterion else 'no criterion asks for it'}."
        return Figure(LABEL, caption, empty=why, criteria=(ID,))
    every = published.throughput(documents.reference).values()
    relative = tuple((2.0, rate / printed[0]) for printed in every for rate in printed[1:])
    drawn = [*series, Series("published, of two makers", relative, hollow=True, line=False)]
    counts = sorted({x for one in drawn for x, _ in one.points})
    svg = line_chart(
        "outup-chart",
        "Rate over that of one node",
        "; ".join(f"{s.label}: " + ", ".join(f"{y:.3f} on {x:g}" for x, y in s.points) for s in series) + ".",
        Axis("nodes that share the world", 0.0, max(counts) * 1.1, marks=tuple(counts)),
        Axis("rate over that of one node", 0.0, max(y for one in drawn for _, y in one.points) * 1.08),
        drawn,
    )
    numbers = tuple(
        (row.trained, cell.layout, number(cell.rate), cell.ratio)
        for row in rows
        for cell in row.cells
        if cell.rate is not None
    )
    table = DataTable(
        "Rates by all images over all the time of all turns.",
        ("Trained", "Nodes \u00d7 ranks", "Images/s", "Over one node (95 % interval)"),
        numbers,
    )
    return Figure(LABEL, caption, svg, table, None, (ID,))
