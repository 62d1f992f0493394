"""The proof of the engine `torch` on a machine with a GPU: client and server there, over loopback.

    ELASTIC_AI_TORCH_PYTHON=PYTHON python -m tests.support.torch_gpu OUT [--seconds 540] [--only memory,programs,...]

PYTHON has torch for CUDA. Each part writes OUT/PART.txt and says in a line what it found; none ends the others.
Programs run natively twice and by the engine once: what natively differs from itself is told apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import torch_engine
from tests.support.torch_engine import PROGRAMS, Server, run, start

GIB = 1 << 30
LIMIT = 8 * GIB
#: The client has the GPU too: it takes the leased one all the same.
LEASED = {"ELASTIC_AI_TORCH_ONLY_LEASED": "1"}
SAME = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
NAMES = ("vision", "language", "adversarial", "reinforcement", "mixed_precision", "accumulation", "resume",
         "custom_function", "recurrent", "trainer", "generate", "fft_vmap", "gpu_operators", "gpu_details")  # fmt: skip
SWEEPS = 5

MARK = """
import torch
a = torch.full((1 << 28,), 12345.0, device="cuda")
print("marked", a[-1].item())
"""
LOOK = """
import torch, time
began = time.monotonic()
a = torch.empty(1 << 30, device="cuda")
torch.cuda.synchronize()
print("empty of 4 GiB, s", round(time.monotonic() - began, 4))
print("not zero", sum(int(torch.count_nonzero(part).item()) for part in a.split(1 << 26)))
"""
FILL = """
import sys, torch
kept = []
print("info", *torch.cuda.mem_get_info(), flush=True)
try:
    while True:
        kept.append(torch.empty(1 << 26, device="cuda"))
        kept[-1].fill_(len(kept))
        torch.cuda.synchronize()
except torch.OutOfMemoryError as fault:
    print("full at", len(kept), "blocks of 256 MiB:", str(fault).splitlines()[0][:150], flush=True)
