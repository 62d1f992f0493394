"""What pooling won, shown: the same jobs on siloed and on pooled GPUs, who had which when, hours and waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from validation.measures.remoting.facts import TITLES
from validation.measures.remoting.pooled import JobRun, PooledFacts
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, duration, number, plural
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.lanes import Block, Lane, LaneGroup, lane_chart
from validation.report.unplanned import unplanned

Arrangement = Literal["siloed", "pooled"]
CRITERIA = ("rm.pooled",)
ARRANGED: dict[Arrangement, str] = {
    "siloed": "siloed: each department on its own server",
    "pooled": "pooled: any GPU of both servers",
}
HEAD = (
    "Department",
    "Arrangement",
    "Jobs",
    "GPU time leased",
    "GPU time idle while a job of it waited",
    "Wait, median",
    "Wait, longest",
    "First request to last end",
)
JOBS = ("Job", "Program", "Part", "Siloed: GPU", "waited", "had it", "Pooled: GPU", "waited", "had it", "Same result")
_CAPTION = "What pooling wins: the same jobs of two departments on the same GPUs, siloed and pooled."


def pooled_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """The chart with the table of departments, and the table of jobs; the reason where nothing was measured."""
    planned = next((m for m in documents.plan.measurements if m.kind == "remoting-pooled"), None)
    if planned is None:
        return (Figure("pooled", _CAPTION, empty=unplanned(documents, "remoting", CRITERIA), criteria=CRITERIA),)
    result = documents.latest.get(planned.id)
    facts = result.facts_of(PooledFacts) if result is not None and result.status == "ok" else None
    if facts is None or facts.unmade:
        why = documents.lost(planned.id) if facts is None else facts.unmade
        return (Figure("pooled", _CAPTION, empty=f"Not measured: {why}.", criteria=CRITERIA),)
    return (_chart(facts), _jobs(facts))


def _chart(facts: PooledFacts) -> Figure:
    whose = {name: f"{name} ({server})" for name, server in facts.departments.items()}
    rows = []
    for department, label in (*whose.items(), ("", "both")):
        for arrangement in ARRANGED:
            share = facts.share(arrangement, department)
            if share is None:
                rows.append((label, arrangement, *[NONE] * 6))
                continue
            rows.append((label, arrangement, str(share.jobs), *map(duration, share[1:])))
    table = DataTable("Hours and waits, by Slurm's record of each lease.", HEAD, tuple(rows))
    who = f"elastic-ai-train by the engine {facts.engine} {facts.engine_release}"
    who += f", networks of the documents by PyTorch and the engine torch {facts.torch_release}" * bool(
        facts.torch_release
    )
    caption = (
        f"{_CAPTION} {plural(facts.gpus, 'GPU')} of each server; programs: {who}, alike in both arrangements. "
        "Lines: the last lease's end. Idle: no lease had it while a job waited."
    )
    if facts.emulated:
        caption += " GPUs are emulated: the hours are of processors that all of them share, and not a GPU's."
    groups = [group for arrangement in ARRANGED if (group := _lanes(facts, arrangement)) is not None]
    if not groups:
        return Figure("pooled", caption, None, table, "Not drawn: not all leases are recorded.", CRITERIA)
    told = "; ".join(f"{group.title}, all over after {number(group.until or 0)} s" for group in groups)
    svg = lane_chart("pooled-chart", "Who had which GPU when", f"{told}.", groups, "seconds after the first request")
    return Figure("pooled", caption, svg, table, None, CRITERIA)


def _lanes(facts: PooledFacts, arrangement: Arrangement) -> LaneGroup | None:
    whole = facts.share(arrangement)
    if whole is None:
        return None
    runs = facts.of(arrangement)
    used = {run.gpu for run in facts.runs}
    lanes = []
    for server in facts.servers:
        known = sorted(gpu for gpu in used if gpu.rpartition(":")[0] == server)
        idle = [f"{server}, another" for _ in range(facts.gpus - len(known))]  # no job had it in either arrangement
        lanes += [Lane(gpu, tuple(_blocks(run for run in runs if run.gpu == gpu))) for gpu in [*known, *idle]]
    return LaneGroup(ARRANGED[arrangement], tuple(lanes), max(run.end_s or 0 for run in runs))


def _blocks(runs: Iterable[JobRun]) -> list[Block]:
    """Of one GPU: parts that were had at once lie below each other."""
    made: list[Block] = []
    for run in sorted(runs, key=lambda one: (one.start_s or 0, one.job)):
        begin, end, share = float(run.start_s or 0), float(run.end_s or 0), float(run.share)
        beside = [block for block in made if block.end > begin]
        places = sorted({0.0, *(block.above + block.share for block in beside)})
        free = (
            at for at in places
            if not any(block.above < at + share and at < block.above + block.share for block in beside)
        )  # fmt: skip
        made.append(Block(run.job, f"department {run.department}", begin, end, share, min(next(free, 0.0), 1 - share)))
    return made


def _program(run: JobRun) -> str:
    small = {"train": "small network, training", "infer": "small network, answers"}
    return small.get(run.program) or f"{TITLES.get(run.program, run.program)} by PyTorch"


def _jobs(facts: PooledFacts) -> Figure:
    pooled = {run.job: run for run in facts.of("pooled")}
    rows = []
    for one in sorted(facts.of("siloed"), key=lambda run: run.job):
        other = pooled[one.job]
        cells = [cell for run in (one, other) for cell in _had(run)]
        same = NONE if not (one.result and other.result) else "yes" if one.result == other.result else "no"
        rows.append((one.job, _program(one), one.part, *cells, same))
    caption = "Each job in both arrangements: on which GPU, how long it waited for it and had it."
    return Figure("pooled-jobs", caption, None, DataTable(caption, JOBS, tuple(rows)), None, CRITERIA)


def _had(run: JobRun) -> tuple[str, str, str]:
    wait = NONE if run.wait_s is None else duration(run.wait_s)
    had = NONE if run.start_s is None or run.end_s is None else duration(run.end_s - run.start_s)
    return run.gpu or NONE, wait, had if run.status == 0 else f"{had} (failed, {run.status})"


FIGURES = (Drawn("remoting", 20, lambda documents, verdict: pooled_figures(documents)),)
