"""A client of the reference engine that has a token and means harm: seeded cases over the real protocol.

A case is a connection on which requests go out that are right, nearly right, repeated, out of order or cut off. After
it the server's accounts must equal what the emulated driver has counted by itself, and nobody else may have noticed.
"""

from __future__ import annotations

import json
import random
import re
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.engine_run import Server, wait_for
from tests.support.engine_wire import REPLY, REQUEST, admitted, asked, hello, launch, read, request, welcomed
from toolkit.engine import host_modules

ENVIRONMENT, RETAIN, CREATE, DESTROY, CTX_SYNC, ALLOC, FREE, INFO, HTOD, DTOH, DTOD, PEER, MEMSET = range(1, 14)
STREAM_CREATE, STREAM_DESTROY, STREAM_QUERY, STREAM_SYNC, STREAM_WAIT = range(14, 19)
EVENT_CREATE, EVENT_DESTROY, EVENT_RECORD, EVENT_QUERY, EVENT_SYNC, EVENT_ELAPSED = range(19, 25)
MODULE_LOAD, MODULE_UNLOAD, MODULE_FUNCTION, MODULE_GLOBAL, FUNC_SET, LAUNCH, OCCUPANCY = range(25, 32)
LIMIT_GET, LIMIT_SET, PRIORITIES = range(32, 35)
LAST_OP = PRIORITIES
WITH_PAYLOAD = (HTOD, MODULE_LOAD, MODULE_FUNCTION, MODULE_GLOBAL, LAUNCH)
PTX = (host_modules.KERNELS / "checks.ptx").read_bytes()
#: Kernels of it that end whatever they are given, and the bytes of their parameters; variables.
KERNELS = {b"scale": 16, b"place": 8, b"sum": 20, b"turn": 8, b"take": 48, b"count": 8, b"leave": 8, b"spin": 12}
VARIABLES = [b"launches", b"table"]
EVIL = [
    0,
    1,
    2,
    3,
    77,
    511,
    512,
    513,
    1 << 31,
    1 << 32,
    1 << 47,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 512,
    (1 << 64) - 1,
]
MARK = 0xFFFFFFFF  # sequence number of the question that ends a batch
HANGS_S = 30.0
#: Headers that say more than there is: of a cubin with sections beyond its end, of a fat binary.
ELF = (
    b"\x7fELF\x02\x01\x01"
    + bytes(9)
    + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 64, 64, 0, 64, 56, 1, 64, 2, 1)
    + bytes(256)
)
FATBIN = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 20) + bytes(64)
HEADER = Path(__file__).parents[2] / "engine/devices/emulated.h"
MAX_GPUS = int(re.findall(r"^#define MAX_GPUS (\d+)", HEADER.read_text(), re.M)[0])
#: struct state of devices/state.c: before the rows, and a row: pid, objects by kind, bytes by GPU.
STATE_HEAD, ROW = 8 + MAX_GPUS * 40, struct.Struct(f"<i3i{MAX_GPUS}Q")
REFUSED_FIELDS = 8  # words of a request that a mutation may replace: flags, payload, context, arguments


@dataclass
class Row:
    """What the emulated driver counts of one process."""

    contexts: int
    streams: int
    events: int
    used: tuple[int, ...]


def rows(state: Path) -> dict[int, Row]:
    """By process, those of processes that have ended included until somebody asks the driver."""
    data, found = state.read_bytes(), {}
    for at in range(STATE_HEAD, len(data) - ROW.size + 1, ROW.size):
        pid, contexts, streams, events, *used = ROW.unpack_from(data, at)
        if pid:
            found[pid] = Row(contexts, streams, events, tuple(used))
    return found


@dataclass
class Known:
    """What a client has been given; some of it is gone again, which is the point."""

    contexts: list[int] = field(default_factory=list)
    pointers: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    modules: list[int] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)  # of a function's parameters, bytes

    def learn(self, op: int, value: int) -> None:
        """The reply of a request that makes something."""
        made = {RETAIN: self.contexts, CREATE: self.contexts, ALLOC: self.pointers}
        made |= {STREAM_CREATE: self.streams, EVENT_CREATE: self.events}
        made |= {MODULE_LOAD: self.modules, MODULE_FUNCTION: self.functions, MODULE_GLOBAL: self.pointers}
        if op in made and value and value not in made[op]:
            made[op].append(value)


