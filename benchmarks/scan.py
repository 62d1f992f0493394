"""How long `toolkit inventory init` takes: nodes behind one real sshd on loopback, with constructed answers.

    benchmarks/scan.py [--nodes 4 50] [--repeats 3]

Each node is an address of 127.0.1.0/24, to which the sshd gives an answer of an XE9680 in place of the probe's (a node
reads itself beside all others; here they would all be this machine, one after the other). Connections, key exchange,
host keys, login, the program sent and the answer are real; with `--probe` the probe runs too. Prints Markdown.
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


def measured(folder: Path, addresses: list[str], repeat: int) -> tuple[float, float]:
    """Wall and CPU seconds of one `init`, with host keys that are not known yet: two connections to each node."""
    (folder / "nodes.csv").write_text("".join(["address,port\n", *(f"{address},{PORT}\n" for address in addresses)]))
    words = ["inventory", "init", f"{folder}/site{len(addresses)}-{repeat}", "--nodes", f"{folder}/nodes.csv"]
    words += ["--user", "root", "--key", f"{folder}/user", "--accept-host-keys"]
    words += ["--known-hosts", f"{folder}/known{len(addresses)}-{repeat}"]
    before, began = os.times(), time.monotonic()
    command = [sys.executable, "-m", "toolkit", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    took, after = time.monotonic() - began, os.times()
    if ran.returncode not in (0, 3) or f"{len(addresses)} nodes" not in ran.stdout + ran.stderr:
        raise SystemExit(ran.stdout + ran.stderr)
    return took, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 50])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--probe", action="store_true", help="run the probe itself, on this machine, for every node")
    options = parser.parse_args()
    print("| nodes | wall, s | CPU of the controller, s |\n|---|---|---|")
    for count in options.nodes:
        with tempfile.TemporaryDirectory(prefix="elastic-ai-bench-") as name:
            folder = Path(name)
            addresses = [f"127.0.1.{number}" for number in range(1, count + 1)]
            with serving(folder, PORT, addresses, settings(folder, addresses, options.probe)):
                runs = [measured(folder, addresses, repeat) for repeat in range(options.repeats)]
        wall, cpu = ([run[i] for run in runs] for i in (0, 1))
        spread = f"{statistics.median(wall):.1f} ({min(wall):.1f} to {max(wall):.1f})"
        print(f"| {count} | {spread} | {statistics.median(cpu):.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
