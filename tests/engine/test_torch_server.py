"""The server of engine torch by a plain client: what it computes, what it refuses, what it keeps."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support import torch_wire as wire
from tests.support.torch_engine import PROGRAMS, TOKEN, Server, run, server
from tests.support.torch_wire import FLOAT, INT64, arguments, beliefs, geometry, integer, integers, tensor

NO_DTYPE = wire.NONE
MIB = 1 << 20


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on processors."""
    with server(tmp_path_factory.mktemp("torch-server")) as running:
        yield running


@pytest.fixture
def client(one: Server) -> Iterator[wire.Client]:
    """A session there."""
    with wire.Client(one.port, TOKEN) as session:
        yield session


def add(client: wire.Client, a: int, b: int, count: int = 3, expected: int | None = None) -> int:
    """Their sum; `expected`: another size of the result than it has."""
    values = arguments(tensor(0, [count]), tensor(1, [count]), integer(1))
    return client.call("aten::add.Tensor", values, [a, b], beliefs(geometry(FLOAT, [expected or count])))[0]


def in_place(client: wire.Client, a: int, b: int, count: int = 3) -> None:
    """A += b."""
    values = arguments(tensor(0, [count]), tensor(1, [count]), integer(1))
    client.call("aten::add_.Tensor", values, [a, b], new=0)


def total(client: wire.Client, a: int, dim: int, count: int = 3) -> tuple[wire.Answer, int]:
    """Asks for its sum over a dimension."""
    return client.ask(
        "aten::sum.dim_IntList", arguments(tensor(0, [count]), integers(dim), wire.boolean(False), NO_DTYPE), [a]
    )


def test_welcome_tells_devices_and_operators(client: wire.Client) -> None:
    """Memory, name and the allowed operators come first."""
    [device] = client.welcome["devices"]
    assert device["processor"]
    assert device["total_memory_bytes"] > 0
    assert "aten::add.Tensor" in client.welcome["operators"]
    assert not any("from_file" in name for name in client.welcome["operators"])


def test_operators_compute(client: wire.Client) -> None:
    """Values go up, an operator runs, values come down."""
    made = add(client, client.floats(1, 2, 3), client.floats(10, 20, 30))
    assert client.read(made, 3) == [11, 22, 33]


def test_a_question_tells_results_and_geometry(client: wire.Client) -> None:
    """The size of nonzero's result is known to the server alone."""
    answer, first = client.ask("aten::nonzero", arguments(tensor(0, [3])), [client.floats(1, 0, 3)])
    assert not answer.errors
    told = b"T" + struct.pack("<I", first) + geometry(INT64, [2, 1], [1, 2]) + struct.pack("<Q", 16)
    assert answer.body in (
        struct.pack("<H", 1) + told + struct.pack("<H", 0),
        struct.pack("<H", 1) + told.replace(geometry(INT64, [2, 1], [1, 2]), geometry(INT64, [2, 1])) + b"\0\0",
    )
    assert struct.unpack("<2q", client.down(first, 16).data) == (0, 2)


def test_errors_keep_their_class_and_text(client: wire.Client) -> None:
    """As torch raises them, without a prefix."""
    answer, _ = total(client, client.floats(1, 2, 3), 5)
    kind, words, operator = answer.error
    assert kind == wire.INDEX
    assert words == "Dimension out of range (expected to be in range of [-1, 0], but got 5)"
    assert operator == "aten::sum.dim_IntList"


def test_a_failed_call_spoils_its_results_and_no_others(client: wire.Client) -> None:
    """What reads them is skipped; what does not, runs; the error is told once for each that is read."""
    a, b = client.floats(1, 2, 3), client.floats(1, 1, 1)
    bad = client.call(
        "aten::add.Tensor", arguments(tensor(0, [3]), tensor(1, [2]), integer(1)), [a, b], beliefs(geometry(FLOAT, [3]))
    )[0]
    after = add(client, bad, b)
    apart = add(client, a, b)
    assert client.read(apart, 3) == [2, 3, 4]
    kind, words, _ = client.down(after, 12).error
    assert (kind, "must match" in words) == (wire.RUNTIME, True)
    assert client.down(bad, 12).error[1] == words
    assert not client.sync().errors
    assert client.read(apart, 3) == [2, 3, 4]


