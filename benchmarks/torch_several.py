"""Data-parallel steps over two servers, in turns: natively by gloo, from server to server, and by way of the client.

    benchmarks/torch_several.py OUT.json [--rounds 3] [--steps 12] [--processor]

Two ranks, DDP, the loss of each rank read in every step. Natively a rank computes on a processor of its own with one
thread; by the engine its server does, and the rank's own process has the same processor, so that what the client needs
is taken from the figure. All of it is on loopback: no network is measured, and no GPU. Figures are refused where a loss
of rank 0 has other bits than native's. Loopback is no link, so the way by the client looks better here than it is.
--processor counts which threads use the processor in a step, instead: such figures hold on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.torch_engine import BenchmarkError, processor, said  # noqa: E402
from tests.support import torch_engine, torch_ranks  # noqa: E402
from tests.support.torch_engine import Server  # noqa: E402

WORKER = Path(__file__).with_name("torch_several_worker.py")
PROGRAMS = ("mlp", "gpt", "resnet50")
NATIVE, THERE, HERE = "native", "from server to server", "by way of the client"
LIMIT_S = 600


def times(pid: int) -> dict[str, float]:
    """Seconds of processor that each thread of a process has had, by its number and name."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended
            ran_ns = int((thread / "schedstat").read_text().split()[0])
            found[f"{thread.name} {(thread / 'comm').read_text().strip()}"] = ran_ns / 1e9
    return found


def shares(program: str, servers: list[Server] | None, steps: int) -> dict[str, float]:
    """Milliseconds of processor in a step of both ranks' mean: of the ranks' processes, of their servers' sessions, and
    of each the threads that carry collectives."""
    with ExitStack() as stack:
        started = torch_ranks.start(WORKER, 2, servers, program, "--steps", str(steps), "--marks")
        for one in started:
            stack.callback(one.kill)

        def now() -> dict[str, dict[str, float]]:
            for one in started:
                torch_engine.line(one, "mark")
            sessions = [pid for one in servers or [] for pid in one.children()]
            found = {"program": {}, "server": {}}
            for part, pids in (("program", [one.pid for one in started]), ("server", sessions)):
                for pid in pids:
                    found[part] |= times(pid)
            for one in started:
                torch_engine.go_on(one)
            return found

        before, after = now(), now()
        for one in started:
            torch_engine.ended(one, LIMIT_S)
    made: dict[str, float] = {}
    for part, threads in after.items():
        for name, ran_s in threads.items():
            key = f"{part}, collectives" if "gloo" in name else part
            made[key] = made.get(key, 0) + (ran_s - before[part].get(name, 0)) / steps / 2 * 1e3
    return made


def ranks(program: str, servers: list[Server] | None, steps: int) -> dict[str, Any]:
    """What rank 0 measured."""
    with ExitStack() as stack:
        started = torch_ranks.start(WORKER, 2, servers, program, "--steps", str(steps))
        for one in started:
            stack.callback(one.kill)
        ends = [torch_engine.ended(one, LIMIT_S) for one in started]
    wrong = [end.err.strip()[-1500:] for end in ends if end.code]
    if wrong:
        raise BenchmarkError(f"{program}: {wrong[0]}")
    found: dict[str, Any] = json.loads(ends[0].out.splitlines()[-1])
    return found


def counted(rounds: int, steps: int) -> dict[str, Any]:
    """Shares of each round and program, natively and from server to server."""
    turns = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eai-bench-")))
        there = stack.enter_context(torch_engine.servers_of_a_lease(folder, (1, 1), "--threads", "1"))
        for core, one in enumerate(there):
            os.sched_setaffinity(one.process.pid, {core})
        for number in range(rounds):
            turn: dict[str, Any] = {"load_1min": os.getloadavg()[0], "processor_ms": {}}
            for program in PROGRAMS:
                said(f"round {number + 1} of {rounds}: {program}")
                runs = {NATIVE: shares(program, None, steps), THERE: shares(program, there, steps)}
                turn["processor_ms"][program] = runs
            turns.append(turn)
    return about(steps) | {"rounds": turns}


def shares_table(document: dict[str, Any]) -> str:
    """Medians of the rounds."""
    keys = [(NATIVE, "program"), (NATIVE, "program, collectives"), (THERE, "server"), (THERE, "server, collectives")]
    keys += [(THERE, "program"), (THERE, "program, collectives")]
    lines = ["| ms of processor | " + " | ".join(f"{way}: {part}" for way, part in keys) + " |"]
    lines.append("|---" * (len(keys) + 1) + "|")
    for program in PROGRAMS:
        turns = [turn["processor_ms"][program] for turn in document["rounds"]]
        cells = [f"{statistics.median(turn[way].get(part, 0) for turn in turns):.2f}" for way, part in keys]
        lines.append(f"| {program} | {' | '.join(cells)} |")
    return "\n".join(lines)


def measured(rounds: int, steps: int) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eai-bench-")))
        there = stack.enter_context(torch_engine.servers_of_a_lease(folder / "there", (1, 1)))
        here = [stack.enter_context(torch_engine.server(folder / f"here{i}", "--devices", "1")) for i in (0, 1)]
        for pair in (there, here):
            for core, one in enumerate(pair):
                os.sched_setaffinity(one.process.pid, {core})  # its sessions are forked later
        ways: dict[str, list[Server] | None] = {NATIVE: None, THERE: there, HERE: here}
        turns = []
        for number in range(rounds):
            turn: dict[str, Any] = {"load_1min": os.getloadavg()[0], "programs": {}}
            for program in PROGRAMS:
                runs = {}
                for way in list(ways)[:: -1 if number % 2 else 1]:
                    said(f"round {number + 1} of {rounds}: {program}, {way}")
                    runs[way] = ranks(program, ways[way], steps)
                for way, run in runs.items():
                    if run["losses"] != runs[NATIVE]["losses"]:
                        raise BenchmarkError(f"{program}: other losses than native's {way}")
                turn["programs"][program] = {way: {"step_s": run["step_s"]} for way, run in runs.items()}
            turns.append(turn)
    return about(steps) | {"rounds": turns}


def about(steps: int) -> dict[str, Any]:
    """Where and of what it was measured."""
    tree = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return {
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "tree": tree.stdout.strip(),
        "emulated": True,
        "steps": steps,
    }


def table(document: dict[str, Any]) -> str:
    """Medians of the rounds' medians; native's time divided by each way's, and the least and most of the rounds."""
    lines = ["| two ranks | native, ms | " + " | ".join(f"native / {way}" for way in (THERE, HERE)) + " |"]
    lines.append("|---|---|---|---|")
    for program in PROGRAMS:
        step = {
            way: [statistics.median(turn["programs"][program][way]["step_s"]) for turn in document["rounds"]]
            for way in (NATIVE, THERE, HERE)
        }
        cells = [f"{statistics.median(step[NATIVE]) * 1e3:.1f}"]
        for way in (THERE, HERE):
            each = [native / other for native, other in zip(step[NATIVE], step[way], strict=True)]
            cells.append(f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})")
        lines.append(f"| {program} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.json", help="write the document here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--processor", action="store_true", help="count the processor's time by threads")
    options = parser.parse_args()
    try:
        torch_engine.built()
        document = (counted if options.processor else measured)(options.rounds, options.steps)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    except (BenchmarkError, OSError, AssertionError, ValueError) as fault:
        print(f"no figure: {fault}", file=sys.stderr)
        return 1
    print(shares_table(document) if options.processor else table(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
