"""One rank of the probe `collectives`: collective operations by torch.distributed, verified and timed.

On GPUs by NCCL where every rank has one of its own, else by Gloo on processors. Every rank holds whole numbers that
float32 sums exactly, so that each element of each result is compared with what it must be; no tolerance. Rank 0 prints
one line of JSON. With --run a program takes the rank's place, after NCCL's variables have been set for this node.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

from validation.base.counting import number_of

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
BYTES = 4  # of a float32
PIECE = 1 << 24  # elements that are made or compared at once
PERIOD, STEP, KINDS = 61, 64, 128  # element i of rank r is i % 61 + 1 + 64 * (r % 128): 1024 ranks sum below 2^24
TEXT_BYTES = 160
FREE_SHARE = 0.25  # of a GPU's free memory that one buffer may take: there are two, and what NCCL needs
PR_SET_PDEATHSIG = 1


def factor(op: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth; nccl-tests, doc/PERFORMANCE.md."""
    return {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1.0}.get(op, (ranks - 1) / ranks)


def own_ends(ends: list[str]) -> list[tuple[str, str]]:
    """(interface, address) of those ends, INTERFACE@ADDRESS, that are of this node: their addresses can be bound."""
    found = []
    for end in ends:
        interface, _, address = end.partition("@")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            try:
                own.bind((address, 0))
            except OSError:
                continue
        found.append((interface, address))
    return found


def take_ports(transport: str, ends: list[str]) -> str:
    """Tell Gloo and NCCL which ports of `ends` are this node's; their first interface.

    On RDMA NCCL gets the devices of all of them. Fault in words where a port has no RDMA that works.
    """
    mine = own_ends(ends)
    if not mine:
        raise SystemExit(f"none of the fabric ports {','.join(ends)} is on {socket.gethostname()}")
    os.environ["GLOO_SOCKET_IFNAME"] = mine[0][0]
    os.environ["NCCL_SOCKET_IFNAME"] = "=" + ",".join(dict.fromkeys(interface for interface, _ in mine))
    # NCCL writes to the standard output otherwise, in the middle of the lines that nccl-tests prints there.
    os.environ["NCCL_DEBUG_FILE"] = "/dev/stderr"
    if transport != "tcp":
        from validation.probes import rdma

        devices = [rdma.look(interface, address, transport) for interface, address in mine]
        os.environ["NCCL_IB_HCA"] = "=" + ",".join(f"{device.name}:{device.port}" for device in devices)
        places = {device.gid_index for device in devices}
        if transport != "ib" and len(places) == 1:  # NCCL takes one index for all; later releases find their own
            os.environ["NCCL_IB_GID_INDEX"] = str(places.pop())
    return mine[0][0]


def launcher() -> str:
    """What started this rank, by the environment that it has."""
    known = {"TORCHELASTIC_RUN_ID": "torchrun", "OMPI_COMM_WORLD_SIZE": "mpirun"}
    return next((name for variable, name in known.items() if variable in os.environ), "")


def launched(name: str, without: str = "") -> str:
    """RANK, SIZE or LOCAL_RANK by the launcher's word, mpirun's or torchrun's; `without`: where neither started it."""
    of_torchrun = {"SIZE": "WORLD_SIZE"}.get(name, name)
    return os.environ.get(f"OMPI_COMM_WORLD_{name}") or os.environ.get(of_torchrun) or without


