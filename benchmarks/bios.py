"""How long playbooks/hardware.yml takes over the BMCs of a site: N emulated ones; its nodes are recordings.

python benchmarks/bios.py [--slow S] [N ...]      # by default 4 and 60; S seconds before each answer
Three runs each: the first sets one attribute and reboots, the second finds nothing to do, the third puts it back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.bios_site import Node, site

WISH = {"LogicalProc": "Disabled"}


def measure(count: int, slow_s: float) -> str:
    """A line of the table."""
    nodes = {f"node{n}": Node(WISH, slow_s=slow_s) for n in range(count)}
    cells = []
    with tempfile.TemporaryDirectory() as folder, site(Path(folder), nodes) as rack:
        for words in ([], [], ["-e", "bios_state=absent"]):
            begin = time.monotonic()
            played = rack.play(*words, consent=True)
            cells.append(f"{time.monotonic() - begin:.1f}")
            assert not any(played.fault(name) for name in nodes)
        assert {rack.starts(name) for name in nodes} == {2}
    return f"| {count} | {slow_s:g} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, default=[4, 60])
    parser.add_argument("--slow", type=float, default=0.0)
    args = parser.parse_args()
    print("| BMCs | s before an answer | set and rebooted, s | again, s | put back and rebooted, s |")
    print("|---|---|---|---|---|")
    for count in args.counts:
        print(measure(count, args.slow), flush=True)


if __name__ == "__main__":
    main()
