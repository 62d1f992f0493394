"""From "I have train.py" to its first line on a GPU, and from a command to its refusal, on the lab that is up.

    .venv/bin/python benchmarks/first_run.py
    .venv/bin/python benchmarks/first_run.py --name LAB --runs 7 --json benchmarks/first_run.json

As the user alice on client1, in a folder that no server has, with nothing set: `toolkit run train.py`. The program's
own start is measured beside it, in the same image without a lease, and subtracted. GPUs of the lab are emulated. The
users alice and bob come and go.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.leases import StandingLab, load_words, users
from toolkit.errors import LabError
from toolkit.lab.spec import DEFAULT_NAME
from toolkit.lab.standing import standing_inventory

HERE = "/home/alice/first-run"
PROGRAMS = {
    "in the server's own Python": "print('first line', flush=True)\n",
    "in the site's image": "import numpy\nprint('first line', flush=True)\n",
}
REFUSED = {
    "a script that is not there": ("gone.py", "gone.py: no such file"),
    "an import that no machine has": ("nowhere.py", "has no nowhere_at_all"),
    "a program that no machine has": ("-- no-such-program", "has no program no-such-program"),
    "an image without the program": ("--image training -- no-such-program", "has no program no-such-program"),
    "PyTorch that would see no GPU": ("torch_.py", "PyTorch would see no GPU"),
}
#: On the client, as alice: seconds to the first line of stdout, or to the end; the exit code; what was printed.
TIMES = """
import json, subprocess, sys, time
began = time.monotonic()
with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
    line = run.stdout.readline()
    first = time.monotonic() - began
    told = run.stderr.read()
print(json.dumps({"s": first, "code": run.returncode, "line": line.strip(), "told": told}))
"""
STARTS = "docker run --rm -v /tmp/first-run.py:/x.py {image} python3 /x.py"


def as_alice(lab: StandingLab, words: str) -> dict[str, Any]:
    """A command in alice's folder, timed there."""
    inner = f"cd {HERE} && exec python3 -c {shlex.quote(TIMES)} toolkit run {words}"
    found: dict[str, Any] = json.loads(lab.ssh("client1", f"runuser -u alice -- sh -c {shlex.quote(inner)}"))
    return found


def own_start(lab: StandingLab, text: str, image: str) -> float:
    """Seconds of the program without lease, folder or decision, on gpu1, in the image or as it is."""
    lab.ssh("gpu1", f"printf %s {shlex.quote(text)} > /tmp/first-run.py; chmod 644 /tmp/first-run.py")
    start = STARTS.format(image=image) if image else "python3 /tmp/first-run.py"
    return float(json.loads(lab.ssh("gpu1", f"python3 -c {shlex.quote(TIMES)} {start}"))["s"])


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median_s": round(statistics.median(seconds), 2), "least_s": round(min(seconds), 2),
            "most_s": round(max(seconds), 2)}  # fmt: skip


def measure(lab: StandingLab, runs: int) -> dict[str, Any]:
    """All figures."""
    found: dict[str, Any] = {"steps": 1, "runs": runs, "first_line": {}, "refused": {}}
    lab.ssh("client1", f"install -d -o alice {HERE}")
    files = {**{f"train{n}.py": text for n, text in enumerate(PROGRAMS.values())},
             "nowhere.py": "import nowhere_at_all\n", "torch_.py": "import torch\n"}  # fmt: skip
    for name, text in files.items():
        lab.ssh("client1", f"printf %s {shlex.quote(text)} > {HERE}/{name}")
    for number, (what, text) in enumerate(PROGRAMS.items()):
        image = "training" if "image" in what else ""
        took, starts = [], []
        for _ in range(runs):
            one = as_alice(lab, f"train{number}.py")
            if (one["code"], one["line"]) != (0, "first line"):
                raise SystemExit(f"{what}: {one}")
            took.append(one["s"])
            starts.append(own_start(lab, text, image))
        beyond = [a - statistics.median(starts) for a in took]
        found["first_line"][what] = {"all": spread(took), "own_start": spread(starts), "beyond": spread(beyond)}
        print(f"{what}: {json.dumps(found['first_line'][what])}", flush=True)
    for what, (words, said) in REFUSED.items():
        seen = [as_alice(lab, words) for _ in range(runs)]
        if any(one["code"] != 2 or said not in one["told"] for one in seen):
            raise SystemExit(f"{what}: {seen[0]}")
        found["refused"][what] = spread([one["s"] for one in seen])
        print(f"{what}: refused in {json.dumps(found['refused'][what])}", flush=True)
    return found


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=DEFAULT_NAME)
    parser.add_argument("--inventory", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        lab = StandingLab(options.name, options.inventory or standing_inventory(options.name))
    except LabError as fault:
        raise SystemExit(f"error: {fault}") from None
    before = load_words()
    print(f"before: {before}", flush=True)
    with users(lab):
        found = measure(lab, options.runs)
    found |= {"machine": f"{os.cpu_count()} cores, lab of four containers, emulated GPUs", "before": before,
              "after": load_words(), "date": datetime.now(timezone.utc).date().isoformat()}  # fmt: skip
    print(f"after: {found['after']}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