def test_what_was_skipped_is_usable_once_the_error_is_told(client: wire.Client) -> None:
    """A program that catches the error finds its weights as they were before the step that failed."""
    weights, gradient = client.floats(1, 2, 3), client.floats(1, 1, 1)
    bad = client.call(
        "aten::add.Tensor",
        arguments(tensor(0, [3]), tensor(1, [2]), integer(1)),
        [weights, gradient],
        beliefs(geometry(FLOAT, [3])),
    )[0]
    in_place(client, weights, bad)
    assert len(client.down(weights, 12).errors) == 1
    assert client.read(weights, 3) == [1, 2, 3]
    in_place(client, weights, gradient)
    assert client.read(weights, 3) == [2, 3, 4]


def test_synchronising_tells_the_errors_that_wait(client: wire.Client) -> None:
    """Once."""
    a = client.floats(1, 2, 3)
    client.call(
        "aten::add.Tensor", arguments(tensor(0, [3]), tensor(0, [2]), integer(1)), [a], beliefs(geometry(FLOAT, [3]))
    )
    assert client.sync().error[0] == wire.RUNTIME
    assert not client.sync().errors


def test_a_result_of_another_size_is_an_error(client: wire.Client) -> None:
    """Never silence."""
    made = add(client, client.floats(1, 2, 3), client.floats(1, 2, 3), expected=4)
    kind, words, _ = client.down(made, 16).error
    assert kind == wire.ENGINE
    assert "is Float[3], the client expects Float[4]" in words


def test_an_out_argument_of_another_size_is_an_error(client: wire.Client) -> None:
    """torch would make it smaller, and the client would read foreign bytes behind its end."""
    out = client.floats(*range(9))
    values = arguments(tensor(0, [3, 2]), integers(1), wire.boolean(False), NO_DTYPE, tensor(1, [9]))
    client.call("aten::sum.IntList_out", values, [client.floats(1, 2, 3, 4, 5, 6), out], new=0)
    kind, words, _ = client.down(out, 36).error
    assert kind == wire.ENGINE
    assert "has become Float[3], the client expects Float[9]" in words


def test_results_with_other_strides_get_those_promised(client: wire.Client) -> None:
    """The client reads memory by its belief."""
    a = client.floats(1, 2, 3, 4, 5, 6)
    values = arguments(tensor(0, [2, 3]))
    [made] = client.call("aten::neg", values, [a], beliefs(geometry(FLOAT, [2, 3], [1, 2])))
    assert client.read(made, 6) == [-1, -4, -2, -5, -3, -6]
    assert client.counters()["relaid"] == 1


def test_undefined_and_empty_results_are_legal(client: wire.Client) -> None:
    """A backward pass whose mask leaves an output out."""
    grad, weight, data = client.floats(*range(4)), client.floats(1, 1, 1), client.floats(*range(6))
    values = arguments(
        tensor(0, [1, 1, 4]), tensor(1, [1, 1, 6]), tensor(2, [1, 1, 3]), wire.NONE, integers(1), integers(0),
        integers(1), wire.boolean(False), integers(0), integer(1), b"B" + struct.pack("<I3q", 3, 1, 0, 0),
    )  # fmt: skip
    expected = beliefs(geometry(FLOAT, [1, 1, 6]), None, None)
    made = client.call("aten::convolution_backward", values, [grad, data, weight], expected, new=3)
    assert client.read(made[0], 6) == [0, 1, 3, 6, 5, 3]
    lazily = beliefs(geometry(FLOAT, [1, 1, 6]), geometry(FLOAT, [1, 1, 3]), None)
    made = client.call("aten::convolution_backward", values, [grad, data, weight], lazily, new=3)
    assert client.read(made[0], 6) == [0, 1, 3, 6, 5, 3]
    assert client.down(made[1], 12).error[0] == wire.ENGINE


def test_warnings_of_operators_come_with_the_next_answer(client: wire.Client) -> None:
    """With their text, once."""
    out = client.floats(1, 2)
    answer, _ = client.ask("aten::abs.out", arguments(tensor(0, [3]), tensor(1, [2])), [client.floats(1, 1, 1), out])
    texts = [words for _, words in answer.warnings]
    assert any("resized" in words for words in texts)


