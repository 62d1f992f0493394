"""`toolkit trace`: the trace that a training job left, as a file that browsers open."""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any

import click

from toolkit import rundir
from toolkit.commands.options import runs_dir_option
from toolkit.errors import UsageFault
from toolkit.exits import epilogue
from validation import bounded
from validation.parsers.common import ParseError
from validation.parsers.training_trace import trace_of
from validation.probes.train_trace import SORTS
from validation.runfiles import RunFiles

KIND = "training-short"


@click.command(epilog=epilogue("trace"))
@click.argument("job", required=False)
@click.option("--run", "name", metavar="RUN", help="Which run.  [default: the newest]")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write there.  [default: stdout]"
)
@runs_dir_option
def trace(job: str | None, name: str | None, out: Path | None, runs_dir: Path) -> None:
    """The trace of a few steps that a training JOB left, as chrome://tracing and https://ui.perfetto.dev open it.

    A job is a measurement by its name; without one the jobs of the run that have a trace are listed. The report has
    what it comes to: kernels, the all-reduce's share, gaps. Nothing is written into the run.

    \b
    toolkit trace
    toolkit trace training-short.resnet50-b128-fp16.inter --out trace.json
    """
    run = RunFiles(rundir.find(runs_dir, name))
    found: dict[str, dict[str, Any]] = {}
    planned = [m.id for m in run.plan.measurements if m.kind == KIND]
    for result in run.results:
        if result.measurement in planned and (job is None or result.measurement == job):
            for log in result.provenance.raw:
                if log.path.endswith(".out") and (read := _read(run.folder, log.path, log.sha256)) is not None:
                    found[result.measurement] = read
    if job is None:
        if not found:
            raise UsageFault(f"{run.folder}: no training job of this run has a trace")
        click.echo("\n".join(sorted(found)))
        return
    if job not in found:
        near = difflib.get_close_matches(job, planned, n=1)
        what = "has no trace" if job in planned else "is no training job of this run"
        raise UsageFault(f"{job} {what}" + (f"; did you mean {near[0]}?" if near and job not in planned else ""))
    text = json.dumps({"traceEvents": chrome(found[job]), "displayTimeUnit": "ms"}) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        rundir.write_text(out, text)
        click.echo(str(out))


def _read(folder: Path, path: str, sha256: str) -> dict[str, Any] | None:
    """The trace in a raw log; None where it has none. UsageFault where the log is not what it was."""
    try:
        content = bounded.read_file(folder / path)
    except OSError as fault:
        raise UsageFault(f"{folder / path}: {fault.strerror or fault}") from fault
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UsageFault(f"{folder / path}: changed since it was recorded")
    try:
        return trace_of(content.decode("utf-8", "replace"))
    except ParseError as fault:
        raise UsageFault(f"{folder / path}: {fault}") from fault


def chrome(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Events in the form of Chrome's trace viewer: one process for each step, one thread for each lane."""
    rows: list[dict[str, Any]] = []
    for number, step in enumerate(document["steps"], 1):
        rows.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"step {number}"}})
        rows += [
            {"ph": "X", "name": document["names"][name], "cat": SORTS[sort], "ts": begin, "dur": us, "pid": number,
             "tid": lane}
            for name, sort, begin, us, lane in step["events"]
        ]  # fmt: skip
    return rows
