"""Trainings in several ways, in turns: numbers of ranks, transports, images of files, processors; and ranks that lag
behind the others. Scale-up against scale-out has a page of its own: scale_out.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from validation.analysis.scaling import average_rate, efficiency
from validation.kinds.trained import NO_MPIRUN, words_of
from validation.measures.training.facts import Cores, Layout, TrainingFacts, TurnsFacts
from validation.measures.training.jobs_figures import KIND as SHORT
from validation.measures.training.jobs_figures import title
from validation.model import Measurement, VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, number, percent
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart

KIND = "training-turns"
Jobs = Sequence[tuple[Measurement, TurnsFacts]]


def turns_figures(documents: RunDocuments, verdict: VerdictDoc) -> tuple[Figure, ...]:
    """Figures of the training section; empty frames with the reason where nothing was measured."""
    latest = documents.latest
    jobs = [
        (m, facts)
        for m in documents.plan.measurements
        if m.kind == KIND
        and (result := latest.get(m.id)) is not None
        and result.status == "ok"
        and (facts := result.facts_of(TurnsFacts)) is not None
    ]

    def of(name: str) -> Jobs:
        return [job for job in jobs if job[0].params.get("label") == name]

    return (
        _worlds(of("scale"), verdict),
        _compared([*of("rdma"), *of("gdr"), *of("input")], verdict),
        _cores(of("input"), verdict),
        _ranks(documents),
    )


def _why(verdict: VerdictDoc, id_: str) -> str:
    criterion = next((c for c in verdict.criteria if c.id == id_), None)
    return f"Not measured: {criterion.reason if criterion else 'no criterion asks for it'}."


def _trained(m: Measurement) -> str:
    return words_of(m) or "small network"


def _worlds(jobs: Jobs, verdict: VerdictDoc) -> Figure:
    caption = "Numbers of ranks in turns, and torchrun beside mpirun on all nodes."
    rows, by = [], "by mpirun"
    for m, facts in jobs:
        base = facts.rates("1x1")
        for way in facts.ways():
            rates, last = facts.rates(way), [turn for turn in facts.turns if turn.way == way][-1]
            if last.launcher == "torchrun" and Layout.of(way):
                by = f"by torchrun, for {NO_MPIRUN}"
            if not rates or not base:
                rows.append((_trained(m), way, NONE, NONE, last.cannot or NONE))
                continue
            found = efficiency(rates, base, last.ranks)
            shown = f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
            rows.append((_trained(m), way, str(last.ranks), number(found.rate), shown))
    ids = ("tn.turns", "tn.twin")
    if not rows:
        return Figure("worlds", caption, empty=_why(verdict, "tn.turns"), criteria=ids)
    table = DataTable(
        f"Rates by all images over all the time of all turns; nodes x ranks {by}.",
        ("Trained", "Nodes x ranks", "Ranks", "Images/s", "Efficiency (95 % interval)"),
        tuple(rows),
    )
    return Figure("worlds", caption, None, table, None, ids)


def _compared(jobs: Jobs, verdict: VerdictDoc) -> Figure:
    caption = "Training in several ways, in turns on the same nodes: transports, and where the images come from."
    rows = []
    for m, facts in jobs:
        base = facts.rates(facts.ways()[-1] if m.params.get("label") != "input" else "synthetic")
        for way in facts.ways():
            rates = facts.rates(way)
            if Cores.of(way):
                continue
            last = next((turn for turn in reversed(facts.turns) if turn.way == way), None)
            if not rates or last is None:
                rows.append((_trained(m), way, NONE, NONE, last.cannot if last else NONE))
                continue
            over = f"{efficiency(rates, base, 1).value:.3f}" if base else NONE
            proof = ", ".join(map(str, last.carriers)) if m.params.get("label") != "input" else last.source
            if last.gpudirect is not None:
                proof += f"; GPUDirect {'taken' if last.gpudirect else 'not taken'}"
            if last.input_s is not None and last.source:
                step = int(str(m.params["batch"])) * last.ranks / average_rate(last.images_per_s)
                proof += f"; waits for images {percent(last.input_s / step)} of a step"
            rows.append((_trained(m), way, number(average_rate(rates)), over, proof or NONE))
    ids = ("tn.rdma", "tn.gdr", "tn.cpu")
    if not rows:
        return Figure("turns", caption, empty=_why(verdict, "tn.rdma"), criteria=ids)
    table = DataTable(
        "Rates by all images over all the time of all turns; ratios over TCP, over the job without GPUDirect, and over "
        "synthetic images.",
        ("Trained", "Way", "Images/s", "Ratio", "Proved by the log"),
        tuple(rows),
    )
    return Figure("turns", caption, None, table, None, ids)


def _cores(jobs: Jobs, verdict: VerdictDoc) -> Figure:
    caption = "Images/s on files over processors of each rank."
    rows, series = [], []
    for m, facts in jobs:
        ways = {way: cores.each for way in facts.ways() if (cores := Cores.of(way))}
        points = [(float(n), average_rate(facts.rates(way))) for way, n in ways.items() if facts.rates(way)]
        rows += [(_trained(m), f"{x:g}", number(y)) for x, y in points]
        cannot = [(t.way, t.cannot) for t in facts.turns if t.way in ways and t.cannot]
        rows += [(_trained(m), str(ways[way]), why) for way, why in cannot]
        series += [Series(_trained(m), tuple(points))] if len(points) > 1 else []
    if not series:
        return Figure("cores", caption, empty=_why(verdict, "tn.cores"), criteria=("tn.cores",))
    counts = sorted({x for s in series for x, _ in s.points})
    svg = line_chart(
        "cores-chart",
        "Images/s over processors of each rank",
        "; ".join(f"{s.label}: " + ", ".join(f"{number(y)} with {x:g}" for x, y in s.points) for s in series) + ".",
        Axis("processors of each rank", 0.0, max(counts) * 1.05, marks=tuple(counts)),
        Axis("images/s", 0.0, max(y for s in series for _, y in s.points) * 1.08),
        series,
    )
    table = DataTable(caption, ("Trained", "Processors of each rank", "Images/s"), tuple(rows))
    return Figure("cores", caption, svg, table, None, ("tn.cores",))


def _ranks(documents: RunDocuments) -> Figure:
    """Ranks wait for the slowest: its own part of a step beside the median of the ranks."""
    caption = "Ranks that lag: each job's slowest rank, its own forward and backward pass over the ranks' median."
    rows = []
    for m in documents.plan.measurements:
        result = documents.latest.get(m.id) if m.kind == SHORT else None
        facts = result.facts_of(TrainingFacts) if result is not None and result.status == "ok" else None
        own = facts.rank_compute_s if facts is not None else ()
        if facts is None or len(own) < 2 or len(own) != len(facts.hosts) or min(own) <= 0:
            continue
        slow = max(range(len(own)), key=own.__getitem__)
        device = f", {facts.devices[slow]}" if len(facts.devices) == len(own) else ""
        over = own[slow] / statistics.median(own)
        rows.append((title(m), f"rank {slow} on {facts.hosts[slow]}{device}", number(own[slow] * 1e3), f"{over:.3f}"))
    if not rows:
        return Figure("ranks", caption, empty="Not measured: no job reports the time of each of several ranks.")
    head = ("Job", "Slowest rank", "ms of a step", "Over the median")
    return Figure("ranks", caption, None, DataTable(caption, head, tuple(rows)), None, ("tn.short",))


FIGURES = (Drawn("training", 30, turns_figures),)
