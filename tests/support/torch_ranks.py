"""A program of several ranks, natively by gloo on processors or by the engine, each rank with a device of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support import torch_env
from tests.support.torch_engine import Ran, Server, client_environment, ended, go_on

#: Rank 1 ends in the middle.
DIES = """
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
dist.all_reduce(x)
print("begun", x.sum().item(), flush=True)
if rank == 1:
    os._exit(7)
try:
    for _ in range(3):
        dist.all_reduce(x)
        x.sum().item()
except RuntimeError as fault:
    print("fault", str(fault).splitlines()[0], flush=True)
    os._exit(3)
"""
#: Sums again after a line of input, when a server has gone.
SERVER_LEAVES = """
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
dist.all_reduce(x)
print("begun", x.sum().item(), flush=True)
sys.stdin.readline()
try:
    for _ in range(1000):
        dist.all_reduce(x)
        x.fill_(1)
except RuntimeError as fault:
    print("fault", str(fault).splitlines()[0], flush=True)
    os._exit(3)
"""


def free_port() -> int:
    """Of loopback, for the ranks' store."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(
    program: Path | str, ranks: int, servers: Sequence[Server] | None, *arguments: str, **more: str
) -> list[subprocess.Popen[str]]:
    """As torchrun starts it, all ranks on this machine. servers: one for each device; None: natively."""
    port = str(free_port())
    base = client_environment(list(servers)) if servers else {**torch_env.plain_environment(), "BACKEND": "gloo"}
    what = [str(program)] if isinstance(program, Path) else ["-c", program]
    return [
        subprocess.Popen(
            [str(torch_env.python()), *what, *arguments],
            env={
                **base, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more,
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def torchrun(program: Path, ranks: int, servers: Sequence[Server], limit_s: float = 120) -> Ran:
    """How torch's launcher ended, which ends all ranks when one fails. A port is found by itself."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    process = subprocess.Popen(
        [str(torch_env.python()), *launcher, str(program)], env=client_environment(list(servers)),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return ended(process, limit_s)


def run(program: Path | str, ranks: int, servers: Sequence[Server] | None, *arguments: str, **more: str) -> list[Ran]:
    """How each rank ended; all have to end well."""
    done = [ended(one) for one in start(program, ranks, servers, *arguments, **more)]
    for rank, one in enumerate(done):
        assert one.code == 0, f"rank {rank}: exit {one.code}: {one.out[-1000:]}\n{one.err[-3000:]}"
    return done


def lines(ran: Sequence[Ran]) -> list[list[str]]:
    """What each rank said of its results."""
    return [[line for line in one.out.splitlines() if line.startswith("line ")] for one in ran]


def same_lines(program: Path, ranks: int, servers: Sequence[Server], *arguments: str, **more: str) -> list[Ran]:
    """Natively and by the engine: each rank's results have the same bits."""
    native, remote = run(program, ranks, None, *arguments), run(program, ranks, servers, *arguments, **more)
    assert lines(native)[0], native[0].out
    for here, there in zip(lines(native), lines(remote), strict=True):
        assert here == there
    return remote


def all_end_with(leaves: Server, ranks: Sequence[subprocess.Popen[str]]) -> None:
    """Kills the second rank's server with its sessions: both ranks of SERVER_LEAVES end and say why."""
    leaves.process.kill()
    for pid in leaves.children():
        os.kill(pid, signal.SIGKILL)
    for one in ranks:
        go_on(one)
    first, second = (ended(one, 60) for one in ranks)
    assert (first.code, second.code) == (3, 3), (first, second)
    assert "a rank has ended" in first.out
    assert f"127.0.0.1:{leaves.port}" in second.out
