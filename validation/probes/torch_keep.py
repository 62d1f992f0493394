"""The checkpoint of torch_load.py: written by torch.save when the program is told to end, and trained on from.

As any PyTorch program keeps its work: the network, the optimiser, the losses so far, the random generators. It is
written aside and renamed. GPU servers are given it as text, so that it imports nothing but torch.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

TOLD = 3  # exit code of a program that kept its work, as elastic-ai-train's
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # what `toolkit run` sends before a lease ends


class Keeper:
    """Whether somebody told the program to end, and its file."""

    def __init__(self, path: Path | None) -> None:
        """Listen, where there is a file to keep the work in."""
        self.path = path
        self.told_s: float | None = None
        self.told_by = ""
        for number in SIGNALS if path else ():
            signal.signal(number, self._hear)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self.told_s, self.told_by = time.monotonic(), signal.Signals(number).name
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def rest(self, seconds: float) -> None:
        """Sleep, no longer than until somebody tells."""
        until = time.monotonic() + seconds
        while self.told_s is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def resume(self, load: Any) -> list[float]:
        """The losses of a checkpoint that is there, whose network and optimiser are loaded; else none."""
        if self.path is None or not self.path.exists():
            return []
        kept = torch.load(self.path, map_location="cpu", weights_only=True)
        for device, net, optimiser in zip(load.devices, load.nets, load.optimisers):
            net.load_state_dict(kept["network"])
            optimiser.load_state_dict(kept["optimiser"])
            net.to(device)
        torch.set_rng_state(kept["random"])
        if load.far and kept["random_there"] is not None:
            torch.cuda.set_rng_state(kept["random_there"])
        return [float(loss) for loss in kept["losses"]]

    def save(self, load: Any, losses: list[float]) -> dict[str, Any] | None:
        """Keep the work of a program that was told to end: steps, bytes, seconds; None where nobody told."""
        if self.path is None or self.told_s is None:
            return None
        began = time.monotonic()
        kept = {
            "network": {key: value.cpu() for key, value in load.nets[0].state_dict().items()},
            "optimiser": load.optimisers[0].state_dict(),
            "losses": losses,
            "random": torch.get_rng_state(),
            "random_there": torch.cuda.get_rng_state() if load.far else None,
        }
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        try:
            torch.save(kept, aside)
            with aside.open("rb") as handle:
                os.fsync(handle.fileno())
            aside.replace(self.path)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
        ended = time.monotonic()
        size = self.path.stat().st_size
        return {"steps": len(losses), "bytes": size, "seconds": ended - began, "saved_s": max(ended, self.told_s)}
