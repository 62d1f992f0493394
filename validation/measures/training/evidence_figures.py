"""What a training leaves as evidence: a trace of a few steps summed up, and what each GPU was doing through the job."""

from __future__ import annotations

from statistics import median

from validation.measures.compute.burn_in_figures import curves_of
from validation.measures.gpu.watch import GpuWatch
from validation.measures.training.facts import TrainingFacts
from validation.measures.training.jobs_figures import KIND, title
from validation.model import Measurement
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, number, percent
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, ends, line_chart
from validation.rules.reference import Reference

_QUANTITIES = (("use", "GPU utilisation, %", 1), ("power", "Power, W", 3), ("clock", "Clock, MHz", 4))
_Job = tuple[Measurement, TrainingFacts]


def evidence_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """Figures of the jobs that have a trace, and of those whose GPUs a sampler looked at."""
    jobs = []
    for m in documents.plan.measurements:
        result = documents.latest.get(m.id) if m.kind == KIND else None
        facts = result.facts_of(TrainingFacts) if result is not None and result.status == "ok" else None
        if facts is not None:
            jobs.append((m, facts))
    if not jobs:
        return ()
    return (_traces(jobs, documents.reference), *_watches(jobs))


def _words(m: Measurement) -> str:
    return f"{title(m)} ({m.params.get('ranks', '?')})"


def _traces(jobs: list[_Job], reference: Reference) -> Figure:
    caption = "What took the time of a few steps, by torch's profiler on rank 0, after the measured ones."
    traced = [(m, facts.trace) for m, facts in jobs if facts.trace is not None]
    rows = []
    for m, trace in traced:
        for top in trace.top:
            each = top.us / trace.steps if trace.steps else 0.0
            rows.append((_words(m), top.name, f"{each:.1f}", percent(top.share), f"{top.count / trace.steps:g}"))
    if not rows:
        said = next((t.left_out for _, t in traced if t.left_out), "no job has a trace: an older release measured")
        return Figure("trace", caption, empty=f"Not measured: {said}.", criteria=("tn.comm",))
    told = []
    for m, trace in traced:
        if trace.by == "kernels" and trace.busy_ratio is not None:
            share = f", the all-reduce {percent(trace.allreduce_ratio)} of it" if trace.allreduce_ratio else ""
            gap = f"; longest gap {trace.gaps[0].us:.0f} us after {trace.gaps[0].before}" if trace.gaps else ""
            told.append(f"{_words(m)}: kernels ran {percent(trace.busy_ratio)} of the time{share}{gap}.")
    claim = reference.claims.get("whitepaper.allreduce")
    printed = claim.published.printed if claim is not None and claim.published is not None else ""
    beside = f" Published of the all-reduce: {printed} ({claim.statement})." if told and claim and printed else ""
    table = DataTable(
        "Kernels of GPUs, else operators of processors with their own time, of one step. The profiler makes steps "
        "slower; `toolkit report --trace` writes the whole trace.",
        ("Job", "Kernel or operator", "us", "Share", "Times"),
        tuple(rows),
    )
    return Figure("trace", " ".join([caption, *told]) + beside, None, table, None, ("tn.comm",))


def _span(watch: GpuWatch, name: str) -> str:
    value = getattr(watch, name)
    return NONE if value is None else f"{value.median:.0f} ({value.least:.0f} to {value.most:.0f})"


def _watches(jobs: list[_Job]) -> list[Figure]:
    """Of all jobs a table; of the largest, the last of those, a curve of each quantity."""
    seen = [(m, facts) for m, facts in jobs if facts.watches]
    if not seen:
        return []
    rows = [
        (_words(m), f"{host}, GPU {watch.address}",
         *(_span(watch, name) for name in ("utilisation_percent", "power_w", "sm_mhz", "temperature_c")),
         watch.said or watch.slowed_words or "none")
        for m, facts in seen
        for host, watch in zip(facts.hosts, facts.watches, strict=False)
    ]  # fmt: skip
    head = ("Job", "GPU", "Use, %", "W", "MHz", "C", "Slowed down")
    table = DataTable("Each GPU of each job: median, least and most.", head, tuple(rows))
    words = "What the GPUs were doing while they trained, by a sampler beside the job."
    figures = [Figure("training-gpus", words, None, table, None, ("tn.clocks",))]
    m, facts = max(seen, key=lambda one: one[1].world_size)
    last = max((course[-1][0] for course in facts.courses if course), default=0.0)
    for key, name, at in _QUANTITIES:
        curves = {
            f"{host}, GPU {watch.address}": tuple((p[0], value) for p in course if (value := p[at]) is not None)
            for host, watch, course in zip(facts.hosts, facts.watches, facts.courses, strict=False)
        }
        curves = {label: points for label, points in curves.items() if len(points) > 1}
        if not curves:
            continue
        values = [y for points in curves.values() for _, y in points]
        low, high = (0.0, 100.0) if key == "use" else ends(values, 0.15, 0.2)
        spread = f"From {number(min(values))} to {number(max(values))}, median {number(median(values))}."
        x, y = Axis("seconds of the job", 0.0, last), Axis(name, low, high)
        svg = line_chart(f"training-{key}-chart", name, spread, x, y, curves_of(curves))
        figures.append(Figure(f"training-{key}", f"{name}, of {_words(m)}. {spread}", svg, None, None, ("tn.clocks",)))
    return figures


FIGURES = (Drawn("training", 20, lambda documents, verdict: evidence_figures(documents)),)
