"""Who has a TCP port of this server, by the kernel's tables and by the sockets of its processes.

Any user may bind any port of a server, so a port that is taken proves nothing against a lease: asked is whose it is.
A port that is bound and not listened on is in no table of /proc; it is found by the sockets themselves, which root may
look at in other processes (pidfd_getfd, Linux 5.6).
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from toolkit.lease.machine.processes import Process, all_processes

PROC = Path("/proc")
RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
_LISTEN = "0A"
#: The same number on all architectures (since all calls have one table, Linux 5.1).
_PIDFD_GETFD = 438
#: Of pidfd_open: a thread, which may have open files of its own (Linux 6.9).
_PIDFD_THREAD = os.O_EXCL


@dataclass(frozen=True)
class Listener:
    """A listening socket. uid: who made it. pids: who has it now, as far as processes have it."""

    port: int
    uid: int
    inode: int
    pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Occupant:
    """A process with sockets on ports of leases."""

    process: Process
    ports: tuple[int, ...]


def _rows(proc: Path) -> Iterator[list[str]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        yield from (line.split() for line in lines)


def _having(inodes: Iterable[int], proc: Path) -> dict[int, list[int]]:
    """Processes that have these sockets, by inode."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, list[int]] = {}
    for process in all_processes(proc) if wanted else ():
        for link in process.links(proc) & wanted.keys():
            found.setdefault(wanted[link], []).append(process.pid)
    return found


def listeners(ports: Iterable[int], proc: Path = PROC) -> list[Listener]:
    """All listening sockets on these ports, IPv4 and IPv6."""
    wanted = set(ports)
    rows = [row for row in _rows(proc) if len(row) > 9 and row[3] == _LISTEN]
    seen = [(int(row[1].rsplit(":", 1)[1], 16), int(row[7]), int(row[9])) for row in rows]
    seen = [one for one in seen if one[0] in wanted]
    pids = _having([inode for _port, _uid, inode in seen], proc)
    return [Listener(port, uid, inode, tuple(sorted(set(pids.get(inode, ()))))) for port, uid, inode in seen]


def free(address: str, port: int, lenient: bool = False) -> bool:
    """Whether a server could listen on the port now. lenient: as servers do, beside connections that have just ended
    (SO_REUSEADDR)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            if lenient:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((address, port))
            sock.listen(1)
        except OSError:
            return False
    return True


def _local_port(pidfd: int, number: int) -> int:
    """The local port of a TCP socket of another process, 0 where it has none."""
    handle = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, number, 0)
    if handle < 0:
        return 0
    with socket.socket(fileno=handle) as sock:
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            return 0
        try:
            return int(sock.getsockname()[1])
        except OSError:
            return 0


def _ports_of(process: Process) -> Iterator[int]:
    for table in process.tables(PROC):
        links = process.descriptors(PROC, table=table)
        sockets = [number for number, link in links.items() if link.startswith("socket:")]
        if not sockets:
            continue
        try:
            pidfd = os.pidfd_open(table, 0 if table == process.pid else _PIDFD_THREAD)
        except OSError:
            continue  # it has ended; or the kernel is too old to look at single threads
        try:
            for number in sockets:
                try:
                    yield _local_port(pidfd, number)
                except OSError:
                    continue
        finally:
            os.close(pidfd)


def _listed(first: int, last: int, proc: Path) -> dict[str, int]:
    """Sockets on these ports that the kernel's tables have, as descriptors name them, with their ports."""
    rows = [row for row in _rows(proc) if len(row) > 9]
    seen = {f"socket:[{row[9]}]": int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[9] != "0"}
    return {link: port for link, port in seen.items() if first <= port <= last}


def occupants(first: int, last: int) -> list[Occupant]:
    """Processes of this network namespace that have sockets on these ports, in whatever state: bound, listening,
    connected. Where nobody may look into other processes, as in some containers, without those that are bound alone."""
    here = Path("/proc/self/ns/net").readlink()
    listed = _listed(first, last, PROC)
    found = []
    for process in all_processes(PROC):
        try:
            if (PROC / str(process.pid) / "ns" / "net").readlink() != here:
                continue
        except OSError:
            continue
        ports = {port for port in _ports_of(process) if first <= port <= last}
        ports |= {listed[link] for link in process.links(PROC) if link in listed}
        if ports:
            found.append(Occupant(process, tuple(sorted(ports))))
    return found


def _spans(text: str) -> set[int]:
    found: set[int] = set()
    for span in text.replace(",", " ").split():
        low, _, high = span.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def _text(ports: set[int]) -> str:
    spans: list[list[int]] = []
    for port in sorted(ports):
        if spans and port == spans[-1][1] + 1:
            spans[-1][1] = port
        else:
            spans.append([port, port])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in spans)


def reserve(first: int, last: int, keep: bool = True, path: Path = RESERVED) -> None:
    """Have the kernel give these ports to no connection by itself, beside those that are reserved already; `keep`
    False: again. Nothing where that cannot be written, as in a container without a network of its own."""
    try:
        before = _spans(path.read_text())
        ours = set(range(first, last + 1))
        after = before | ours if keep else before - ours
        if after != before:
            path.write_text(_text(after) + "\n")
    except (OSError, ValueError):
        return