class Rank:
    """What a rank knows: torch, its place in the world, the group that is measured and the one to talk by."""

    def __init__(self, torch: Any, args: argparse.Namespace) -> None:
        """Join the world; `gloo` first, by which the ranks agree on what carries the rest."""
        self.torch, self.dist = torch, importlib.import_module("torch.distributed")
        self.rank, self.world, self.local = (int(launched(name)) for name in ("RANK", "SIZE", "LOCAL_RANK"))
        limit = timedelta(seconds=args.time_limit_s)
        self.dist.init_process_group(
            "gloo", init_method=args.meet or "env://", rank=self.rank, world_size=self.world, timeout=limit
        )
        self.talk = self.dist.group.WORLD
        self.group, self.backend, self.device = self.talk, "gloo", torch.device("cpu")
        gpus = torch.cuda.device_count() if torch.cuda.is_available() and self.dist.is_nccl_available() else 0
        self.gpu = gpus > self.local
        if args.device != "cpu" and all(self.gather([float(self.gpu)])):
            torch.cuda.set_device(self.local)
            self.device, self.backend = torch.device("cuda", self.local), "nccl"
            self.group = self.dist.new_group(backend="nccl", timeout=limit)
        elif args.device == "gpu":
            raise SystemExit(
                f"rank {self.rank} on {socket.gethostname()}: {number_of(gpus, 'GPU')}, one for each rank is needed"
            )

    def gather(self, values: list[float]) -> list[float]:
        """The numbers of all ranks, one after another."""
        mine = self.torch.tensor(values, dtype=self.torch.float64)
        every = [self.torch.zeros_like(mine) for _ in range(self.world)]
        self.dist.all_gather(every, mine, group=self.talk)
        return [value for one in every for value in one.tolist()]

    def gather_text(self, text: str) -> list[str]:
        """A line of each rank; as tensors, so that nothing is unpickled from the network."""
        padded = text.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        mine = self.torch.tensor(list(padded), dtype=self.torch.uint8)
        every = [self.torch.zeros_like(mine) for _ in range(self.world)]
        self.dist.all_gather(every, mine, group=self.talk)
        return [bytes(one.tolist()).rstrip(b"\0").decode(errors="replace") for one in every]

    def sync(self) -> None:
        """Until this rank's GPU has done what it was given."""
        if self.backend == "nccl":
            self.torch.cuda.synchronize()

    def together(self) -> None:
        """Until all ranks are here, by the group that is measured."""
        self.dist.all_reduce(self.torch.ones(1, device=self.device), group=self.group)
        self.sync()

    def pieces(self, buffer: Any, first: int, factor: int, add: int) -> Any:
        """Views of a buffer, and what stands in them: factor x (i % 61 + 1) + add for element i = `first` and on."""
        for at in range(0, buffer.numel(), PIECE):
            view = buffer[at : at + PIECE]
            index = self.torch.arange(first + at, first + at + view.numel(), device=self.device)
            yield view, (index.remainder_(PERIOD).add_(1).mul_(factor).add_(add)).to(buffer.dtype)

    def fill(self, buffer: Any, rank: int) -> None:
        """What `rank` sends."""
        for view, values in self.pieces(buffer, 0, 1, STEP * (rank % KINDS)):
            view.copy_(values)

    def wrong(self, buffer: Any, first: int, factor: int, add: int) -> int:
        """How many elements are not what they must be."""
        return sum(int((view != values).sum()) for view, values in self.pieces(buffer, first, factor, add))


