"""The share of a processor that the unit of a lease has, where processors stand in for its devices: an emulated GPU
computes as one processor, a part of it as its share.

systemd holds a unit to that. Where it manages no processors (a lab's container on a machine with cgroup v1), the group
is made here, in the hierarchy that the container has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from toolkit.lease.engines import LeasedGpu, load

CGROUPS, PROC = Path("/sys/fs/cgroup"), Path("/proc")
#: Of a period at least so much is given, which is the least that the kernel takes; a period is that long at least, so
#: that a step of milliseconds is not stopped for a tenth of a second, and at most the longest that it takes.
LEAST_US, PERIOD_US, MOST_US = 1_000, 20_000, 1_000_000
TRIES = 5


def share_of(engine: str, devices: Sequence[LeasedGpu]) -> Fraction | None:
    """Processors of a lease by an engine whose adapter has HOLDS_PROCESSORS; None where nothing is to be held."""
    if not getattr(load(engine), "HOLDS_PROCESSORS", False) or not all(device.emulated for device in devices):
        return None
    return sum((Fraction(device.shards, device.of) for device in devices), Fraction())


def times(share: Fraction) -> tuple[int, int]:
    """Microseconds of processors in a period, and the period."""
    period = min(MOST_US, max(PERIOD_US, -(-LEAST_US * share.denominator // share.numerator)))
    return max(LEAST_US, int(share * period)), period


def properties(share: Fraction) -> list[str]:
    """For systemctl set-property: after the start, for which a small part would be too slow."""
    quota, period = times(share)
    return [f"CPUQuota={100 * quota / period:.2f}%", f"CPUQuotaPeriodSec={period}us"]


def group_of(job: str, root: Path = CGROUPS) -> Path:
    """The group that is made for a lease where systemd has none."""
    return root / "cpu" / f"elastic-ai-lease-{job}"


def held_by_systemd(pid: int, proc: Path = PROC) -> bool:
    """Whether a process of the unit is in a group of processors of the unit: always with cgroup v2."""
    for line in (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path not in ("", "/")
    return True


def hold(job: str, share: Fraction, pids: Callable[[], Iterable[int]], root: Path = CGROUPS, proc: Path = PROC) -> bool:
    """Hold the unit's processes where systemd does not; whether that was needed. OSError where it is not possible."""
    first = next(iter(pids()), None)
    if first is None or held_by_systemd(first, proc):
        return False
    group = group_of(job, root)
    group.mkdir(exist_ok=True)
    quota, period = times(share)
    for name, value in (("cpu.cfs_quota_us", -1), ("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota)):
        (group / name).write_text(f"{value}\n", encoding="utf-8")
    for _ in range(TRIES):  # one may be started meanwhile; children of those inside are inside
        for pid in pids():
            with suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(f"{pid}\n", encoding="utf-8")
    return True


def forget(job: str, root: Path = CGROUPS) -> None:
    """Remove the group of a lease that has ended, if there is one."""
    group = group_of(job, root)
    for _ in range(TRIES):
        if not group.is_dir():
            return
        with suppress(OSError):  # its last process is about to be gone
            group.rmdir()
            return
        time.sleep(0.1)