class Hostile:
    """Requests of one connection, by a seed."""

    def __init__(self, seed: int, limit_bytes: int) -> None:
        """The seed decides everything that is sent."""
        self.chance, self.limit, self.known = random.Random(seed), limit_bytes, Known()

    def settle(self, sock: socket.socket) -> None:
        """In most cases something of each kind first, so that requests concern what there is."""
        if self.chance.random() < 0.3:
            return
        wanted = ((RETAIN, 0, 0), (ALLOC, 70_000), (ALLOC, 70_000), (STREAM_CREATE, 0, 0), (EVENT_CREATE, 0))
        for op, *arguments in wanted:
            context = self.known.contexts[0] if self.known.contexts else 0
            status, value = asked(sock, op, *arguments, context=context)
            assert status == 0, (op, status)
            self.known.learn(op, value)
        if self.chance.random() < 0.5:
            for op, payload in ((MODULE_LOAD, PTX), *((MODULE_FUNCTION, name) for name in KERNELS)):
                of = self.known.modules[0] if self.known.modules else 0
                status, value = asked(sock, op, of, context=self.known.contexts[0], payload=payload)
                assert status == 0, (op, status)
                self.known.learn(op, value)
                if op == MODULE_FUNCTION:
                    self.known.sizes[value] = KERNELS[payload]

    def _one(self, known: list[int]) -> int:
        if known and self.chance.random() < 0.9:
            return self.chance.choice(known)
        return self.chance.choice(EVIL)

    def _size(self) -> int:
        chance = self.chance.random()
        if chance < 0.05:
            return self.chance.choice(EVIL)
        return self.chance.randrange(1, self.limit if chance < 0.2 else 70_000)

    def _place(self) -> int:
        return (self._one(self.known.pointers) + self.chance.choice((0, 0, 0, 4, 512, 65536))) % (1 << 64)

    def words(self) -> tuple[int, list[int]]:
        """An operation and its arguments, mostly right."""
        op = self.chance.choices(
            range(1, LAST_OP + 2),
            [
                1,
                6,
                5,
                3,
                2,
                16,
                6,
                2,
                10,
                8,
                8,
                4,
                8,
                6,
                3,
                2,
                2,
                2,
                6,
                3,
                3,
                2,
                2,
                2,
                1,
                1,
                5,
                4,
                3,
                14,
                4,
                2,
                3,
                1,
                1,
            ],
        )[0]
        one, known, stream = self._one, self.known, self.chance.choice([0, self._one(self.known.streams)])
        arguments = {
            RETAIN: lambda: [0, self.chance.choice((0, 0, 1, 2))],
            CREATE: lambda: [0, self.chance.choice((0, 1, 1, 2))],
            DESTROY: lambda: [one(known.contexts)],
            ALLOC: lambda: [self._size()],
            FREE: lambda: [one(known.pointers)],
            HTOD: lambda: [self._place(), self.chance.randrange(0, 70_000), stream],
            DTOH: lambda: [self._place(), self._size(), stream],
            DTOD: lambda: [self._place(), self._place(), self._size(), stream],
            PEER: lambda: [
                self._place(),
                one(known.contexts),
                self._place(),
                one(known.contexts),
                self._size(),
                stream,
            ],
            MEMSET: lambda: [self._place(), 7, self._size(), self.chance.choice((1, 2, 4)), stream],
            MODULE_LOAD: lambda: [self.chance.choice((0, 0, 0, 1, 33))],
            MODULE_UNLOAD: lambda: [one(known.modules)],
            MODULE_FUNCTION: lambda: [one(known.modules)],
            MODULE_GLOBAL: lambda: [one(known.modules)],
            FUNC_SET: lambda: [
                one(known.functions),
                self.chance.choice((8, 8, 9, 0xFFFF, 99)),
                self.chance.randrange(1 << 17),
            ],
            LAUNCH: lambda: self._launch(stream),
            OCCUPANCY: lambda: [self.chance.choice((0, 1, 2, 9)), one(known.functions), 256, self._size() % 50_000, 0],
            LIMIT_GET: lambda: [self.chance.randrange(8)],
            LIMIT_SET: lambda: [self.chance.randrange(8), self._size()],
            PRIORITIES: lambda: [],
            STREAM_CREATE: lambda: [0, 0],
            STREAM_WAIT: lambda: [one(known.streams), one(known.events)],
            EVENT_CREATE: lambda: [self.chance.choice((0, 0, 0, 0, 2))],
            EVENT_RECORD: lambda: [one(known.events), stream],
            EVENT_ELAPSED: lambda: [one(known.events), one(known.events)],
        }
        if op in arguments:
            return op, arguments[op]()
        return op, [one(known.streams if op in (STREAM_DESTROY, STREAM_QUERY, STREAM_SYNC) else known.events)]

    def _launch(self, stream: int) -> list[int]:
        grid = tuple(self.chance.choices((1, 2, 3, 0, 1 << 31), (9, 4, 4, 1, 1))[0] for _ in range(2))
        block = tuple(self.chance.choices((1, 4, 16, 2000), (9, 9, 9, 1))[0] for _ in range(2))
        made = launch(
            self._one(self.known.functions), grid, block, stream, self.chance.choices((0, 4096, 1 << 30), (9, 4, 1))[0]
        )
        made[5] |= self.chance.choices((0, 1, 17, 1 << 31), (12, 2, 1, 1))[0] << 32  # attributes
        return made

    def _payload(self, op: int, arguments: list[int]) -> bytes:
        chance = self.chance
        if op == HTOD:
            return chance.randbytes(arguments[1])
        if op == MODULE_LOAD:
            image = bytearray(chance.choice((PTX, PTX, PTX[: chance.randrange(len(PTX))], ELF, FATBIN)))
            for _ in range(chance.choice((0, 0, 1, 8)) if image else 0):
                image[chance.randrange(len(image))] = chance.randrange(256)
            return b"".join(struct.pack("<IIQ", chance.randrange(40), 0, 1) for _ in range(arguments[0])) + image
        if op in (MODULE_FUNCTION, MODULE_GLOBAL):
            right = chance.random() < 0.7
            wrong = [*KERNELS, *VARIABLES, b"", b"wrong", chance.randbytes(20), b"x" * 20_000]
            return chance.choice(wrong if not right else VARIABLES if op == MODULE_GLOBAL else list(KERNELS))
        if op == LAUNCH:
            place = [self._place() if chance.random() < 0.2 else self._one(self.known.pointers) for _ in range(6)]
            wrong = chance.choice((*KERNELS.values(), 0, 7, 40_000))
            size = wrong if chance.random() < 0.2 else self.known.sizes.get(arguments[0], wrong)
            values = struct.pack("<6Q", *place)
            return (values * 834)[:size] + chance.randbytes(72 * min(arguments[5] >> 32, 20))
        return b""

    def message(self, seq: int) -> tuple[int, bytes]:
        """One request in step with those before and after it: whatever it says, its payload is as long as it says."""
        op, arguments = self.words()
        payload = self._payload(op, arguments)
        size = len(payload)
        flags = self.chance.choices((1, 3, 0, 2), (60, 25, 10, 5))[0]
        fields = [flags, size, self._one(self.known.contexts) if self.chance.random() < 0.9 else 0, *arguments]
        for _ in range(self.chance.choices((0, 1, 3), (75, 20, 5))[0]):
            # A launch keeps its shape: a grid of 2^30 blocks is no attack, but a program that computes for hours.
            at = self.chance.randrange(min(len(fields), 5 if op == LAUNCH else REFUSED_FIELDS))
            if at != 1:  # the payload's size
                old = fields[at]
                fields[at] = self.chance.choice((old ^ 1 << self.chance.randrange(64), self.chance.choice(EVIL)))
        if self.chance.random() < 0.02 and op not in WITH_PAYLOAD:
            op = self.chance.choice((0, LAST_OP + 1, 99, 1 << 31))
        fields[0] &= 0xFFFFFFFF
        sent = request(op, *fields[3:], size=size, context=fields[2], flags=fields[0], seq=seq)
        return op, sent + payload

    def batch(self) -> tuple[dict[int, int], bytes]:
        """Requests by their numbers, some twice, some in another order; the question of what the server has, last."""
        made = [self.message(seq) for seq in range(1, self.chance.randrange(4, 48))]
        if self.chance.random() < 0.3:
            made += [self.chance.choice(made) for _ in range(self.chance.randrange(1, 8))]
        if self.chance.random() < 0.3:
            self.chance.shuffle(made)
        ops = {REQUEST.unpack_from(sent)[2]: op for op, sent in made}
        return ops, b"".join(sent for _, sent in made) + request(ENVIRONMENT, seq=MARK)

    def torn(self) -> bytes:
        """Requests whose lengths do not hold, cut off anywhere."""
        data = bytearray(self.batch()[1])
        for _ in range(self.chance.randrange(1, 6)):
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        return bytes(data[: self.chance.randrange(len(data))])

    def bad_hello(self) -> bytes:
        """A hello with other bits, cut off or with something behind it."""
        data = bytearray(hello() + self.chance.randbytes(self.chance.randrange(64)))
        for _ in range(self.chance.randrange(1, 4)):
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        return bytes(data[: self.chance.randrange(len(data))])


