"""Which processes of this server have a GPU open, or mapped, or in a place where nobody sees it.

By the number of the device and not by its name, for a device file can be made again anywhere; through all processes,
whatever container they are in. Also by NVML (module nvml), whose list is the driver's own.

What a process has is read without asking the file system that it is on: a user's own may never answer.
Descriptors wait unseen in the queue of a socket, or among the registered files of an io_uring. What is there of the
owner of a GPU that goes to the next counts as that GPU's; other users are not asked
(docs/explanation/pool-security.md).
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
import struct
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from toolkit.lease.machine import fence
from toolkit.lease.machine.processes import PROC, Process, all_processes, read

#: So many descriptors of a process are looked through, for so long those of one user, and of all: a user may have
#: millions, and Slurm drains a server whose Epilog takes too long.
MOST_DESCRIPTORS, USER_S, LOOK_S = 65536, 6.0, 20.0
#: So often within a process it is asked whether there is time left.
_AT_ONCE = 512
#: PROC_PID_INIT_INO of linux/proc_ns.h.
_FIRST_PIDS = "pid:[4026531836]"
_AT_FDCWD, _DONT_SYNC, _BASIC, _STATX_BYTES = -100, 0x4000, 0x7FF, 256
_MAP = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+:[0-9a-f]+) (\d+)")
#: Of a device: ("c", its number), or of a plain file (an emulated GPU's): ("f", file system, inode).
Key = tuple[object, ...]


@dataclass(frozen=True)
class Opener:
    """A process with a GPU. index: which, None for any of them. how: in words. hidden: it has descriptors that cannot
    be seen, and nothing says that they are a GPU's."""

    process: Process
    index: int | None
    how: str
    hidden: bool = False
    path: str = ""

    def told(self) -> str:
        """For people."""
        return f"{self.process.told()} {self.how}"


@dataclass(frozen=True)
class Device:
    """A device file of a GPU. index: whose; mapped: whether it counts only where it is mapped."""

    path: str
    index: int | None
    mapped: bool = False


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def key_of(path: str) -> Key | None:
    """What a file is, by what the kernel knows of it already; None for one that is no device and no plain file."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc().statx(_AT_FDCWD, os.fsencode(path), _DONT_SYNC, _BASIC, buffer) != 0:
        return None
    mode, inode = struct.unpack_from("=H", buffer, 28)[0], struct.unpack_from("=Q", buffer, 32)[0]
    major, minor, dev_major, dev_minor = struct.unpack_from("=4I", buffer, 128)
    if stat.S_ISCHR(mode):
        return "c", major, minor
    return ("f", dev_major, dev_minor, inode) if stat.S_ISREG(mode) else None


def devices() -> dict[Key, Device]:
    """Device files of this server's GPUs, by what they are."""
    found = [Device(str(path), index) for path, index in fence.files().items()]
    found += [Device(str(path), index) for path, index in fence.instance_files().items()]
    uvm = fence.DEV / "nvidia-uvm"
    if uvm.is_char_device():
        found.append(Device(str(uvm), None, mapped=True))  # all users may open it, and without a GPU it is nothing
    return {key: device for device in found for key in [key_of(device.path)] if key is not None}


def _hidden(table: int, number: int, link: str) -> str:
    """What of a process's descriptor holds others, in words; "" where it holds none."""
    try:
        text = (PROC / str(table) / "fdinfo" / str(number)).read_text(errors="replace")
    except OSError:
        return ""
    if link.startswith("socket:"):
        queued = re.search(r"^scm_fds:\s*([1-9]\d*)", text, re.M)
        return f"keeps {queued[1]} open files in a socket" if queued else ""
    files = re.search(r"^UserFiles:\s*([1-9]\d*)", text, re.M)
    return f"keeps {files[1]} open files in an io_uring" if files else ""


def _exported(table: int, number: int) -> bool:
    """Whether a dma-buf is memory of a GPU of NVIDIA's."""
    try:
        text = (PROC / str(table) / "fdinfo" / str(number)).read_text(errors="replace")
    except OSError:
        return False
    return re.search(r"^exp_name:\s*nv", text, re.M) is not None


