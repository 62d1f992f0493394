"""What a session of the engine `torch` can let grow on the server, each up to its limit and beyond, by the wire."""

from __future__ import annotations

import resource
import select
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import torch_wire as wire
from tests.support.torch_engine import MIB, TOKEN, Server, server, wait_until
from tests.support.torch_wire import FLOAT, arguments, beliefs, geometry, tensor

MOST_STORAGES, MOST_SIGNATURES, MOST_STATES, MOST_ERRORS, MOST_WAITING = 1 << 20, 65536, 65536, 64, 16
CGROUPS = Path("/sys/fs/cgroup/memory")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sessions share 256 MiB."""
    with server(tmp_path_factory.mktemp("torch-limits"), "--memory-limit", str(256 * MIB)) as running:
        yield running


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without a limit of memory, which would be reached before a limit of numbers is."""
    with server(tmp_path_factory.mktemp("torch-roomy")) as running:
        yield running


@pytest.fixture
def client(one: Server) -> Iterator[wire.Client]:
    """A session that has the server alone."""
    wait_until(lambda: not one.children(), "sessions of earlier tests are gone")
    with wire.Client(one.port, TOKEN, timeout_s=120) as session:
        yield session


def status(pid: int, name: str) -> int:
    """Of /proc/PID/status: the number of such a line."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name + ":")).split()[1])


def growth(one: Server, client: wire.Client, act: Callable[[], object]) -> int:
    """By how many bytes the session's process has grown at its largest, by that."""
    [pid] = one.children()
    client.sync()
    before = status(pid, "VmRSS") << 10
    act()
    return (status(pid, "VmHWM") << 10) - before


def why_ended(client: wire.Client) -> str:
    """The notice with which the server ends the session."""
    while True:
        kind, body = client.receive()
        if kind == wire.NOTICE:
            with pytest.raises(wire.Ended):
                client.receive()
            return body[5:].decode()


def flood(client: wire.Client, messages: Iterator[bytes]) -> None:
    """Sends them, as far as the server takes them before it ends the session."""
    try:
        chunk: list[bytes] = []
        for message in messages:
            chunk.append(message)
            if len(chunk) == 4096 or len(message) > MIB:
                client.socket.sendall(b"".join(chunk))
                chunk.clear()
        client.socket.sendall(b"".join(chunk))
    except OSError:
        pass


def test_a_million_storages_are_held_and_no_more_than_the_limit(one: Server, client: wire.Client) -> None:
    """Empty ones, which the memory's limit does not count; they are given back."""

    def allocations(first: int, count: int) -> Iterator[bytes]:
        return (wire.message(wire.ALLOC, struct.pack("<IQ", first + n, 0)) for n in range(count))

    flood(client, allocations(1, 10**6))
    assert client.counters()["storages"] == 10**6
    flood(client, (wire.message(wire.FREE, struct.pack("<I", 1 + n)) for n in range(10**6)))
    assert client.counters()["storages"] == 0
    flood(client, allocations(1, MOST_STORAGES + 1))
    assert "more storages than a session may have" in why_ended(client)


def signature(number: int, name: str, overload: str, rest: bytes) -> bytes:
    """SIGNATURE."""
    return wire.message(wire.SIGNATURE, struct.pack("<I", number) + wire.text(name) + wire.text(overload) + rest)


def test_signatures_are_counted(client: wire.Client) -> None:
    """One too many ends the session; what is forgotten makes room."""
    told = arguments(tensor(0, [3])) + beliefs(geometry(FLOAT, [3]))
    flood(client, (signature(n, "aten::neg", "", told) for n in range(MOST_SIGNATURES)))
    assert client.counters()["signatures"] == MOST_SIGNATURES
    client.send(wire.FORGET, struct.pack("<I", 7))
    client.socket.sendall(signature(7, "aten::neg", "", told))
    assert client.counters()["signatures"] == MOST_SIGNATURES
    client.socket.sendall(signature(MOST_SIGNATURES, "aten::neg", "", told))
    assert "more signatures than a session may have" in why_ended(client)


def test_signatures_are_counted_by_what_they_take(one: Server, client: wire.Client) -> None:
    """A value of one byte by the wire takes hundreds on the server."""
    many = arguments(tensor(0, [3]), b"O" + struct.pack("<I", 60000) + b"N" * 60000) + beliefs()
    few = growth(one, client, lambda: flood(client, (signature(n, "aten::index", "Tensor", many) for n in range(40))))
    assert "larger signatures than a session may have" in why_ended(client)
    assert few < 400 * MIB