def exchange(sock: socket.socket, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Send and receive at once, so that neither side waits for the other: sequence number, status, value and payload of
    each reply, until the server or the marked reply ends it. AssertionError where nothing moves any more."""
    sock.setblocking(False)
    sent, got = 0, bytearray()
    while True:
        readable, writable, _ = select.select([sock], [sock] if sent < len(data) else [], [], HANGS_S)
        assert readable or writable, f"the server hangs, {len(data) - sent} bytes not taken"
        try:
            if writable:
                sent += sock.send(data[sent : sent + 65536])
            piece = sock.recv(1 << 20) if readable else None
        except (BrokenPipeError, ConnectionResetError):
            return
        if piece == b"":
            return
        got += piece or b""
        while len(got) >= REPLY.size:
            seq, status, size, value, _ = REPLY.unpack_from(got)
            if len(got) < REPLY.size + size:
                break
            yield seq, status, value, bytes(got[REPLY.size : REPLY.size + size])
            del got[: REPLY.size + size]
            if seq == MARK:
                return


class Honest:
    """Somebody else with a lease, or with a program in the same one: what he wrote stays, and he can work."""

    def __init__(self, sock: socket.socket) -> None:
        """Takes a context and writes a pattern."""
        self.sock = sock
        self.context = asked(sock, RETAIN, 0, 0)[1]
        self.pointer = asked(sock, ALLOC, 4096, context=self.context)[1]
        assert asked(sock, MEMSET, self.pointer, 0x5A, 4096, 1, flags=3, context=self.context)[0] == 0

    def check(self) -> None:
        """His data are there, and another allocation works."""
        self.sock.settimeout(HANGS_S)
        self.sock.sendall(request(DTOH, self.pointer, 4096, context=self.context))
        _, status, size, _, _ = REPLY.unpack(read(self.sock, REPLY.size))
        assert (status, read(self.sock, size)) == (0, b"\x5a" * 4096)
        status, pointer = asked(self.sock, ALLOC, 512, context=self.context)
        assert status == 0
        assert asked(self.sock, FREE, pointer)[0] == 0

    def told(self) -> dict[str, Any]:
        """What the server says that it has."""
        self.sock.sendall(request(ENVIRONMENT))
        _, _, size, _, _ = REPLY.unpack(read(self.sock, REPLY.size))
        return dict(json.loads(read(self.sock, size)))


@contextmanager
def honest(server: Server) -> Iterator[Honest]:
    """Such a one on a server."""
    with admitted(server.port) as sock:
        yield Honest(sock)


def children(server: Server) -> set[int]:
    """Processes of its connections."""
    pid = server.process.pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def gone(server: Server, pid: int) -> bool:
    """Whether a connection's process has ended, and its accounts with it."""
    return any(e["event"] == "gone" and e["pid"] == pid for e in server.events())


def assert_equal(server: Server, told: dict[str, Any]) -> None:
    """The accounts of the server's memory are those of the emulated driver."""
    here, counted = children(server), rows(Path(server.devices["ELASTIC_AI_EMULATED_STATE"]))
    for device, about in enumerate(told["devices"]):
        taken = sum(row.used[device] for pid, row in counted.items() if pid in here)
        assert about["used_bytes"] == taken, f"device {device}: {about['used_bytes']} accounted for, {taken} taken"
        assert taken <= told["memory_limit_bytes"]


def torn(sock: socket.socket, data: bytes) -> None:
    """Send what does not hold together, as far as it is taken, and wait for the other side's end."""
    sock.setblocking(True)
    sock.settimeout(HANGS_S)
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 20):
            pass
    except TimeoutError:
        raise AssertionError("the server hangs") from None
    except OSError:
        return  # it has closed already


