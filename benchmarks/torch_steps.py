"""Steps that torch_worker.py and torch_gpu_worker.py time: plain PyTorch, a number in, what is read out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
Step = Callable[[int], torch.Tensor]


def perceptron(device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """784-512-512-10 with dropout, SGD."""
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    ).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def resnet50(device: str, classes: int, rate: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """ResNet-50 of examples/resnet.py, SGD with momentum and decay."""
    import resnet

    model = resnet.resnet((3, 4, 6, 3), classes=classes).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)


def classifier(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Callable[[int], Iterable[torch.Tensor]],
    device: str,
    bf16: bool = False,
) -> Step:
    """A batch of inputs and labels, which are copied without a wait."""

    def step(number: int) -> torch.Tensor:
        x, y = (one.to(device, non_blocking=True) for one in batch(number))
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def gpt(device: str, width: int, layers: int, heads: int, length: int) -> Any:
    """The GPT of examples/gpt.py."""
    import gpt as example

    return example.GPT(width, layers, heads, length).to(device)


def language(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: torch.Tensor,
    device: str,
    bf16: bool = False,
    after: Callable[[], object] = lambda: None,
) -> Step:
    """Rows of bytes, the next of each learned; gradients are clipped."""

    def step(number: int) -> torch.Tensor:
        row = rows[number].to(device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = functional.cross_entropy(model(row[:, :-1]).flatten(0, 1).float(), row[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        after()
        return loss

    return step


def decoder(model: nn.Module, begin: int, device: str) -> Step:
    """A token for each step of a text that is so long at first, over its last 64."""
    model.eval()
    text = [torch.zeros(1, begin, dtype=torch.long, device=device)]

    @torch.no_grad()
    def step(number: int) -> torch.Tensor:
        token = model(text[0][:, -64:])[:, -1].argmax(-1, keepdim=True)
        text[0] = torch.cat([text[0], token], dim=1)
        return token.float()

    return step
