"""Data connections of a session: large copies go by several of them, whole and in order, and nobody else gets in."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.engine_fuzz import HTOD, gone
from tests.support.engine_fuzz_lanes import NUMBER, Lanes
from tests.support.engine_run import Server, client_of, server, wait_for
from tests.support.engine_wire import CHUNK, LANE_END, OP_LANES, admitted, asked, join_hello, tickets, verdict
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
MIB = 1 << 20
SCRIPT = """
import socket
MIB = 1 << 20
def lanes():
    text = ctypes.create_string_buffer(65536)
    cuda.elasticAiServerInfo(text, c_size_t(65536))
    return [s["data_connections"] for s in json.loads(text.value)]
def mine():  # connections of this process, the oldest first
    found = []
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        try: found.append(socket.socket(fileno=os.dup(fd)))
        except OSError: pass
    return found
def put(p, data, at=0): cuda.cuMemcpyHtoD_v2(c_uint64(p.value + at), data, c_size_t(len(data)))
def got(p, size, at=0):
    to = ctypes.create_string_buffer(size)
    cuda.cuMemcpyDtoH_v2(to, c_uint64(p.value + at), c_size_t(size))
    return to.raw
start()
"""


@contextmanager
def joining(port: int, ticket: str, release: str = "test", source: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), 10, (source, 0)) as sock:
        sock.sendall(join_hello(ticket, release))
        yield sock


def reasons(s: Server) -> list[str]:
    return [e["why"] for e in s.events() if e["event"] == "refused"]


def test_bytes_of_any_size_and_place_arrive(tmp_path: Path) -> None:
    script = """
p, data, same = alloc(33 * MIB), os.urandom(32 * MIB + 12345), []
put(p, data[: 4 * MIB - 1])
before = lanes()
for at, size in ((0, len(data)), (3, len(data)), (7, 4 * MIB), (1, 4 * MIB + 1), (513, 8 * MIB - 1), (0, 5)):
    put(p, data[:size], at)
    same.append(got(p, size, at) == data[:size])
said([before, lanes(), same])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(SCRIPT + script)[0] == [[0], [4], [True] * 6]


def test_what_comes_behind_a_copy_sees_all_of_it(tmp_path: Path) -> None:
    script = """
n = 9 * MIB + 77
p, a, b, ok = alloc(n), os.urandom(n), os.urandom(n), []
first, second, third = (ctypes.create_string_buffer(n) for _ in range(3))
for turn in range(5):
    cuda.cuMemcpyHtoDAsync_v2(p, a, c_size_t(n), None)
    cuda.cuMemcpyDtoHAsync_v2(first, p, c_size_t(n), None)
    cuda.cuMemcpyHtoDAsync_v2(p, b, c_size_t(n), None)
    cuda.cuMemsetD8Async(c_uint64(p.value + 5 * MIB), ctypes.c_ubyte(turn), c_size_t(3), None)
    cuda.cuMemcpyDtoHAsync_v2(second, p, c_size_t(n), None)
    cuda.cuMemcpyHtoDAsync_v2(c_uint64(p.value + 1), b"small", c_size_t(5), None)
    cuda.cuMemcpyDtoHAsync_v2(third, p, c_size_t(n), None)
    cuda.cuCtxSynchronize()
    behind = b[: 5 * MIB] + bytes([turn] * 3) + b[5 * MIB + 3 :]
    ok += [first.raw == a, second.raw == behind, third.raw == behind[:1] + b"small" + behind[6:]]
said([ok, lanes()])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(SCRIPT + script)[0] == [[True] * 15, [4]]


def test_both_directions_at_once_and_several_threads(tmp_path: Path) -> None:
    script = """
n, ok = 6 * MIB + 1, []
context = c_void_p(); cuda.cuCtxGetCurrent(byref(context))
def work():
    cuda.cuCtxSetCurrent(context)
    p, data = alloc(n), os.urandom(n)
    for _ in range(5):
        put(p, data); ok.append(got(p, n) == data)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
said([len(ok), all(ok)])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(SCRIPT + script)[0] == [20, True]


def test_an_error_of_a_striped_copy_comes_once_and_the_next_one_works(tmp_path: Path) -> None:
    script = """
n = 8 * MIB
p, data = alloc(n), os.urandom(n + 1)
put(p, data[:n])
beyond = ctypes.create_string_buffer(n + 1)
errors = [code(cuda.cuMemcpyHtoD_v2, p, data, c_size_t(n + 1)), code(cuda.cuMemcpyDtoH_v2, beyond, p, c_size_t(n + 1))]
cuda.cuMemcpyHtoDAsync_v2(p, data, c_size_t(n + 1), None)
errors += [code(cuda.cuCtxSynchronize), code(cuda.cuCtxSynchronize)]
cuda.cuMemcpyDtoHAsync_v2(beyond, p, c_size_t(n + 1), None)
errors += [code(cuda.cuCtxSynchronize), code(cuda.cuCtxSynchronize)]
said([errors, lanes(), got(p, n) == data[:n]])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(SCRIPT + script)[0] == [[1, 1, 1, 0, 1, 0], [4], True]


@pytest.mark.parametrize("which", [1, 4])
def test_a_data_connection_that_dies_ends_the_session_at_once(tmp_path: Path, which: int) -> None:
    script = f"""
