"""How often a password may be tried: a file with a lock, for each connection has a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EACH, EACH_S = 5, 60.0
"""Of one user: so many wrong passwords within so many seconds."""

TOGETHER, TOGETHER_S = 60, 60.0
"""Of all users, so that one password tried with every name is slow too."""


def boot_s() -> float:
    """Seconds since the machine started, which nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Attempts:
    """Wrong passwords, by user. An attempt counts before it is made, so that many at the same time are counted too."""

    def __init__(self, folder: Path) -> None:
        """Folder: root's alone."""
        self._path = folder / "attempts.json"

    def begin(self, user: str, now: float) -> float:
        """Seconds to wait before the password of that user can be tried; 0 counts this one and lets it be tried."""
        with _locked(self._path) as file:
            times = _times(file, now)
            mine = [when for name, when in times if name == user and when > now - EACH_S]
            if len(mine) >= EACH:
                return mine[-EACH] + EACH_S - now
            if len(times) >= TOGETHER:
                return times[-TOGETHER][1] + TOGETHER_S - now
            _write(file, [*times, (user, now)])
            return 0.0

    def right(self, user: str, now: float) -> None:
        """The password was right: what was counted of that user is forgotten."""
        with _locked(self._path) as file:
            _write(file, [(name, when) for name, when in _times(file, now) if name != user])


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _times(file: int, now: float) -> list[tuple[str, float]]:
    try:
        rows = json.loads(os.pread(file, 1 << 20, 0) or b"[]")
        found = [(str(name), float(when)) for name, when in rows]
    except (ValueError, TypeError):
        found = []  # root's own file, cut off by a full disk
    return [(name, when) for name, when in found if now - max(EACH_S, TOGETHER_S) < when <= now]


def _write(file: int, times: list[tuple[str, float]]) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(times).encode(), 0)
