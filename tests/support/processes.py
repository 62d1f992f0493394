"""Processes that a test did not start itself, as /proc shows them."""

from __future__ import annotations

import contextlib
from pathlib import Path


def command_line(pid: int | str) -> list[str]:
    """Its words; none once it has ended, waited for or not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def runs(pid: int | str) -> bool:
    """Whether a process is there and has not ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal: one that is sent before has another effect."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
