"""What a tenant's PyTorch program does in a lease, as remoting_attempts does by the driver API: each prints one line.

    python torch_attempts.py device          its devices, each of them used; those of the lease by their UUIDs
    python torch_attempts.py take SHARE      allocate that share of the part's memory
    python torch_attempts.py twice SHARE     the same in two programs of one lease at a time
    python torch_attempts.py fill            when told: take all of it, write it, hold it
    python torch_attempts.py work TIMES      compute and compare, over and over
    python torch_attempts.py crash           allocate, copy, and die of SIGKILL

`code` is what stands for the failure as a CUresult: 2 out of memory, 100 no device; 0 where nothing failed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import torch

MIB = 1 << 20
OUT_OF_MEMORY, NO_DEVICE = 2, 100
PAGE = 2 * MIB


def part() -> dict[str, Any]:
    """The first GPU of the lease, as `toolkit run` tells its programs."""
    return dict(json.loads(os.environ["ELASTIC_AI_GPUS"])[0])


def device() -> dict[str, Any]:
    """All devices that the program sees; a sum on each, which takes a session."""
    leased = [str(gpu["uuid"]) for gpu in json.loads(os.environ.get("ELASTIC_AI_GPUS") or "[]")]
    found = []
    for at in range(torch.cuda.device_count()):
        torch.ones(3, device=f"cuda:{at}").sum().item()
        found.append({"uuid": leased[at] if at < len(leased) else f"not of the lease: cuda:{at}"})
    if not found and os.environ.get("CUDA_VISIBLE_DEVICES") is None:
        return {"code": NO_DEVICE, "refused": "PyTorch sees no device"}
    return {"devices": found}


def take(share: str, hold: bool = False) -> dict[str, Any]:
    """Allocate a share of what the lease has of the device, and write to its ends."""
    total = int(part()["memory_bytes"])
    size = int(total * float(share))
    found = {"total_bytes": total, "asked_bytes": size, "shown_bytes": torch.cuda.mem_get_info()[1]}
    try:
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        block[0], block[-1] = 7, 7
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        return {**found, "code": OUT_OF_MEMORY}
    if hold:
        print(json.dumps({**found, "code": 0}), flush=True)
        sys.stdin.readline()
    return {**found, "code": 0}


def twice(share: str) -> dict[str, Any]:
    """A second program of the same lease beside one that holds its share."""
    here = [sys.executable, __file__]
    with subprocess.Popen([*here, "hold", share], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        held = json.loads(first.stdout.readline() or '{"code": -1}')
        second = subprocess.run([*here, "take", share], capture_output=True, text=True, check=False)
        found = json.loads(second.stdout.splitlines()[-1] if second.stdout.strip() else '{"code": -1}')
        if first.stdin is not None:
            first.stdin.write("\n")
    return {"first": held["code"], "code": found["code"]}


def room(size: int) -> torch.Tensor | None:
    """So much memory, written; None where there is none. Whatever the attempt left is over before the next one."""
    try:
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        block.fill_(7)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        with suppress(torch.OutOfMemoryError):
            torch.cuda.synchronize()
        return None
    return block


def fill() -> dict[str, Any]:
    """All of the part's memory, written, in steps from a quarter down to a page; begun when a line comes (one goes out
    before: the session is there), and held until the input ends."""
    leased = part()
    about = {"uuid": leased["uuid"], "total_bytes": torch.cuda.mem_get_info()[1]}
    print(json.dumps(about), flush=True)
    if not sys.stdin.readline():
        return about
    held: list[torch.Tensor] = []
    size, code = max(int(about["total_bytes"]) // 4 // PAGE * PAGE, PAGE), 0
    while size >= PAGE // 2:
        block = room(size)
        if block is None:
            code, size = OUT_OF_MEMORY, size // 2
        else:
            held.append(block)
    found = {**about, "taken_bytes": sum(block.numel() for block in held), "code": code}
    print(json.dumps(found), flush=True)
    sys.stdin.read()
    return found


def work(times: str) -> dict[str, Any]:
    """Products that must be the same each time."""
    torch.manual_seed(1)
    a = torch.randn(64, 64, device="cuda")
    right = (a @ a).sum().item()
    return {"verified": all((a @ a).sum().item() == right for _ in range(int(times)))}


def crash() -> dict[str, Any]:
    """Dies in the middle of its work, as a broken program does."""
    block = torch.zeros(4 * MIB, dtype=torch.uint8).to("cuda")
    (block + 1).sum().item()
    print(json.dumps({"code": 0}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def main(words: list[str]) -> int:
    """Run one; what it found goes to stdout."""
    programs: dict[str, Any] = {
        "device": device, "take": take, "twice": twice, "fill": fill, "work": work, "crash": crash,
        "hold": lambda share: take(share, hold=True),
    }  # fmt: skip
    try:
        found = programs[words[0]](*words[1:])
    except (RuntimeError, OSError) as fault:
        found = {"code": NO_DEVICE, "refused": str(fault)[:300]}
    except (KeyError, ValueError) as fault:
        found = {"code": -1, "refused": f"not started by toolkit run: {fault}"}
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
