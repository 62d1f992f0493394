"""The state that a node is in while it is looked at: its addresses, time, name servers, room on its disks, and
what others compute there.

Nothing of it is kept by a driver or a package: it is what a hand, a full disk or a forgotten program leaves behind.
Linux, Documentation/filesystems/proc.rst (stat), man 5 resolv.conf, RFC 1035 (messages of name servers).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from validation.probes.tool import run_tool

TIMEOUT_S = 10.0
# Of a name server: so long resolvers wait themselves before they ask the next one (RES_TIMEOUT, resolv.h).
ANSWER_S = 5.0
AGAIN_S = 1.0  # a datagram may be lost, and a forwarder may have to ask others first
DNS_PORT = 53
MOST_SERVERS = 3  # more than these no resolver reads (MAXNS, resolv.h)
FOLDERS = ("/", "/tmp", "/var/tmp", "/var/log", "/home", "/var/lib/docker")  # noqa: S108 - looked at, not used
WINDOWS, WINDOW_S = 3, 0.5
BUSIEST = 3  # how many programs are named


def addresses() -> list[dict[str, Any]]:
    """All addresses of the node but those of its loopback, by the interface that has them, and what that is made of."""
    ran = run_tool(["ip", "-j", "addr", "show"], timeout_s=TIMEOUT_S)
    try:
        listed = json.loads(ran.stdout)
    except ValueError:
        raise OSError(f"addresses: {ran.failure or 'ip said nothing'}") from None
    below = made_of(listed)
    return [
        {
            "interface": str(link["ifname"]),
            "address": str(one["local"]),
            **({"over": below[link["ifname"]]} if below.get(link["ifname"]) else {}),
        }
        for link in listed
        for one in link.get("addr_info", ())
        if "local" in one and link["ifname"] != "lo"
    ]


def made_of(listed: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Interface -> all below it, from what `ip -j` lists: ports of a bridge or bond, and what a VLAN lies on."""
    straight: dict[str, set[str]] = {}
    linked = {str(link["ifname"]): str(link["link"]) for link in listed if link.get("link")}
    for link in listed:
        if "master" in link:
            straight.setdefault(str(link["master"]), set()).add(str(link["ifname"]))
    for name, other in linked.items():
        if linked.get(other) != name:  # of a veth the other end, which is not below it
            straight.setdefault(name, set()).add(other)
    below: dict[str, list[str]] = {}
    for name in straight:
        found, ahead = set[str](), [name]
        while ahead:
            new = straight.get(ahead.pop(), set()) - found
            found |= new
            ahead += new
        below[name] = sorted(found - {name})
    return below


def utc_offset_s() -> int:
    """Seconds by which the node's local time is ahead of UTC, now. The file is read anew, and not this process's."""
    time.tzset()
    return time.localtime().tm_gmtoff


def servers(text: str) -> list[str]:
    """Name servers of a resolv.conf, in their order, as many as a resolver reads."""
    words = [line.split() for line in text.splitlines()]
    return [row[1] for row in words if len(row) > 1 and row[0] == "nameserver"][:MOST_SERVERS]


def answers(server: str, port: int = DNS_PORT, limit_s: float = ANSWER_S, again_s: float = AGAIN_S) -> bool:
    """Whether anything comes back of a question for the root's name servers: a refusal is an answer.

    Asked once more every `again_s`, from another port as resolvers do, until `limit_s` is over; a late answer counts.
    That nobody listens there or no way leads there is no answer either, and is asked again: a forwarder that starts
    anew, or has no socket left for a moment, says so of itself.
    """
    number = os.getpid() & 0xFFFF
    asked = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + b"\0" + struct.pack(">HH", 2, 1)
    address, _, zone = server.partition("%")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    end = time.monotonic() + limit_s
    with contextlib.ExitStack() as opened:
        talks: list[socket.socket] = []
        while (left_s := end - time.monotonic()) > 0:
            with contextlib.suppress(OSError):
                index = socket.if_nametoindex(zone) if zone else 0
                to: Any = (address, port, 0, index) if ":" in address else (address, port)
                talk = opened.enter_context(socket.socket(family, socket.SOCK_DGRAM))
                talk.connect(to)
                talk.send(asked)
                talks.append(talk)
            if any(_answered(talk, asked) for talk in _heard(talks, end=time.monotonic() + min(again_s, left_s))):
                return True
    return False


