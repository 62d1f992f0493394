"""Trains a small GPT on the text of this file, byte by byte, and lets it write: ordinary PyTorch, no download.

    python gpt.py --steps 100 --write 200

The text goes up with each batch; the loss is read after each step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    """Causal attention and a feed-forward network, each with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        q, k, v = (
            part.view(count, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(count, length, width)))
        return x + self.dropout(self.feed(self.norm2(x)))


class GPT(nn.Module):
    """Predicts the next byte."""

    def __init__(self, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.out(self.norm(self.layers(self.bytes(x) + self.places(places))))

    @torch.no_grad()
    def write(self, start: torch.Tensor, count: int) -> str:
        """Goes on from `start` by the likeliest byte each time."""
        self.eval()
        text = start[None]
        for _ in range(count):
            text = torch.cat([text, self(text[:, -self.length :])[:, -1].argmax(-1, keepdim=True)], dim=1)
        return bytes(text[0].tolist()).decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=64, help="bytes that it looks back")
    parser.add_argument("--write", type=int, default=0, help="bytes that it writes after training")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"device {device}", flush=True)
    text = torch.tensor(list(Path(__file__).read_bytes()))
    model = GPT(options.width, 4, options.layers, options.length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    draw = torch.Generator().manual_seed(
        options.seed
    )  # of the text's places; dropout draws on the device, from its own
    torch.manual_seed(options.seed)

    for step in range(1, options.steps + 1):
        begins = torch.randint(0, len(text) - options.length - 1, (options.batch,), generator=draw)
        rows = torch.stack([text[i : i + options.length + 1] for i in begins]).to(device)
        optimizer.zero_grad(set_to_none=True)
        guess = model(rows[:, :-1])
        loss = functional.cross_entropy(guess.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        value = loss.item()
        print(f"loss {value.hex()} {value:.6f} step {step}", flush=True)
    if options.write:
        print(model.write(text[: options.length].to(device), options.write))


if __name__ == "__main__":
    main()
