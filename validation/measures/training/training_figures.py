"""Scaling beside the published figures, the course of the loss, and what of the published was not measured."""

from __future__ import annotations

from validation.kinds.trained import title_of
from validation.measures.training.jobs_figures import KIND, METRIC, Training, TrainingRow, title, training
from validation.measures.training.long_figures import long_figure
from validation.model import VerdictDoc
from validation.report import published
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, number, percent
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart
from validation.report.unplanned import unplanned, why_unplanned
from validation.rules.reference import Claim, Reference

LOSS = "loss"


def training_figures(documents: RunDocuments, jobs: Training | None, verdict: VerdictDoc) -> tuple[Figure, ...]:
    """Figures of the training section; empty frames with the reason where nothing was measured."""
    return (
        _scaling(jobs, documents.reference),
        _throughput(jobs, documents),
        _learning(documents),
        long_figure(documents, verdict),
    )


def _scaling(jobs: Training | None, reference: Reference) -> Figure:
    scaling, whitepaper = published.scaling(reference), published.whitepaper(reference)
    caption = "Speed-up over one rank, against the ideal and the published."
    rows: list[tuple[str, ...]] = []
    mine: list[tuple[float, float]] = []
    rated = [r for r in (jobs.rows if jobs else ()) if r.average is not None]
    # one curve: of the published network where it was trained, else of the first that was
    shown = next((r.trained for r in rated if r.model == published.TRAINED), rated[0].trained if rated else "")
    measured = [r for r in rated if r.trained == shown]
    single = next((r.average for r in measured if r.ranks == 1), None)
    for row in measured:
        if single and row.average is not None:
            mine.append((row.ranks, row.average / single))
            rows.append(
                (f"this run, {row.title}", str(row.ranks), number(row.average), number(row.average / single),
                 percent(row.average / single / row.ranks), "measured")
            )  # fmt: skip
    lines = []
    for system, rates in scaling.items():
        points = tuple((float(n), rate / rates[1]) for n, rate in rates.items())
        lines.append(Series(f"published: {system}", points, hollow=True))
        rows += [
            (f"{system}, ResNet-50", str(n), number(r), number(r / rates[1]), percent(r / rates[1] / n), whitepaper)
            for n, r in rates.items()
        ]
    head = ("System", "Ranks (GPUs)", "Images/s", "Speed-up", "Efficiency", "Source")
    table = DataTable(
        "Scaling, by all images over all the time. Published rows are reference points of other systems, not judged.",
        head,
        tuple(rows),
    )
    if len(mine) < 2:
        why = "Not measured: no jobs of one rank and of several can be compared. The table has the published figures."
        return Figure("scaling-published", caption, None, table, why, ("tn.intra", "tn.inter"))
    top = max(max(n for n, _ in mine), max(n for rates in scaling.values() for n in rates))
    series = [Series("this run", tuple(sorted(mine))), *lines]
    marks = tuple(sorted({float(n) for n, _ in mine} | {1.0, 2.0, 4.0, 8.0}))
    svg = line_chart(
        "scaling-published-chart",
        "Speed-up over one rank",
        "; ".join(f"{s.label}: " + ", ".join(f"{number(v)} with {n:g}" for n, v in s.points) for s in series) + ".",
        Axis("ranks (GPUs)", 0.0, top * 1.04, marks=marks),
        Axis("speed-up over one rank", 0.0, top * 1.04),
        [*series, Series("ideal: N ranks, N times as fast", ((0.0, 0.0), (float(top), float(top))), markers=False)],
    )
    caption += (
        f" The job of this run is {shown or 'a small network'} on synthetic images; the published one is ResNet-50, "
        f"{published.conditions(reference)} ({whitepaper}). Only the shape can be compared, not the rate."
    )
    return Figure("scaling-published", caption, svg, table, None, ("tn.intra", "tn.inter"))


