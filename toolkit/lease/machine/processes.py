"""Processes of this server as /proc shows them: whose they are, which unit they are in, what they have open.

A process is known by its number and the moment of its start: numbers are given again, and a user can see to that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

PROC = Path("/proc")
#: kcmp(2), which tells whether two threads have one table of open files, and the word for such tables.
_KCMP, _KCMP_FILES = {"x86_64": 312, "aarch64": 272}.get(platform.machine()), 2
_UNIT = re.compile(r"elastic-ai-lease@([0-9A-Za-z]+)\.service")


@dataclass(frozen=True)
class Process:
    """uid: the real one, which no program of another's changes. groups: paths of its control groups."""

    pid: int
    started: str
    uid: int
    name: str
    groups: tuple[str, ...] = ()

    def tables(self, proc: Path = PROC) -> list[int]:
        """Numbers under which /proc shows all that it has open: its own, and those of threads that have open files of
        their own (unshare). Under its own number nothing shows once its first thread has ended."""
        try:
            threads = [int(path.name) for path in (proc / str(self.pid) / "task").iterdir() if path.name.isdigit()]
        except OSError:
            threads = []
        return [self.pid, *(one for one in sorted(threads) if one != self.pid and not _shared(self.pid, one))]

    def links(self, proc: Path = PROC) -> set[str]:
        """What all its descriptors are, as the kernel names it."""
        return {link for number in self.tables(proc) for link in self.descriptors(proc, table=number).values()}

    def descriptors(self, proc: Path = PROC, most: int | None = None, table: int | None = None) -> dict[int, str]:
        """What its descriptors are, as the kernel names it, `most` of them; {} once it has ended. table: one of its
        `tables`, its own where none is named."""
        found: dict[int, str] = {}
        folder = f"{proc}/{self.pid if table is None else table}/fd"
        try:
            with os.scandir(folder) as entries:
                for entry in islice(entries, most):
                    try:
                        found[int(entry.name)] = os.readlink(entry.path)  # noqa: PTH115 - as it stands
                    except OSError:
                        continue
        except OSError:
            return {}
        return found

    def told(self) -> str:
        """For people, without what a user could make look like anything else."""
        name = re.sub(r"[^A-Za-z0-9._+-]", "?", self.name)
        return f"process {self.pid} ({name}, uid {self.uid})"

    def kill(self) -> None:
        """End it, and none that has its number since."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            if started(self.pid) == self.started:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except OSError:
            return
        finally:
            os.close(pidfd)


def _shared(pid: int, thread: int) -> bool:
    """Whether a thread has no open files but its process's. False, so that it is looked at, where it cannot be told."""
    if _KCMP is None:
        return False
    done = ctypes.CDLL(None, use_errno=True).syscall(_KCMP, pid, thread, _KCMP_FILES, 0, 0)
    return done == 0 or (done < 0 and ctypes.get_errno() == errno.ESRCH)


def started(pid: int, proc: Path = PROC) -> str:
    """When a process started (clock ticks since boot), "" where there is none."""
    try:
        return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def read(pid: int, proc: Path = PROC) -> Process | None:
    """One process; None where there is none, or it is the kernel's."""
    try:
        status = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    name, uid = re.search(r"^Name:\t(.*)$", status, re.M), re.search(r"^Uid:\t(\d+)", status, re.M)
    if uid is None:
        return None
    return Process(pid, started(pid, proc), int(uid[1]), name[1] if name else "?", groups_of(pid, proc))


def numbers(proc: Path = PROC) -> list[int]:
    """Of all processes that are visible here."""
    return sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit())


def groups_of(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The control groups that a process is in, () where there is none."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(line.split(":", 2)[2] for line in lines if line.count(":") >= 2)


def all_processes(proc: Path = PROC) -> Iterator[Process]:
    """All that are visible here, but this one."""
    for pid in numbers(proc):
        found = read(pid, proc) if pid != os.getpid() else None
        if found is not None:
            yield found


@cache
def _base(proc: Path) -> str:
    """What stands before this machine's own slices, where it is a container."""
    first = next((path for path in groups_of(1, proc) if path.endswith("/init.scope")), "")
    return first.removesuffix("/init.scope").rstrip("/")


def lease_of(groups: Iterable[str], proc: Path = PROC) -> str:
    """The lease whose unit has these control groups, "" for none. In the system's slice: users have control groups of
    their own, which they may name as they like."""
    start = f"{_base(proc)}/system.slice/"
    for path in groups:
        if path.startswith(start):
            for word in path[len(start) :].split("/")[:2]:
                found = _UNIT.fullmatch(word)
                if found:
                    return found[1]
    return ""
