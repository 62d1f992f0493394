"""What probe gpu-copies costs beside a bare loop of the same copies, and where the seconds of `--here --quick` go.

    .venv/bin/python benchmarks/gpu_probe.py overhead [--emulated] [--turns 30] [--mib 64]
    .venv/bin/python benchmarks/gpu_probe.py parts [--emulated GPUS]

overhead: the probe's own way of timing a copy and the shortest loop of the driver's calls, in turns on GPU 0, from
pinned memory, of a large copy and of one of 4 bytes. parts: one run in a temporary folder, the seconds of each
measurement as its results have them. --emulated: with the lab's emulated GPUs, built here; they prove no rate of a GPU,
only what Python adds. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from toolkit.engine.build import compile_devices
from toolkit.lab.devices import description
from toolkit.lab.spec import make_spec
from validation.probes.cuda import Cuda
from validation.probes.gpu_bench import Asked, Bench

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20


def emulated(folder: Path, gpus: int) -> dict[str, str]:
    """The environment of a lab's node with so many emulated GPUs of 4 GiB."""
    spec = make_spec("benchmark", 4, 4, 1)
    entries = json.loads(description(spec, spec.node("gpu1"), None))["gpus"][:gpus]
    (folder / "gpus.json").write_text(json.dumps({"gpus": [{**one, "memory_bytes": 4 << 30} for one in entries]}))
    compile_devices(folder / "lib")
    return {
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "ELASTIC_AI_EMULATED_GPUS": str(folder / "gpus.json"),
        "ELASTIC_AI_EMULATED_STATE": str(folder / "state"),
    }


def overhead(turns: int, size: int) -> dict[str, Any]:
    """A copy of `size` bytes and one of 4 bytes by the probe and by a bare loop, in turns; the best and the median."""
    cuda = Cuda()
    bench = Bench(cuda, Asked(size, 7, 2, 0.0))
    gpu, (block, _), raw = bench.devices[0], bench.blocks[0], cuda.library
    host = ctypes.c_void_p(cuda.host_alloc(bench.largest))
    gpu.use()
    found: dict[str, Any] = {"emulated": cuda.emulated, "turns": turns}
    for size in (bench.largest, 4):
        count = ctypes.c_size_t(size)

        def issue(count: Any = count) -> None:
            cuda.cuMemcpyHtoDAsync_v2(block, host, count, gpu.stream)

        def bare(times: int, count: Any = count) -> list[float]:
            took = []
            for _ in range(times):
                began = time.perf_counter()
                raw.cuMemcpyHtoDAsync_v2(block, host, count, gpu.stream)
                raw.cuStreamSynchronize(gpu.stream)
                took.append(time.perf_counter() - began)
            return took

        seen: dict[str, list[float]] = {"bare loop": [], "probe by events": [], "probe by clock": []}
        for _ in range(turns):
            seen["bare loop"] += bare(8)[1:]
            took = bench.timed(gpu, issue, 7)
            seen["probe by events"] += took["event_s"]
            seen["probe by clock"] += took["clock_s"]
        found[f"{size} bytes"] = {
            who: {"best_us": round(min(each) * 1e6, 2), "median_us": round(statistics.median(each) * 1e6, 2)}
            for who, each in seen.items()
        }
    bench.close()
    return found


def parts(environment: dict[str, str]) -> dict[str, Any]:
    """Seconds of a whole `--here --quick`, and of each measurement."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "toolkit", "validate", "--here", "--quick"]
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False
        )
        whole = time.monotonic() - began
        (run,) = (Path(folder) / "runs").iterdir()
        each = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
        seconds = {r["measurement"]: r["provenance"]["duration_s"] for r in each}
    rest = whole - sum(seconds.values())
    return {"exit": done.returncode, "whole_s": whole, "measurements_s": seconds, "all_else_s": rest}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("overhead")
    one.add_argument("--emulated", action="store_true")
    one.add_argument("--turns", type=int, default=30)
    one.add_argument("--mib", type=int, default=64)
    other = commands.add_parser("parts")
    other.add_argument("--emulated", type=int, default=0, metavar="GPUS")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if given.emulated and "ELASTIC_AI_EMULATED_GPUS" not in environment:
            environment |= emulated(Path(folder), int(given.emulated))
            if given.what == "overhead":  # the loader reads its path at the start of a process
                done = subprocess.run([sys.executable, *sys.argv], env=environment, check=False)
                sys.exit(done.returncode)
        found = overhead(given.turns, given.mib * MIB) if given.what == "overhead" else parts(environment)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
