"""Memory that programs of this machine can still have: of a container no more than its limit leaves."""

from __future__ import annotations

import re
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
#: limit and use of a group, and what of the use is files that can be let go of: cgroup v2, v1
LIMITS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"),
)


def available(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Bytes."""
    lines = (proc / "meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return min([free, *_left(proc, cgroups)])


def _left(proc: Path, cgroups: Path) -> list[int]:
    """What the limits of this process's group and of those above it leave, as far as they are shown."""
    own = [line.rpartition(":")[2].strip("/") for line in _text(proc / "self/cgroup").splitlines()]
    groups = {root / group for root in (cgroups, cgroups / "memory") for group in ("", *own)}
    found = []
    for at in {at for group in groups for at in (group, *group.parents) if cgroups in (at, *at.parents)}:
        for limit, used, stat, files in LIMITS:
            most, now = _text(at / limit).strip(), _text(at / used).strip()
            if most.isdigit() and now.isdigit():
                kept = re.search(rf"^{files} (\d+)", _text(at / stat), re.MULTILINE)
                found.append(max(int(most) - int(now) + (int(kept[1]) if kept else 0), 0))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