def test_random_numbers_follow_seeds_and_kept_states(client: wire.Client) -> None:
    """A state is kept on the server, without a wait; another generator has its own."""

    def draw(generator: bytes = wire.GENERATOR) -> list[float]:
        made = client.alloc(12)
        values = arguments(tensor(0, [3]), wire.number(0), wire.number(1), generator)
        client.call("aten::uniform_", values, [made], new=0)
        return client.read(made, 3)

    client.send(wire.SEED, struct.pack("<IQ", 0, 7))
    first = draw()
    client.send(wire.RNG_KEEP, struct.pack("<II", 0, 1))
    second = draw()
    client.send(wire.RNG_USE, struct.pack("<II", 0, 1))
    assert draw() == second
    client.send(wire.SEED, struct.pack("<IQ", 5, 7))
    assert draw(b"g" + struct.pack("<I", 5)) == first
    state = client.ask_for(wire.RNG_GET, struct.pack("<I", 0))
    assert len(state.body) == client.welcome["devices"][0]["rng_state_bytes"]
    third = draw()
    client.send(wire.RNG_SET, struct.pack("<I", 0) + wire.text(state.body))
    assert draw() == third


def test_settings_of_torch_hold_for_the_session(client: wire.Client) -> None:
    """The default dtype, as the client set it; the next session has torch's own."""
    flags = struct.pack("<HHq", 1, 0, wire.DOUBLE)
    client.send(wire.FLAGS, flags)
    values = arguments(tensor(0, [2], wire.UINT8), wire.number(5.5), integer(1))
    answer, _ = client.ask("aten::add.Scalar", values, [client.up(b"\1\2")])
    assert answer.body[7] == wire.DOUBLE


def test_events_are_time_stamps(client: wire.Client) -> None:
    """Later ones are later."""
    for number in (1, 2):
        client.send(wire.EVENT, struct.pack("<I", number))
    times = [struct.unpack("<d", client.ask_for(wire.EVENT_WAIT, struct.pack("<I", n)).body)[0] for n in (1, 2)]
    assert 0 <= times[0] <= times[1]
    assert client.ask_for(wire.EVENT_WAIT, struct.pack("<I", 9)).error[0] == wire.ENGINE


def test_kernels_of_libraries_free_by_address(client: wire.Client) -> None:
    """oneDNN takes scratch memory of torch's allocator and gives it back by its address."""
    a = client.floats(*[0.0] * 16)
    made = client.call(
        "aten::gelu", arguments(tensor(0, [4, 4]), wire.words("none")), [a], beliefs(geometry(FLOAT, [4, 4]))
    )
    assert client.read(made[0], 16) == [0] * 16


def test_memory_beyond_the_limit_is_torchs_error(tmp_path) -> None:
    """For what is asked for, for results, and for all sessions together; what is freed can be had again."""
    with server(tmp_path, "--memory-limit", str(64 * MIB)) as small, wire.Client(small.port, TOKEN) as first:
        assert first.welcome["devices"][0]["total_memory_bytes"] == 64 * MIB
        big = first.alloc(40 * MIB)
        assert not first.sync().errors
        with wire.Client(small.port, TOKEN) as second:
            assert second.down(second.alloc(40 * MIB), 4).error[0] == wire.OUT_OF_MEMORY
            count = 10 * MIB
            values = arguments(tensor(0, [count]))
            [made] = first.call("aten::neg", values, [big], beliefs(geometry(FLOAT, [count])))
            kind, words, _ = first.down(made, 4).error
            assert kind == wire.OUT_OF_MEMORY
            assert words.startswith(
                "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 64.00 MiB"
            )
            first.send(wire.FREE, struct.pack("<I", big))
            assert not first.sync().errors
            assert not second.down(second.alloc(40 * MIB), 4).errors


def test_parts_of_a_storage_come_down(client: wire.Client) -> None:
    """From an offset on, in the order of their bytes."""
    data = bytes(range(256)) * 65536
    answer = client.down(client.up(data), len(data) - 5000, 4000)
    assert answer.data == data[4000:-1000]


def test_shared_batch_norm_has_a_generic_form(client: wire.Client) -> None:
    """Statistics and what they make of an input."""
    x = client.floats(1, 10, 3, 30)
    values = arguments(tensor(0, [2, 2]), wire.number(0))
    expected = beliefs(geometry(FLOAT, [2]), geometry(FLOAT, [2]))
    mean, invstd = client.call("aten::batch_norm_stats", values, [x], expected, new=2)
    assert client.read(mean, 2) == [2, 20]
    assert client.read(invstd, 2) == pytest.approx([1, 0.1])
    values = arguments(tensor(0, [2, 2]), wire.NONE, wire.NONE, tensor(1, [2]), tensor(2, [2]), wire.number(0))
    [made] = client.call("aten::batch_norm_elemt", values, [x, mean, invstd], beliefs(geometry(FLOAT, [2, 2])))
    assert client.read(made, 4) == pytest.approx([-1, -1, 1, 1])


