"""Clients of the engine torch that send what is no message, or messages that cannot be: by seed."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.support import torch_wire as wire
from tests.support.torch_engine import TOKEN, Server, server
from tests.support.torch_wire import FLOAT, arguments, beliefs, geometry, integer, tensor

KINDS = range(256)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sessions share 256 MiB."""
    with server(tmp_path_factory.mktemp("torch-hostile"), "--memory-limit", str(256 << 20)) as running:
        yield running


def garbage(rng: random.Random) -> bytes:
    """A body of any bytes, or of pieces that stand in true ones."""
    pieces = [
        wire.text("aten::add"), wire.text("Tensor"), wire.text(""), struct.pack("<I", 1),
        struct.pack("<I", 1 << 31),
        struct.pack("<H", 65535), tensor(0, [3]), tensor(0, [1 << 62]), tensor(65535, [3]), integer(-1), b"N", b"L",
        b"S",
        arguments(tensor(0, [3]), tensor(0, [3]), integer(1)),
        beliefs(geometry(FLOAT, [3])), struct.pack("<Q", 1 << 63), struct.pack("<IQQ", 1, 64, 0),
        struct.pack("<IBIQQ", 1, 1, 1, 0, 64),
        wire.packed([b"\0" * 4], 16), bytes(64),
    ]  # fmt: skip
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(64))
    return b"".join(rng.choice(pieces) for _ in range(rng.randrange(8)))


def hostile(session: wire.Client, rng: random.Random) -> None:
    """Twenty messages, framed well or ill."""
    session.alloc(64)
    sent = []
    for _ in range(20):
        body = garbage(rng)
        kind = rng.choice([*range(1, 25)] * 8 + [*KINDS])
        if rng.random() < 0.05:
            sent.append(struct.pack("<BI", kind, rng.choice([0, len(body) + 5, 1 << 24, (1 << 32) - 1])) + body)
        else:
            sent.append(wire.message(kind, body))
    try:
        session.socket.sendall(b"".join(sent))
        session.socket.shutdown(socket.SHUT_WR)
        while session.socket.recv(1 << 16):
            pass
    except OSError:
        pass  # it was ended while it still spoke


def test_malformed_messages_end_their_own_session_only(one: Server) -> None:
    """A neighbour computes on, what the hostile held is given back, no child dies by a signal."""
    with wire.Client(one.port, TOKEN) as neighbour:
        a = neighbour.floats(1, 2, 3)
        for seed in range(20):
            with wire.Client(one.port, TOKEN) as session:
                hostile(session, random.Random(seed))
        values = arguments(tensor(0, [3]), tensor(0, [3]), integer(1))
        [made] = neighbour.call("aten::add.Tensor", values, [a, a], beliefs(geometry(FLOAT, [3])))
        assert neighbour.read(made, 3) == [2, 4, 6]
    statuses = {event["status"] for event in one.events() if event["event"] == "gone"}
    assert statuses <= {0, 1}
    assert 1 in statuses


def staged(number: int, data: bytes, total: int | None = None, offset: int = 0) -> bytes:
    """The body of a STAGE."""
    return struct.pack("<IQQ", number, len(data) if total is None else total, offset) + data


BEGUN = wire.message(wire.STAGE, staged(1, b"12", 8))


def unpacked(data: bytes, count: int = 16, form: int = 1, offset: int = 0) -> bytes:
    """Messages that make it the bytes of a storage of 64."""
    alloc = wire.message(wire.ALLOC, struct.pack("<IQ", 1, 64))
    use = wire.message(wire.USE, struct.pack("<IBIQQ", 1, form, 1, offset, count))
    return alloc + wire.message(wire.STAGE, staged(1, data)) + use


