"""One rank of benchmarks/torch_several.py: DDP natively by gloo, or on a leased GPU by "nccl". Plain PyTorch.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=N torch_several_worker.py mlp|gpt|resnet50 [--steps N]

It prints one JSON document. With --marks it also prints `mark` before the first timed step and after the last, and
waits for a line of input each time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.sched_setaffinity(0, {int(os.environ["RANK"]) % (os.cpu_count() or 1)})  # before torch counts processors

import sys  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch_steps  # noqa: E402

WARM = 3


def stepping(program: str, device: str, count: int) -> torch_steps.Step:
    """A step of the program, its gradients the mean of all ranks'."""
    rank = dist.get_rank()
    if program == "gpt":
        model = DistributedDataParallel(torch_steps.gpt(device, 128, 4, 4, 64))
        torch.manual_seed(10 + rank)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        return torch_steps.language(model, optimizer, torch.randint(0, 256, (count, 8, 65)), device)
    if program == "mlp":
        (model, optimizer), shape = torch_steps.perceptron(device), (count, 128, 784)
    else:
        (model, optimizer), shape = torch_steps.resnet50(device, 10, 0.002), (count, 4, 3, 64, 64)
    torch.manual_seed(10 + rank)
    inputs, labels = torch.randn(shape), torch.randint(0, 10, shape[:2])
    both = DistributedDataParallel(model)
    return torch_steps.classifier(both, optimizer, lambda number: (inputs[number], labels[number]), device)


def mark() -> None:
    print("mark", flush=True)
    sys.stdin.readline()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["mlp", "gpt", "resnet50"])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--marks", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    there = torch.cuda.is_available()
    if there:
        torch.cuda.set_device(int(os.environ["RANK"]))
    dist.init_process_group("nccl" if there else "gloo")
    torch.manual_seed(0)
    count = WARM + options.steps
    step = stepping(options.program, "cuda" if there else "cpu", count)
    torch.manual_seed(1)  # dropout draws from here on, on the device or on the processor
    walls, losses = [], []
    for number in range(count):
        if number == WARM and options.marks:
            mark()
        began = time.perf_counter()
        losses.append(step(number).item())
        walls.append(time.perf_counter() - began)
    if options.marks:
        mark()
    dist.barrier()
    print(json.dumps({"step_s": walls[WARM:], "losses": [loss.hex() for loss in losses]}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