class Work:
    """One operation at one size: `count` elements in the larger of its buffers, of each rank."""

    def __init__(self, me: Rank, op: str, count: int) -> None:
        """Take the memory."""
        self.me, self.op, self.count, self.part = me, op, count, count // me.world
        sends = {"all_gather": self.part}.get(op, count)
        gets = {"all_reduce": 0, "reduce_scatter": self.part}.get(op, count)
        self.sent = me.torch.empty(sends, dtype=me.torch.float32, device=me.device)
        self.got = me.torch.empty(gets, dtype=me.torch.float32, device=me.device)
        self.refill()

    def refill(self) -> None:
        """What is sent anew: the sum of all ranks takes its place."""
        self.me.fill(self.sent, self.me.rank)

    def do(self) -> None:
        """Once. RuntimeError where the backend does not have it, which it says before anything is sent."""
        me, dist = self.me, self.me.dist
        if self.op == "all_reduce":
            dist.all_reduce(self.sent, group=me.group)
        elif self.op == "all_gather" and me.backend == "gloo":  # older ones have no other
            dist.all_gather(list(self.got.chunk(me.world)), self.sent, group=me.group)
        elif self.op == "all_gather":
            dist.all_gather_into_tensor(self.got, self.sent, group=me.group)
        elif self.op == "reduce_scatter":
            dist.reduce_scatter_tensor(self.got, self.sent, group=me.group)
        elif self.op == "all_to_all":
            dist.all_to_all_single(self.got, self.sent, group=me.group)
        else:
            to, of = (me.rank + 1) % me.world, (me.rank - 1) % me.world
            both = [dist.P2POp(dist.isend, self.sent, to, me.group), dist.P2POp(dist.irecv, self.got, of, me.group)]
            for request in dist.batch_isend_irecv(both):
                request.wait()

    def wrong(self) -> int:
        """How many elements this rank has wrong after it was done once."""
        me, n, part = self.me, self.me.world, self.part
        total = STEP * sum(rank % KINDS for rank in range(n))
        parts = [self.got[k * part : (k + 1) * part] for k in range(n)]
        if self.op == "all_reduce":
            return me.wrong(self.sent, 0, n, total)
        if self.op == "reduce_scatter":
            return me.wrong(self.got, me.rank * part, n, total)
        if self.op == "all_gather":
            return sum(me.wrong(each, 0, 1, STEP * (k % KINDS)) for k, each in enumerate(parts))
        if self.op == "all_to_all":
            return sum(me.wrong(each, me.rank * part, 1, STEP * (k % KINDS)) for k, each in enumerate(parts))
        return me.wrong(self.got, 0, 1, STEP * ((me.rank - 1) % n % KINDS))


