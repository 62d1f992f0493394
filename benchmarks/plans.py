"""How long `toolkit validate --dry-run --summary` takes for inventories of many sizes, and what it predicts.

    .venv/bin/python benchmarks/plans.py
    .venv/bin/python benchmarks/plans.py --nodes 1000 --fabric tcp100 --rails 1

The inventories are made for it: racks of nodes by range and rule, each rack and rail with a leaf switch of its own.
Seconds are of the processor, with those of ansible-inventory.
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

ROOT = Path(__file__).resolve().parents[1]


def write_inventory(folder: Path, nodes: int, rack: int, rails: int) -> Path:
    """`nodes` GPU servers with a port on each of `rails` networks, in racks of `rack`."""
    folder.mkdir(parents=True)
    hosts = ["all:", "  children:", "    gpu_servers:", "      children:"]
    rules = ["plugin: elastic_ai.toolkit.rails", "groups:"]
    for number, first in enumerate(range(0, nodes, rack)):
        count = min(rack, nodes - first)
        high, low = divmod(number, 250)
        hosts += [
            f"        rack{number}:",
            "          hosts:",
            f"            gpu[{first:05d}:{first + count - 1:05d}]:",
        ]
        rules += [
            f"  rack{number}:",
            f"    ansible_host: 172.{16 + high}.{low}.[1:{count}]",
            "    fabric_ports:",
            f"      interface: ens[31:{30 + rails}]np0",
            f"      address: {10 + high}.{{rail}}.{low}.{{host}}/16",
            "      rate_gbps: 400",
            f"      leaf: rack{number}-leaf{{rail}}",
        ]
    (folder / "hosts.yml").write_text("\n".join(hosts) + "\n")
    (folder / "rails.yml").write_text("\n".join(rules) + "\n")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, action="append", help="repeatable.  [default: 4, 64, 1000 and 10000]")
    parser.add_argument("--fabric", action="append", help="repeatable.  [default: tcp100 and roce400]")
    parser.add_argument(
        "--suite", action="append", default=[], help="repeatable.  [default: those of toolkit validate]"
    )
    parser.add_argument("--rack", type=int, default=40)
    parser.add_argument("--rails", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="elastic-ai-plans-") as name:
        for nodes in options.nodes or (4, 64, 1000, 10_000):
            site = write_inventory(Path(name, str(nodes)), nodes, options.rack, options.rails)
            for fabric in options.fabric or ("tcp100", "roce400"):
                before, began = os.times(), time.monotonic()
                command = [sys.executable, "-m", "toolkit", "validate", "--dry-run", "--summary", "--json"]
                command += ["--fabric", fabric]
                command += [word for suite in options.suite for word in ("--suite", suite)]
                ran = subprocess.run([*command, "-i", str(site)], cwd=ROOT, capture_output=True, text=True, check=True)
                after, plan = os.times(), json.loads(ran.stdout)["outlines"][0]
                cpu = after.children_user + after.children_system - before.children_user - before.children_system
                print(
                    json.dumps(
                        {
                            "nodes": nodes,
                            "fabric": fabric,
                            "cpu_s": round(cpu, 2),
                            "wall_s": round(time.monotonic() - began, 1),
                            "rounds": sum(step["rounds"] for step in plan["steps"]),
                            "measurements": sum(step["measurements"] for step in plan["steps"]),
                            "measuring_min": round(sum(step["measuring_s"] for step in plan["steps"]) / 60, 1),
                            "predicted_min": round(plan["predicted_s"] / 60, 1),
                            "cores": plan["cores"],
                            "coverage": [
                                {key: one[key] for key in one if key.startswith("escape") or key == "method"}
                                for one in plan["coverage"]
                            ],
                        }
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
