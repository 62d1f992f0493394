"""Sessions of the engine `torch` by seed that mean harm: messages of any bytes, and true ones that were damaged."""

from __future__ import annotations

import random
import socket
import struct

from tests.support import torch_wire as wire
from tests.support.torch_wire import (
    FLOAT,
    INT64,
    arguments,
    beliefs,
    boolean,
    geometry,
    integer,
    integers,
    number,
    tensor,
    tensors,
    words,
)  # fmt: skip

#: Numbers that stand where bounds are computed.
EDGES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)


def garbage(rng: random.Random) -> bytes:
    """A body of any bytes, or of pieces that stand in true ones."""
    pieces = [
        wire.text("aten::add"), wire.text("Tensor"), wire.text(""), struct.pack("<I", 1), struct.pack("<I", 1 << 31),
        struct.pack("<H", 65535), tensor(0, [3]), tensor(0, [1 << 62]), tensor(65535, [3]), integer(-1), b"N", b"L",
        b"S", arguments(tensor(0, [3]), tensor(0, [3]), integer(1)), beliefs(geometry(FLOAT, [3])),
        struct.pack("<Q", 1 << 63), struct.pack("<IQQ", 1, 64, 0), struct.pack("<IBIQQ", 1, 1, 1, 0, 64),
        wire.packed([b"\0" * 4], 16), bytes(64), wire.step_call(1, [0], [1]), b"F" + struct.pack("<I", 2),
        wire.graph(1, 3, 1, [1], [b"A" + struct.pack("<IQ", 1, 8)]),
    ]  # fmt: skip
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(64))
    return b"".join(rng.choice(pieces) for _ in range(rng.randrange(8)))


def anything(rng: random.Random) -> list[bytes]:
    """Twenty messages, framed well or ill."""
    sent = []
    for _ in range(20):
        body = garbage(rng)
        kind = rng.choice([*range(1, 27)] * 8 + [*range(256)])
        if rng.random() < 0.05:
            sent.append(struct.pack("<BI", kind, rng.choice([0, len(body) + 5, 1 << 24, (1 << 32) - 1])) + body)
        else:
            sent.append(wire.message(kind, body))
    return sent


