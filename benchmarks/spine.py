"""How long the main job takes: lab up (cold, cached), site.yml (first, second), validate's overhead, peak memory.

    .venv/bin/python benchmarks/spine.py [--cold]

`--cold` also times a lab with empty caches (downloads and builds everything again, elsewhere than the real caches).
Prints one JSON document. Needs root; makes and removes a lab called `bench`.

Overhead = wall time of `toolkit validate` / sum over rounds of the longest tool run in that round: what the toolkit
adds to the measuring itself (planning, ssh, judging, report).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def timed(*args: str | Path, **env: str) -> tuple[float, int]:
    """Wall seconds and exit code of a command; its output goes to stderr."""
    path = f"{BIN}:{os.environ['PATH']}"
    began = time.monotonic()
    words = [str(a) for a in args]
    code = subprocess.run(words, cwd=ROOT, env={**os.environ, "PATH": path, **env}, stdout=sys.stderr, check=False)
    return time.monotonic() - began, code.returncode


def ideal_s(run: Path) -> float:
    """Sum over rounds of the longest tool run."""
    results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    took = {r["measurement"]: r["provenance"]["duration_s"] for r in results}
    rounds = json.loads((run / "plan.json").read_text())["rounds"]
    return sum(max((took.get(m, 0.0) for m in members), default=0.0) for members in rounds)


def main() -> None:
    """Run everything and print the figures."""
    figures: dict[str, float | int] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:  # not a tmpfs: node file systems are stacked on it
        inventory = Path(scratch) / "inventory"
        up = ["toolkit", "lab", "up", "--name", "bench", "--inventory", inventory]
        down = ["toolkit", "lab", "down", "--name", "bench"]
        if "--cold" in sys.argv:
            figures["lab_up_cold_s"], _ = timed(*up, ELASTIC_AI_LAB_CACHE=f"{scratch}/cache")
            timed(*down)
        timed(*up)
        timed(*down)
        figures["lab_up_cached_s"], _ = timed(*up)
        try:
            play = ["ansible-playbook", "site.yml", "-i", inventory]
            figures["site_first_s"], _ = timed(*play)
            figures["site_second_s"], _ = timed(*play)
            runs = Path(scratch) / "runs"
            validate = ["toolkit", "validate", "--fabric", "tcp10", "-i", inventory, "--runs-dir", runs]
            figures["validate_s"], code = timed(*validate)
            figures["validate_exit"] = code
            run = next(runs.iterdir())
            figures["validate_ideal_s"] = ideal_s(run)
            figures["validate_overhead"] = figures["validate_s"] / figures["validate_ideal_s"]
        finally:
            figures["lab_down_s"], _ = timed(*down)
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    figures["peak_memory_bytes"] = peak_kib * 1024  # the largest single process on the controller
    print(json.dumps({k: round(v, 2) for k, v in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
