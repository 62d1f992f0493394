"""The engine `torch` beside native PyTorch, in turns: steps of training, decoding, operators, waits and copies.

    benchmarks/torch_engine.py --write [--rounds 3] [--steps 12] [--links 0,0.5,5,0.5/1]
    benchmarks/torch_engine.py --table benchmarks/torch_engine.json

--write makes benchmarks/torch_engine.json and the tables of benchmarks/README.md. Native, then the engine by each link
(milliseconds of round trip, and Gbit/s behind a slash, by the toolkit's relay on loopback), and the other way round in
the next round; then a server whose operators do nothing. Server and native have one thread on the last processor, the
client the first one. Figures are refused where a loss has other bits than native's. iperf3 is one stream on loopback,
each way and round. The GPU is this machine's processor: what is measured is the engine's cost, never a GPU's. The model
of torch_model.py is held against each step, with the costs of the same round's operators, waits and copies.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.torch_model import Link  # noqa: E402
from benchmarks.torch_tables import NOTHING, PROGRAMS, model, tables, written  # noqa: E402
from tests.support import torch_engine, torch_env  # noqa: E402
from tests.support.relay import relay  # noqa: E402
from validation.rules.release import release  # noqa: E402

KEPT, PAGE = Path(__file__).with_name("torch_engine.json"), Path(__file__).with_name("README.md")
WORKER = Path(__file__).with_name("torch_worker.py")
DO_NOTHING = "ELASTIC_AI_TORCH_OPERATORS_DO_NOTHING"
"""A server with this in its environment runs no operator that it was told before; engine/torch/server/start.cc."""
CLIENT, SERVER = 0, (os.cpu_count() or 1) - 1
IPERF_S = 2


class BenchmarkError(Exception):
    """Why there is no figure."""


def worker(words: list[str], core: int, environment: dict[str, str]) -> dict[str, Any]:
    """The document of one run of the worker."""
    command = [str(torch_env.python()), str(WORKER), *words, "--core", str(core)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(words)}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def iperf_gb_s(reverse: bool) -> float:
    """One stream on loopback between the two processors."""
    port = "5299"
    words = ["iperf3", "--server", "--one-off", "--bind", "127.0.0.1", "--port", port, "--affinity", str(SERVER)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(0.5)
            words = ["iperf3", "--client", "127.0.0.1", "--port", port, "--time", str(IPERF_S), "--json"]
            words += ["--affinity", str(CLIENT), *(["--reverse"] if reverse else [])]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        finally:
            process.terminate()
    if done.returncode:
        raise BenchmarkError(f"iperf3: {done.stdout[-500:]}{done.stderr[-500:]}")
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9


def turn(
    options: argparse.Namespace, ways: dict[str, dict[str, str]], order: list[str], idle: dict[str, str]
) -> dict[str, Any]:
    """Everything once, in this order of ways ("native", and "0", "0.5/1" for links)."""
    found: dict[str, Any] = {"load_1min": os.getloadavg()[0], "programs": {}}
    steps = ["--steps", str(options.steps)]
    for program in PROGRAMS:
        runs = {}
        for way in order:
            said(f"  {program}, {way}")
            runs[way] = worker([program, *steps], SERVER if way == "native" else CLIENT, ways[way])
            if way != "native" and runs[way]["device"] != "cuda":
                raise BenchmarkError(f"{program} was not on the engine's device")
        wrong = [way for way in order if runs[way]["losses"] != runs["native"]["losses"]]
        if wrong:
            raise BenchmarkError(f"{program}: other losses than native's by {', '.join(wrong)}")
        said(f"  {program}, {NOTHING}")
        nothing = worker([program, *steps], CLIENT, idle)
        if "operators do nothing" not in nothing["name"]:
            raise BenchmarkError("the server whose operators do nothing is another one")
        runs[NOTHING] = {key: nothing[key] for key in ("step_s", "cpu_s", "per_step")}
        unread = worker([program, *steps, "--read-every", "1000000"], CLIENT, ways[list(ways)[1]])
        runs["unread"] = {"step_s": unread["step_s"], "cpu_s": unread["cpu_s"], "per_step": unread["per_step"]}
        for one in runs.values():
            one.pop("losses", None)
        found["programs"][program] = runs
    first = list(ways)[1]
    said("  operators, waits, copies")
    found["calls"] = {
        way: worker(["calls"], SERVER if way == "native" else CLIENT, ways[way]) for way in ("native", first)
    }
    found["iperf_up_gb_s"] = iperf_gb_s(False)
    found["copies"] = worker(["copies", "--steps", "5"], CLIENT, ways[first])
    found["iperf_down_gb_s"] = iperf_gb_s(True)
    return found


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The document after each round."""
    torch_engine.built()
    links = [Link.of(word) for word in options.links.split(",")]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eai-bench-")))
        server = stack.enter_context(torch_engine.server(folder / "server"))
        idle = stack.enter_context(torch_engine.server(folder / "idle", **{DO_NOTHING: "1"}))
        for one in (server, idle):
            os.sched_setaffinity(one.process.pid, {SERVER})  # its sessions are forked later
        ways = {"native": torch_env.plain_environment()}
        for link in links:
            # each way takes half of the delay
            shaped = bool(link.delay_ms or link.gbps)
            port = stack.enter_context(relay(server.port, link.gbps, link.delay_ms / 2)) if shaped else server.port
            ways[link.name] = server.environment(ELASTIC_AI_TORCH_SERVERS=f"127.0.0.1:{port}")
        turns: list[dict[str, Any]] = []
        for number in range(options.rounds):
            said(f"round {number + 1} of {options.rounds}")
            turns.append(turn(options, ways, list(ways)[:: -1 if number % 2 else 1], idle.environment()))
            yield document_of(turns, links, options.steps)


BEGAN = time.monotonic()


def said(words: str) -> None:
    """Progress, with the seconds so far."""
    print(f"{time.monotonic() - BEGAN:4.0f} s {words}", file=sys.stderr, flush=True)


def document_of(turns: list[dict[str, Any]], links: list[Link], steps: int) -> dict[str, Any]:
    tree = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    document = {
        "machine": {
            "processor": processor(), "cores": os.cpu_count(), "system": platform.platform(),
            "python": platform.python_version(), "torch": turns[0]["calls"]["native"]["torch"],
        },
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "release": release(),
        "tree": tree.stdout.strip(),
        "emulated": True,
        "links": [link.name for link in links],
        "steps": steps,
        "rounds": turns,
    }  # fmt: skip
    return {**document, "model": model(document)}


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the document here")
    parser.add_argument("--write", action="store_true", help=f"write {KEPT.name} and the tables of {PAGE.name} here")
    parser.add_argument("--table", type=Path, metavar="DOCUMENT", help="print the tables of a document")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--links", default="0,0.5,5,0.5/1", help="ms of round trip[/Gbit/s]; the least first")
    options = parser.parse_args()
    if options.table:
        print(tables(json.loads(options.table.read_text())))
        return 0
    try:
        for document in measured(options):  # each round is kept, however the next one ends
            for path in {options.out, KEPT if options.write else None} - {None}:
                path.write_text(json.dumps(document, indent=1) + "\n")
        if options.write:
            PAGE.write_text(written(PAGE.read_text(), document))
    except (BenchmarkError, OSError, AssertionError, ValueError) as fault:
        print(f"no figure: {fault}", file=sys.stderr)
        return 1
    print(tables(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
