"""Trains in mixed precision, with scaled gradients that are gathered over several batches: ordinary PyTorch.

    python amp.py --steps 20

On a GPU it computes in float16; without one in bfloat16, so the losses of the two are not the same bits.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gather", type=int, default=2, help="batches for each step of the optimiser")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"device {device}", flush=True)
    half = torch.float16 if device == "cuda" else torch.bfloat16
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
    images, labels = torch.randn(4, 16, 3, 32, 32), torch.randint(0, 10, (4, 16))

    for step in range(1, options.steps + 1):
        for part in range(options.gather):
            x, y = images[(step + part) % 4].to(device), labels[(step + part) % 4].to(device)
            with torch.autocast(device, dtype=half):
                loss = nn.functional.cross_entropy(model(x), y) / options.gather
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        value = loss.item()
        print(
            f"loss {value.hex()} {value:.6f} norm {norm.item():.4f} scale {scaler.get_scale():g} step {step}",
            flush=True,
        )


if __name__ == "__main__":
    main()
