"""How long judging takes: a run of 14,402 results, each with its raw logs, is read, held against them, and judged.

Then the same run by the two ways in turns: with all raw logs read, and by what is known since they were last read.

    .venv/bin/python benchmarks/judge.py
    .venv/bin/python benchmarks/judge.py --turns 5
    .venv/bin/python benchmarks/judge.py --columns 1000 200     # nodes, metrics; judged from columns, without raw logs
    .venv/bin/python benchmarks/judge.py --nodes 64 --keep /tmp/run64
    .venv/bin/python benchmarks/judge.py --run runs/2026-11-21T10-15-00Z-tcp10

Seconds are of the processor, in a process of its own that reads from the page cache. The numbers judged are invented.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

NODES = 576
"""Their plan has 14,403 measurements, of which the last has no result."""

PART = """
import gc, resource, sys
from pathlib import Path
from toolkit.entry import COLLECTOR
from validation.judging.run_data import RunData
from validation.verdict.judge import judge
from validation.run.read import read

def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_utime + usage.ru_stime

gc.set_threshold(*COLLECTOR)  # as every command does
run = read(Path(sys.argv[1]))
begin = last = used()
def told(step, since):
    now = used()
    print(f"{step:34} user {now[0] - since[0]:6.2f} s   user and system {now[1] - since[1]:6.2f} s", flush=True)
    return now

run.notes()
last = told("documents, plan made again", last)
results = run.results
last = told(f"results.jsonl, {len(results)} lines", last)
evidence = run.evidence()
last = told("raw logs read, hashed, parsed", last)
documents = run.info, run.topology, run.plan, run.fabric, run.criteria
verdict = judge(RunData(*documents, results, run.waivers, run.profile, evidence))
last = told("judged", last)
told("all", begin)
print(f"{verdict.planned} planned, {verdict.measured} measured: {verdict.outcome}")
"""

PEAK = """
def peak_mb():
    # not ru_maxrss: that of a new process begins with its parent's
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
"""

AGAIN = """
import gc, hashlib, resource, sys
from pathlib import Path
from toolkit.entry import COLLECTOR
from validation.model.facts import forms
from validation.run.rejudge import judge_files

gc.set_threshold(*COLLECTOR)
forms()  # what judges is imported when it is first asked for, which is no part of this
before = resource.getrusage(resource.RUSAGE_SELF)
verdict = judge_files(Path(sys.argv[1]), again=sys.argv[2] == "known")
after = resource.getrusage(resource.RUSAGE_SELF)
used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
most = peak_mb()
said = hashlib.sha256(verdict.model_dump_json().encode()).hexdigest()[:12]
print(f"{sys.argv[2]:6} {used:6.2f} s   {most:5.0f} MB   verdict {said}", flush=True)
"""

COLUMNS = """
import gc, resource, sys
from pathlib import Path
from toolkit.entry import COLLECTOR
from toolkit.rundir import write_document
from validation.judging.run_data import RunData
from validation.verdict.judge import judge
from validation.model.judgement import others
from validation.run.read import read

gc.set_threshold(*COLLECTOR)
run = read(Path(sys.argv[1]))
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
def told(step, since):
    now, most = used(), peak_mb()
    print(f"{step:34} {now - since:6.2f} s   {most:5.0f} MB so far", flush=True)
    return now

last = begin = used()
documents = run.info, run.topology, run.plan, run.fabric, run.criteria
last = told("documents", last)
results = run.known.columns.results()
last = told(f"columns of {len(results)} results", last)
verdict = judge(RunData(*documents, results))
last = told("judged", last)
write_document(run.folder / "verdict.json", verdict)
last = told("verdict.json written", last)
told("all", begin)
bad = [j for c in verdict.criteria if c.id.startswith("gn.") for j in others(c.judgements) if j.verdict == "fail"]
slow = {j.subject for j in bad}
print(f"{verdict.planned} planned, {verdict.measured} measured: {verdict.outcome}; slow: {', '.join(sorted(slow))}")
"""


def make_columns(run_dir: Path, nodes: int, metrics: int, each: int, alone: bool, slow: int, count: int) -> None:
    """A run of so many nodes with so many metrics, `each` of one measurement; columns of its results. No raw logs."""
    from collections.abc import Iterator

    from tests.support.report_large import streamed
    from validation.judging.run_data import Evidence
    from validation.model import Result
    from validation.model.sample_columns import in_columns
    from validation.run.log_state import State
    from validation.run.read import read
    from validation.run.remembered import LogsRead, remember

    ends: list[int] = []

    def results() -> Iterator[Result]:
        at = 0
        for result, line in streamed(run_dir, nodes, metrics, each, alone, slow, count):
            at += len(line)
            ends.append(at)
            yield result

    columns = in_columns(results(), run_dir.name, ends=ends)
    remember(run_dir, read(run_dir).lines, columns, State(), LogsRead(Evidence(), {}, frozenset()), "")


def make_run(run_dir: Path, nodes: int) -> Path:
    """A clean run of a lab of so many nodes; results follow from their raw logs; the last measurement has none."""
    from tests.support.raw_case import measured
    from tests.support.report_large import large, made, planned
    from tests.support.site import addressed, write_run

    topology = large(nodes)
    plan = planned(topology, 0)
    told = addressed(topology, (made(run_dir, m, i, "") for i, m in enumerate(plan.measurements[:-1])))
    results = [measured(run_dir, m, like) for m, like in zip(plan.measurements, told, strict=False)]
    return write_run(run_dir, topology, plan, results, judged=False)


def main() -> None:
    """Print processor seconds by step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--keep", type=Path, help="keep the generated run here")
    parser.add_argument("--run", type=Path, help="judge this run instead")
    parser.add_argument("--turns", type=int, default=3, help="how often both ways of judging take turns")
    parser.add_argument("--columns", type=int, nargs=2, metavar=("NODES", "METRICS"), help="judge from columns alone")
    parser.add_argument("--each", type=int, default=1, help="metrics that one measurement gives, of --columns")
    parser.add_argument("--alone", action="store_true", help="nothing beside these metrics, of --columns")
    parser.add_argument("--slow", type=int, default=1, help="nodes that are slow, of --columns")
    parser.add_argument("--samples", type=int, default=3, help="samples of each metric, of --columns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.columns:
            run = options.keep or Path(folder) / "run"
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            make_columns(run, *options.columns, options.each, options.alone, options.slow, options.samples)
            subprocess.run([sys.executable, "-c", PEAK + COLUMNS, str(run)], check=True)
            return
        run = options.run or make_run(options.keep or Path(folder) / "run", options.nodes)
        subprocess.run([sys.executable, "-c", PART, str(run)], check=True)
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        time.sleep(2)  # younger logs are read again
        for turn in range(-1, options.turns):
            print("first time, which is remembered" if turn < 0 else f"turn {turn + 1}", flush=True)
            for way in ("known",) if turn < 0 else ("all", "known"):
                subprocess.run([sys.executable, "-c", PEAK + AGAIN, str(run), way], check=True, env=environment)


if __name__ == "__main__":
    main()
