"""Many small files: how fast this node makes, opens, lists and removes them, one after another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from validation.probes.tool import Stopped, stopped

PHASE_S = 10.0  # after that a phase ends with what it has done
PHASES = ("create", "open", "list", "remove")
_MODE = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def _until(names: Iterable[str], do: Callable[[str], None]) -> tuple[int, float]:
    """How many were done, and in how many seconds."""
    begin, done = time.perf_counter(), 0
    for name in names:
        do(name)
        done += 1
        if done % 64 == 0:
            if stopped():
                raise Stopped
            if time.perf_counter() - begin > PHASE_S:
                break
    return done, time.perf_counter() - begin


def _create(name: str) -> None:
    os.close(os.open(name, _MODE, 0o600))


def _open(name: str) -> None:
    """Opened, not only asked for: a node's cache answers what is only asked for."""
    file = os.open(name, os.O_RDONLY)
    os.fstat(file)
    os.close(file)


def measure(folder: Path, files: int) -> dict[str, Any]:
    """Count and seconds of each of PHASES; `folders`: the same of folders that were made."""
    here = folder / "files"
    here.mkdir()
    names = [f"{here}/{number:07d}" for number in range(files)]
    found: dict[str, Any] = {"files": files}

    def keep(phase: str, count: int, seconds: float) -> None:
        found[phase] = {"count": count, "seconds": round(seconds, 6), "per_s": count / max(round(seconds, 6), 1e-6)}

    done, took = _until(names, _create)
    keep("create", done, took)
    made = names[:done]
    keep("open", *_until(made, _open))
    begin = time.perf_counter()
    with os.scandir(here) as entries:
        listed = sum(1 for _ in entries)
    keep("list", listed, time.perf_counter() - begin)
    keep("remove", *_until(made, os.unlink))
    return found
