"""The checkpoint of a program that remoting is measured by: written when it is told to end, and trained on from.

What is in it is the framework's: `write` and `restore` of the load. It is written aside and renamed. GPU servers are
given it as text, so that it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

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
        """The losses of a checkpoint that is there, from which the load goes on; else none."""
        if self.path is None or not self.path.exists():
            return []
        return [float(loss) for loss in load.restore(self.path)]

    def save(self, load: Any, losses: list[float]) -> dict[str, Any] | None:
        """Keep the work of a program that was told to end: steps, bytes, seconds; None where nobody told."""
        if self.path is None or self.told_s is None:
            return None
        began = time.monotonic()
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        try:
            load.write(aside, losses)
            with aside.open("rb") as handle:
                os.fsync(handle.fileno())
            aside.replace(self.path)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
        ended = time.monotonic()
        size = self.path.stat().st_size
        return {"steps": len(losses), "bytes": size, "seconds": ended - began, "saved_s": max(ended, self.told_s)}
