"""What validations of transport say while the machine is busy with something else, and what a lab's links carry then.

    .venv/bin/python benchmarks/busy.py validations [--runs 20]     a lab of its own, called `busy`; root
    .venv/bin/python benchmarks/busy.py links [--runs 4]            bucket and queue of a link, without a lab; root

Beside everything but the quiet runs `stress-ng` takes 40 % of all cores. Each prints one JSON document.

`validations`: that many on a clean lab, that many with `slow-link` on gpu2, and three of each with nothing beside them
(as quiet as the machine is). None of the clean ones may fail or name anybody; each of the others must name gpu2's port
and nobody else. `links`: what TCP carried over two ports of 1 Gbit/s, mean over truth, for sizes of bucket and queue.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkit.lab import network
from toolkit.lab.spec import FABRIC_MTU, WIRE_OVERHEAD_BYTES, counted_rate_bps

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
LAB, NODE, PORT = "busy", "gpu2", "gpu2/fab0"
NEEDED = ("preflight", "base", "fabric", "acceptance")  # as far as transport goes
LOAD_PERCENT = 40
QUIET_RUNS = 3
SIZES_MS = ((1, 10), (10, 25), (25, 25), (25, 50), (50, 50))  # bucket, queue; the lab had the first before


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command with this environment's programs; its own words go to stderr when it fails."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run([str(w) for w in words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if check and done.returncode:
        said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{said}")
    return done


@contextlib.contextmanager
def load() -> Iterator[None]:
    """stress-ng on every core for as long as the context lasts."""
    command = ["stress-ng", "--cpu", str(os.cpu_count()), "--cpu-load", str(LOAD_PERCENT), "--timeout", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        yield
    finally:
        process.terminate()
        process.wait()


def validation(inventory: Path, runs: Path) -> dict[str, Any]:
    """One validation: exit code, wall seconds, whom it names, and what its lines tell."""
    began = time.monotonic()
    words = ["toolkit", "validate", "--fabric", "tcp10", "--suite", "transport", "-i", inventory, "--json"]
    done = run(*words, "--runs-dir", runs, check=False)
    took = time.monotonic() - began
    verdict = json.loads(done.stdout)
    judged = [j for c in verdict["criteria"] if c["id"] in ("tr.tcpbw", "tr.netlat") for j in c["judgements"]]
    lines = [json.loads(line) for line in (Path(verdict["run_dir"]) / "results.jsonl").read_text().splitlines()]
    denied = [d for line in lines for d in line["denied"]]
    return {
        "exit": done.returncode,
        "wall_s": round(took, 1),
        "named": sorted(f["subject"] for f in verdict["findings"]),
        "judged": dict(Counter(f"{j['verdict']} {j['reason_code']}" for j in judged)),
        "attempts": len(lines),
        "worst_steal": max((d["steal"] or 0.0 for d in denied), default=None),
        "median_pressure": statistics.median([d["pressure"] or 0.0 for d in denied if d["where"] != "host"] or [0.0]),
        "load_average": round(os.getloadavg()[0], 1),
    }


def several(count: int, what: str, inventory: Path, runs: Path) -> dict[str, Any]:
    """Some validations, one after the other, and what they have in common."""
    found = []
    for number in range(count):
        found.append(validation(inventory, runs))
        print(f"{what} {number + 1}/{count}: {json.dumps(found[-1])}", file=sys.stderr, flush=True)
    return {
        "runs": count,
        "exits": dict(Counter(f["exit"] for f in found)),
        "named": dict(Counter(" ".join(f["named"]) or "nobody" for f in found)),
        "wall_s": _spread(found),
        "each": found,
    }


def _spread(found: list[dict[str, Any]]) -> dict[str, float]:
    walls = [f["wall_s"] for f in found]
    return {"min": min(walls), "median": round(statistics.median(walls), 1), "max": max(walls)}


def validations(count: int) -> dict[str, Any]:
    """All campaigns on a lab of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        inventory, runs = Path(scratch, "inventory"), Path(scratch, "runs")
        run("toolkit", "lab", "up", "--name", LAB, "--nodes", "4", "--inventory", inventory)
        try:
            run("ansible-playbook", *(f"playbooks/{name}.yml" for name in NEEDED), "-i", inventory)
            figures = {"quiet_clean": several(QUIET_RUNS, "quiet, clean", inventory, runs)}
            with load():
                figures["busy_clean"] = several(count, "busy, clean", inventory, runs)
            run("toolkit", "lab", "fault", "set", "--name", LAB, NODE, "slow-link")
            figures["quiet_slow_link"] = several(QUIET_RUNS, "quiet, slow link", inventory, runs)
            with load():
                figures["busy_slow_link"] = several(count, "busy, slow link", inventory, runs)
        finally:
            run("toolkit", "lab", "down", "--name", LAB)
    clean, slow = figures["busy_clean"]["each"], figures["busy_slow_link"]["each"]
    figures["clean_failed_or_named_somebody"] = {"runs": sum(f["exit"] == 1 or bool(f["named"]) for f in clean)}
    figures["slow_link_found_alone"] = {"runs": sum(f["exit"] == 1 and f["named"] == [PORT] for f in slow)}
    return figures


