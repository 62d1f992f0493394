"""Clients of the engine torch that send what is no message, or messages that cannot be: by seed."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support import torch_wire as wire
from tests.support.torch_engine import TOKEN, Server, built, server, wait_until
from tests.support.torch_fuzz import anything, damaged_session, play, true
from tests.support.torch_wire import FLOAT, arguments, beliefs, geometry, integer, tensor


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sessions share 256 MiB."""
    with server(tmp_path_factory.mktemp("torch-hostile"), "--memory-limit", str(256 << 20)) as running:
        yield running


def test_the_session_that_is_damaged_below_is_a_true_one(one: Server) -> None:
    """Else its damage would be refused for what it was before."""
    said = true()
    with wire.Client(one.port, TOKEN) as session:
        session.socket.sendall(b"".join(wire.message(kind, body) for kind, body in said))
        answers = [session.answer() for _ in range(7)]
    assert [answer.tag for answer in answers] == list(range(1, 8))
    told = [error for answer in answers for error in answer.errors]
    assert told == [(wire.RUNTIME, "Invalid mt19937 state", "generator")]  # of zeros, which says RNG_SET


def hostile_and_neighbour(one: Server, seeds: range) -> None:
    """A neighbour computes on, what the hostile held is given back, no child dies by a signal."""
    with wire.Client(one.port, TOKEN) as neighbour:
        a = neighbour.floats(1, 2, 3)
        for seed in seeds:
            rng = random.Random(seed)
            play(one.port, TOKEN, anything(rng) if seed % 4 == 0 else damaged_session(rng))
        values = arguments(tensor(0, [3]), tensor(0, [3]), integer(1))
        [made] = neighbour.call("aten::add.Tensor", values, [a, a], beliefs(geometry(FLOAT, [3])))
        assert neighbour.read(made, 3) == [2, 4, 6]
    wait_until(lambda: not one.children(), "all sessions are gone")
    statuses = {event["status"] for event in one.events() if event["event"] == "gone"}
    assert statuses <= {0, 1, 4}, one.said()[-4000:]  # 4: the watch ended a kernel that went on after its client
    assert 1 in statuses


def staged(number: int, data: bytes, total: int | None = None, offset: int = 0) -> bytes:
    """The body of a STAGE."""
    return struct.pack("<IQQ", number, len(data) if total is None else total, offset) + data


def graph(
    number: int = 1,
    registers: int = 1,
    inputs: int = 0,
    outputs: Sequence[int] = (),
    steps: Sequence[bytes] = (),
    patches: Sequence[tuple[int, int]] = (),
) -> bytes:
    """A GRAPH of this session's only."""
    return wire.message(wire.GRAPH, wire.graph(number, registers, inputs, list(outputs), list(steps), patches))


MAKE = b"A" + struct.pack("<IQ", 1, 8)
DROP = b"F" + struct.pack("<I", 1)


def test_a_graph_keeps_to_its_limits_and_tells_its_faults_as_calls_do(one: Server) -> None:
    """A refused operator, an input that there is not, memory beyond the limit: kept, and the session goes on."""
    values = arguments(tensor(0, [3]), tensor(1, [3]), integer(1))
    three = beliefs(geometry(FLOAT, [3]))
    told = struct.pack("<I", 1) + wire.text("aten::add") + wire.text("Tensor") + values + three
    refused = struct.pack("<I", 2) + wire.text("aten::from_file") + wire.text("") + values + three
    with wire.Client(one.port, TOKEN) as session:
        a = session.floats(1, 2, 3)
        steps = [wire.step_call(1, [0, 0], [1]), wire.step_call(1, [1, 0], [2]), DROP]
        sent = wire.message(wire.SIGNATURE, told) + wire.message(wire.SIGNATURE, refused)
        sent += graph(1, 3, 1, [2], steps) + graph(2, 2, 1, [1], [wire.step_call(2, [0], [1])])
        sent += graph(3, 2, 0, [1], [b"A" + struct.pack("<IQ", 1, 1 << 30)])
        sent += wire.message(wire.FORGET, struct.pack("<I", 1))
        sent += wire.message(wire.RUN, struct.pack("<III", 1, a, 100))
        sent += wire.message(wire.RUN, struct.pack("<III", 1, 77, 101))
        sent += wire.message(wire.RUN, struct.pack("<III", 2, a, 102))
        sent += wire.message(wire.RUN, struct.pack("<II", 3, 103))
        session.socket.sendall(sent)
        assert session.read(100, 3) == [3, 6, 9]
        for number, words in ((101, "no storage 77"), (102, "not among the operators"), (103, "memory")):
            [(_, text, _)] = session.down(number, 4).errors
            assert words in text
        assert session.read(100, 3) == [3, 6, 9]


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


