"""The training program of training_short: Horovod and PyTorch, a small CNN on synthetic images, one process a rank.

Synthetic images as in the reference architecture's benchmark: what is measured is compute and the all-reduce of the
gradients, not storage. Every rank trains on a batch of its own, of images that are a common pattern for each class
plus noise, so that the loss must fall with any number of ranks. Rank 0 prints one line of JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import math
import os
import platform
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

IMAGE = (3, 32, 32)
CLASSES = 10
NAME_BYTES = 64
NOISE = 0.5  # standard deviation; that of the patterns is 1
LEARNING_RATE = 0.01
PR_SET_PDEATHSIG = 1


def build(torch: Any) -> Any:
    """109 698 parameters: two convolutions and two full layers, float32."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(IMAGE[0], 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 200),
        nn.ReLU(),
        nn.Linear(200, CLASSES),
    )


def gather_names(torch: Any, hvd: Any, name: str) -> list[str]:
    """The host name of every rank, in rank order; as tensors, so that nothing is unpickled from the network."""
    padded = name.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")
    rows = hvd.allgather(torch.tensor([list(padded)], dtype=torch.uint8), name="hosts")
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in rows]


def train(args: argparse.Namespace, torch: Any, hvd: Any) -> dict[str, Any]:
    """Run all steps on this rank and gather what the ranks measured; the same dictionary on every rank."""
    torch.manual_seed(99)
    patterns = torch.randn(CLASSES, *IMAGE)  # the same on every rank
    torch.manual_seed(1234 + hvd.rank())
    labels = torch.arange(args.batch) % CLASSES
    images = patterns[labels] + NOISE * torch.randn(args.batch, *IMAGE)
    model = build(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    loss_function = torch.nn.CrossEntropyLoss()

    losses, seconds = [], []
    for _ in range(args.warmup + args.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()  # waits for the all-reduce, so that no rank runs ahead by more than a step
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)

    # The job is as fast as its slowest rank: per step the largest time over all ranks.
    every = hvd.allgather(torch.tensor([seconds[args.warmup :]], dtype=torch.float64), name="seconds")
    slowest = every.max(dim=0).values.tolist()
    mean = hvd.allreduce(torch.tensor(losses, dtype=torch.float64), name="losses").tolist()
    sums = torch.tensor([[float(p.double().sum()) for p in model.parameters()]], dtype=torch.float64)
    checks = hvd.allgather(sums, name="parameters")
    return {
        "world_size": hvd.size(),
        "hosts": gather_names(torch, hvd, socket.gethostname()),
        "batch": args.batch,
        "warmup": args.warmup,
        "steps": args.steps,
        "step_s": [round(s, 6) for s in slowest],
        "images_per_s": [round(args.batch * hvd.size() / s, 3) for s in slowest],
        "losses": [round(value, 5) for value in mean],
        "loss_first": mean[0],
        "loss_last": mean[-1],
        "loss_finite": all(math.isfinite(value) for value in mean),
        "ranks_agree": bool((checks - checks[0]).abs().max() <= 1e-6 * checks[0].abs().max()),
        "parameters": sum(p.numel() for p in model.parameters()),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def take_device(transport: str, ends: str) -> None:
    """Tell UCX and NCCL which RDMA device and GID belong to this node's port of `ends`, INTERFACE@ADDRESS of each host.

    Before either of them starts, which is with Horovod. Fault in words where the port has no RDMA that works.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are
    from validation.probes import rdma

    for end in ends.split(","):
        interface, _, address = end.partition("@")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            try:
                own.bind((address, 0))  # succeeds for an address of this node alone
            except OSError:
                continue
        device = rdma.look(interface, address, transport)
        os.environ["UCX_NET_DEVICES"] = f"{device.name}:{device.port}"
        os.environ["NCCL_IB_HCA"] = f"={device.name}:{device.port}"
        if transport != "ib":
            os.environ["UCX_IB_GID_INDEX"] = os.environ["NCCL_IB_GID_INDEX"] = str(device.gid_index)
        return
    raise SystemExit(f"none of the fabric ports {ends} is on {socket.gethostname()}")


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--time-limit-s", type=int, required=True)
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--ends", default="")
    args = parser.parse_args()
    # A rank must not outlive its job: not its daemon's end on this node, nor a launcher that is out of reach.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.alarm(args.time_limit_s)

    if args.transport != "tcp":
        take_device(args.transport, args.ends)

    # By name, for the controller that reads this file has neither of them.
    torch: Any = importlib.import_module("torch")
    hvd: Any = importlib.import_module("horovod.torch")
    torch.set_num_threads(1)
    hvd.init()
    report = train(args, torch, hvd)
    report["horovod"] = importlib.import_module("horovod").__version__
    if hvd.rank() == 0:
        print(json.dumps(report), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