def test_beliefs_are_counted_by_what_they_take(one: Server, client: wire.Client) -> None:
    """The same, for what a signature says of results."""
    many = arguments(tensor(0, [3])) + beliefs(*[None] * 65535)
    few = growth(one, client, lambda: flood(client, (signature(n, "aten::neg", "", many) for n in range(40))))
    assert "larger signatures than a session may have" in why_ended(client)
    assert few < 400 * MIB


def test_errors_that_are_kept_are_few(one: Server, client: wire.Client) -> None:
    """A hundred thousand calls fail, each with a long text of its own, and their results are never freed."""
    name = "aten::" + "x" * 4000
    client.socket.sendall(signature(1, name, "", arguments() + beliefs(geometry(FLOAT, [3]))))

    def fail() -> None:
        first = client.new(100_000)
        body = struct.pack("<IHH", 1, 0, 0)
        flood(client, (wire.message(wire.CALL, body + wire.numbers([first + n])) for n in range(100_000)))
        assert len(client.sync().errors) == MOST_ERRORS

    assert growth(one, client, fail) < 400 * MIB
    last = client.next - 1
    for _ in range(2):
        kind, words, _ = client.down(last, 12).error
        assert kind == wire.ENGINE
        assert words
    assert not client.down(client.alloc(4), 4).errors


def test_an_error_beyond_the_kept_ones_still_spoils_what_it_should(client: wire.Client) -> None:
    """What was written in place by a call that failed is not read as if nothing had been."""
    name = "aten::" + "x" * 100
    client.socket.sendall(signature(9, name, "", arguments() + beliefs(geometry(FLOAT, [3]))))
    first = client.new(20_000)
    body = struct.pack("<IHH", 9, 0, 0)
    flood(client, (wire.message(wire.CALL, body + wire.numbers([first + n])) for n in range(20_000)))
    client.sync()
    for _ in range(2):
        a, bad = client.floats(1, 2, 3), client.floats(1, 2)
        client.call("aten::add_.Tensor", arguments(tensor(0, [3]), tensor(1, [2]), wire.integer(1)), [a, bad], new=0)
        assert client.down(a, 12).error[0] == wire.RUNTIME
        assert client.read(a, 3) == [1, 2, 3]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("kept states of generators", lambda n: wire.message(wire.RNG_KEEP, struct.pack("<II", 0, n))),
        ("generators", lambda n: wire.message(wire.SEED, struct.pack("<IQ", n + 1, 5))),
        ("events", lambda n: wire.message(wire.EVENT, struct.pack("<I", n))),
    ],
)
def test_what_has_a_number_is_counted(roomy: Server, what: str, message: Callable[[int], bytes]) -> None:
    """One too many ends the session."""
    with wire.Client(roomy.port, TOKEN, timeout_s=120) as client:
        flood(client, (message(n) for n in range(MOST_STATES + 1)))
        assert f"more {what} than a session may have" in why_ended(client)


def test_kept_states_are_memory_of_the_lease(client: wire.Client) -> None:
    """Its limit is told before there are too many of them."""
    flood(client, (wire.message(wire.RNG_KEEP, struct.pack("<II", 0, n)) for n in range(MOST_STATES)))
    client.send(wire.SYNC, struct.pack("<I", 1))
    kind, body = client.receive()
    assert kind == wire.ANSWER
    assert b"out of memory" in body


def test_a_wrong_upload_is_dropped_in_pieces(one: Server, client: wire.Client) -> None:
    """To no storage, and beyond the end of one: the server takes no memory for it, and goes on."""
    small = client.alloc(64)
    upload = bytes(4 * MIB)

    def wrong() -> None:
        for storage in (999_999, small) * 20:
            client.send(wire.UP, struct.pack("<IQ", storage, 0) + upload)
        assert {words for _, words, _ in client.sync().errors} == {
            "there is no storage 999999",
            "an upload reaches beyond its storage",
        }

    assert growth(one, client, wrong) < 3 * MIB
    assert client.down(small, 64).data == bytes(64)


def room_of_a_connection() -> int:
    """How many bytes both ends of a connection may hold here: a machine may let them grow to 36 MB and more."""
    return sum(int(Path(f"/proc/sys/net/ipv4/tcp_{end}").read_text().split()[2]) for end in ("rmem", "wmem"))


