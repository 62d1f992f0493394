"""How long a report takes and how large it is, on generated runs of 4, 64 and 1000 nodes.

    .venv/bin/python benchmarks/report.py                          # all three, a table on stdout
    .venv/bin/python benchmarks/report.py --nodes 64 --keep /tmp/run64
    .venv/bin/python benchmarks/report.py --nodes 1000 --formats html,json --formats pdf
    .venv/bin/python benchmarks/report.py --browser /tmp/run64/report.html

The runs are shaped like real ones: every node has facts, the fabric's pairs, and one result per metric, each with its
raw log; one node is slow and one metric of another is missing. The numbers are invented.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.report_large import make_large_run
from validation.report import FILES

SIZES = ((4, 0), (64, 200), (1000, 10))
"""(nodes, metrics of each node beside the usual suites)."""

PART = """
import gc, resource, sys, time
from pathlib import Path
begin = time.perf_counter()
from toolkit.entry import COLLECTOR
gc.set_threshold(*COLLECTOR)  # as every command does
from validation.report import write_formats
for path in write_formats(Path(sys.argv[1]), sys.argv[2].split(",")).paths.values():
    print(path.name, path.stat().st_size)
used = resource.getrusage(resource.RUSAGE_SELF)
print("seconds", time.perf_counter() - begin)
print("cpu", used.ru_utime + used.ru_stime)
with open("/proc/self/status") as status:  # not ru_maxrss: that of a new process begins with its parent's
    print("peak", next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")))
"""


def measure(run: Path, formats: str) -> dict[str, float]:
    """Sizes in bytes by file; `seconds`, `cpu` seconds, `peak` bytes of a fresh process that writes these formats."""
    answer = subprocess.run([sys.executable, "-c", PART, str(run), formats], check=True, capture_output=True, text=True)
    return {name: float(value) for name, value in (line.split() for line in answer.stdout.splitlines())}


def in_browser(report: Path) -> None:
    """Print how long Chromium takes to show a report, and to answer a search; what the page's memory is."""
    from tests.support.browser import Browser

    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        begin = time.perf_counter()
        browser.open(report, 1280)
        shown = time.perf_counter() - begin
        search = """new Promise(done => {
          const input = document.querySelectorAll('form.filter input[type=search]')[%d];
          const begin = performance.now();
          input.value = '%s'; input.dispatchEvent(new Event('input'));
          const told = () => done(performance.now() - begin);
          setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(told)), 130);
        })"""
        found = [browser.evaluate(search % (which, words)) for which, words in ((0, "bandwidth"), (1, "gpu0001"))]
        heap = browser.evaluate("performance.memory.usedJSHeapSize")
        elements = browser.evaluate("document.getElementsByTagName('*').length")
        browser.close()
    print(f"shown after {shown:.1f} s; search of criteria {found[0]:.0f} ms, of judgements {found[1]:.0f} ms; "
          f"{elements} elements, {heap / 1e6:.0f} MB of script memory")  # fmt: skip


def main() -> None:
    """Print one line per size and format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, help="only this many nodes")
    parser.add_argument("--metrics", type=int, default=200, help="metrics of each node (with --nodes)")
    parser.add_argument("--keep", type=Path, help="make the run there and leave it (with --nodes)")
    parser.add_argument("--formats", action="append", help="these alone, with commas: made by one process")
    parser.add_argument("--browser", type=Path, metavar="FILE", help="open this report.html in Chromium instead")
    arguments = parser.parse_args()
    if arguments.browser is not None:
        in_browser(arguments.browser.resolve())
        return
    sizes = SIZES if arguments.nodes is None else ((arguments.nodes, arguments.metrics),)
    print("| run | format | s | CPU s | MB | peak memory, MB | load |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for nodes, metrics in sizes:
            folder = arguments.keep or Path(scratch) / f"{nodes}-{metrics}"
            begin = time.perf_counter()
            run = folder if folder.exists() else make_large_run(folder, nodes, metrics)
            print(f"made in {time.perf_counter() - begin:.1f} s", file=sys.stderr)
            for formats in arguments.formats or (*FILES, ",".join(FILES)):
                load = os.getloadavg()[0]
                found = measure(run, formats)
                size = sum(v for k, v in found.items() if k in FILES.values()) / 1e6
                name = "all" if formats == ",".join(FILES) else formats
                times = f"{found['seconds']:.1f} | {found['cpu']:.1f}"
                print(
                    f"| {nodes} nodes x {metrics} metrics | {name} | {times} | {size:.2f} "
                    f"| {found['peak'] / 1e6:.0f} | {load:.1f} |",
                    flush=True,
                )
    print(f"peak of the generator: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
