"""Trains with a loader of several processes and pinned memory, keeps a checkpoint, and goes on from it.

    python resume.py --keep work.pt            # SIGTERM: it finishes its step, saves and ends with 3
    python resume.py --keep work.pt            # the same command goes on

The losses are those of a training that nobody interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TO_BE_CONTINUED = 3


class Spirals(Dataset):
    """Points of two spirals; each is made from its number, in whatever process asks for it."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        draw = torch.Generator().manual_seed(number)
        arm, turn = number % 2, 6 * torch.rand(1, generator=draw)
        angle = turn + 3.14159 * arm
        point = turn * torch.cat([angle.cos(), angle.sin()])
        return point + 0.1 * torch.randn(2, generator=draw), arm


def save(path: Path, **what: object) -> None:
    """Whole or not at all."""
    torch.save(what, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path("work.pt"))
    parser.add_argument("--stop-after", type=int, default=0, help="end after so many steps, as on SIGTERM")
    options = parser.parse_args()

    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"device {device}", flush=True)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    epoch = done = steps = 0
    if options.keep.exists():
        kept = torch.load(options.keep, map_location=device)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        epoch, done = kept["epoch"], kept["done"]
        print(f"goes on at epoch {epoch}, step {done}", flush=True)

    while epoch < options.epochs:
        order = torch.Generator().manual_seed(epoch)
        loader = DataLoader(
            Spirals(), batch_size=128, shuffle=True, generator=order, num_workers=options.workers,
            pin_memory=device == "cuda",
        )  # fmt: skip
        for number, (points, arms) in enumerate(loader, start=1):
            if number <= done:
                continue
            points, arms = points.to(device, non_blocking=True), arms.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points), arms)
            loss.backward()
            optimizer.step()
            value = loss.item()
            print(f"loss {value.hex()} {value:.6f} epoch {epoch} step {number}", flush=True)
            steps += 1
            if told or steps == options.stop_after:
                save(options.keep, model=model.state_dict(), optimizer=optimizer.state_dict(), epoch=epoch, done=number)
                sys.exit(TO_BE_CONTINUED)
        epoch, done = epoch + 1, 0
        save(options.keep, model=model.state_dict(), optimizer=optimizer.state_dict(), epoch=epoch, done=0)


if __name__ == "__main__":
    main()
