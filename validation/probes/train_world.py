"""How the ranks of a training talk to each other: by Horovod, by torch.distributed, or one rank by itself.

Each has the same face. `wrap` and `backward` share the gradients; `backward` returns the seconds that this rank waited
for the others and for the network after its own part was done. Read on the controller, too, so nothing imports torch.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import multiprocessing
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from validation.probes import rdma
from validation.probes.train_networks import NETWORKS, PRECISIONS, SMALL

TEXT_BYTES = 320
NCCL_CONF = Path("/etc/nccl.conf")
PR_SET_PDEATHSIG = 1


class Clock:
    """Points of time on a device: events in the queue of a GPU, else the clock."""

    def __init__(self, torch: Any, device: Any) -> None:
        """`device` as torch names it."""
        self.torch, self.cuda = torch, device.type == "cuda"

    def now(self) -> Any:
        """A point that is reached when what was given to the device so far is done."""
        if not self.cuda:
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, last: Any) -> float:
        """Seconds; waits for the last of both."""
        if not self.cuda:
            return float(last - first)
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3


class Alone:
    """One rank that has nobody to talk to."""

    name = "none"
    version = ""
    rank = local = 0
    size = 1

    def gather(self, torch: Any, values: list[float]) -> list[list[float]]:
        """The numbers of every rank, a row each."""
        return [values]

    def texts(self, torch: Any, text: str) -> list[str]:
        """A line of every rank."""
        return [text]

    def share(self, torch: Any, data: bytes) -> bytes:
        """What rank 0 has, on every rank."""
        return data

    def even(self, model: Any) -> None:
        """Statistics that a network keeps beside its parameters, on every rank those of rank 0."""

    def start(self, torch: Any, device: Any) -> None:
        """Once the device is known."""
        self.clock = Clock(torch, device)

    def wrap(self, torch: Any, model: Any, optimizer: Any) -> tuple[Any, Any]:
        """Model and optimizer as they are to be used, with the parameters of rank 0."""
        return model, optimizer

    def backward(self, loss: Any, optimizer: Any) -> tuple[Any, Any]:
        """Gradients, averaged over all ranks: (when this rank's own part was done, when the average was there)."""
        loss.backward()
        done = self.clock.now()
        return done, done

    def step(self, optimizer: Any, scaler: Any) -> None:
        """New parameters."""
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    def close(self) -> None:
        """The end of the job."""


class Horovod(Alone):
    """Horovod, as the reference architecture has it."""

    name = "horovod"

    def __init__(self) -> None:
        """Meet the others."""
        self.hvd: Any = importlib.import_module("horovod.torch")
        self.version = str(importlib.import_module("horovod").__version__)
        self.hvd.init()
        self.rank, self.size, self.local = self.hvd.rank(), self.hvd.size(), self.hvd.local_rank()

    def gather(self, torch: Any, values: list[float]) -> list[list[float]]:
        """By an all-gather."""
        rows = self.hvd.allgather(torch.tensor([values], dtype=torch.float64))
        return [list(map(float, row)) for row in rows.tolist()]

    def texts(self, torch: Any, text: str) -> list[str]:
        """As numbers, so that nothing is unpickled from the network."""
        padded = text.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        rows = self.hvd.allgather(torch.tensor([list(padded)], dtype=torch.uint8))
        return [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in rows]

    def share(self, torch: Any, data: bytes) -> bytes:
        """By two broadcasts: how much, and what."""
        size = int(self.hvd.broadcast(torch.tensor([len(data)]), 0, name="share-size").item())
        mine = torch.frombuffer(bytearray(data), dtype=torch.uint8) if self.rank == 0 else torch.empty(size).byte()
        return bytes(self.hvd.broadcast(mine, 0, name="share").numpy()) if size else b""

    def even(self, model: Any) -> None:
        """By a broadcast."""
        self.hvd.broadcast_parameters(dict(model.named_buffers()), root_rank=0)

    def wrap(self, torch: Any, model: Any, optimizer: Any) -> tuple[Any, Any]:
        """Gradients are averaged while the way back goes on."""
        optimizer = self.hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        return model, optimizer

    def backward(self, loss: Any, optimizer: Any) -> tuple[Any, Any]:
        """The way back, then the wait for all averages."""
        loss.backward()
        done = self.clock.now()
        optimizer.synchronize()
        return done, self.clock.now()

    def step(self, optimizer: Any, scaler: Any) -> None:
        """Without another wait."""
        with optimizer.skip_synchronize():  # it was done with the gradients
            super().step(optimizer, scaler)

    def close(self) -> None:
        """Leave the others."""
        self.hvd.shutdown()


class Ddp(Alone):
    """torch's own: DistributedDataParallel, on GPUs by NCCL, on processors by Gloo."""

    name = "ddp"

    def __init__(self, torch: Any, meet: str, limit_s: int) -> None:
        """Meet the others, by Gloo: they agree on what carries the rest. `meet`: tcp://ADDRESS:PORT of rank 0."""
        self.dist: Any = importlib.import_module("torch.distributed")
        place = {
            "rank": ("RANK", "OMPI_COMM_WORLD_RANK"),
            "size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"),
            "local": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
        }
        for key, names in place.items():
            told = next((os.environ[name] for name in names if name in os.environ), "")
            if not told:
                raise SystemExit("torch.distributed needs a launcher that sets ranks: mpirun or torchrun")
            setattr(self, key, int(told))
        limit = timedelta(seconds=limit_s)
        method = meet or "env://"
        self.dist.init_process_group("gloo", init_method=method, rank=self.rank, world_size=self.size, timeout=limit)
        self.limit, self.group, self.version = limit, self.dist.group.WORLD, str(torch.__version__)
        self.last: Any = None

    def gather(self, torch: Any, values: list[float]) -> list[list[float]]:
        """By an all-gather."""
        mine = torch.tensor(values, dtype=torch.float64)
        every = [torch.zeros_like(mine) for _ in range(self.size)]
        self.dist.all_gather(every, mine)
        return [one.tolist() for one in every]

    def texts(self, torch: Any, text: str) -> list[str]:
        """As numbers, so that nothing is unpickled from the network."""
        padded = text.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        mine = torch.tensor(list(padded), dtype=torch.uint8)
        every = [torch.zeros_like(mine) for _ in range(self.size)]
        self.dist.all_gather(every, mine)
        return [bytes(one.tolist()).rstrip(b"\0").decode(errors="replace") for one in every]

    def share(self, torch: Any, data: bytes) -> bytes:
        """By two broadcasts: how much, and what."""
        size = torch.tensor([len(data)])
        self.dist.broadcast(size, 0)
        if not int(size):
            return b""
        rank0 = self.rank == 0
        mine = torch.frombuffer(bytearray(data), dtype=torch.uint8) if rank0 else torch.empty(int(size)).byte()
        self.dist.broadcast(mine, 0)
        return bytes(mine.numpy())

    def even(self, model: Any) -> None:
        """By a broadcast of each."""
        for buffer in model.buffers():
            self.dist.broadcast(buffer, 0, group=self.group)

    def start(self, torch: Any, device: Any) -> None:
        """On GPUs with NCCL."""
        super().start(torch, device)
        if device.type == "cuda":
            self.group = self.dist.new_group(backend="nccl", timeout=self.limit)

    def wrap(self, torch: Any, model: Any, optimizer: Any) -> tuple[Any, Any]:
        """Gradients are averaged while the way back goes on."""
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=self.group)
        model.register_comm_hook(None, lambda _, bucket: self._average(bucket))  # torch looks at its annotations
        return model, optimizer

    def _average(self, bucket: Any) -> Any:
        """Average one bucket of gradients, as without a hook, and note when the last was complete on this rank."""
        self.last = self.clock.now()
        gradients = bucket.buffer().div_(self.size)
        work = self.dist.all_reduce(gradients, group=self.group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def backward(self, loss: Any, optimizer: Any) -> tuple[Any, Any]:
        """The way back, then the wait for all averages."""
        loss.backward()
        return self.last, self.clock.now()

    def close(self) -> None:
        """Leave the others."""
        self.dist.barrier()
        self.dist.destroy_process_group()


def leave(world: Alone) -> NoReturn:
    """The end of a rank that has said what it measured. At once: while an interpreter with torch ends, one of its
    threads sometimes ends it by SIGABRT (seen with 1.13, "terminate called without an active exception"), and a job
    that has done all its work has failed."""
    world.close()
    for child in multiprocessing.active_children():  # they read pictures
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def join(torch: Any, framework: str, meet: str, limit_s: int) -> Alone:
    """This rank's way to the others. `auto`: Horovod where it is installed, else torch's own."""
    if framework == "none":
        return Alone()
    if framework == "auto":
        framework = "horovod" if importlib.util.find_spec("horovod") else "ddp"
    return Horovod() if framework == "horovod" else Ddp(torch, meet, limit_s)


def nccl_settings(path: Path) -> dict[str, str]:
    """What NCCL is told on this node by its file; nothing where there is none, as where nothing was provisioned."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    told = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in told}


def take_device(transport: str, ends: str) -> None:
    """Tell Gloo, UCX and NCCL which interface, RDMA device and GID belong to this node's port of `ends`,
    INTERFACE@ADDRESS of each host.

    Before any of them starts. Fault in words where the port has no RDMA that works.
    """
    for end in ends.split(","):
        interface, _, address = end.partition("@")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            try:
                own.bind((address, 0))  # succeeds for an address of this node alone
            except OSError:
                continue
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        if transport == "tcp":
            return
        device = rdma.look(interface, address, transport)
        os.environ["UCX_NET_DEVICES"] = f"{device.name}:{device.port}"
        told = nccl_settings(NCCL_CONF)
        only = f"={device.name}"
        if told.get("NCCL_IB_HCA", only) in (only, f"{only}:{device.port}"):  # else all adapters of the fabric
            os.environ["NCCL_IB_HCA"] = f"{only}:{device.port}"
            if transport != "ib" and "NCCL_IB_GID_INDEX" not in told:
                os.environ["NCCL_IB_GID_INDEX"] = str(device.gid_index)
        if transport != "ib":
            os.environ["UCX_IB_GID_INDEX"] = str(device.gid_index)
        return
    raise SystemExit(f"{_who()}none of the fabric ports {ends} is on {socket.gethostname()}")


def _who() -> str:
    """What last words begin with before the ranks have met, by the launcher's word; "" without one."""
    told = next((os.environ[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ), "")
    return f"[rank {told} on {socket.gethostname()}] " if told else ""


def parser_of(description: str | None, models: Iterable[str] = NETWORKS, model: str = SMALL) -> argparse.ArgumentParser:
    """What every training program is asked."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--time-limit-s", type=int, required=True)
    parser.add_argument("--model", choices=sorted(models), default=model)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--device", choices=("any", "cpu", "gpu"), default="any")
    parser.add_argument("--framework", choices=("auto", "horovod", "ddp", "none"), default="auto")
    parser.add_argument("--meet", default="", help="of ddp: tcp://ADDRESS:PORT of rank 0; without it torchrun's")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of the environment, before torch loads")
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--ends", default="")
    return parser


def bind_rank(args: argparse.Namespace) -> None:
    """Bind this rank to its job and its node's port, before it loads what meets the others."""
    # A rank must not outlive its job: not its daemon's end on this node, nor a launcher that is out of reach.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.alarm(args.time_limit_s)
    os.environ.update(word.split("=", 1) for word in args.set)
    if args.ends:
        take_device(args.transport, args.ends)


def begin_rank(args: argparse.Namespace) -> Any:
    """Bind this rank; torch, before the rank meets the others."""
    bind_rank(args)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    torch: Any = importlib.import_module("torch")  # by name, for the controller that reads this file has it not
    torch.set_num_threads(1)
    return torch


def launcher() -> str:
    """What started this rank, by the environment that it has: torchrun, mpirun, or "" where nothing did."""
    known = {"TORCHELASTIC_RUN_ID": "torchrun", "OMPI_COMM_WORLD_SIZE": "mpirun"}
    return next((name for variable, name in known.items() if variable in os.environ), "")


def about(args: argparse.Namespace, torch: Any, world: Alone) -> dict[str, Any]:
    """What every report of a training says of its job."""
    return {
        "world_size": world.size,
        "model": args.model,
        "precision": args.precision,
        "batch": args.batch,
        "framework": world.name,
        "launcher": launcher(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "horovod": world.version if world.name == "horovod" else "",
    }


def sums_of(parameters: Any) -> list[float]:
    """The sum of each of torch's parameters."""
    return [float(p.detach().double().sum()) for p in parameters]


def agree(torch: Any, world: Alone, sums: list[float]) -> bool:
    """Whether all ranks ended with the same parameters, by the sum of each of them."""
    checks = world.gather(torch, sums)
    most = 1e-6 * max(map(abs, checks[0]))
    return all(abs(value - first) <= most for row in checks for value, first in zip(row, checks[0]))