def measure(me: Rank, op: str, count: int, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one operation in each block, of the slowest rank, and how many elements were wrong on all ranks.

    Where it takes longer than `budget_s` allows, fewer are done in a block, at least one; `long` says that even one in
    each took more than three times of it.
    """
    work = Work(me, op, count)
    work.do()
    me.sync()
    bad = int(sum(me.gather([float(work.wrong())])))
    me.together()
    begin = time.perf_counter()
    work.do()
    me.sync()
    once = max(me.gather([time.perf_counter() - begin]))
    times = max(1, min(args.iterations, int(args.budget_s / args.repeats / max(once, 1e-9))))
    seconds = []
    for _ in range(args.repeats):
        work.refill()
        me.sync()
        me.together()
        begin = time.perf_counter()
        for _ in range(times):
            work.do()
        me.sync()
        seconds.append((time.perf_counter() - begin) / times)
    every = me.gather(seconds)
    slowest = [max(every[block :: args.repeats]) for block in range(args.repeats)]
    return {
        "op": op,
        "bytes": count * BYTES,
        "iterations": times,
        "seconds": [round(value, 9) for value in slowest],
        "busbw_gb_s": [round(factor(op, me.world) * count * BYTES / value / 1e9, 9) for value in slowest],
        "wrong": bad,
        "long": sum(slowest) * times > 3 * args.budget_s,
    }


def rows_of(me: Rank, args: argparse.Namespace) -> dict[str, Any]:
    """All operations over all sizes; what was left out, and why, by operation."""
    rows: list[dict[str, Any]] = []
    left: dict[str, dict[str, Any]] = {}
    room = float("inf")
    if me.backend == "nccl":
        room = FREE_SHARE * min(me.gather([float(me.torch.cuda.mem_get_info()[0])]))
    for op in args.ops.split(","):
        sizes = [int(size) for size in args.sizes.split(",")]
        for at, size in enumerate(sizes):
            why = (
                f"more than a quarter of the GPUs' free memory of {room / FREE_SHARE:.0f} bytes" if size > room else ""
            )
            if not why:
                try:
                    row = measure(me, op, size // BYTES // me.world * me.world, args)
                except RuntimeError as fault:
                    if at or me.backend == "nccl":
                        raise
                    why = f"{me.backend} does not have it: {str(fault).splitlines()[0][:120]}"
                else:
                    long = row.pop("long")
                    rows.append(row)
                    if not long or at + 1 == len(sizes):
                        continue
                    why, at = f"{number_of(size, 'byte')} took more than {3 * args.budget_s:g} s", at + 1
            left[op] = {"bytes": sizes[at:], "why": why}
            break
    return {"rows": rows, "left_out": left}


def device_words(me: Rank) -> str:
    """`GPU 0000:17:00.0 NVIDIA H100`, as the driver has it; of a processor its core count."""
    if me.backend != "nccl":
        return f"cpu {platform.machine()}"
    bus = ctypes.create_string_buffer(64)
    if ctypes.CDLL("libcuda.so.1").cuDeviceGetPCIBusId(bus, 64, me.local):
        raise SystemExit(f"rank {me.rank}: the driver does not tell the PCI address of GPU {me.local}")
    return f"GPU {bus.value.decode()} {me.torch.cuda.get_device_name(me.local)}"


def report(me: Rank, args: argparse.Namespace) -> dict[str, Any]:
    """Everything, on every rank."""
    found = rows_of(me, args)
    nccl = me.torch.cuda.nccl.version() if me.backend == "nccl" else ""
    return {
        "world_size": me.world,
        "backend": me.backend,
        "launcher": launcher(),
        "hosts": me.gather_text(socket.gethostname()),
        "devices": me.gather_text(device_words(me)),
        "repeats": args.repeats,
        **found,
        "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl),
        "torch": me.torch.__version__,
        "python": platform.python_version(),
    }


def watched(me: Rank, args: argparse.Namespace) -> dict[str, Any]:
    """The report, and what each rank's GPU was doing meanwhile, seen from beside."""
    from validation.probes import gpu_watch

    with gpu_watch.Watch(gpu_watch.address(me.local)) as watch:
        found = report(me, args)
    mine = watch.document()
    said = [me.gather_text(text) for text in (watch.address, mine["said"])]
    flat = me.gather(gpu_watch.numbers(mine))
    size = len(flat) // me.world
    parts = [flat[rank * size : (rank + 1) * size] for rank in range(me.world)]
    return {**found, "watch": [gpu_watch.from_numbers(*one) for one in zip(parts, *said)]}


def in_its_place(program: list[str]) -> int:
    """Run a program to its end, which goes with this process; its exit status."""

    def dies_too() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    done = subprocess.run(program, check=False, preexec_fn=dies_too)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def carried(before: Any) -> None:
    """Say what the ports of this node carried since `before`."""
    from validation.probes import port_bytes

    interfaces = os.environ["NCCL_SOCKET_IFNAME"].lstrip("=").split(",")
    devices = os.environ.get("NCCL_IB_HCA", "").lstrip("=").split(",")
    port_bytes.write(port_bytes.grown(before, port_bytes.read(), interfaces, [one for one in devices if one]))


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", required=True)
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--time-limit-s", type=int, required=True)
    parser.add_argument("--meet", default="", help="tcp://ADDRESS:PORT of rank 0; without it torchrun's")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of the environment, before torch loads")
    parser.add_argument("--device", choices=("any", "cpu", "gpu"), default="any")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--sizes", default="")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget-s", type=float, default=1.0)
    parser.add_argument("--run", nargs=argparse.REMAINDER, help="a program and its arguments in place of this one")
    args = parser.parse_args()
    # A rank must not outlive its job: not its daemon's end on this node, nor a launcher that is out of reach.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.alarm(args.time_limit_s)
    os.environ.update(word.split("=", 1) for word in args.set)
    take_ports(args.transport, args.ends.split(","))
    first = launched("LOCAL_RANK", "0") == "0"
    if args.run and not first:
        os.execvp(args.run[0], args.run)
    from validation.probes import port_bytes

    before = port_bytes.read() if first else {}
    if args.run:
        code = in_its_place(args.run)
        carried(before)
        raise SystemExit(code)
    torch: Any = importlib.import_module("torch")  # by name, for the controller that reads this file has none
    torch.set_num_threads(1)
    me = Rank(torch, args)
    found = watched(me, args) if me.backend == "nccl" else report(me, args)
    if me.rank == 0:
        print(json.dumps(found), flush=True)
    me.dist.barrier(group=me.talk)
    if first:
        carried(before)
    me.dist.destroy_process_group()


if __name__ == "__main__":
    main()
