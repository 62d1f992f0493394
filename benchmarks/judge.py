"""How long judging takes: a run of 14,402 results, each with its raw logs, is read, held against them, and judged.

    .venv/bin/python benchmarks/judge.py
    .venv/bin/python benchmarks/judge.py --nodes 64 --keep /tmp/run64
    .venv/bin/python benchmarks/judge.py --run runs/2026-11-21T10-15-00Z-tcp10

Seconds are of the processor, in a process of its own that reads from the page cache. The numbers judged are invented.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

NODES = 576
"""Their plan has 14,403 measurements, of which the last has no result."""

PART = """
import gc, resource, sys
from pathlib import Path
from toolkit.entry import COLLECTOR
from validation.consistency import check_documents, read_evidence
from validation.judge import judge
from validation.runfiles import RunFiles

def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_utime + usage.ru_stime

gc.set_threshold(*COLLECTOR)  # as every command does
run = RunFiles(Path(sys.argv[1]))
begin = last = used()
def told(step, since):
    now = used()
    print(f"{step:34} user {now[0] - since[0]:6.2f} s   user and system {now[1] - since[1]:6.2f} s", flush=True)
    return now

check_documents(run)
last = told("documents, plan made again", last)
results = run.results
last = told(f"results.jsonl, {len(results)} lines", last)
evidence = read_evidence(run)
last = told("raw logs read, hashed, parsed", last)
profile, waivers = run.profile(run.criteria), run.waivers(run.criteria)
verdict = judge(run.info, run.topology, run.plan, run.fabric, run.criteria, results, waivers, profile, evidence)
last = told("judged", last)
told("all", begin)
print(f"{verdict.planned} planned, {verdict.measured} measured: {verdict.outcome}")
"""


def make_run(run_dir: Path, nodes: int) -> Path:
    """A clean run of a lab of so many nodes; results follow from their raw logs; the last measurement has none."""
    from tests.support.raw_case import measured
    from tests.support.report_large import large, made, planned
    from tests.support.site import write_run

    topology = large(nodes)
    plan = planned(topology, 0)
    results = [measured(run_dir, m, made(run_dir, m, i, "")) for i, m in enumerate(plan.measurements[:-1])]
    return write_run(run_dir, topology, plan, results, judged=False)


def main() -> None:
    """Print processor seconds by step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--keep", type=Path, help="keep the generated run here")
    parser.add_argument("--run", type=Path, help="judge this run instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or make_run(options.keep or Path(folder) / "run", options.nodes)
        subprocess.run([sys.executable, "-c", PART, str(run)], check=True)


if __name__ == "__main__":
    main()
