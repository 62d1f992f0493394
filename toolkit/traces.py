"""`toolkit report --trace`: the trace that a training job left, as a file that browsers open."""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any

from toolkit.errors import UsageFault
from validation.base import bounded
from validation.kinds.parsing import ParseError
from validation.measures.training.trace import trace_of
from validation.probes.train_trace import SORTS
from validation.run.read import Run

KIND = "training-short"


def listed(run: Run) -> list[str]:
    """The training jobs of a run that have a trace. UsageFault where none has."""
    found = sorted(_traces(run, None))
    if not found:
        raise UsageFault(f"{run.folder}: no training job of this run has a trace")
    return found


def text(run: Run, job: str) -> str:
    """The trace of a job, as chrome://tracing and https://ui.perfetto.dev open it. UsageFault where it has none."""
    found = _traces(run, job)
    if job not in found:
        planned = _planned(run)
        near = difflib.get_close_matches(job, planned, n=1)
        what = "has no trace" if job in planned else "is no training job of this run"
        hint = f"; did you mean {near[0]}?" if near else "; toolkit report --trace lists those that have one"
        raise UsageFault(f"{job} {what}" + (hint if job not in planned else ""))
    return json.dumps({"traceEvents": chrome(found[job]), "displayTimeUnit": "ms"}) + "\n"


def _planned(run: Run) -> list[str]:
    return [m.id for m in run.plan.measurements if m.kind == KIND]


def _traces(run: Run, job: str | None) -> dict[str, dict[str, Any]]:
    """Job -> its trace; of all jobs, or of one."""
    found: dict[str, dict[str, Any]] = {}
    planned = _planned(run)
    for result in run.results:
        if result.measurement in planned and (job is None or result.measurement == job):
            for log in result.provenance.raw:
                if log.path.endswith(".out") and (read := _read(run.folder, log.path, log.sha256)) is not None:
                    found[result.measurement] = read
    return found


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
