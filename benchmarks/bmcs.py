"""How long the BMCs of a site take to be read: N emulated ones over TLS on this machine, at once.

python benchmarks/bmcs.py [--slow S] [N ...]      # by default 4 and 60; S seconds before each answer
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import bmcs
from toolkit.lab.bmc.emulated import Traps


def measure(count: int, kind: str, slow_s: float) -> str:
    """A line of the table."""
    names = [f"node{n}" for n in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        traps = {name: Traps(delay_s=slow_s) for name in names}
        with bmcs.bmcs(Path(folder), names, traps, kind) as there:
            where = bmcs.inventory(Path(folder), there)
            begin = time.monotonic()
            document = bmcs.probe(where, names, 60.0)
            took = time.monotonic() - begin
            requests = len(there[names[0]].requests)
    found = json.loads(document["stdout"])
    whole = sum("error" not in one and not one["missing"] for one in found.values())
    return f"| {count} | {kind} | {slow_s:g} | {requests} | {whole} | {took:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, default=[4, 60])
    parser.add_argument("--slow", type=float, default=0.0)
    args = parser.parse_args()
    print("| BMCs | servers | s before an answer | requests to each | read whole | s |\n|---|---|---|---|---|---|")
    for count in args.counts:
        for kind in ("14G", "16G"):
            print(measure(count, kind, args.slow), flush=True)


if __name__ == "__main__":
    main()
