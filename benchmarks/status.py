"""How long `toolkit status` takes for a site of N nodes whose answers are recorded: one head, the others GPU servers.

python benchmarks/status.py [--delay S] [--times T] [N ...]      # by default 4 and 60; each node answers after 1 s

ssh is a program of this benchmark: it waits as long as a real login and the node's own look take (`--delay`), and gives
out a recorded answer. The rest is real: the command, its processes, the inventory, 20 runs in the folder of runs. What
this machine itself costs is measured, not what a network and the nodes do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.lease_texts import answer, node_text, slurm_job
from tests.support.report_fixture import make_run
from validation.base.project import python_words

RUNS = 20
BOM = {"model": "PowerEdge C4140", "gpu_count": 4, "gpu_model": "Tesla V100-SXM2-16GB", "nic_model": "ConnectX-5",
       "fabric_port_count": 1}  # fmt: skip
PROGRAMS = {
    "ssh": 'for last; do :; done\nsleep "$DELAY_S"\nPATH="$FAKES:$PATH" exec sh -c "$last"\n',
    "python3": 'cat >/dev/null\nexec cat "$FAKES/said.json"\n',
    "scontrol": 'exec cat "$FAKES/nodes.txt"\n',
    "squeue": 'exec cat "$FAKES/jobs.json"\n',
}


def site(folder: Path, count: int) -> Path:
    """The inventory."""
    hosts = {
        f"n{n}": {"ansible_host": f"192.0.2.{n + 1}", "fabric_ports": [
            {"interface": "fab0", "address": f"198.51.100.{n + 1}/24", "rate_gbps": 100}]}
        for n in range(count)
    }  # fmt: skip
    head, servers = dict(list(hosts.items())[:1]), dict(list(hosts.items())[1:])
    document = {"all": {"vars": {"ansible_user": "root", "bom": BOM, "stack": {"os": "debian 12"}},
                        "children": {"heads": {"hosts": head}, "gpu_servers": {"hosts": servers}}}}  # fmt: skip
    (folder / "site").mkdir()
    (folder / "site/hosts.yml").write_text(yaml.safe_dump(document))
    return folder / "site"


def fakes(folder: Path, count: int) -> Path:
    """What stands in for ssh, and what nodes and controller answer."""
    made = folder / "fakes"
    made.mkdir()
    for name, text in PROGRAMS.items():
        (made / name).write_text(f"#!/bin/sh\n{text}")
        (made / name).chmod(0o755)
    kept = {"of": 40, "read": True, "odd": [], "more": 0}
    said = {"recorded": True, "release": "2026.1", "packages": kept, "files": {**kept, "of": 160}, "waits": [],
            "failed_units": [], "free": 0.6, "certificates": {"registry": 200.0}, "rotations": [], "alerts": [],
            "backup": {"timestamp": time.time(), "unreadable": 0}}  # fmt: skip
    (made / "said.json").write_text(json.dumps(said))
    (made / "nodes.txt").write_text("".join(node_text(f"n{n}") for n in range(1, count)))
    jobs = [one for n in range(1, count) for one in slurm_job(40 + n, node=f"n{n}")]
    (made / "jobs.json").write_bytes(answer(jobs))
    return made


def measure(count: int, delay_s: float, times: int) -> str:
    """A line of the table."""
    walls, processors = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inventory, made = site(folder, count), fakes(folder, count)
        for n in range(RUNS):
            make_run(folder / f"runs/2026-11-{n + 1:02d}T10-15-00Z-tcp10", run=f"2026-11-{n + 1:02d}T10-15-00Z-tcp10",
                     site="site")  # fmt: skip
        mine = {"PATH": f"{made}:{os.environ['PATH']}", "FAKES": str(made), "DELAY_S": str(delay_s)}
        words = [*python_words("toolkit"), "status", "-i", str(inventory), "--runs-dir", str(folder / "runs"), "--json"]
        for _ in range(times):
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            done = subprocess.run(words, env={**os.environ, **mine}, capture_output=True, text=True, check=False)
            walls.append(time.monotonic() - begin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            topics = {line["topic"]: line for line in json.loads(done.stdout)["lines"]}
            if topics["nodes"]["state"] != "ok" or "pool" not in topics:
                raise SystemExit(f"the site did not answer as it is to: {topics}")
    load = os.getloadavg()[0]
    return (
        f"| {count} | {delay_s:g} | {statistics.median(walls):.1f} | {max(walls):.1f} | "
        f"{statistics.median(processors):.1f} | {load:.0f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, default=[4, 60])
    parser.add_argument("--delay", type=float, default=1.0, metavar="S")
    parser.add_argument("--times", type=int, default=5, metavar="T")
    args = parser.parse_args()
    print("| nodes | s before a node's answer | s, median | s, most | processor s of all | load |")
    print("|---|---|---|---|---|---|")
    for count in args.counts:
        print(measure(count, args.delay, args.times), flush=True)


if __name__ == "__main__":
    main()
