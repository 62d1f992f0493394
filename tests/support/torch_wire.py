"""A client of the engine `torch` in plain Python: the wire of engine/torch/shared/wire.h, well and ill used."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MAGIC, VERSION = b"EAITRCH\n", 5
(
    SIGNATURE, CALL, ASK, ALLOC, FREE, RESIZE, UP, DOWN, SYNC, FORGET, FLAGS, SEED, RNG_KEEP, RNG_USE, RNG_GET, RNG_SET,
    EVENT, EVENT_WAIT, DEVICE, COLLECTIVE, DROP, PEER_COPY, STAGE, USE,
    GRAPH, RUN, VERBS,
) = range(1, 28)  # fmt: skip
WELCOME, ANSWER, DATA, REFUSED, STARTING, NOTICE = range(1, 7)
RUNTIME, INDEX, TYPE, VALUE, NOT_IMPLEMENTED, LINALG, OUT_OF_MEMORY, ACCELERATOR, ENGINE = range(9)
COUNTERS = ("calls", "failed", "relaid", "storages", "storage_bytes", "peak_bytes", "signatures", "signature_bytes")
#: Numbers of c10::ScalarType.
UINT8, INT64, FLOAT, DOUBLE, COMPLEX, BOOL = 0, 4, 6, 7, 9, 11
NONE, UNDEFINED, GENERATOR = b"N", b"U", b"G"


def text(words: str | bytes) -> bytes:
    """A str of the wire."""
    raw = words.encode() if isinstance(words, str) else words
    return struct.pack("<I", len(raw)) + raw


def hello(token: str, version: int = VERSION, magic: bytes = MAGIC, transport: int = 0) -> bytes:
    """What a client begins with. transport: 0 TCP, 1 verbs."""
    words = (magic, version, os.getpid(), b"2.13.0", b"test", transport, token.encode())
    return struct.pack("<8sII64s60sI256s", *words)


def connected(port: int, timeout_s: float = 20.0) -> socket.socket:
    """A connection that has said nothing."""
    made = socket.create_connection(("127.0.0.1", port), timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def message(kind: int, body: bytes) -> bytes:
    """A message."""
    return struct.pack("<BI", kind, len(body)) + body


def contiguous(sizes: list[int]) -> list[int]:
    """Strides of that."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def geometry(dtype: int, sizes: list[int], strides: list[int] | None = None, offset: int = 0) -> bytes:
    """Of a tensor."""
    laid = contiguous(sizes) if strides is None else strides
    count = len(sizes)
    return struct.pack(f"<BB{count}q{len(laid)}qq", dtype, count, *sizes, *laid, offset)


def tensor(slot: int, sizes: list[int], dtype: int = FLOAT, strides: list[int] | None = None, offset: int = 0) -> bytes:
    """An argument that lies in the call's storage of that place."""
    return b"T" + geometry(dtype, sizes, strides, offset) + struct.pack("<HB", slot, 0)


NO_REGISTER = (1 << 32) - 1


def step_call(signature: int, slots: list[int], made: list[int], payload: bytes = b"") -> bytes:
    """A step of a graph: a call, whose numbers are registers."""
    head = struct.pack(f"<IH{len(slots)}IH", signature, len(slots), *slots, len(payload))
    return b"C" + head + payload + struct.pack(f"<H{len(made)}I", len(made), *made)


def graph(
    number: int,
    registers: int,
    inputs: int,
    outputs: list[int],
    steps: list[bytes],
    patches: Sequence[tuple[int, int]] = (),
) -> bytes:
    """The body of a GRAPH."""
    head = struct.pack(f"<4I{len(outputs)}II", number, registers, inputs, len(outputs), *outputs, len(patches))
    told = b"".join(struct.pack("<IH", *patch) for patch in patches)
    return head + told + struct.pack("<I", len(steps)) + b"".join(steps)


def integer(value: int) -> bytes:
    """An integer."""
    return b"i" + struct.pack("<q", value)


def boolean(value: bool) -> bytes:
    """A boolean."""
    return b"b" + struct.pack("<q", value)


def number(value: float) -> bytes:
    """A floating number."""
    return b"d" + struct.pack("<d", value)


