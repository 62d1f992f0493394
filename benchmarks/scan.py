"""How long `toolkit inventory init` and `scan` take: nodes behind real sshds on loopback, with constructed answers.

    benchmarks/scan.py [--nodes 4 50] [--repeats 3]

Each node is an address of 127.0.1.0/24, at which an sshd (one for 16 addresses) gives an answer of an XE9680 in place
of the probe's (a node reads itself beside all others; here they would all be this machine, one after the other).
Connections, key exchange, host keys, login, the program sent and the answer are real; with `--probe` the probe runs
too. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import scan_answers  # noqa: E402
from tests.support.sshd import serving  # noqa: E402

PORT = 15723


def settings(folder: Path, addresses: list[str], probe: bool) -> str:
    """Lines of sshd's configuration: at each address another machine answers."""
    lines = ["MaxStartups 300"]
    for number, address in enumerate([] if probe else addresses, 1):
        (folder / f"{address}.json").write_text(json.dumps(scan_answers.xe9680(number, address)) + "\n")
        lines += [f"Match LocalAddress {address}", f"ForceCommand cat {folder / address}.json"]
    return "\n".join(lines) + "\n"


def measured(folder: Path, addresses: list[str], repeat: int) -> tuple[float, float, float, float]:
    """Wall and CPU seconds of one `init`, with host keys that are not known yet (two connections to each node), and of
    the `scan` after it, which knows them."""
    (folder / "nodes.csv").write_text("".join(["address,port\n", *(f"{address},{PORT}\n" for address in addresses)]))
    site = f"{folder}/site{len(addresses)}-{repeat}"
    common = ["--key", f"{folder}/user", "--known-hosts", f"{folder}/known{len(addresses)}-{repeat}"]
    first = ["init", site, "--nodes", f"{folder}/nodes.csv", "--user", "root", "--accept-host-keys", *common]
    return *timed(first, f"{len(addresses)} nodes", (0, 3)), *timed(["scan", site, *common], "", (0, 1, 3))


def timed(words: list[str], said: str, codes: tuple[int, ...]) -> tuple[float, float]:
    """Wall and CPU seconds of one command, which ends with one of these codes and has `said` in its words."""
    before, began = os.times(), time.monotonic()
    command = [sys.executable, "-m", "toolkit", "inventory", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    took, after = time.monotonic() - began, os.times()
    if ran.returncode not in codes or said not in ran.stdout + ran.stderr:
        raise SystemExit(ran.stdout + ran.stderr)
    return took, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 50])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--probe", action="store_true", help="run the probe itself, on this machine, for every node")
    options = parser.parse_args()
    print("| nodes | `init`, s | CPU of it, s | `scan`, s | CPU of it, s |\n|---|---|---|---|---|")
    for count in options.nodes:
        with tempfile.TemporaryDirectory(prefix="elastic-ai-bench-") as name:
            folder = Path(name)
            addresses = [f"127.0.1.{number}" for number in range(1, count + 1)]
            with serving(folder, PORT, addresses, settings(folder, addresses, options.probe)):
                runs = [measured(folder, addresses, repeat) for repeat in range(options.repeats)]
        figures = [[run[i] for run in runs] for i in range(4)]
        cells = [f"{statistics.median(f):.1f} ({min(f):.1f} to {max(f):.1f})" for f in figures[::2]]
        cpu = [f"{statistics.median(f):.1f}" for f in figures[1::2]]
        print(f"| {count} | {cells[0]} | {cpu[0]} | {cells[1]} | {cpu[1]} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