def test_malformed_messages_end_their_own_session_only(one: Server) -> None:
    """Of any bytes, and true ones that were damaged."""
    hostile_and_neighbour(one, range(80))


@pytest.mark.rest
def test_malformed_messages_find_nothing_under_sanitizers(tmp_path: Path) -> None:
    """ELASTIC_AI_TORCH_SEEDS=A:B takes other seeds than the first thousand."""
    first, _, last = os.environ.get("ELASTIC_AI_TORCH_SEEDS", "0:1000").partition(":")
    # The second, for Python is no C++ program: the first looks for its __cxa_throw when it is loaded.
    names = ("libasan.so", "libstdc++.so.6")
    found = [subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip() for name in names]
    settings = {
        "LD_PRELOAD": " ".join(str(Path(library).resolve()) for library in found),
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=97:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=98",
    }
    limits = ("--memory-limit", str(256 << 20), "--threads", "1")
    with server(tmp_path, *limits, engine=built(sanitized=True), **settings) as one:
        maps = Path(f"/proc/{one.process.pid}/maps").read_text()
        assert "libasan" in maps
        hostile_and_neighbour(one, range(int(first), int(last)))
        assert "Sanitizer" not in one.said(), one.said()[-6000:]
        assert "runtime error" not in one.said(), one.said()[-6000:]


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
        (wire.message(wire.RUN, struct.pack("<I", 1)), "a run of no graph"),
        (graph(registers=(1 << 18) + 1), "more registers than allowed"),
        (graph(inputs=2), "more inputs than registers"),
        (graph(outputs=[0]), "an output of a graph is not there at its end"),
        (graph(registers=2, outputs=[1, 1], steps=[MAKE]), "comes twice"),
        (graph(registers=2, outputs=[1], steps=[MAKE, DROP]), "an output of a graph is not there at its end"),
        (graph(registers=2, steps=[MAKE, MAKE]), "written twice"),
        (graph(registers=2, steps=[MAKE, DROP, MAKE]), "written twice"),
        (graph(registers=2, steps=[DROP]), "holds nothing"),
        (graph(registers=1, steps=[MAKE]), "has no register 1"),
        (graph(registers=2, inputs=2, steps=[DROP]), "frees an input"),
        (graph(steps=[wire.step_call(3, [], [])]), "a signature that there is not"),
        (graph(steps=[b"X0000"]), "no step of kind 88"),
        (graph(patches=[(0, 1)]), "outside of its payload"),
        (graph(registers=2, steps=[b"U" + struct.pack("<IQI", 1, 0, 4)]), "holds nothing"),
        (graph() + graph(), "a graph's number is in use"),
        (graph(inputs=1) + wire.message(wire.RUN, struct.pack("<II", 1, 5) + b"x"), "longer than it says"),
        (b"".join(graph(number) for number in range(4097)), "more graphs than"),
        (b"".join(graph(number, registers=1 << 18) for number in range(80)), "larger graphs than"),
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


def test_new_memory_has_nothing_of_the_servers_own(one: Server) -> None:
    """Addresses of its process, and what other clients have said to it."""
    with wire.Client(one.port, TOKEN) as session:
        made = {session.alloc(size): size for size in (16, 64, 400, 1000, 4096, 30_000, 100_000) * 40}
        got = [session.down(storage, size).data for storage, size in made.items()]
    assert not [data for data in got if any(data)]


def test_a_server_like_a_gpu(tmp_path) -> None:
    """NaN in new memory; an index beyond its tensor breaks the device for good."""
    with server(tmp_path, "--like-cuda", "1") as strict, wire.Client(strict.port, TOKEN) as session:
        assert session.down(session.alloc(8), 8).data == b"\xff" * 8
        a, index = session.floats(1, 2, 3), session.up(struct.pack("<q", 9))
        values = arguments(tensor(0, [3]), integer(0), tensor(1, [1], wire.INT64))
        session.call("aten::index_select", values, [a, index], beliefs(geometry(FLOAT, [1])))
        assert session.sync().error[:2] == (wire.ACCELERATOR, "CUDA error: device-side assert triggered")
        assert session.down(a, 12).error[0] == wire.ACCELERATOR
