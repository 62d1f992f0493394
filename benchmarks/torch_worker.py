"""One program of benchmarks/torch_engine.py, by whatever Python has torch: natively, or on a GPU of the engine `torch`.

    torch_worker.py mlp|resnet50|gpt|decode|loader|calls|copies [--core N] [--steps N] [--warm N] [--read-every N]

It prints one JSON document. Plain PyTorch, but for the counters of the engine, where it is one's client.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any


def counters() -> dict[str, int]:
    """Of the engine's client; {} natively."""
    try:
        from elastic_ai_torch import start
    except ImportError:
        return {}
    return dict(start.statistics())


def finished() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def mlp(device: str, steps: int) -> torch_steps.Step:
    """Batch 128."""
    return classifier(*torch_steps.perceptron(device), torch.randn(steps, 128, 784), device)


def resnet50(device: str, steps: int) -> torch_steps.Step:
    """4 images of 64 pixels."""
    return classifier(*torch_steps.resnet50(device, 10, 0.002), torch.randn(steps, 4, 3, 64, 64), device)


def classifier(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, device: str
) -> torch_steps.Step:
    labels = torch.randint(0, 10, inputs.shape[:2])
    return torch_steps.classifier(model, optimizer, lambda number: (inputs[number], labels[number]), device)


def loader(device: str, steps: int) -> torch_steps.Step:
    """A small network on 8 images of 128 pixels that a DataLoader pins: floats that have no shorter form."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(8 * steps, 3, 128, 128), torch.randint(0, 10, (8 * steps,))
    batches = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels), 8, pin_memory=device == "cuda", num_workers=1
    )
    ahead = iter(batches)
    return torch_steps.classifier(model, optimizer, lambda _: next(ahead), device)


def gpt(device: str, steps: int) -> torch_steps.Step:
    """4 layers, 128 wide, 8 rows of 64 bytes, AdamW, a schedule."""
    model = torch_steps.gpt(device, 128, 4, 4, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rows = torch.randint(0, 256, (steps, 8, 65))
    return torch_steps.language(model, optimizer, rows, device, after=schedule.step)


def decode(device: str, steps: int) -> torch_steps.Step:
    """A token of the same GPT for each step: the text grows, and each token is read."""
    return torch_steps.decoder(torch_steps.gpt(device, 128, 4, 4, 64), 1, device)


def trained(program: str, device: str, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each step and what a step asks for; the loss is read in every step, or every so many."""
    torch.manual_seed(0)
    count = options.warm + options.steps
    step = {"mlp": mlp, "resnet50": resnet50, "gpt": gpt, "decode": decode, "loader": loader}[program](device, count)
    torch.manual_seed(1)
    walls, cpus, losses, before = [], [], [], counters()
    for number in range(count):
        if number == options.warm:
            finished()
            before = counters()
        wall, cpu = time.perf_counter(), time.process_time()
        loss = step(number)
        losses.append(loss.item() if (number + 1) % options.read_every == 0 else loss)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    after = counters()  # before the wait for all of it, which no step asks for
    finished()
    read = [loss if isinstance(loss, float) else loss.item() for loss in losses]
    return {
        "step_s": walls[options.warm :],
        "cpu_s": cpus[options.warm :],
        "losses": [value.hex() for value in read],
        "per_step": {name: (after[name] - before[name]) / options.steps for name in before},
    }


def calls(device: str, options: argparse.Namespace) -> dict[str, Any]:
    """Microseconds of single operators: issued, of processor time here, and until all are done; and of waits."""
    x, y, a = torch.zeros(4, device=device), torch.ones(4, device=device), torch.ones(2, 2, device=device)
    weight = nn.Parameter(torch.ones(4, device=device))
    layer, image = nn.Conv2d(3, 4, 3).to(device), torch.ones(1, 3, 8, 8, device=device)
    every: dict[str, tuple[Callable[[], object], int]] = {
        "add_": (lambda: x.add_(y), 20000),
        "mul_ by a number": (lambda: x.mul_(1.0), 20000),
        "add": (lambda: x + y, 20000),
        "mm": (lambda: a @ a, 20000),
        "empty": (lambda: torch.empty(4, device=device), 20000),
        "view": (lambda: x.view(2, 2), 20000),
        "conv2d": (lambda: layer(image), 4000),
    }
    told = {}
    with torch.no_grad():
        for name, (call, count) in every.items():
            told[name] = timed(call, count)
    told["mul with autograd"] = timed(lambda: weight * y, 20000)
    waits = {"synchronize_us": [], "item_us": []}
    for _ in range(400):
        began = time.perf_counter()
        finished()
        middle = time.perf_counter()
        x.sum().item()
        waits["synchronize_us"].append((middle - began) * 1e6)
        waits["item_us"].append((time.perf_counter() - middle) * 1e6)
    return {"calls": told, **{name: statistics.median(each) for name, each in waits.items()}}


def timed(call: Callable[[], object], count: int) -> dict[str, float]:
    for _ in range(300):
        call()
    finished()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        call()
    issued, spent = time.perf_counter() - wall, time.process_time() - cpu
    finished()
    done = time.perf_counter() - wall
    return {"issued_us": issued / count * 1e6, "cpu_us": spent / count * 1e6, "done_us": done / count * 1e6}


def copies(device: str, options: argparse.Namespace) -> dict[str, Any]:
    """GB/s of copies of 64 MiB up and down; what came back is held against what was sent."""
    size = 64 << 20
    data = torch.arange(size // 4, dtype=torch.int32)
    there = torch.empty_like(data, device=device)
    up, down = [], []
    for number in range(options.steps + 1):
        data.add_(1)
        began = time.perf_counter()
        there.copy_(data)
        finished()
        middle = time.perf_counter()
        back = there.cpu()
        if number:
            up.append(size / (middle - began) / 1e9)
            down.append(size / (time.perf_counter() - middle) / 1e9)
        if not torch.equal(back, data):
            raise SystemExit("what came back is not what was sent")
    return {"up_gb_s": up, "down_gb_s": down}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=["mlp", "resnet50", "gpt", "decode", "loader", "calls", "copies"])
    parser.add_argument("--core", type=int, default=-1, help="run on this processor")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--read-every", type=int, default=1)
    options = parser.parse_args()
    if options.core >= 0:
        os.sched_setaffinity(0, {options.core})
    global torch, nn, torch_steps
    import torch
    import torch_steps
    from torch import nn

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = {"calls": calls, "copies": copies}.get(options.program)
    found = made(device, options) if made else trained(options.program, device, options)
    name = torch.cuda.get_device_name() if device == "cuda" else "processor"
    print(json.dumps({"device": device, "name": name, "torch": torch.__version__, **found}))


if __name__ == "__main__":
    main()
