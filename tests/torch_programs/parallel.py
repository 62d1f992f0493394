"""Training in parallel, by DDP and by FSDP in both its forms. Lines as natively by gloo."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

NATIVE = os.environ.get("BACKEND") == "gloo"
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cpu") if NATIVE else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
STEPS = 4


def model() -> Any:
    """Small, with running statistics."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
        torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU()), torch.nn.Linear(32, 3),
    ).to(DEVICE)  # fmt: skip


def wrapped(kind: str) -> Any:
    """As the program wants it."""
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model(), device_ids=None if NATIVE else [DEVICE.index])
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model(), device_id=DEVICE, use_orig_params=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(DEVICE.type, (WORLD,))
    made = model()
    fully_shard(made[3], mesh=mesh)
    return fully_shard(made, mesh=mesh)


def train(kind: str) -> None:
    """Some steps; each rank has its part of the batch."""
    net = wrapped(kind)
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(5)
    for step in range(STEPS):
        x, y = torch.randn(12, 20, generator=data), torch.randint(0, 3, (12,), generator=data)
        optimiser.zero_grad()
        loss = functional.cross_entropy(net(x[RANK::WORLD].to(DEVICE)), y[RANK::WORLD].to(DEVICE))
        loss.backward()
        if kind != "fsdp1":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        print(f"line loss {step} {loss.item().hex()}", flush=True)
    state = net.state_dict()
    for name, value in state.items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        print(f"line {name} {whole.double().abs().sum().item().hex()}", flush=True)


def main() -> None:
    """One of them."""
    torch.set_num_threads(1)
    if not NATIVE:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("gloo" if NATIVE else "nccl")
    for kind in ("ddp", "fsdp1", "fsdp2"):
        print(f"line {kind}", flush=True)
        train(kind)
    dist.destroy_process_group()
    if NATIVE:
        os._exit(0)  # at the end of Python a thread of native gloo's ends the process by SIGABRT now and then


if __name__ == "__main__":
    main()
