"""Bus bandwidth of collective operations by message size: inside the servers, across two of them, across all."""

from __future__ import annotations

from math import floor, log10
from statistics import median

from validation.measures.collectives.facts import CollectivesFacts
from validation.model import Bound, VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import number, plural, quantity, size_words
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart
from validation.report.unplanned import unplanned

_KIND, _CRITERION = "collectives", "tr.nccl"
_WORDS = {"inside": "inside a server", "two": "across two servers", "all": "across all servers"}
Rates = dict[str, dict[int, list[tuple[float, float]]]]
"""Operation -> bytes -> (GB/s, us) of each job."""


def collective_figures(documents: RunDocuments, verdict: VerdictDoc) -> tuple[Figure, ...]:
    """A figure for each sort of job; one empty frame with the reason where none was measured."""
    planned = [m for m in documents.plan.measurements if m.kind == _KIND and not m.params.get("variant")]
    caption = "Bus bandwidth of collective operations by message size."
    if not planned:
        why = unplanned(documents, "training", (_CRITERION,))
        return (Figure(_KIND, caption, empty=why, criteria=(_CRITERION,)),)
    drawn = []
    jobs: dict[tuple[str, int], tuple[list[CollectivesFacts], list[str]]] = {}
    for m in planned:
        result = documents.latest.get(m.id)
        facts = result.facts_of(CollectivesFacts) if result is not None and result.status == "ok" else None
        if facts is not None:  # of so many ranks: others have another share of the links
            found, ids = jobs.setdefault((str(m.params["label"]), facts.world_size), ([], []))
            found.append(facts)
            ids.append(m.id)
    labels = [label for label, _ in jobs]
    for (label, ranks), (found, ids) in jobs.items():
        id_ = label if labels.count(label) == 1 else f"{label}-{ranks}"
        drawn.append(_drawn(label, id_, found, _bound(verdict, ids)))
    if not drawn:
        return (Figure(_KIND, caption, empty="Not measured: no job has a usable result.", criteria=(_CRITERION,)),)
    return tuple(drawn)


def _bound(verdict: VerdictDoc, ids: list[str]) -> Bound | None:
    """That of the all-reduce of these jobs, where all have the same."""
    judged = [j for c in verdict.criteria if c.id == _CRITERION for j in c.judgements if set(j.evidence) & set(ids)]
    bounds = {(j.bound.floor, j.bound.ceiling): j.bound for j in judged if j.bound is not None}
    return next(iter(bounds.values())) if len(bounds) == 1 else None


def _drawn(label: str, id_: str, found: list[CollectivesFacts], bound: Bound | None) -> Figure:
    rates: Rates = {}
    for facts in found:
        for row in facts.rows:
            rates.setdefault(row.op, {}).setdefault(row.bytes, []).append((row.busbw_gb_s, row.us))
    every = sorted({size for sizes in rates.values() for size in sizes})
    values = [rate for sizes in rates.values() for each in sizes.values() for rate, _ in each]
    where = _WORDS.get(label, label)
    ranks = " or ".join(sorted({str(facts.world_size) for facts in found}))
    by = ", ".join(sorted({facts.by for facts in found}))
    limits = tuple(
        (value, f"all-reduce, {name} {quantity(value, 'GB/s')}")
        for name, value in (("floor", bound.floor), ("ceiling", bound.ceiling))
        if value is not None
    ) if bound is not None else ()  # fmt: skip
    svg = None
    if len(every) > 1:
        step = -(-len(every) // 7)
        low = 10.0 ** floor(log10(min(values)))
        svg = line_chart(
            f"collectives-{id_}-chart",
            f"Bus bandwidth of collective operations {where}",
            f"From {size_words(every[0])} to {size_words(every[-1])}; highest {number(max(values))} GB/s.",
            Axis("message size", every[0], every[-1], log=True, marks=tuple(every[::step]), words=size_words),
            Axis("GB/s (logarithmic)", low, max([*values, *(v for v, _ in limits)]) * 1.12, log=True),
            [_series(op, sizes) for op, sizes in rates.items()],
            limits=limits,
        )
    rows = tuple(
        (op.replace("_", "-"), size_words(size), number(median(r for r, _ in each)), number(min(each)[0]),
         number(max(each)[0]), number(median(us for _, us in each)), str(len(each)))
        for op, sizes in rates.items()
        for size, each in sorted(sizes.items())
    )  # fmt: skip
    gaps = sorted({f"{gap.op.replace('_', '-')}: {gap.why}" for facts in found for gap in facts.left_out})
    caption = (
        f"Bus bandwidth of collective operations {where} by message size, {ranks} ranks, {plural(len(found), 'job')}, "
        f"by {by}. The largest size is judged, and of the all-reduce alone."
        + (f" Left out: {'; '.join(gaps)}." if gaps else "")
    )
    head = ("Operation", "Size", "Median, GB/s", "Worst", "Best", "us", "Jobs")
    table = DataTable(f"Bus bandwidth of collective operations {where}.", head, rows)
    empty = None if svg is not None else "One size is no curve; the table has it."
    return Figure(f"collectives-{id_}", caption, svg, table, empty, (_CRITERION, "tr.collect"))


def _series(op: str, sizes: dict[int, list[tuple[float, float]]]) -> Series:
    """The median of the jobs, between the worst and the best of them where there are several."""
    middle = tuple((float(size), median(r for r, _ in each)) for size, each in sorted(sizes.items()))
    several = any(len(each) > 1 for each in sizes.values())
    band = tuple((float(size), min(each)[0], max(each)[0]) for size, each in sorted(sizes.items())) if several else ()
    return Series(op.replace("_", "-"), middle, band)


FIGURES = (Drawn("training", 40, collective_figures),)
