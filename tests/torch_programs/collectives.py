"""Every collective of torch.distributed, and what each rank has of it; `lines` are the same natively by gloo."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

NATIVE = os.environ.get("BACKEND") == "gloo"
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cpu") if NATIVE else torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def tell(name: str, *tensors: Any) -> None:
    """A line of this rank."""
    values = [t.detach().cpu().to(torch.float64).flatten().tolist() for t in tensors]
    text = " ".join(float(v).hex() for one in values for v in one)
    print(f"line {name} {text if len(text) < 400 else hashlib.sha256(text.encode()).hexdigest()}", flush=True)


def own(count: int = 6, dtype: torch.dtype = torch.float32) -> Any:
    """Numbers that are this rank's."""
    made = torch.randn(count, generator=torch.Generator().manual_seed(RANK + 1)) * 10
    return made.to(dtype).to(DEVICE)


def reductions() -> None:
    """Sums and others, of several types."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        for operation in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            x = own(dtype=dtype) if dtype != torch.uint8 else own().abs().to(dtype)
            dist.all_reduce(x, operation)
            tell(f"all_reduce {dtype} {str(operation).rpartition('.')[2]}", x)
    x = own()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    tell("mean", x)
    x = own()
    dist.reduce(x, WORLD - 1)
    tell("reduce", *([x] if RANK == WORLD - 1 else []))
    into = torch.empty(3, device=DEVICE)
    dist.reduce_scatter_tensor(into, own(3 * WORLD))
    tell("reduce_scatter_tensor", into)
    dist.reduce_scatter(into, list(own(3 * WORLD).chunk(WORLD)))
    tell("reduce_scatter", into)
    flags = own() > 0
    if not NATIVE:
        dist.all_reduce(flags, dist.ReduceOp.SUM)
    else:
        numbers = flags.to(torch.uint8)
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        flags = numbers.bool()
    tell("truth", flags)


def movements() -> None:
    """Bytes from rank to rank."""
    x = own()
    dist.broadcast(x, 1)
    tell("broadcast", x)
    flags = own() > 0
    dist.broadcast(flags, 0)
    tell("broadcast of truth", flags)
    rows = [torch.empty(6, device=DEVICE) for _ in range(WORLD)]
    dist.all_gather(rows, own())
    tell("all_gather", *rows)
    whole = torch.empty(6 * WORLD, device=DEVICE)
    dist.all_gather_into_tensor(whole, own())
    tell("all_gather_into_tensor", whole)
    dist.gather(own(), rows if RANK == 0 else None, dst=0)
    tell("gather", *(rows if RANK == 0 else []))
    x = torch.empty(6, device=DEVICE)
    dist.scatter(x, [own() + i for i in range(WORLD)] if RANK == 1 else None, src=1)
    tell("scatter", x)
    if WORLD == 2:
        there = torch.empty(3 - RANK, 2, device=DEVICE)  # rank 0 gets two rows and one, rank 1 one and one
        dist.all_to_all_single(there, own(6).view(3, 2) if RANK == 0 else own(4).view(2, 2), *SPLITS[RANK])
        tell("all_to_all_single", there)
    dist.all_to_all(rows, [own() + i for i in range(WORLD)])
    tell("all_to_all", *rows)
    following, before = (RANK + 1) % WORLD, (RANK - 1) % WORLD
    x = torch.empty(6, device=DEVICE)
    for work in [dist.irecv(x, before), dist.isend(own(), following)]:
        work.wait()
    tell("isend", x)
    if RANK == 0:
        dist.send(own(), 1, tag=7)
    elif RANK == 1:
        dist.recv(x, 0, tag=7)
    tell("send", x)
    parts = [dist.P2POp(dist.isend, own(), following), dist.P2POp(dist.irecv, x, before)]
    for work in dist.batch_isend_irecv(parts):
        work.wait()
    tell("batch_isend_irecv", x)


SPLITS = {0: ([2, 1], [2, 1]), 1: ([1, 1], [1, 1])}


def handles() -> None:
    """Begun, waited for later; groups; objects."""
    xs = [own(1000) * (i + 1) for i in range(4)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    y = own() * 2  # computes meanwhile
    for work in works:
        work.wait()
    assert all(work.is_completed() for work in works)
    tell("async", y, *xs)
    with_future = dist.all_reduce(own(), async_op=True).get_future().wait()
    tell("future", with_future[0])
    alone = [dist.new_group([rank]) for rank in range(WORLD)]
    other = dist.new_group(list(range(WORLD)))
    x = own()
    dist.all_reduce(x, group=alone[RANK])
    dist.all_reduce(x, group=other)
    tell("groups", x)
    objects: list[Any] = [None] * WORLD
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * RANK})
    sent = [f"of {RANK}", [RANK]]
    dist.broadcast_object_list(sent, src=WORLD - 1)
    print(f"line objects {objects} {sent}", flush=True)
    dist.barrier()
    dist.destroy_process_group(other)


def main() -> None:
    """All of them."""
    torch.set_num_threads(1)
    if not NATIVE:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("gloo" if NATIVE else "nccl")
    assert dist.get_backend() == ("gloo" if NATIVE else "nccl")
    reductions()
    movements()
    handles()
    dist.barrier()
    dist.destroy_process_group()
    if NATIVE:
        sys.stdout.flush()
        os._exit(0)  # at the end of Python a thread of native gloo's ends the process by SIGABRT now and then


if __name__ == "__main__":
    main()
