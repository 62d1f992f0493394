"""What elastic-ai-train keeps of its work: one small file, from which the same command goes on to the same losses.

A line of JSON (what it is of, how far it came, size and SHA-256 of what follows), then weights and last moves
(float32) and the losses so far (float64), in this machine's order of bytes. It is written aside and renamed, so that
the name has either all of it or what was there before, whatever is killed when, power cuts included.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from array import array
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

TOLD, INTERRUPTED = 3, 128 + signal.SIGINT  # exit codes of a training that kept its work: asked to end, or Ctrl-C
#: What `toolkit run` sends before a lease ends (TERM, or by --signal), and Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
FORMAT = 1
LONGEST_LINE = 1 << 16
FLOAT, DOUBLE = 4, 8  # bytes


class NotKept(Exception):
    """A checkpoint that cannot be read, written or continued; in words."""


@dataclass
class State:
    """A training after `len(losses)` steps."""

    weights: bytes
    moved: bytes
    losses: list[float] = field(default_factory=list)


@dataclass
class Told:
    """Whether somebody told the program to end, and when by the monotonic clock."""

    at_s: float | None = None
    signal: str = ""

    def listen(self) -> None:
        """From now on these signals end nothing by themselves, but the first is noted; the second ends the program."""
        for number in SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self.at_s, self.signal = time.monotonic(), signal.Signals(number).name
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def rest(self, seconds: float) -> None:
        """Sleep, no longer than until somebody tells."""
        until = time.monotonic() + seconds
        while self.at_s is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))


def writable(path: Path) -> None:
    """NotKept where no checkpoint could be written to this path."""
    if path.is_dir():
        raise NotKept(f"--keep {path}: a folder; give the name of a file")
    trial = _aside(path)
    try:
        trial.touch()
        trial.unlink()
    except OSError as fault:
        raise NotKept(f"--keep {path}: nothing can be written to {path.parent}: {fault.strerror}") from None


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def save(path: Path, state: State, of: Mapping[str, Any]) -> int:
    """Its size in bytes; NotKept where it cannot be written: what was there before stays."""
    data = state.weights + state.moved + array("d", state.losses).tobytes()
    about = {
        "elastic-ai-train": FORMAT,
        "order": sys.byteorder,
        "steps": len(state.losses),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "of": dict(of),
    }
    whole = json.dumps(about).encode() + b"\n" + data
    aside = _aside(path)
    try:
        with aside.open("wb") as file:
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as fault:
        with suppress(OSError):
            aside.unlink()
        raise NotKept(f"--keep {path}: the checkpoint cannot be written: {fault.strerror}") from None
    return len(whole)


def load(path: Path, of: Mapping[str, Any]) -> State | None:
    """What is kept there, None where there is no such file; NotKept where it is damaged or of another training."""
    try:
        with path.open("rb") as file:
            line, data = file.readline(LONGEST_LINE), file.read()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise NotKept(f"--keep {path}: cannot be read: {fault.strerror}") from None
    try:
        about = json.loads(line)
        kind, steps, size, digest = (about[key] for key in ("elastic-ai-train", "steps", "bytes", "sha256"))
        was, order, weights = dict(about["of"]), about["order"], int(about["of"]["weights"]) * FLOAT
        whole = len(data) == size == 2 * weights + steps * DOUBLE and hashlib.sha256(data).hexdigest() == digest
    except (ValueError, KeyError, TypeError):
        raise NotKept(f"--keep {path}: no checkpoint of elastic-ai-train; give another name, or remove it") from None
    if (kind, order) != (FORMAT, sys.byteorder):
        raise NotKept(f"--keep {path}: a checkpoint of another release or kind of machine; remove it to start again")
    if not whole:
        raise NotKept(f"--keep {path}: the checkpoint is damaged; remove it to start again")
    if other := [key for key in of if was.get(key) != of[key]]:
        here, there = of[other[0]], was.get(other[0])
        raise NotKept(f"--keep {path}: of another training: its {other[0]} is {there}, this one's is {here}")
    losses = array("d")
    losses.frombytes(data[2 * weights :])
    return State(data[:weights], data[weights : 2 * weights], list(losses))