def _heard(talks: list[socket.socket], end: float) -> Iterator[socket.socket]:
    """Sockets with something to read, until then; those that a refusal came to are left out of `talks`."""
    while (left_s := end - time.monotonic()) > 0:
        if not talks:
            time.sleep(left_s)
            return
        for talk in select.select(talks, [], [], left_s)[0]:
            if talk.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                talks.remove(talk)
            else:
                yield talk


def _answered(talk: socket.socket, asked: bytes) -> bool:
    with contextlib.suppress(OSError):
        said = talk.recv(4096)
        return len(said) >= 12 and said[:2] == asked[:2]
    return False


def name_servers(root: Path) -> list[dict[str, Any]]:
    """Each name server of the node, and whether it answers."""
    try:
        text = (root / "etc/resolv.conf").read_text(errors="replace")
    except FileNotFoundError:
        return []
    found = servers(text)
    if not found:
        return []
    with ThreadPoolExecutor(len(found)) as together:  # what is dead takes its time once
        return [{"address": one, "answers": said} for one, said in zip(found, together.map(answers, found))]


def file_systems(folders: Sequence[str] = FOLDERS) -> list[dict[str, Any]]:
    """Room for ordinary users where programs write, once for each file system. inodes_free None: it counts none."""
    found: dict[int, dict[str, Any]] = {}
    for folder in folders:
        try:
            device, said = Path(folder).stat().st_dev, os.statvfs(folder)
        except OSError:
            continue
        found.setdefault(
            device,
            {
                "folder": folder,
                "size_bytes": said.f_blocks * said.f_frsize,
                "free_bytes": said.f_bavail * said.f_frsize,
                "inodes_free": said.f_favail if said.f_files else None,
                "read_only": bool(said.f_flag & os.ST_RDONLY),
            },
        )
    return list(found.values())


def _kin(root: Path) -> set[int]:
    """This process and those that started it: what looks is not what it looks for."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        fields = _fields(root / "proc" / str(pid))
        pid = int(fields[1]) if len(fields) > 1 else 0
    return found


def _fields(process: Path) -> list[str]:
    """What stat says of a process after its name, which may hold anything; [] of one that has ended."""
    try:
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _ticks(root: Path, kin: set[int]) -> dict[int, int]:
    """Clock ticks that each other process has computed for, the kernel's own threads left out (they have no parent but
    number 2).
    """
    found = {}
    for process in (root / "proc").glob("[0-9]*"):
        pid, fields = int(process.name), _fields(process)
        if len(fields) < 13 or pid in kin or pid == 2 or fields[1] == "2":
            continue
        found[pid] = int(fields[11]) + int(fields[12])
    return found


def busy(root: Path, windows: int = WINDOWS, window_s: float = WINDOW_S) -> dict[str, Any]:
    """What programs other than this one compute, in processors: the least of all windows, so that a short burst of
    something does not count; and which of them do most, by the whole time.
    """
    kin, hertz = _kin(root), os.sysconf("SC_CLK_TCK")
    readings, times = [_ticks(root, kin)], [time.monotonic()]
    for _ in range(windows):
        time.sleep(window_s)
        readings.append(_ticks(root, kin))
        times.append(time.monotonic())
    took = []
    for before, after, start, end in zip(readings, readings[1:], times, times[1:]):
        grown = sum(after[pid] - before[pid] for pid in after if pid in before)
        took.append(max(grown, 0) / hertz / (end - start))
    whole = {pid: readings[-1][pid] - readings[0][pid] for pid in readings[-1] if pid in readings[0]}
    most = sorted((pid for pid in whole if whole[pid] > 0), key=lambda pid: -whole[pid])[:BUSIEST]
    named = []
    for pid in most:
        try:
            name = (root / "proc" / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            name = "a program that has ended"
        named.append({"name": name or "?", "pid": pid, "processors": whole[pid] / hertz / (times[-1] - times[0])})
    return {"others_busy_processors": min(took) if took else None, "busiest": named}


def collect(root: Path = Path("/")) -> dict[str, Any]:
    """All of it, as NodeState."""
    found: dict[str, Any] = {}
    unread = []
    parts = (
        lambda: {"addresses": addresses()},
        lambda: {"utc_s": round(time.time(), 3), "utc_offset_s": utc_offset_s()},
        lambda: {"name_servers": name_servers(root)},
        lambda: {"file_systems": file_systems()},
        lambda: busy(root),
    )
    for part in parts:
        try:
            found.update(part())
        except (OSError, ValueError, KeyError, TypeError) as fault:
            unread.append(f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}")
    return {**found, "unread": "; ".join(unread)}