def attack(server: Server, seed: int, limit_bytes: int) -> set[int]:
    """One case; the operations that succeeded in it. AssertionError where accounts and driver differ."""
    hostile, done, pid = Hostile(seed, limit_bytes), set[int](), 0
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.settimeout(HANGS_S)
        if hostile.chance.random() < 0.1:
            torn(sock, hostile.bad_hello())
            return done
        sock.sendall(hello())
        welcomed(sock)
        hostile.settle(sock)
        for _ in range(hostile.chance.randrange(1, 5)):
            ops, data = hostile.batch()
            end = None
            for seq, status, value, body in exchange(sock, data):
                if seq == MARK:
                    end = json.loads(body)
                elif status == 0:
                    done.add(ops[seq])
                    hostile.known.learn(ops[seq], value)
            assert end is not None, "a request that is in step ended the connection"
            pid, objects = int(end["child"]), end["objects"]
            row = rows(Path(server.devices["ELASTIC_AI_EMULATED_STATE"])).get(pid)
            here = (objects["contexts"], objects["streams"], objects["events"] + objects["staging_events"])
            assert here == ((row.contexts, row.streams, row.events) if row else (0, 0, 0)), (here, row)
            assert objects["contexts"] <= len(end["devices"])
            assert_equal(server, end)
        if hostile.chance.random() < 0.4:
            torn(sock, hostile.torn())
    wait_for(lambda: gone(server, pid), HANGS_S)
    return done


def until(seconds: float, first_seed: int) -> Iterator[int]:
    """Seeds, for so long."""
    end, seed = time.monotonic() + seconds, first_seed
    while time.monotonic() < end:
        yield seed
        seed += 1
