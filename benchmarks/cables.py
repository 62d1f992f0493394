"""How long the map of cables of a site takes: written by `toolkit inventory cables` from a run, and judged with it.

python benchmarks/cables.py [--ports P] [N ...]      # by default 4 and 60 nodes of 8 ports
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.site import criterion, hardware, plan_of, plugged, result, verdict_of, write_run
from validation.model import Cable


def measure(count: int, ports: int) -> str:
    """A line of the table."""
    names = tuple(f"gpu{n}" for n in range(1, count + 1))
    site = hardware(names)
    ends = {
        name: {f"eth{rail}": (f"leaf{rail}", f"Eth1/{n}") for rail in range(1, ports + 1)}
        for n, name in enumerate(names, 1)
    }
    plan = plan_of(site, ("preflight",))
    results = [result(m, facts=plugged(ends[m.nodes[0]])) for m in plan.measurements if m.kind == "cabling"]
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / plan.run, site, plan, results, judged=False)
        begin = time.monotonic()
        words = [sys.executable, "-m", "toolkit", "inventory", "cables", str(run)]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        wrote = time.monotonic() - begin
    cables = tuple(Cable(**one) for one in yaml.safe_load(printed)["cables"])
    mapped = site.model_copy(update={"cables": cables})
    begin = time.monotonic()
    judged = criterion(verdict_of(mapped, plan_of(mapped, ("preflight",)), results), "pf.cabling").judgements
    took = time.monotonic() - begin
    passed = sum(one.verdict == "pass" for one in judged)
    return f"| {count} | {ports} | {len(cables)} | {wrote:.1f} | {passed} | {took:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, default=[4, 60])
    parser.add_argument("--ports", type=int, default=8)
    args = parser.parse_args()
    print("| nodes | ports | cables written | s | nodes that pass | s to judge |\n|---|---|---|---|---|---|")
    for count in args.counts:
        print(measure(count, args.ports), flush=True)


if __name__ == "__main__":
    main()