def unread(client: wire.Client, message: bytes) -> None:
    """Sends it again and again, and reads nothing, until the server has taken nothing for a while."""
    client.socket.setblocking(False)
    many = message * 4096
    # The answers fill the room of one direction, what is sent then that of the other: never more than a few times that.
    for _ in range(1 + 4 * room_of_a_connection() // len(many)):
        left = many
        while left:
            try:
                left = left[client.socket.send(left) :]
            except BlockingIOError:
                if not select.select([], [client.socket], [], 1)[1]:
                    return
    pytest.fail("the server took everything")


@pytest.mark.parametrize("what", [wire.SYNC, wire.DOWN])
def test_answers_that_are_not_read_stop_their_own_session_alone(one: Server, client: wire.Client, what: int) -> None:
    """The server keeps no answers: it waits, a neighbour goes on, and the session ends with its client."""
    storage = client.alloc(8 * MIB)
    body = struct.pack("<I", 1) + (struct.pack("<IQQ", storage, 0, 8 * MIB) if what == wire.DOWN else b"")
    assert growth(one, client, lambda: unread(client, wire.message(what, body))) < 3 * MIB
    with wire.Client(one.port, TOKEN) as neighbour:
        assert neighbour.read(neighbour.floats(1, 2, 3), 3) == [1, 2, 3]
    client.socket.close()
    wait_until(lambda: not one.children(), "the session has ended")


def test_threads_do_not_grow(one: Server, client: wire.Client) -> None:
    """By nothing that a client says."""
    a = client.floats(*range(64))
    [pid] = one.children()

    def work() -> None:
        for _ in range(50):
            values = arguments(tensor(0, [8, 8]), tensor(0, [8, 8]))
            client.call("aten::mm", values, [a, a], beliefs(geometry(FLOAT, [8, 8])))
            client.send(wire.EVENT, struct.pack("<I", 1))
        assert not client.sync().errors

    work()
    before = status(pid, "Threads")
    work()
    assert status(pid, "Threads") == before


def test_connections_that_say_nothing_keep_nobody_out(one: Server) -> None:
    """Hundreds that wait, and some that begin a hello: who has the token comes in, the server holds a few of them."""
    held = len(list(Path(f"/proc/{one.process.pid}/fd").iterdir()))
    silent = [wire.connected(one.port) for _ in range(300)]
    try:
        for connection in silent[::2]:
            connection.sendall(wire.hello(TOKEN)[:100])
        for _ in range(3):
            with wire.Client(one.port, TOKEN) as client:
                assert client.read(client.floats(1, 2), 2) == [1, 2]
        assert len(list(Path(f"/proc/{one.process.pid}/fd").iterdir())) <= held + MOST_WAITING + 1
    finally:
        for connection in silent:
            connection.close()


def test_memory_of_the_host_that_is_full_is_torchs_error(one: Server, client: wire.Client) -> None:
    """At a limit of the process's own: out of memory by its class; what is freed can be had, the session goes on."""
    [pid] = one.children()
    kept = client.floats(1, 2, 3)
    assert not client.sync().errors
    now = status(pid, "VmSize") << 10
    resource.prlimit(pid, resource.RLIMIT_AS, (now + 32 * MIB, now + 32 * MIB))
    for _ in range(2):
        kind, words, _ = client.down(client.alloc(128 * MIB), 4).error
        assert kind == wire.OUT_OF_MEMORY
        assert words.startswith("CUDA out of memory. Tried to allocate 128.00 MiB")
        values = arguments(tensor(0, [32 * MIB], strides=[0]))
        [made] = client.call("aten::neg", values, [kept], beliefs(geometry(FLOAT, [32 * MIB])))
        assert client.down(made, 4).error[0] == wire.OUT_OF_MEMORY
        assert client.read(kept, 3) == [1, 2, 3]


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of memory."""
    made = CGROUPS / "elastic-ai-torch-test"
    try:
        made.mkdir(exist_ok=True)
        (made / "memory.limit_in_bytes").write_text(str(96 * MIB))
    except OSError as fault:
        pytest.skip(f"no control group of memory can be made here: {fault}")
    yield made
    wait_until(lambda: not (made / "cgroup.procs").read_text(), "the group is empty")
    made.rmdir()


def upload(storage: int, offset: int) -> bytes:
    """UP of 4 MiB."""
    return wire.message(wire.UP, struct.pack("<IQ", storage, offset) + bytes(4 * MIB))


def test_a_session_that_the_units_limit_ends_is_told_at_once(tmp_path: Path, group: Path) -> None:
    """The kernel ends the process whose unit has no memory left: its client is told, its neighbour goes on."""
    with server(tmp_path) as one, wire.Client(one.port, TOKEN) as neighbour:
        [first] = one.children()
        with wire.Client(one.port, TOKEN) as client:
            [session] = [pid for pid in one.children() if pid != first]
            (group / "cgroup.procs").write_text(str(session))
            storage = client.alloc(512 * MIB)
            flood(client, (upload(storage, at * MIB) for at in range(0, 512, 4)))
            with pytest.raises(wire.Ended):
                client.receive()
        wait_until(
            lambda: [e["status"] for e in one.events() if e["event"] == "gone"] == [128 + 9], "its end is logged"
        )
        assert one.children() == [first]
        assert neighbour.read(neighbour.floats(1, 2, 3), 3) == [1, 2, 3]