right = all(int(one[-1].item()) == n + 1 for n, one in enumerate(kept))
print("right", right, "info", *torch.cuda.mem_get_info(), flush=True)
sys.stdin.readline()
kept.clear()
torch.cuda.empty_cache()
print("after empty_cache", *torch.cuda.mem_get_info(), flush=True)
sys.stdin.readline()
"""


def memory(on: Server, out: list[str]) -> None:
    """Zeros at hand-out, one limit for two sessions, an account that a killed session leaves."""
    for _ in range(2):
        out.append(run(MARK, "remote", on, **LEASED).out)
        out.append(run(LOOK, "remote", on, **LEASED).out)
    out.append("natively: " + run(LOOK, "native").out)
    one = start(FILL, "remote", on, **LEASED)
    out += ["first: " + torch_engine.line(one, "info"), "first: " + torch_engine.line(one), torch_engine.line(one)]
    out.append("beside it: " + run(FILL, "remote", on, check=False, **LEASED).err.splitlines()[-1])
    torch_engine.go_on(one)
    out.append("first: " + torch_engine.line(one))
    two = start(FILL, "remote", on, **LEASED)
    out += ["second, now beside it: " + torch_engine.line(two), torch_engine.line(two), torch_engine.line(two)]
    two.kill()
    two.wait()
    time.sleep(1)
    three = start(FILL, "remote", on, **LEASED)
    out += ["third, the second was killed: " + torch_engine.line(three), torch_engine.line(three)]
    for each in (one, three):
        each.kill()
        each.wait()
    time.sleep(1)
    out.append("in use afterwards: " + subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv"], capture_output=True, text=True, check=False
    ).stdout.replace("\n", " "))  # fmt: skip


def programs(on: Server, out: list[str]) -> None:
    """Losses of each, natively twice and by the engine."""

    def one(name: str) -> str:
        program, ran = PROGRAMS / f"{name}.py", {}
        with tempfile.TemporaryDirectory() as folder:
            for way in ("native", "again", "remote"):
                cwd = Path(folder) / way
                cwd.mkdir()
                where, more = ("remote", {**LEASED, **SAME}) if way == "remote" else ("native", SAME)
                ran[way] = run(program, where, on if where == "remote" else None, cwd=cwd, check=False, **more)  # type: ignore[arg-type]
        want, again, got = (ran[way].losses for way in ("native", "again", "remote"))
        alike = sum(a == b for a, b in zip(want, got, strict=False))
        itself = sum(a == b for a, b in zip(want, again, strict=False))
        told = f"{name}: {alike} of {len(want)} alike ({len(got)} by the engine; natively twice {itself})"
        ended = ran["remote"].code
        last = [line for line in ran["remote"].out.splitlines() if line.startswith("part")][-1:]
        return told + (f" exit {ended} {last} {ran['remote'].err[-900:]}" if ended else "")

    with ThreadPoolExecutor(4) as pool:
        out += pool.map(one, NAMES)


def sweep(on: Server, out: list[str]) -> None:
    """Every operator's digests natively and by the engine."""

    def one(way: str, part: str) -> list[str]:
        where, more = ("remote", {**LEASED, **SAME}) if way == "remote" else ("native", SAME)
        process = start(PROGRAMS / "gpu_sweep.py", where, on if where == "remote" else None, "--part", part, **more)  # type: ignore[arg-type]
        try:
            text, err = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.kill()
            text, err = process.communicate()
        tail = err[-600:] if process.returncode else ""
        if tail:
            out.append(f"{way} {part}: exit {process.returncode} after {text.splitlines()[-1:]}: {tail}")
        return text.splitlines()

    every: dict[str, dict[str, dict[str, list[str]]]] = {}
    jobs = [(way, f"{n + 1}/{SWEEPS}") for n in range(SWEEPS) for way in ("native", "again", "remote")]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for (way, _), lines in zip(jobs, pool.map(lambda job: one(*job), jobs), strict=True):
            for line in lines:
                told = json.loads(line)
                every.setdefault(told.pop("op"), {})[way] = told
    counts = {"forward": [0, 0, 0], "backward": [0, 0, 0]}
    for name, ways in sorted(every.items()):
        if set(ways) != {"native", "again", "remote"}:
            out.append(f"{name}: only {sorted(ways)}")
            continue
        for way, count in counts.items():
            want, again, got = (ways[one].get(way, ways[one].get("fault")) for one in ("native", "again", "remote"))
            count[0] += 1
            if want == got:
                count[1] += 1
            elif want != again:
                count[2] += 1
            else:
                out.append(f"{name} {way}: natively {want}, by the engine {got}")
    for way, (count, alike, itself) in counts.items():
        out.append(f"{way}: {alike} of {count} alike, {itself} more differ natively from themselves")


PARTS: dict[str, Callable[[Server, list[str]], None]] = {"programs": programs, "memory": memory, "sweep": sweep}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=int, default=540)
    parser.add_argument("--only", default=",".join(PARTS))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    engine = torch_engine.built()
    print(f"built {engine.name} in {time.monotonic() - began:.0f} s", flush=True)
    for name in given.only.split(","):
        lines: list[str] = []
        at = time.monotonic()
        limit = LIMIT if name == "memory" else 0
        try:
            words = ["--memory-limit", str(limit)] if limit else []
            with (
                tempfile.TemporaryDirectory() as folder,
                torch_engine.server(Path(folder), "--device", "cuda", *words, **SAME) as on,
            ):
                try:
                    PARTS[name](on, lines)
                finally:
                    lines.append("the server: " + on.said()[-1500:])
        except (Exception, AssertionError):
            lines.append(traceback.format_exc()[-2500:])
        lines.insert(0, f"== {name}, {time.monotonic() - at:.0f} s")
        (given.out / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
