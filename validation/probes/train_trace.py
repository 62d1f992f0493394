"""A trace of a few steps of training, by torch's profiler: what ran when, small enough to be kept with the run.

Rank 0 records; the others do the same steps, or it would wait for them for ever. On GPUs of what ran there, else of the
operators on processors. One step is recorded by itself, after those that are measured: the profiler takes time.

`line_of` makes one line of it: MARK and base64 of deflated JSON with `by` ("kernels" or "operators"), `names`, `steps`,
each with `wall_us` and `events` ([name, sort, begin, microseconds, lane], name as an index, begin from the step's first
event, sort as an index of SORTS), `of_steps` and `left_out`, why a step is missing. Read on the controller, too, so
nothing imports torch.
"""

from __future__ import annotations

import base64
import importlib
import json
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validation.base.counting import number_of

MARK = "trace: "
SORTS = ("kernel", "memcpy", "memset", "operator")
CATEGORIES = {
    "kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset",
    "Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset",
    "cpu_op": "operator", "Operator": "operator",
}  # fmt: skip
"""Categories of torch's chrome traces, today's and those before 1.12, that are kept."""
MOST_EVENTS = 20000  # of all steps: 0.3 MB as a line
NAME_LENGTH = 120  # of a kernel: templates have names of thousands


def record(torch: Any, step: Callable[[], Any], steps: int, cuda: bool, recording: bool) -> dict[str, Any] | None:
    """Do `steps` steps; a document of them where this rank is `recording`. A profiler that fails costs no step."""
    made: dict[str, Any] = {"by": "kernels" if cuda else "operators", "names": [], "steps": [], "left_out": ""}
    known: dict[str, int] = {}
    kept = 0
    for _ in range(steps):
        seen, why = _begin(torch, cuda) if recording else (None, "")
        begin = time.perf_counter()
        step()
        wall = time.perf_counter() - begin
        events, why = _end(seen, why) if recording else ([], "")
        if kept + len(events) > MOST_EVENTS:
            why, events = f"a step has {number_of(len(events), 'event')}; {MOST_EVENTS} of all steps are kept", []
        kept += len(events)
        made["left_out"] = made["left_out"] or why
        if events:
            made["steps"].append({"wall_us": round(wall * 1e6, 1), "events": _numbered(events, known)})
    made["names"], made["of_steps"] = list(known), steps
    return made if recording else None


def _begin(torch: Any, cuda: bool) -> tuple[Any, str]:
    try:
        profiler = importlib.import_module("torch.profiler")
        kinds = profiler.ProfilerActivity
        if not cuda and not torch.autograd.kineto_available():  # Debian's torch is built without
            seen = torch.autograd.profiler.profile(use_kineto=False)
            seen.__enter__()
        else:
            seen = profiler.profile(activities=[kinds.CUDA if cuda else kinds.CPU])
            seen.start()
    except Exception as fault:  # whatever it is, it costs the trace alone
        return None, f"torch's profiler: {str(fault).splitlines()[0] if str(fault) else type(fault).__name__}"
    return seen, ""


def _end(seen: Any, why: str) -> tuple[list[dict[str, Any]], str]:
    """Events of a profiler that was begun, by their begin, and why there are none."""
    if seen is None:
        return [], why
    try:
        if hasattr(seen, "stop"):
            seen.stop()
        else:
            seen.__exit__(None, None, None)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            seen.export_chrome_trace(str(path))
            written = json.loads(path.read_bytes())
    except Exception as fault:  # as above
        return [], f"torch's profiler: {str(fault).splitlines()[0] if str(fault) else type(fault).__name__}"
    rows = written["traceEvents"] if isinstance(written, dict) else written
    found = [row for row in rows if row.get("ph") == "X" and _sort(row)]
    found.sort(key=lambda row: float(row["ts"]))
    return found, "" if found else "torch's profiler saw nothing"


def _sort(row: dict[str, Any]) -> str:
    if "cat" not in row:  # torch built without kineto
        return "operator" if row.get("pid") == "CPU functions" else ""
    return CATEGORIES.get(str(row["cat"]), "")


def _numbered(events: list[dict[str, Any]], known: dict[str, int]) -> list[list[float]]:
    """Names and lanes as numbers, times from the first event on, to a hundredth of a microsecond."""
    lanes: dict[str, int] = {}
    first = float(events[0]["ts"])
    made = []
    for row in events:
        lane = lanes.setdefault(f"{row.get('pid')} {row.get('tid')}", len(lanes))
        name = known.setdefault(str(row["name"])[:NAME_LENGTH], len(known))
        begin, length = round(float(row["ts"]) - first, 2), round(float(row.get("dur", 0)), 2)
        made.append([name, SORTS.index(_sort(row)), begin, length, lane])
    return made


def shares(made: dict[str, Any] | None) -> list[float]:
    """Of each traced step what NCCL's kernels take of the time of all; none where none of a GPU was traced."""
    found: list[float] = []
    if made is None or made["by"] != "kernels":
        return found
    for step in made["steps"]:
        kernels = [
            (made["names"][name].lower(), us) for name, sort, _, us, _ in step["events"] if SORTS[sort] == "kernel"
        ]
        total = sum(us for _, us in kernels)
        if total > 0:
            found.append(round(sum(us for name, us in kernels if "nccl" in name) / total, 5))
    return found


def line_of(made: dict[str, Any]) -> str:
    """One line of ASCII."""
    packed = zlib.compress(json.dumps(made, separators=(",", ":")).encode(), 9)
    return MARK + base64.b64encode(packed).decode()