def true() -> list[tuple[int, bytes]]:
    """A session that uses each kind of message and each kind of value as a client does; tags 1, 2, ..."""
    a, b, zero = 1, 2, 3
    add = arguments(tensor(0, [3]), tensor(1, [3]), integer(1))
    pad = arguments(tensor(0, [3]), integers(1, 1), words("constant"), number(0))
    cat = arguments(tensors(tensor(0, [3]), tensor(1, [3])), integer(0))
    index = arguments(tensor(0, [3]), tensors(tensor(1, [1], INT64), kind=b"O"))
    fill = arguments(tensor(0, [3]), b"z" + struct.pack("<2d", 1, 0))
    draw = arguments(tensor(0, [3]), number(0), number(1), wire.GENERATOR)
    other = arguments(tensor(0, [3]), number(0), number(1), b"g" + struct.pack("<I", 5))
    scale = arguments(tensor(0, [3]), b"D", b"j")
    total = arguments(tensor(0, [3]), integers(0), boolean(True), wire.NONE)
    scalars = arguments(tensors(tensor(0, [3]), tensor(1, [3])), tensors(b"D", b"j", kind=b"S"))

    def told(n: int, name: str, overload: str, values: bytes, outputs: bytes) -> tuple[int, bytes]:
        return wire.SIGNATURE, struct.pack("<I", n) + wire.text(name) + wire.text(overload) + values + outputs

    def call(n: int, slots: list[int], made: list[int], payload: bytes = b"") -> tuple[int, bytes]:
        body = struct.pack("<I", n) + wire.numbers(slots) + struct.pack("<H", len(payload)) + payload
        return wire.CALL, body + wire.numbers(made)

    def ask(tag: int, name: str, overload: str, values: bytes, slots: list[int], first: int) -> tuple[int, bytes]:
        body = struct.pack("<I", tag) + wire.text(name) + wire.text(overload) + values + wire.numbers(slots)
        return wire.ASK, body + wire.text(b"") + struct.pack("<IH", first, 4)

    three = beliefs(geometry(FLOAT, [3]))
    whole = wire.graph(
        1, 5, 2, [3],
        [
            wire.step_call(1, [0, 1], [2]),
            b"A" + struct.pack("<IQ", 4, 12),
            b"U" + struct.pack("<IQI", 4, 4, 8) + bytes(8),
            wire.step_call(4, [4], []),
            wire.step_call(7, [2], [3], struct.pack("<dq", 2.5, 1)),
            b"F" + struct.pack("<I", 2),
        ],
        [(0, 8)],
    )  # fmt: skip
    return [
        (wire.FLAGS, struct.pack("<HHqHqHq", 3, 0, FLOAT, 1, 2, 25, 0x4321)),
        (wire.DEVICE, b"\0"),
        (wire.ALLOC, struct.pack("<IQ", a, 12)),
        (wire.ALLOC, struct.pack("<IQ", b, 12)),
        (wire.ALLOC, struct.pack("<IQ", zero, 8)),
        (wire.UP, struct.pack("<IQq", zero, 0, 0)),
        (wire.UP, struct.pack("<IQ3f", a, 0, 1, 2, 3)),
        (wire.UP, struct.pack("<IQ2f", b, 4, 5, 6)),
        (wire.SEED, struct.pack("<IQ", 0, 7)),
        (wire.SEED, struct.pack("<IQ", 5, 7)),
        (wire.RNG_KEEP, struct.pack("<II", 0, 1)),
        told(1, "aten::add", "Tensor", add, three),
        call(1, [a, b], [10]),
        told(2, "aten::pad", "", pad, beliefs(geometry(FLOAT, [5]))),
        call(2, [a], [11]),
        told(3, "aten::cat", "", cat, beliefs(geometry(FLOAT, [6]))),
        call(3, [a, b], [12]),
        told(4, "aten::fill_", "Scalar", fill, beliefs()),
        call(4, [b], []),
        told(5, "aten::uniform_", "", draw, beliefs()),
        call(5, [b], []),
        told(6, "aten::uniform_", "", other, beliefs()),
        call(6, [b], []),
        told(7, "aten::add", "Scalar", scale, three),
        call(7, [a], [13], struct.pack("<dq", 2.5, 1)),
        told(8, "aten::sum", "dim_IntList", total, beliefs(geometry(FLOAT, [1]))),
        call(8, [a], [14]),
        told(9, "aten::_foreach_add", "ScalarList", scalars, beliefs(geometry(FLOAT, [3]), geometry(FLOAT, [3]))),
        call(9, [a, b], [15, 16], struct.pack("<dq", 2.5, 1)),
        (wire.GRAPH, whole),
        (wire.RUN, struct.pack("<4Id", 1, a, b, 17, 0.5)),
        (wire.RUN, struct.pack("<4Id", 1, b, a, 18, 2.5)),
        (wire.DROP, struct.pack("<BI", 5, 1)),
        ask(1, "aten::nonzero", "", arguments(tensor(0, [3])), [a], 20),
        ask(2, "aten::index", "Tensor", index, [a, zero], 24),
        ask(3, "aten::split", "Tensor", arguments(tensor(0, [3]), integer(1), integer(0)), [a], 28),
        (wire.RESIZE, struct.pack("<IQ", a, 24)),
        (wire.PEER_COPY, struct.pack("<IBQIBQQ", a, 0, 12, b, 0, 0, 12)),
        (wire.DOWN, struct.pack("<IIQQ", 4, a, 4, 16)),
        (wire.RNG_USE, struct.pack("<II", 0, 1)),
        (wire.RNG_GET, struct.pack("<II", 5, 5)),
        (wire.RNG_SET, struct.pack("<I", 5) + wire.text(bytes(5056))),
        (wire.EVENT, struct.pack("<I", 1)),
        (wire.EVENT_WAIT, struct.pack("<II", 6, 1)),
        (wire.DROP, struct.pack("<BI", 2, 1)),
        (wire.DROP, struct.pack("<BI", 1, 1)),
        (wire.DROP, struct.pack("<BI", 4, 0)),
        (wire.DROP, struct.pack("<BI", 0, 5)),
        (wire.FORGET, struct.pack("<I", 3)),
        (wire.FREE, struct.pack("<I", 12)),
        (wire.SYNC, struct.pack("<I", 7)),
    ]


def damaged(rng: random.Random, body: bytes) -> bytes:
    """Bytes changed, put in, left out; numbers of an edge in the place of others."""
    raw = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(raw) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(raw):
            raw[at] = rng.randrange(256)
        elif how == 1:
            width = rng.choice((1, 2, 4, 8))
            edge = rng.choice(EDGES) & ((1 << 8 * width) - 1)
            raw[at : at + width] = edge.to_bytes(width, "little")
        elif how == 2:
            raw[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif how == 3:
            del raw[at : at + rng.randrange(1, 20)]
        else:
            raw[at : at + 8] = (rng.randrange(1 << 16) - 100 & ((1 << 64) - 1)).to_bytes(8, "little")
    return bytes(raw)


def damaged_session(rng: random.Random) -> list[bytes]:
    """A true session with some of its messages damaged, twice, left out, or elsewhere."""
    said = true()
    for _ in range(rng.randrange(3)):
        said.insert(rng.randrange(len(said)), rng.choice(said))
    for _ in range(rng.randrange(3)):
        del said[rng.randrange(len(said))]
    hit = {rng.randrange(len(said)) for _ in range(rng.randrange(1, 4))}
    return [wire.message(kind, damaged(rng, body) if n in hit else body) for n, (kind, body) in enumerate(said)]


def play(port: int, token: str, messages: list[bytes]) -> bytes:
    """Says it all, and reads what comes."""
    got = b""
    with wire.Client(port, token) as session:
        try:
            session.socket.sendall(b"".join(messages))
            session.socket.shutdown(socket.SHUT_WR)
            while part := session.socket.recv(1 << 16):
                got += part
        except OSError:
            pass  # it was ended while it still spoke
    return got