def _throughput(jobs: Training | None, documents: RunDocuments) -> Figure:
    """Tables 5 and 6 on one base, the rate of one node with eight GPUs, with what this run has of each network; below
    them networks of this run that the tables have not.
    """
    reference = documents.reference
    best: dict[str, TrainingRow] = {}
    for row in jobs.rows if jobs else ():
        if row.average is not None and row.ranks >= getattr(best.get(row.model), "ranks", 0):
            best[row.model] = row
    names = {published.NAMES[model]: row for model, row in best.items() if model in published.NAMES}
    rows, today = [], published.today(reference)
    for model, rates in published.throughput(reference).items():
        rows.append(
            (
                model,
                *(f"{number(rate)} ({rate / rates[0]:.3f})" for rate in rates),
                "; ".join(_of_today(reference, claim) for claim in today.get(model, ())) or NONE,
                *_beside(names.get(model), rates[0]),
            )
        )
    systems = published.throughput_systems(reference)
    own = [(model, row) for model, row in best.items() if model not in published.NAMES and title_of(model)]
    rows += [(title_of(model), *(NONE,) * len(systems), NONE, *_beside(row, None)) for model, row in own]
    table = DataTable(
        f"Published throughput on 8 GPUs, {published.conditions(reference)}, images/s; in brackets over that of "
        f"{systems[0]}, the one base of all columns (the document's tables have two); "
        f"source: {published.whitepaper(reference)}; {published.assumed(reference)}."
        + _sources(reference, [claim for claims in today.values() for claim in claims]),
        ("Model", *systems, "Today's, public", "This run", "with"),
        tuple(rows),
    )
    words = "Throughput by model against the published."
    if not best:
        trains = any(m.suite == "training" for m in documents.plan.measurements)
        why = "Not measured: no training job has a usable result." if trains else unplanned(documents, "training")
        why += " The table has what is published."
        return Figure("throughput", words, None, table, why, ("tn.short",))
    if any(not row.on_gpus for row in best.values()):
        where = ", here of a rehearsal," if any(n.virtual for n in documents.topology.nodes) else ""
        words += f" Rates of processors{where} are called so: they stand for no GPU and are held against nothing."
    return Figure("throughput", words, None, table, None, ("tn.short",))


def _of_today(reference: Reference, claim: Claim) -> str:
    return f"{number(claim.value)} ({', '.join(reference.machines[key].short for key in claim.machines)})"


def _sources(reference: Reference, claims: list[Claim]) -> str:
    """Of today's public figures, which are of another program, on pictures of ImageNet, and hold nothing to account."""
    if not claims:
        return ""
    said = "; ".join(dict.fromkeys(reference.source(claim) for claim in claims))
    return f" Today's public figures are of MXNet with a batch of its own on ImageNet, not judged: {said}."


def _beside(mine: TrainingRow | None, base: float | None) -> tuple[str, str]:
    """What this run measured, and with what; over the base only with as many GPUs as that has."""
    if mine is None or mine.average is None:
        return "not measured", NONE
    over = base is not None and mine.on_gpus and mine.ranks == published.GPUS
    rate = number(mine.average) + (f" ({mine.average / base:.3f})" if over and base is not None else "")
    ranks = f"{mine.ranks} GPU" if mine.on_gpus else f"{mine.ranks} rank"
    return rate, f"{ranks}{'' if mine.ranks == 1 else 's'}{'' if mine.on_gpus else ' on processors'}, {mine.conditions}"


def _learning(documents: RunDocuments) -> Figure:
    caption = "Learning curve: loss of each step, mean of the ranks."
    planned = [m for m in documents.plan.measurements if m.kind == KIND]
    latest = documents.latest
    series, rows = [], []
    warmup = 0
    for measurement in planned:
        result = latest.get(measurement.id)
        losses = result.values(LOSS) if result is not None and result.status == "ok" else []
        if losses:
            label = f"{title(measurement)} ({measurement.params.get('ranks', '?')})"
            warmup = int(str(measurement.params.get("warmup", 0)))
            series.append(Series(label, tuple((float(i + 1), v) for i, v in enumerate(losses)), markers=False))
            picked = sorted({0, len(losses) // 4, len(losses) // 2, 3 * len(losses) // 4, len(losses) - 1})
            rows += [(label, str(i + 1), number(losses[i])) for i in picked]
    if not series:
        measured = [m for m in planned if (r := latest.get(m.id)) is not None and r.values(METRIC)]
        why = (
            "the results hold no loss of single steps (measured by an older release)"
            if measured
            else "no training job has a result"
            if planned
            else why_unplanned(documents, "training")
        )
        return Figure("learning", caption, empty=f"Not measured: {why}.")
    most = max(v for s in series for _, v in s.points)
    length = max(len(s.points) for s in series)
    svg = line_chart(
        "learning-chart",
        "Loss by step",
        "; ".join(f"{s.label}: from {number(s.points[0][1])} to {number(s.points[-1][1])}" for s in series) + ".",
        Axis("step", 0.0, float(length)),
        Axis("loss (cross entropy, nats)", 0.0, most * 1.08),
        series,
    )
    words = f" The first {warmup} steps are warm-up." if warmup else ""
    return Figure(
        "learning",
        f"{caption}{words} The images are synthetic: the curve shows that the job learns, not how accurate it gets.",
        svg,
        DataTable(
            "Loss at five steps of each job; results.jsonl has every step.", ("Job", "Step", "Loss"), tuple(rows)
        ),
        None,
        ("tn.short",),
    )


FIGURES = (Drawn("training", 10, lambda documents, verdict: training_figures(documents, training(documents), verdict)),)
