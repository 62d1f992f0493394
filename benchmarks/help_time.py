"""How long `toolkit --help` takes: from the start of Python to its end, and the processor's share of it.

.venv/bin/python benchmarks/help_time.py --repeats 20
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOOLKIT = Path(sys.executable).parent / "toolkit"
BARE = (sys.executable, "-c", "import click")


def timed(words: tuple[str, ...], repeats: int) -> tuple[float, float]:
    """Median wall clock and median processor time of a command, seconds."""
    walls, cores = [], []
    for _ in range(repeats):
        before, began = os.times(), time.monotonic()
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        walls.append(time.monotonic() - began)
        after = os.times()
        cores.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(walls), statistics.median(cores)


def main() -> None:
    """One line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    rows = {
        "python -c 'import click'": BARE,
        "toolkit --help": (str(TOOLKIT), "--help"),
        "toolkit --version": (str(TOOLKIT), "--version"),
        "toolkit lab --help": (str(TOOLKIT), "lab", "--help"),
        "toolkit validate --help": (str(TOOLKIT), "validate", "--help"),
    }
    for name, words in rows.items():
        wall, cores = timed(words, repeats)
        print(f"{name:26} {wall:.3f} s, of it processor {cores:.3f} s")


if __name__ == "__main__":
    main()
