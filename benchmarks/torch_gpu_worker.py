"""One program of benchmarks/torch_gpu.py: plain PyTorch on `cuda`; prints one JSON document."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch
import torch_steps

WARM, STEPS, BATCH = 8, 30, 64


def resnet(kind: str) -> torch_steps.Step:
    """64 images of 224 pixels; every fourth batch is another one."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model, optimizer = torch_steps.resnet50("cuda", 1000, 0.01)
    images = torch.randint(0, 256, (4, BATCH, 3, 224, 224), dtype=torch.uint8).float()
    inputs = (images / 255 - 0.45) / 0.225 if kind == "images" else torch.randn(4, BATCH, 3, 224, 224)
    labels = torch.randint(0, 1000, (4, BATCH))

    def batches() -> Any:
        while True:
            yield from zip(inputs, labels, strict=True)

    source: Any = batches()
    if kind in ("pinned", "images"):
        data = torch.utils.data.TensorDataset(inputs.flatten(0, 1).repeat(10, 1, 1, 1), labels.flatten().repeat(10))
        source = iter(torch.utils.data.DataLoader(data, BATCH, pin_memory=True, num_workers=4))
    return torch_steps.classifier(model, optimizer, lambda _: next(source), "cuda", kind == "bf16")


def gpt(kind: str) -> torch_steps.Step:
    """12 layers, 768 wide, 8 rows of 512 bytes."""
    model = torch_steps.gpt("cuda", 768, 12, 12, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    rows = torch.randint(0, 256, (WARM + STEPS, 8, 513))
    return torch_steps.language(model, optimizer, rows, "cuda", kind == "bf16")


def decode(_: str) -> torch_steps.Step:
    """A token a step of the same GPT over its last 64 bytes."""
    return torch_steps.decoder(torch_steps.gpt("cuda", 768, 12, 12, 512), 64, "cuda")


def mlp(_: str) -> torch_steps.Step:
    """Batch 128."""
    model, optimizer = torch_steps.perceptron("cuda")
    inputs, labels = torch.randn(WARM + STEPS, 128, 784), torch.randint(0, 10, (WARM + STEPS, 128))
    return torch_steps.classifier(model, optimizer, lambda number: (inputs[number], labels[number]), "cuda")


def trained(step: torch_steps.Step, every: int) -> dict[str, Any]:
    """Its steps, the loss read every so many."""
    losses = []
    cpu = began = 0.0
    for number in range(WARM + STEPS):
        if number == WARM:
            torch.cuda.synchronize()
            began, cpu = time.perf_counter(), time.process_time()
        losses.append(step(number).detach())
        if number % every == every - 1:
            losses[-1].item()
    torch.cuda.synchronize()
    wall, spent = time.perf_counter() - began, time.process_time() - cpu
    return {
        "ms": round(wall / STEPS * 1e3, 2),
        "cpu_ms": round(spent / STEPS * 1e3, 2),
        "losses": [one.item().hex() for one in losses],
    }


def copies() -> dict[str, Any]:
    """64 MiB up and down, pageable and pinned, GB/s; the first touch of 8 GiB, s; a wait, us."""
    told: dict[str, Any] = {}
    for name in ("pageable", "pinned"):
        data = torch.randn(1 << 24)
        back = torch.empty_like(data)
        if name == "pinned":
            data, back = data.pin_memory(), back.pin_memory()
        there = torch.empty(1 << 24, device="cuda")
        up, down = [], []
        for _ in range(8):
            data.add_(1)
            torch.cuda.synchronize()
            began = time.perf_counter()
            there.copy_(data, non_blocking=True)
            torch.cuda.synchronize()
            middle = time.perf_counter()
            back.copy_(there)
            torch.cuda.synchronize()
            up.append((1 << 26) / (middle - began) / 1e9)
            down.append((1 << 26) / (time.perf_counter() - middle) / 1e9)
        assert torch.equal(back, data)
        told[name] = {"up_gb_s": round(statistics.median(up), 2), "down_gb_s": round(statistics.median(down), 2)}
    began = time.perf_counter()
    torch.empty(1 << 31, device="cuda")
    torch.cuda.synchronize()
    told["empty_8gib_s"] = round(time.perf_counter() - began, 4)
    x, waits, items = torch.ones(4, device="cuda"), [], []
    for _ in range(300):
        began = time.perf_counter()
        torch.cuda.synchronize()
        middle = time.perf_counter()
        x.sum().item()
        waits.append(middle - began)
        items.append(time.perf_counter() - middle)
    told["synchronize_us"] = round(statistics.median(waits) * 1e6, 1)
    told["item_us"] = round(statistics.median(items) * 1e6, 1)
    return told


def main() -> None:
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    name, _, kind = sys.argv[1].partition("-")
    if name == "copies":
        print(json.dumps(copies()))
        return
    step = {"resnet50": resnet, "gpt": gpt, "decode": decode, "mlp": mlp}[name](kind)
    torch.manual_seed(1)
    print(json.dumps(trained(step, 10 if name == "resnet50" else 1)))


main()
