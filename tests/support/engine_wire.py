"""The reference engine's protocol, spoken by hand: what no honest client's library would send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.engine_run import TOKEN

PROTOCOL = 6
HELLO = struct.Struct("<8sII64s64s256s")
WELCOME = struct.Struct("<8sII64s120siI")
DEVICE_BYTES = 128 + 16 + 32 + 8 + 192 * 8
REQUEST = struct.Struct("<IIIIQQ6Q")
REPLY = struct.Struct("<IiQQQ")
STARTING = 4
OP_TICKETS, OP_LANES = 65, 66
FLAG_STRIPED = 4
CHUNK = 1 << 20
LANE_END = (1 << 64) - 1


def hello(release: str = "test", token: str = TOKEN, magic: bytes = b"EAIREF1\n") -> bytes:
    """As struct hello in wire.h."""
    return HELLO.pack(magic, PROTOCOL, 1, release.encode(), b"test", token.encode())


def join_hello(ticket: str, release: str = "test") -> bytes:
    """That of a data connection."""
    return hello(release, ticket, b"EAIJOIN\n")


def tickets(sock: socket.socket) -> list[str]:
    """Of the session of that connection."""
    sock.sendall(request(OP_TICKETS))
    status, data = reply(sock)
    assert status == 0
    return [part.decode() for part in data.split(b"\0") if part]


def verdict(sock: socket.socket) -> int:
    """What the server says to a data connection: 0 is a welcome."""
    return int(WELCOME.unpack(read(sock, WELCOME.size))[2])


def request(op: int, *arguments: int, size: int = 0, context: int = 0, flags: int = 1, seq: int = 1) -> bytes:
    """As struct request in wire.h."""
    return REQUEST.pack(op, flags, seq, 0, size, context, *(arguments + (0,) * 6)[:6])


def launch(function: int, grid: tuple[int, ...], block: tuple[int, ...], stream: int = 0, shared: int = 0) -> list[int]:
    """Arguments of a launch without attributes, as OP_LAUNCH in wire.h has them."""
    g, b = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
    return [function, stream, g[0] | g[1] << 32, g[2] | b[0] << 32, b[1] | b[2] << 32, shared]


def read(sock: socket.socket, size: int) -> bytes:
    """All of it, or AssertionError."""
    data = b""
    while len(data) < size:
        got = sock.recv(size - len(data))
        assert got, "closed"
        data += got
    return data


def reply(sock: socket.socket) -> tuple[int, bytes]:
    """Status and payload."""
    _, status, size, _, _ = REPLY.unpack(read(sock, REPLY.size))
    return status, read(sock, size)


def asked(sock: socket.socket, *words: int, payload: bytes = b"", **more: int) -> tuple[int, int]:
    """Status and first value of a request; what comes with the reply is read and left."""
    sock.sendall(request(*words, size=len(payload), **more) + payload)
    _, status, size, value, _ = REPLY.unpack(read(sock, REPLY.size))
    read(sock, size)
    return status, value


def welcomed(sock: socket.socket) -> int:
    """Take the server's welcomes; the number of its devices."""
    verdict = STARTING
    while verdict == STARTING:
        _, _, verdict, _, why, _, devices = WELCOME.unpack(read(sock, WELCOME.size))
    assert verdict == 0, (verdict, why)
    read(sock, devices * DEVICE_BYTES)
    return int(devices)


@contextmanager
def admitted(port: int) -> Iterator[socket.socket]:
    """A connection of a client with the right token, after the server's welcome."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.settimeout(20)
        sock.sendall(hello())
        welcomed(sock)
        yield sock