# --- links without a lab ------------------------------------------------------------------------------------------


def carried(bucket_ms: int, queue_ms: int, rate_gbps: float = 1.0) -> float:
    """TCP's mean over truth between two namespaces whose ports are shaped as a lab's."""
    rate, names, address = counted_rate_bps(rate_gbps), ("busy-link-a", "busy-link-b"), "10.99.0.{}"
    size = [f"{int(rate / 8 * ms / 1000)}b" for ms in (max(bucket_ms, 1), queue_ms)]
    shape = ["root", "tbf", "rate", f"{rate}bit", "burst", size[0], "limit", size[1]]
    for name in names:
        run("ip", "netns", "delete", name, check=False)
        run("ip", "netns", "add", name)
    try:
        run("ip", "-n", names[0], "link", "add", "fab0", "type", "veth", "peer", "name", "fab0", "netns", names[1])
        for number, name in enumerate(names, start=1):
            run("ip", "-n", name, "addr", "add", f"{address.format(number)}/24", "dev", "fab0")
            run("ip", "-n", name, "link", "set", "fab0", "mtu", str(FABRIC_MTU), "up")
            run("tc", "-n", name, "qdisc", "replace", "dev", "fab0", *shape)
        serve = ["ip", "netns", "exec", names[1], "iperf3", "-s", "-1", "-J", "-B", address.format(2)]
        server = subprocess.Popen(serve, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        done = run(
            "ip", "netns", "exec", names[0],
            "iperf3", "-c", address.format(2), "-t", "3", "-O", "1", "-J", "--get-server-output",
        )  # fmt: skip
        server.wait(timeout=30)
    finally:
        for name in names:
            run("ip", "netns", "delete", name, check=False)
    received = json.loads(done.stdout)["server_output_json"]["end"]["sum_received"]["bits_per_second"] / 1e9
    return received / (rate_gbps * (FABRIC_MTU - 52) / (FABRIC_MTU + WIRE_OVERHEAD_BYTES))


def links(count: int) -> dict[str, Any]:
    """Mean over truth beside the load, for each size of bucket and queue, in turns."""
    found: dict[str, list[float]] = {f"{bucket} ms, {queue} ms": [] for bucket, queue in SIZES_MS}
    with load():
        for _ in range(count):
            for bucket, queue in SIZES_MS:
                found[f"{bucket} ms, {queue} ms"].append(round(carried(bucket, queue), 4))
    lab = f"{network.BUCKET_S * 1e3:g} ms, {network.QUEUE_S * 1e3:g} ms"
    return {"the_labs_own": lab, "mean_over_truth": found}


def main() -> None:
    """Run what was asked for, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("validations", "links"))
    parser.add_argument("--runs", type=int, default=0, help="20 validations of each kind, 4 of each size of link")
    args = parser.parse_args()
    figures = validations(args.runs or 20) if args.what == "validations" else links(args.runs or 4)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
