"""What reading a run again costs: a resumed validation before it measures, signing, verifying; by number of results.

    .venv/bin/python benchmarks/again.py                       # 144 and 576 nodes: 3,606 and 14,406 results
    .venv/bin/python benchmarks/again.py --nodes 1000 --metrics 200 --keep /tmp/run1000

Seconds are of the processor and of the wall, each step in a process of its own. With --metrics each node has so many
measurements more, whose one raw log is no probe's report. The numbers are invented.
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

HEAD = """
import gc, resource, sys
from pathlib import Path
from toolkit.entry import COLLECTOR
gc.set_threshold(*COLLECTOR)
run = Path(sys.argv[1])
"""
TAIL = """
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as status:  # not ru_maxrss: that of a new process begins with its parent's
    most = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
print(used.ru_utime + used.ru_stime, most, said)
"""
STEPS = {
    "resume, all raw logs read and remembered": """
from toolkit.acceptance import finished, refuse_contradictions
refuse_contradictions(run)
said = f"{len(finished(run))} finished"
""",
    "resume again": """
from toolkit.acceptance import finished, refuse_contradictions
refuse_contradictions(run)
said = f"{len(finished(run))} finished"
""",
    "judged, verdict.json written": """
from toolkit.acceptance import judge_run
said = judge_run(run).outcome
""",
    "report.html and report.json": """
from toolkit.acceptance import write_report
said = ", ".join(write_report(run, ["html", "json"]).paths)
""",
    "judged and reported by one command": """
from toolkit.acceptance import judge_run, write_report
from validation.run.read import read
files = read(run)
said = judge_run(files).outcome + ": " + ", ".join(write_report(files, ["html", "json"]).paths)
""",
    "sign": """
from validation.signing.sign import sign_run
said = sign_run(run, run.parent / "key", "Ada", "Elastic").statement.sign_off
""",
    "verify": """
from validation.signing.verify import verify
found = verify(run)
said = f"good: {found.good}, {found.files} files {found.faults[:2]}"
""",
}


def make_run(folder: Path, nodes: int, metrics: int) -> Path:
    """A run of so many nodes without a verdict. Measurements beside the usual ones are of no plan of this release."""
    if not metrics:
        from benchmarks.judge import make_run as made

        return made(folder, nodes)
    from tests.support.report_large import make_large_run

    run = make_large_run(folder, nodes, metrics)
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "toolkit_version": "0.0.1"}))
    return run


def main() -> None:
    """One line for each step and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[144, 576])
    parser.add_argument("--metrics", type=int, default=0, help="more measurements of each node")
    parser.add_argument("--keep", type=Path, help="make the run there and leave it, signed; one that is there is taken")
    options = parser.parse_args()
    print("| results | step | CPU s | ms a result | wall, s | peak memory, MB | load |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "XDG_CACHE_HOME": f"{scratch}/cache"}
        for nodes in options.nodes:
            run = options.keep or Path(scratch) / f"{nodes}" / "run"
            if not run.exists():
                make_run(run, nodes, options.metrics)
            key = run.parent / "key"
            key.unlink(missing_ok=True)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
            count = sum(1 for _ in (run / "results.jsonl").open("rb"))
            time.sleep(2)  # younger logs are read again
            for step, code in STEPS.items():
                load = os.getloadavg()[0]
                begin = time.perf_counter()
                command = [sys.executable, "-c", HEAD + code + TAIL, str(run)]
                answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
                wall = time.perf_counter() - begin
                used, most, said = answer.split(maxsplit=2)
                print(
                    f"| {count} | {step}: {said.strip()} | {float(used):.1f} | {1000 * float(used) / count:.2f} "
                    f"| {wall:.1f} | {float(most):.0f} | {load:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