def test_an_index_beyond_its_table_reads_no_memory(one: Server) -> None:
    """Places that were not told are zero."""
    with wire.Client(one.port, TOKEN) as session:
        session.socket.sendall(unpacked(wire.packed([b"abcd"], indices=bytes([0, 255, 1, 0]))))
        assert session.down(1, 16).data == b"abcd" + bytes(8) + b"abcd"


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (struct.pack("<BI", wire.SYNC, (16 << 20) + 1), "longer than allowed"),
        (wire.message(77, b""), "no message of kind 77"),
        (wire.message(wire.CALL, struct.pack("<IHHH", 5, 0, 0, 0)), "a call of no signature"),
        (wire.message(wire.SYNC, b"\1\0\0\0x"), "longer than it says"),
        (wire.message(wire.SYNC, b"\1"), "shorter than it says"),
        (wire.message(wire.ALLOC, struct.pack("<IQ", 0, 4)), "storage 0 is none"),
        (wire.message(wire.ALLOC, struct.pack("<IQ", 9, 4)) * 2, "is there already"),
        (wire.message(wire.DEVICE, b"\7"), "no device 7"),
        (wire.message(wire.UP, b"\1"), "no such length"),
        (wire.message(wire.STAGE, b"\1"), "no such length"),
        (wire.message(wire.STAGE, staged(0, b"12")), "no beginning"),
        (wire.message(wire.STAGE, staged(1, b"12", 8, 4)), "no beginning"),
        (BEGUN + wire.message(wire.STAGE, staged(1, b"12", 8, 4)), "does not follow"),
        (BEGUN + wire.message(wire.STAGE, staged(1, b"12", 9, 2)), "does not follow"),
        (wire.message(wire.STAGE, staged(1, b"123", 2)), "does not follow"),
        (wire.message(wire.STAGE, staged(1, b"12", 1 << 62)), "more is staged"),
        (b"".join(wire.message(wire.STAGE, staged(i, b"1", 100 << 20)) for i in range(1, 7)), "more is staged"),
        (unpacked(wire.packed([b"abcd"], 4), form=7), "no such form"),
        (unpacked(wire.packed([b"abcd"], 4), 15), "as many as they should be"),
        (unpacked(wire.packed([b"abcd"], 4, element=3)), "no such size"),
        (unpacked(wire.packed([], 4)), "no such number of channels"),
        (unpacked(wire.packed([b"abcd"], 4, outer=0)), "as many as they should be"),
        (unpacked(wire.packed([b"abcd"], 4, outer=1 << 63, inner=2)), "as many as they should be"),
        (unpacked(wire.packed([b""], 4)), "no such length"),
        (unpacked(wire.packed([b"abcd" * 257], 4)), "no such length"),
        (unpacked(wire.packed([b"abcd"], 3, inner=4)), "another number of indices"),
        (unpacked(wire.packed([b"abcd"], 5, inner=4)), "another number of indices"),
        (unpacked(wire.packed([b"abcd"], 4)[:9]), "shorter than it says"),
        (unpacked(wire.packed([b"abcd"], 4), offset=2), "begin between two"),
    ],
)
def test_what_is_no_message_is_told(one: Server, first: bytes, why: str) -> None:
    """A NOTICE with the reason, then the end."""
    with wire.Client(one.port, TOKEN) as session:
        session.socket.sendall(first)
        kind, body = session.receive()
        if kind == wire.ANSWER:  # what could be read of it was answered
            kind, body = session.receive()
        assert kind == wire.NOTICE
        assert why in body[5:].decode()
        with pytest.raises(wire.Ended):
            session.receive()


def test_memory_that_a_session_held_is_there_for_the_next(one: Server) -> None:
    """200 of 256 MiB, one session after the other, and no byte of the first is in the second."""
    for _ in range(3):
        with wire.Client(one.port, TOKEN) as session:
            storage = session.alloc(200 << 20)
            answer = session.down(storage, 1 << 20, 77 << 20)
            assert not answer.errors
            assert not any(answer.data)
            session.up(b"\xa5" * (1 << 20), storage, 77 << 20)
            session.sync()
        while one.children():
            pass


def test_a_server_like_a_gpu(tmp_path) -> None:
    """NaN in new memory; an index beyond its tensor breaks the device for good."""
    with server(tmp_path, "--like-cuda", "1") as strict, wire.Client(strict.port, TOKEN) as session:
        assert session.down(session.alloc(8), 8).data == b"\xff" * 8
        a, index = session.floats(1, 2, 3), session.up(struct.pack("<q", 9))
        values = arguments(tensor(0, [3]), integer(0), tensor(1, [1], wire.INT64))
        session.call("aten::index_select", values, [a, index], beliefs(geometry(FLOAT, [1])))
        assert session.sync().error[:2] == (wire.ACCELERATOR, "CUDA error: device-side assert triggered")
        assert session.down(a, 12).error[0] == wire.ACCELERATOR
