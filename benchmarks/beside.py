"""The judge in turns with SuperBench's `sb result diagnosis` (DataDiagnosis.run), on the same values.

    .venv/bin/python benchmarks/beside.py /path/to/superbench/bin/python --size 500 462 --size 1000 200
    .venv/bin/python benchmarks/beside.py /path/to/superbench/bin/python --size 10000 462 --turns 1 --limit-s 900

The Python is that of an environment into which SuperBench is installed. Each metric of each node has one value and the
same floor, and some nodes are slow. Theirs reads a line of JSON for each node and writes what it calls defective; ours
judges, once from columns and once from the lines of results.jsonl, and writes verdict.json. Seconds are of the
processor, system included, each in a process of its own, imports counted. The values are invented.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.judge import PEAK, make_columns

RULES = """version: v0.12
superbench:
  rules:
    generated:
      function: value
      criteria: "lambda x: x < 100"
      categories: Generated
      metrics:
        - generated/metric_.*
"""
"""The floor of tests/support/report_large.py."""

HEAD = """
import json, resource, sys
from pathlib import Path
"""
THEIRS = """
from superbench.analyzer import DataDiagnosis
values, rules, out = sys.argv[1:]
Path(out).mkdir(exist_ok=True)
DataDiagnosis().run(values, rules, None, out, output_format="jsonl")
slow = [line for line in Path(out, "diagnosis_summary.jsonl").read_text().splitlines() if line]
slow = sorted(json.loads(line)["index"] for line in slow)
"""
OURS = """
import gc
from toolkit.entry import COLLECTOR
from toolkit.rundir import write_document
from validation.judging.run_data import RunData
from validation.verdict.judge import judge
from validation.model.judgement import others
from validation.run.read import read
gc.set_threshold(*COLLECTOR)
run = read(Path(sys.argv[1]))
if sys.argv[2:]:
    results = run.known.columns.results()
else:
    results = run.results
verdict = judge(RunData(run.info, run.topology, run.plan, run.fabric, run.criteria, results))
write_document(run.folder / "verdict.json", verdict)
mine = [c for c in verdict.criteria if c.id.startswith("gn.")]
slow = sorted({j.subject for c in mine for j in others(c.judgements) if j.verdict == "fail"})
"""
TAIL = """
used = resource.getrusage(resource.RUSAGE_SELF)
print("\\n" + json.dumps([used.ru_utime + used.ru_stime, peak_mb(), slow]))
"""


def values_of(run: Path, path: Path) -> None:
    """The values of a run as SuperBench's file has them: a line for each node."""
    nodes: dict[str, dict[str, float]] = {}
    with (run / "results.jsonl").open() as lines:
        for line in map(json.loads, lines):
            mine = nodes.setdefault(line["provenance"]["nodes"][0], {})
            mine.update({f"generated/{s['metric']}": s["value"] for s in line["samples"]})
    path.write_text("".join(json.dumps({"node": node, **mine}) + "\n" for node, mine in nodes.items()))


def one(name: str, python: str, code: str, words: list[str], limit_s: float) -> list[str] | None:
    """Run it and print a row; the nodes that it found slow, None where it came to no end within the limit."""
    load, began = os.getloadavg()[0], time.monotonic()
    command = [python, "-c", HEAD + PEAK + code + TAIL, *words]
    before = os.times()
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        print(f"| {name} | not ended after {limit_s:g} s of wall, {used:.0f} CPU s | | {load:.1f} |", flush=True)
        return None
    used, most, slow = json.loads(done.stdout.splitlines()[-1])
    wall = time.monotonic() - began
    print(f"| {name} | {used:.2f} CPU s, {wall:.1f} s | {most:.0f} MB | {load:.1f} |", flush=True)
    return list(slow)


def main() -> None:
    """One row for each way, turn and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the Python of an environment with SuperBench")
    parser.add_argument("--size", type=int, nargs=2, action="append", required=True, metavar=("NODES", "METRICS"))
    parser.add_argument("--slow", type=int, default=5, help="nodes that are slow")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=900, help="wall time after which one is ended")
    options = parser.parse_args()
    for nodes, metrics in options.size:
        with tempfile.TemporaryDirectory() as folder:
            run, values, rules = (Path(folder) / name for name in ("run", "values.jsonl", "rules.yaml"))
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            make_columns(run, nodes, metrics, metrics, True, options.slow, 1)
            values_of(run, values)
            rules.write_text(RULES)
            print(f"{nodes} nodes x {metrics} metrics\n| | | peak memory | load |\n|---|---|---|---|", flush=True)
            for _ in range(options.turns):
                theirs = [str(values), str(rules), f"{folder}/theirs"]
                found = [
                    one("ours, columns", sys.executable, OURS, [str(run), "known"], options.limit_s),
                    one("ours, lines", sys.executable, OURS, [str(run)], options.limit_s),
                    one("SuperBench", options.python, THEIRS, theirs, options.limit_s),
                ]
                ended = [some for some in found if some is not None]
                same = all(some == ended[0] for some in ended)
                print(f"slow: {', '.join(ended[0])}; the same of all that ended: {same}", flush=True)


if __name__ == "__main__":
    main()