def test_what_only_a_gpu_has_is_said(client: wire.Client) -> None:
    """An operator without a generic form."""
    answer, _ = client.ask("aten::_cslt_compress", arguments(tensor(0, [2, 2])), [client.floats(1, 2, 3, 4)])
    kind, words, _ = answer.error
    assert kind == wire.NOT_IMPLEMENTED
    assert words == "aten::_cslt_compress is only with a GPU: this server computes on processors"


def test_modules_on_operators_of_gpus_have_natives_bits(one: Server) -> None:
    """Cells, softmax of half precision, attention: values and gradients."""
    program = PROGRAMS / "gpu_operators.py"
    native, remote = run(program, "native"), run(program, "remote", one)
    assert len(native.losses) == 39
    assert remote.losses == native.losses, remote.err


def test_memory_in_use_is_told_in_a_file(tmp_path) -> None:
    """While a session holds it, and when it has gone."""
    use = tmp_path / "use"

    def told(fits: Callable[[int], bool]) -> None:
        until = time.monotonic() + 20
        while not (use.exists() and fits(int(use.read_text()))):
            assert time.monotonic() < until, use.exists() and use.read_text()
            time.sleep(0.05)

    with server(tmp_path, "--use-file", str(use)) as one, wire.Client(one.port, TOKEN) as session:
        session.alloc(3 * MIB)
        told(lambda held: 3 * MIB <= held < 4 * MIB)
        session.socket.close()
        told(lambda held: held == 0)


def test_memory_grows_and_keeps_what_fits(client: wire.Client) -> None:
    """RESIZE."""
    a = client.floats(1, 2)
    client.send(wire.RESIZE, struct.pack("<IQ", a, 16))
    client.up(struct.pack("<2f", 3, 4), a, 8)
    assert client.read(a, 4) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("aten::from_file", arguments(tensor(0, [3]))),
        ("aten::set_.source_Tensor", arguments(tensor(0, [3]), tensor(0, [3]))),
        ("prim::Print", arguments()),
        ("aten::add.Tensor", arguments(tensor(0, [3]))),
        ("aten::add.Tensor", arguments(tensor(0, [3]), integers(1), integer(1))),
        ("aten::relu", arguments(tensor(9, [3]))),
        ("aten::relu", arguments(tensor(0, [3], offset=1))),
        ("aten::relu", arguments(tensor(0, [1 << 31, 1 << 31, 1 << 31], strides=[0, 0, 0]))),
        ("aten::relu", arguments(tensor(0, [3], strides=[1 << 62]))),
        ("aten::relu", arguments(tensor(0, [-3]))),
        ("aten::relu", arguments(tensor(0, [3], dtype=13))),
        ("aten::relu", arguments(tensor(0, [3], dtype=200))),
        ("aten::sum", arguments(tensor(0, [3]), integer(999))),
    ],
)
def test_what_cannot_be_is_refused_and_the_session_goes_on(client: wire.Client, operator: str, values: bytes) -> None:
    """An error of the engine's own for each; the next call runs."""
    a = client.floats(1, 2, 3)
    answer, _ = client.ask(operator, values, [a])
    assert answer.error[0] == wire.ENGINE
    [made] = client.call(operator, values, [a], beliefs(geometry(FLOAT, [3])))
    assert client.down(made, 12).error[0] == wire.ENGINE
    assert client.read(add(client, a, a), 3) == [2, 4, 6]


