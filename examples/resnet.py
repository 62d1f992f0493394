"""Trains a ResNet on images made from a seed: ordinary PyTorch, no download, nothing that knows where the GPU is.

    python resnet.py --steps 20

Each line has the loss as a number and as its exact bits (float.hex): two runs with the same bits computed the same.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn


class Block(nn.Module):
    """Three convolutions with a shortcut: ResNet's bottleneck."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.layers(x) + self.shortcut(x))


def resnet(blocks: tuple[int, ...], classes: int) -> nn.Sequential:
    """ResNet-50 with blocks (3, 4, 6, 3)."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]  # fmt: skip
    inside = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for number in range(count):
            layers.append(Block(inside, width, 2 if stage and not number else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=64, help="pixels on a side")
    parser.add_argument("--depth", type=int, choices=(26, 50, 101), default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read-every", type=int, default=1, help="read the loss every so many steps")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"device {device}", f"({torch.cuda.get_device_name()})" if device == "cuda" else "", flush=True)
    blocks = {26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}[options.depth]
    model = resnet(blocks, classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(4 * options.batch, 3, options.size, options.size)
    labels = torch.randint(0, 10, (4 * options.batch,))

    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        batch = torch.arange(options.batch) + (step % 4) * options.batch
        x, y = images[batch].to(device, non_blocking=True), labels[batch].to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % options.read_every == 0 or step == options.steps:
            value = loss.item()  # waits until the GPU has come this far
            print(f"loss {value.hex()} {value:.6f} step {step}", flush=True)
    seconds = time.perf_counter() - began
    print(f"{options.steps * options.batch / seconds:.1f} images/s")


if __name__ == "__main__":
    main()
