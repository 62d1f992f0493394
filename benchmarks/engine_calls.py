"""Launches and synchronisations by the reference engine: per call, against the raw round trip of the same link.

    benchmarks/engine_calls.py [--link loopback|veth] [--rate-gbps R] [--delay-us D] [--rounds 3] [--json]

A C program launches an empty kernel of the toolkit's on an emulated device, by the engine and without it in turns; in
it, raw round trips of as many bytes take turns with synchronisations, so that a busy machine disturbs both. --delay-us
delays each direction of a veth link by half of it (tc netem). CPU time is the program's: of the thread that launches,
and of the whole process. An emulated device runs each kernel on the processors that all of this shares: what a launch
takes to the end says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from engine import ROOT, SPACES, BenchmarkError, link, printed, run, serving, spread
from toolkit.engine.build import compile_devices, compile_engine, default_release

ECHO_PORT = "5202"
PTX = ROOT / "engine/kernels/checks.ptx"


@contextmanager
def echoing(program: Path, before: list[str], address: str) -> Iterator[None]:
    """The other end of raw round trips, of one connection."""
    words = [*before, str(program), "echo", address, ECHO_PORT]
    environment = {"LD_LIBRARY_PATH": str(program.parent / "devices"), "PATH": os.environ["PATH"]}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise BenchmarkError(f"no raw round trips: port {ECHO_PORT} of {address} cannot be had")
            yield
        finally:
            process.terminate()


def delayed(stack: ExitStack, delay_us: int | None) -> None:
    for space in SPACES if delay_us else ():
        run("tc", "-n", space, "qdisc", "add", "dev", "v0", "root", "netem", "delay", f"{(delay_us or 0) / 2}us")


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    program = folder / "engine_calls"
    compile_engine(folder, default_release())
    compile_devices(folder / "devices")
    source = Path(__file__).with_suffix(".c")
    headers = ["-I", str(ROOT / "engine/shared")]
    run("gcc", "-O2", *headers, "-o", str(program), str(source), "-L", str(folder / "lib"), "-l:libcuda.so.1")
    remote: list[dict[str, float]] = []
    local: list[dict[str, float]] = []
    with ExitStack() as stack:
        client, server, here, there = stack.enter_context(link(options.link, 9000, options.rate_gbps))
        delayed(stack, options.delay_us)
        port = stack.enter_context(serving(folder, server, here, there, 64 << 20))
        path = {"PATH": os.environ["PATH"]}
        by_engine = path | {
            "LD_LIBRARY_PATH": str(folder / "lib"),
            "ELASTIC_AI_SERVERS": f"{there}:{port}",
            "ELASTIC_AI_TOKEN_FILE": str(folder / "token"),
        }
        by_itself = path | {
            "LD_LIBRARY_PATH": str(folder / "devices"),
            "ELASTIC_AI_EMULATED_GPUS": str(folder / "gpus.json"),
            "ELASTIC_AI_EMULATED_STATE": str(folder / "state"),
        }
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            with echoing(program, server, there):
                said = run(*client, str(program), "calls", str(PTX), there, ECHO_PORT, env=by_engine)
            remote.append(json.loads(said))
            local.append(json.loads(run(str(program), "calls", str(PTX), "", "0", env=by_itself)))
    figures = {f"remote_{k}": spread([r[k] for r in remote]) for k in remote[0] if k != "launches"}
    figures |= {f"local_{k}": spread([r[k] for r in local]) for k in local[0] if k != "launches"}
    figures["sync_over_raw"] = spread([r["sync_us"] / r["raw_us"] for r in remote])
    return {
        "link": options.link,
        "rate_gbps": options.rate_gbps,
        "delay_us": options.delay_us,
        "rounds": options.rounds,
        "cores": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "release": default_release(),
        "emulated": True,
        **figures,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", choices=["loopback", "veth"], default="loopback")
    parser.add_argument("--rate-gbps", type=float)
    parser.add_argument("--delay-us", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.link == "loopback" and (options.rate_gbps or options.delay_us):
        parser.error("--rate-gbps and --delay-us are of a veth link")
    if options.rate_gbps and options.delay_us:
        parser.error("--rate-gbps or --delay-us: one of them")
    return printed(measure, options)


if __name__ == "__main__":
    sys.exit(main())