def knock(port: int, first: bytes) -> bytes:
    """What a connection that begins so gets."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(first)
        return wire.rest_of(connection)


def test_the_door(one: Server) -> None:
    """Another token and another wire version get a sentence; what is no client gets nothing."""
    assert knock(one.port, wire.hello("x" * 20))[0] == wire.REFUSED
    assert b"wire version 9" in knock(one.port, wire.hello(TOKEN, version=9))
    assert knock(one.port, b"GET / HTTP/1.1\r\n\r\n") == b""
    whys = [event["why"] for event in one.events() if event["event"] == "refused"]
    assert whys.count("token refused") == 1
    assert whys.count("release differs") == 1


def test_other_addresses_are_turned_away(tmp_path) -> None:
    """--allow."""
    with server(tmp_path, "--allow", "192.0.2.1") as closed:
        assert knock(closed.port, wire.hello(TOKEN)) == b""
        assert [event["why"] for event in closed.events() if event["event"] == "refused"] == ["address not allowed"]


def stage(number: int, data: bytes, total: int | None = None, offset: int = 0) -> bytes:
    """The body of one."""
    return struct.pack("<IQQ", number, len(data) if total is None else total, offset) + data


def use(number: int, storage: int, count: int, offset: int = 0, form: int = 0) -> bytes:
    """The body of one."""
    return struct.pack("<IBIQQ", number, form, storage, offset, count)


def test_what_is_staged_becomes_a_storages_bytes_once(one: Server) -> None:
    """In pieces, at an offset; afterwards there is nothing by that number, and what was dropped is not used."""
    with wire.Client(one.port, TOKEN) as session:
        storage = session.alloc(16)
        session.send(wire.STAGE, stage(5, b"abcd", 8))
        session.send(wire.STAGE, stage(5, b"efgh", 8, 4))
        session.send(wire.USE, use(5, storage, 8, 4))
        assert session.down(storage, 8, 4).data == b"abcdefgh"
        session.send(wire.USE, use(5, storage, 8, 4))
        assert session.sync().error[1] == "nothing is staged by that number"
        session.send(wire.STAGE, stage(6, b"abcdefgh"))
        session.send(wire.DROP, struct.pack("<BI", 3, 6))
        session.send(wire.USE, use(6, storage, 8))
        assert session.sync().error[1] == "nothing is staged by that number"


@pytest.mark.parametrize(
    ("pieces", "used", "why"),
    [
        ([stage(5, b"abcd", 8)], use(5, 1, 8), "it did not come whole"),
        ([stage(5, b"abcdefgh")], use(5, 1, 4), "another number of bytes is staged"),
        ([stage(5, b"abcdefgh")], use(5, 1, 8, 9), "it reaches beyond its storage"),
        ([stage(5, b"abcdefgh")], use(5, 1, 8, (1 << 64) - 4), "it reaches beyond its storage"),
        ([stage(5, b"abcdefgh")], use(5, 77, 8), "a storage that there is not"),
    ],
)
def test_what_cannot_be_used_spoils_its_storage_alone(one: Server, pieces: list[bytes], used: bytes, why: str) -> None:
    """A kept error; the session goes on."""
    with wire.Client(one.port, TOKEN) as session:
        session.alloc(16)
        for piece in pieces:
            session.send(wire.STAGE, piece)
        session.send(wire.USE, used)
        assert why in session.sync().error[1]
        assert session.read(session.floats(1, 2), 2) == [1, 2]


def test_what_is_staged_is_taken_while_an_operator_runs(one: Server) -> None:
    """Far more than the network holds is read beside an operator that does not end."""
    with wire.Client(one.port, TOKEN) as session:
        storage, a = session.alloc(8), session.floats(1)
        session.send(wire.STAGE, stage(1, b"abcdefgh"))
        session.send(wire.USE, use(1, storage, 8))
        assert session.down(storage, 8).data == b"abcdefgh"
        endless = arguments(tensor(0, [1 << 40], strides=[0]), integers(0), wire.boolean(False), wire.NONE)
        session.call("aten::sum.dim_IntList", endless, [a], beliefs(geometry(FLOAT, [])))
        session.send(wire.ALLOC, struct.pack("<IQ", 900, 8))
        piece = bytes(4 << 20)
        for number in range(16):
            session.send(wire.STAGE, stage(7, piece, 64 << 20, number * len(piece)))
        # Without a reader beside it a send would have ended by its timeout: the session sums.


@pytest.mark.parametrize(
    ("sizes", "strides", "said"),
    [([1 << 20], [1], "a tensor reaches beyond its storage"), ([64], [0], "a collective takes contiguous tensors")],
)
@pytest.mark.parametrize("written", [True, False])
def test_a_collective_reaches_no_memory_but_its_tensors_own(
    client: wire.Client, sizes: list[int], strides: list[int], said: str, written: bool
) -> None:
    tensor_there = struct.pack("<I", client.up(b"\0" * 4)) + wire.geometry(wire.UINT8, sizes, strides)
    lists = (struct.pack("<H", 1) + tensor_there, struct.pack("<H", 0))
    body = struct.pack("<BII", 2, 1, 1) + wire.text("allreduce") + wire.text("SUM") + struct.pack("<iiII", 0, 0, 0, 0)
    client.send(wire.COLLECTIVE, body + b"".join(lists if written else lists[::-1]))
    assert said in client.sync().error[1]