def words(value: str) -> bytes:
    """A string."""
    return b"s" + text(value)


def integers(*values: int) -> bytes:
    """A list of integers."""
    return b"I" + struct.pack(f"<I{len(values)}q", len(values), *values)


def tensors(*values: bytes, kind: bytes = b"L") -> bytes:
    """A list of tensors ("L"), optional ones ("O"), or scalars ("S")."""
    return kind + struct.pack("<I", len(values)) + b"".join(values)


def arguments(*values: bytes) -> bytes:
    """All of an operator's."""
    return struct.pack("<H", len(values)) + b"".join(values)


def beliefs(*values: bytes | None) -> bytes:
    """New outputs: a geometry each; None: not defined."""
    return struct.pack("<H", len(values)) + b"".join(b"\0" if v is None else b"\1" + v for v in values)


def packed(
    tables: list[bytes],
    count: int = 0,
    *,
    element: int = 4,
    outer: int = 1,
    inner: int | None = None,
    indices: bytes | None = None,
) -> bytes:
    """Floats as a table for each channel and so many indices: engine/torch/shared/packed.h."""
    told = bytes(count) if indices is None else indices
    head = struct.pack(
        "<BIQQ", element, len(tables), outer, len(told) // max(len(tables), 1) if inner is None else inner
    )
    return head + b"".join(struct.pack("<H", len(table) // element) + table for table in tables) + told


def numbers(values: list[int]) -> bytes:
    """Storages."""
    return struct.pack(f"<H{len(values)}I", len(values), *values)


@dataclass
class Answer:
    """An ANSWER, with the DATA before it."""

    tag: int
    errors: list[tuple[int, str, str]]
    warnings: list[tuple[int, str]]
    body: bytes
    data: bytes = b""

    @property
    def error(self) -> tuple[int, str, str]:
        """The one that it has."""
        assert len(self.errors) == 1, self.errors
        return self.errors[0]


class Refusal(Exception):
    """REFUSED: its kind and sentence."""


class Ended(Exception):
    """The server closed the connection."""


@dataclass
class Client:
    """A session. Numbers of storages and signatures are given out by it."""

    port: int
    token: str
    timeout_s: float = 20.0
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Connects, shows the token."""
        self.next = 1
        self.tag = 0
        self.known: dict[bytes, int] = {}
        self.buffer = b""
        self.socket = connected(self.port, self.timeout_s)
        self.socket.sendall(hello(self.token))
        self.welcome = self._welcome()

    def __enter__(self) -> Client:
        """The session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Goes."""
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        parts, left = [], count
        while left:
            try:
                got = self.socket.recv(min(left, 1 << 20))
            except ConnectionError:
                got = b""
            if not got:
                raise Ended
            parts.append(got)
            left -= len(got)
        return b"".join(parts)

    def receive(self) -> tuple[int, bytes]:
        """The next message."""
        kind, length = struct.unpack("<BI", self._exactly(5))
        return kind, self._exactly(length)

    def _welcome(self) -> dict[str, Any]:
        while True:
            kind, body = self.receive()
            if kind == REFUSED:
                raise Refusal(body[0], body[5:].decode())
            if kind != STARTING:
                break
        assert kind == WELCOME
        version, at = struct.unpack_from("<I", body)[0], 4
        told = []
        for _ in range(2):
            length = struct.unpack_from("<I", body, at)[0]
            told.append(body[at + 4 : at + 4 + length].decode())
            at += 4 + length
        count = struct.unpack_from("<I", body, at)[0]
        at += 4
        operators = []
        for _ in range(count):
            length = struct.unpack_from("<I", body, at)[0]
            operators.append(body[at + 4 : at + 4 + length].decode())
            at += 4 + length
        assert at == len(body)
        return {"version": version, "torch": told[0], **json.loads(told[1]), "operators": operators}

    def send(self, kind: int, body: bytes = b"") -> None:
        """A message."""
        self.socket.sendall(message(kind, body))

    def answer(self) -> Answer:
        """The next ANSWER, with the data that came before it."""
        data = []
        while True:
            kind, body = self.receive()
            if kind == NOTICE:
                self.notices.append(body[5:].decode())
            elif kind == DATA:
                assert struct.unpack_from("<Q", body, 4)[0] == sum(map(len, data))
                data.append(body[12:])
            else:
                assert kind == ANSWER, kind
                break
        tag, at = struct.unpack_from("<I", body)[0], 4

        def one(with_operator: bool) -> tuple[Any, ...]:
            nonlocal at
            parts: list[Any] = [body[at]]
            at += 1
            for _ in range(1 + with_operator):
                length = struct.unpack_from("<I", body, at)[0]
                parts.append(body[at + 4 : at + 4 + length].decode())
                at += 4 + length
            return tuple(parts)

        lists = []
        for with_operator in (True, False):
            count = struct.unpack_from("<H", body, at)[0]
            at += 2
            lists.append([one(with_operator) for _ in range(count)])
        length = struct.unpack_from("<I", body, at)[0]
        assert at + 4 + length == len(body)
        return Answer(tag, lists[0], lists[1], body[at + 4 :], b"".join(data))

    def ask_for(self, kind: int, body: bytes = b"") -> Answer:
        """A message with a tag, and its answer."""
        self.tag += 1
        self.send(kind, struct.pack("<I", self.tag) + body)
        answer = self.answer()
        assert answer.tag == self.tag
        return answer

    def new(self, count: int = 1) -> int:
        """The first of so many unused numbers."""
        self.next += count
        return self.next - count

    def alloc(self, size: int) -> int:
        """A storage of so many bytes."""
        storage = self.new()
        self.send(ALLOC, struct.pack("<IQ", storage, size))
        return storage

    def up(self, data: bytes, storage: int | None = None, offset: int = 0) -> int:
        """A storage with these bytes."""
        where = self.alloc(len(data)) if storage is None else storage
        for at in range(0, len(data), 4 << 20):
            self.send(UP, struct.pack("<IQ", where, offset + at) + data[at : at + (4 << 20)])
        return where

    def floats(self, *values: float) -> int:
        """A storage with these floats."""
        return self.up(struct.pack(f"<{len(values)}f", *values))

    def down(self, storage: int, count: int, offset: int = 0) -> Answer:
        """Its bytes."""
        return self.ask_for(DOWN, struct.pack("<IQQ", storage, offset, count))

    def read(self, storage: int, count: int) -> list[float]:
        """Its floats; no error may be there."""
        answer = self.down(storage, 4 * count)
        assert not answer.errors, answer.errors
        return list(struct.unpack(f"<{count}f", answer.data))

    def sync(self) -> Answer:
        """Waits for all."""
        return self.ask_for(SYNC)

    def counters(self) -> dict[str, int]:
        """What the session has come to; no error may be there."""
        answer = self.sync()
        assert not answer.errors, answer.errors
        return dict(zip(COUNTERS, struct.unpack("<8Q", answer.body), strict=True))

    def call(
        self,
        operator: str,
        values: bytes,
        slots: list[int],
        outputs: bytes = b"\0\0",
        payload: bytes = b"",
        new: int = 1,
    ) -> list[int]:
        """CALL, with SIGNATURE before its first: the numbers of its new outputs."""
        name, _, overload = operator.partition(".")
        told = text(name) + text(overload) + values + outputs
        if told not in self.known:
            self.known[told] = len(self.known) + 1
            self.send(SIGNATURE, struct.pack("<I", self.known[told]) + told)
        made = list(range(first := self.new(new), first + new))
        body = struct.pack("<I", self.known[told]) + numbers(slots)
        self.send(CALL, body + struct.pack("<H", len(payload)) + payload + numbers(made))
        return made

    def ask(
        self, operator: str, values: bytes, slots: list[int], payload: bytes = b"", most: int = 4
    ) -> tuple[Answer, int]:
        """ASK: the answer, and the first number that its results have."""
        name, _, overload = operator.partition(".")
        first = self.new(most)
        body = text(name) + text(overload) + values + numbers(slots) + text(payload) + struct.pack("<IH", first, most)
        return self.ask_for(ASK, body), first


def rest_of(connection: socket.socket) -> bytes:
    """All that still comes, until the other end has ended."""
    got = b""
    try:
        while part := connection.recv(65536):
            got += part
    except ConnectionError:
        pass
    return got
