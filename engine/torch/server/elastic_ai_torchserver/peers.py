"""The other servers of a lease: where they are, and how a session of one speaks with a session of another.

What is here comes from the lease (`--peers`, `--peer-token-file`) and never from a client.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elastic_ai_torchserver.door import HELLO, PEER_MAGIC, VERSION

#: A line of two sessions is as long as a key, a value in hexadecimal, and what is around them.
MOST_LINE = 1 << 20
LINK_S = 30.0
SIOCGIFADDR = 0x8915  # of Linux's sockios.h


class PeerFault(Exception):
    """The servers of a lease cannot meet; the text says why."""


@dataclass(frozen=True)
class Peers:
    """Where the lease's servers are, in its order; none where they do not know each other."""

    file: str

    def read(self) -> list[tuple[str, int]]:
        """Addresses and ports as the file has them now: a lease's servers start one after the other."""
        if not self.file:
            return []
        try:
            lines = Path(self.file).read_text().split("\n")
            return [(words[0], int(words[1])) for words in map(str.split, lines) if words]
        except (OSError, ValueError, IndexError):
            return []

    def position(self, address: str, port: int) -> int:
        """Of the server itself. PeerFault where it is not among them."""
        try:
            return self.read().index((address, port))
        except ValueError:
            raise PeerFault("the servers of this lease do not know each other") from None


def watch(connection: socket.socket) -> None:
    """It ends when nothing is heard of the other side for half a minute, whether something is under way or not."""
    alive = (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    )
    for level, option, value in alive:
        connection.setsockopt(level, option, value)


def watch_all(addresses: Collection[str], port: int) -> None:
    """All connections of this process with these addresses: gloo watches none of its own. port: the server's own, by
    which clients come too, and those have other limits."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # it is no socket, no connection, or gone meanwhile
            copy = os.dup(number)
            try:
                connection = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                raise
            with connection:
                ours = connection.family == socket.AF_INET and connection.getpeername()[0] in addresses
                if ours and connection.getsockname()[1] != port:
                    watch(connection)


def interface_of(address: str) -> str:
    """The network interface that has this IPv4 address. PeerFault where none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no such address
                found = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    raise PeerFault(f"no interface has the address {address}")


class Link:
    """A connection between two sessions: lines of JSON, each with its answer."""

    def __init__(self, connection: socket.socket) -> None:
        """Nothing was said yet."""
        connection.settimeout(None)
        watch(connection)
        self.connection, self._file = connection, connection.makefile("rb")
        self._lock = threading.Lock()

    def read(self) -> list[object]:
        """The next line; PeerFault where the other has gone."""
        try:
            line = self._file.readline(MOST_LINE)
        except OSError as fault:
            raise PeerFault(f"a session of the lease has gone: {fault.strerror}") from None
        if not line.endswith(b"\n"):
            raise PeerFault("a session of the lease has gone")
        said = json.loads(line)
        if not isinstance(said, list):
            raise PeerFault("a session of the lease said what is no message")
        return said

    def say(self, *words: object) -> None:
        """A line."""
        try:
            self.connection.sendall(json.dumps(words).encode() + b"\n")
        except OSError as fault:
            raise PeerFault(f"a session of the lease has gone: {fault.strerror}") from None

    def ask(self, *words: object) -> object:
        """A line and its answer."""
        with self._lock:
            self.say(*words)
            return self.read()[0]

    def close(self) -> None:
        """Ends it."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def connect(where: tuple[str, int], own: str, token: bytes, member: str) -> Link:
    """To the session of that number on the server that is there, from this server's own address."""
    until = time.monotonic() + LINK_S
    try:
        connection = socket.create_connection(where, LINK_S, (own, 0))
        connection.sendall(HELLO.pack(PEER_MAGIC, VERSION, os.getpid(), b"", member.encode(), 0, bytes(token)))
        link = Link(connection)
        connection.settimeout(max(until - time.monotonic(), 1))
        if link.read() != ["here"]:
            raise PeerFault(f"the GPU server {where[0]}:{where[1]} has no such session")
        connection.settimeout(None)
    except OSError as fault:
        raise PeerFault(
            f"the GPU server {where[0]}:{where[1]} cannot be reached by another of the lease: {fault}"
        ) from None
    return link


def introductions(control: socket.socket, arrived: Callable[[str, Link], None]) -> None:
    """What the parent hands over: connections of other sessions, for the member that they name. A thread's own loop."""
    while True:
        try:
            member, files, _, _ = socket.recv_fds(control, 64, 1)
        except OSError:
            return
        if not files:
            return
        arrived(member.decode(errors="replace"), Link(socket.socket(fileno=files[0])))