p = alloc(4 * MIB)
put(p, bytes(4 * MIB))
mine()[{which}].shutdown(socket.SHUT_RDWR)
began = time.monotonic()
time.sleep(0.1)
said([[code(cuda.cuCtxSynchronize), code(cuda.cuMemcpyDtoH_v2, ctypes.create_string_buffer(4), p, c_size_t(4))],
      time.monotonic() - began < 1])
"""
    with server(tmp_path) as s:
        found, words = client_of(s).run(SCRIPT + script)
        assert found == [[46, 46], True]
        assert words.count("is lost") == 1
        wait_for(lambda: gone(s, s.child()), 5)


def test_a_server_that_dies_in_a_striped_copy(tmp_path: Path) -> None:
    script = """
p, data = alloc(64 * MIB), bytes(64 * MIB)
put(p, data)
said("copied")
status = 0
while not status: status = code(cuda.cuMemcpyHtoD_v2, p, data, c_size_t(len(data)))
said(status)
"""
    with server(tmp_path) as s:
        process = client_of(s).start(SCRIPT + script)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.2)
        s.process.terminate()
        out, words = process.communicate(timeout=20)
        assert out.strip() == "46", words


def test_a_ticket_is_good_once_for_its_session_and_its_address(tmp_path: Path) -> None:
    with server(tmp_path, "--allow", "127.0.0.1,127.0.0.2") as s, admitted(s.port) as own, ExitStack() as stack:
        good = tickets(own)
        assert len(set(good)) == 4
        assert all(len(ticket) == 32 for ticket in good)
        wrong = good[0][:-1] + ("0" if good[0][-1] != "0" else "1")
        for ticket in ("", "0" * 32, wrong, good[0] + "0"):
            with joining(s.port, ticket) as sock:
                assert verdict(sock) == 2
        with joining(s.port, good[0], source="127.0.0.2") as sock:
            assert verdict(sock) == 2, "of another address that may have leases, too"
        for ticket in good:
            assert verdict(stack.enter_context(joining(s.port, ticket))) == 0
        for ticket in good:
            with joining(s.port, ticket) as sock:
                assert verdict(sock) == 2, "again"
        assert set(reasons(s)) == {"ticket refused"}
        assert tickets(own) == good, "there are no more than four"
        assert asked(own, OP_LANES, 4)[0] == 0


def test_a_ticket_is_no_token_and_the_token_no_ticket(tmp_path: Path) -> None:
    with server(tmp_path) as s, admitted(s.port) as own:
        with joining(s.port, "0123456789abcdef-token") as sock:
            assert verdict(sock) == 2
        words, _ = client_of(s, token=tickets(own)[0]).run("said(code(cuda.cuInit, 0))")
        assert words == 46


def test_a_data_connection_of_another_release_is_refused(tmp_path: Path) -> None:
    with server(tmp_path) as s, admitted(s.port) as own, joining(s.port, tickets(own)[0], "other") as sock:
        assert verdict(sock) == 1


def test_tickets_end_with_their_session(tmp_path: Path) -> None:
    with server(tmp_path) as s:
        with admitted(s.port) as own:
            ticket = tickets(own)[0]
        wait_for(lambda: gone(s, s.child()), 5)
        with joining(s.port, ticket) as sock:
            assert verdict(sock) == 2


def test_who_joins_and_says_nothing_is_in_nobodys_way(tmp_path: Path) -> None:
    """Neither a connection that is half opened, nor those that the session never asks for, nor lanes without a word."""
    with server(tmp_path) as s, admitted(s.port) as own, admitted(s.port) as other, ExitStack() as stack:
        half = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), 10))
        half.sendall(join_hello(tickets(own)[0])[:200])
        joined = [stack.enter_context(joining(s.port, ticket)) for ticket in tickets(own)]
        assert [verdict(sock) for sock in joined] == [0] * 4
        assert asked(own, OP_LANES, 5)[0] == 801
        assert asked(own, OP_LANES, 0)[0] == 801
        for sock in (own, other):
            assert asked(sock, 2, 0, 0)[0] == 0
        assert asked(own, OP_LANES, 4)[0] == 0
        assert asked(own, OP_LANES, 4)[0] == 801, "it has them"
        for sock in (own, other):
            assert asked(sock, 5, context=1)[0] == 0
        assert half.recv(1) == b"", "after its five seconds"


@pytest.mark.parametrize("number", [1, (1 << 64) - 2])
def test_a_chunk_beyond_a_copy_ends_the_session(tmp_path: Path, number: int) -> None:
    """Even where the memory behind the copy is the client's own."""
    with server(tmp_path) as s, admitted(s.port) as own, ExitStack() as stack:
        lanes = Lanes(stack, own, s.port, random.Random(1))
        lanes.ask(HTOD, CHUNK)
        lanes.lanes[0].sendall(NUMBER.pack(number) + bytes(CHUNK))
        with suppress(OSError):
            for lane in lanes.lanes:
                lane.sendall(NUMBER.pack(LANE_END))
        with suppress(ConnectionResetError):
            assert own.recv(1) == b"", "it answered"


def test_who_finds_no_data_connections_copies_by_the_first(tmp_path: Path) -> None:
    """The server's door is shut to further connections of this client: more than it may have open."""
    script = """
import resource
p, data = alloc(8 * MIB), os.urandom(8 * MIB)
limit = max(map(int, os.listdir("/proc/self/fd"))) + 1  # room for two or three
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
put(p, data)
same = got(p, 8 * MIB) == data
said([same, lanes()])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(SCRIPT + script)[0] == [True, [0]]
