"""What this machine was denied of its processors between two readings: time that a measurement did not get.

Everything is read from /proc and /sys/fs/cgroup as an ordinary program can. What a kernel does not have, or what
cannot be read, is None: not known, and never 0.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_USER, _NICE, _SYSTEM, _IDLE, _STEAL = 0, 1, 2, 3, 7  # columns of /proc/stat, proc(5)


class Reading(NamedTuple):
    """Counters since the machine's start, in seconds; None where there is no such counter."""

    moment: float  # monotonic
    cpus: int | None
    total: float | None  # all processors' time, the stolen included
    steal: float | None
    busy: float | None  # of programs, whoever's
    own: float  # of this process and its ended children
    waited: float | None  # pressure: something of the own cgroup, else of the machine, waited for a processor
    throttled: float | None  # the own cgroup, or one above it, had used up its quota


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _stat(proc: Path) -> tuple[int | None, float | None, float | None, float | None]:
    """Count of processors and their total, stolen and busy seconds."""
    text = _text(proc / "stat")
    found = re.search(r"^cpu +([\d ]+)$", text, re.MULTILINE)
    if found is None:
        return None, None, None, None
    ticks = [int(word) for word in found.group(1).split()][:8]  # guest time is in user time already
    if len(ticks) <= _STEAL:
        return None, None, None, None
    tick = os.sysconf("SC_CLK_TCK")
    count = len(re.findall(r"^cpu\d+ ", text, re.MULTILINE))
    busy = ticks[_USER] + ticks[_NICE] + ticks[_SYSTEM]
    return count or None, sum(ticks) / tick, ticks[_STEAL] / tick, busy / tick


def _cgroups(proc: Path) -> list[tuple[Path, Path, bool]]:
    """(the root of a hierarchy as mounted here, own group in it, whether it is of version 2); processors alone."""
    mounts: list[tuple[str, Path, bool, list[str]]] = []
    for line in _text(proc / "self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        mine, kind = left.split(), right.split()
        if len(mine) > 4 and len(kind) > 2 and kind[0] in ("cgroup", "cgroup2"):
            mounts.append((mine[3], Path(mine[4]), kind[0] == "cgroup2", kind[2].split(",")))
    found = []
    for line in _text(proc / "self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        for root, where, second, options in mounts:
            fits = (
                (number == "0" and not controllers)
                if second
                else ("cpu" in controllers.split(",") and "cpu" in options)
            )
            if not fits or (root != "/" and not (path + "/").startswith(root.rstrip("/") + "/")):
                continue
            below = path[len(root) :] if root != "/" else path
            if ".." not in below.split("/"):
                found.append((where, where / below.strip("/"), second))
                break
    return found


def _pressure(path: Path) -> float | None:
    found = re.search(r"^some .*total=(\d+)", _text(path), re.MULTILINE)
    return int(found.group(1)) / 1e6 if found else None


def _throttled(group: Path, root: Path, second: bool) -> list[float]:
    """Seconds for which the group, and each one above it, was throttled."""
    pattern, unit = (r"^throttled_usec (\d+)", 1e6) if second else (r"^throttled_time (\d+)", 1e9)
    seconds = []
    while True:
        found = re.search(pattern, _text(group / "cpu.stat"), re.MULTILINE)
        if found:
            seconds.append(int(found.group(1)) / unit)
        if group in (root, group.parent):
            return seconds
        group = group.parent


def reading(proc: Path = PROC, *, own_group: bool = True) -> Reading:
    """All counters now. Never raises: a machine without them has readings without them.

    `own_group` False: those of the machine as a whole, whatever cgroup this process is in.
    """
    moment = time.monotonic()
    cpus, total, steal, busy = _stat(proc)
    groups = _cgroups(proc) if own_group else []
    # The root of a hierarchy stands for the whole machine, whose pressure /proc has.
    waited = next(
        (
            p
            for root, own, second in groups
            if second and own != root and (p := _pressure(own / "cpu.pressure")) is not None
        ),
        None,
    )
    if waited is None:
        waited = _pressure(proc / "pressure/cpu")
    throttled = [s for root, own, second in groups for s in _throttled(own, root, second)]
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Reading(moment, cpus, total, steal, busy, own, waited, max(throttled, default=None))


def between(before: Reading, after: Reading) -> dict[str, float | None]:
    """Shares of the time between two readings, 0 to 1, by the names of validation.model.Denied.

    `steal`: of all processors' time, taken by the hypervisor for others. `pressure`: something of the measurement
    waited for a processor. `throttled`: its quota was used up. `others`: of all processors' time, used by programs that
    are not this measurement's.
    """
    seconds = after.moment - before.moment
    total = _grown(before.total, after.total)
    busy = _grown(before.busy, after.busy)
    others = None if busy is None else max(0.0, busy - (after.own - before.own))
    return {
        "seconds": round(max(0.0, seconds), 3),
        "cpus": after.cpus,
        "steal": _share(_grown(before.steal, after.steal), total),
        "pressure": _share(_grown(before.waited, after.waited), seconds),
        "throttled": _share(_grown(before.throttled, after.throttled), seconds),
        "others": _share(others, total),
    }


def _grown(before: float | None, after: float | None) -> float | None:
    """What was added; None where it is not known, or where a counter fell: then it is no counter."""
    return after - before if before is not None and after is not None and after >= before else None


def _share(part: float | None, whole: float | None) -> float | None:
    return round(min(1.0, part / whole), 4) if part is not None and whole else None