def _unseen(process: Process, how: str) -> Opener:
    return Opener(process, None, how, hidden=True)


def _open(process: Process, known: Mapping[Key, Device], suspect: bool, until: float) -> Iterator[Opener]:
    room = MOST_DESCRIPTORS
    for table in process.tables():
        links = process.descriptors(most=room + 1, table=table)
        room -= len(links)
        if room < 0:
            yield _unseen(process, "has too many files open to look through")
            return
        for place, (number, link) in enumerate(links.items()):
            if place % _AT_ONCE == _AT_ONCE - 1 and time.monotonic() > until:
                yield _unseen(process, "has more files open than there was time to look through")
                return
            yield from _one(process, table, number, link, known, suspect)


def _one(
    process: Process, table: int, number: int, link: str, known: Mapping[Key, Device], suspect: bool
) -> Iterator[Opener]:
    if link.startswith("/dmabuf:"):
        if _exported(table, number):
            yield Opener(process, None, "has memory of a GPU open (dma-buf)")
    elif link.startswith("/"):
        key = key_of(f"{PROC}/{table}/fd/{number}")
        device = known.get(key) if key else None
        if device is not None and not device.mapped:
            yield Opener(process, device.index, f"has {device.path} open", path=device.path)
    elif suspect and (link.startswith("socket:") or "io_uring" in link):
        words = _hidden(table, number, link)
        if words:
            yield _unseen(process, words)


def _maps(process: Process, proc: Path) -> tuple[int, list[bytes]]:
    """The maps of a process, and the number under which they are shown: not its own once its first thread has ended."""
    for table in process.tables(proc):
        try:
            lines = (proc / str(table) / "maps").read_bytes().splitlines()
        except OSError:
            continue
        if lines:
            return table, lines
    return process.pid, []


def _mapped(
    process: Process, known: Mapping[Key, Device], seen: dict[tuple[bytes, bytes], Device | None], proc: Path = PROC
) -> Iterator[Opener]:
    """seen: files that were looked at already, by file system and inode."""
    table, lines = _maps(process, proc)
    for line in lines:
        found = _MAP.match(line)
        if found is None or found[4] == b"0":
            continue
        which = (found[3], found[4])
        if which not in seen:
            span = f"{int(found[1], 16):x}-{int(found[2], 16):x}"
            key = key_of(f"{proc}/{table}/map_files/{span}")
            seen[which] = known.get(key) if key else None
        device = seen[which]
        if device is not None:
            yield Opener(process, device.index, f"has {device.path} mapped", path=device.path)


def find(owners: Collection[int] = ()) -> list[Opener]:
    """All processes that have a GPU, one entry for each way. owners: users of whom hidden descriptors count, too.

    Each user's are looked through for a while and no longer, so that none keeps the look from the others'. What was not
    looked at is told: of owners each process, of others one.
    """
    known = devices()
    if not known:
        return []
    found: dict[tuple[int, str], Opener] = {}
    seen: dict[tuple[bytes, bytes], Device | None] = {}
    spent_s: dict[int, float] = {}
    until = time.monotonic() + LOOK_S
    for process in sorted(all_processes(), key=lambda one: (one.uid not in owners, one.uid == 0)):
        uid, begun = process.uid, time.monotonic()
        own_until = min(until, begun + USER_S - spent_s.get(uid, 0.0))
        if begun > own_until:
            number = process.pid if uid in owners else -uid
            found.setdefault((number, "late"), _unseen(process, "was not looked at: there was no time left"))
            continue
        for opener in (*_open(process, known, uid in owners, own_until), *_mapped(process, known, seen)):
            found.setdefault((process.pid, opener.how), opener)
        spent_s[uid] = spent_s.get(uid, 0.0) + time.monotonic() - begun
    return list(found.values())


def process(pid: int) -> Process | None:
    """The process of a number, None where there is none here."""
    return read(pid)


def numbered_as_driver() -> bool:
    """Whether processes have the numbers here that the driver knows them by: in the machine's first PID namespace."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_PIDS
    except OSError:
        return False


def end(opener: Opener) -> None:
    """Kill the process, and none that has its number since."""
    opener.process.kill()
