"""Connections without the lease's token: they are few, for seconds, and never in the way of who has it."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.crowds import FLOODS
from tests.support.engine_run import Server, client_of, server, wait_for
from tests.support.engine_wire import admitted, asked, hello, welcomed
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
WAITING = 16  # MAX_WAITING in door.h
TOKEN_S = 5.0
TOLD = 200  # in door.c


def strangers(stack: ExitStack, port: int, number: int, address: str = "127.0.0.1") -> list[socket.socket]:
    """Connections that begin as a client does, and say no more. Those that say nothing the kernel keeps to itself."""
    found = []
    for _ in range(number):
        found.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(address, 0))))
        found[-1].sendall(hello()[:4])
    return found


def reasons(s: Server) -> list[str]:
    return [e["why"] for e in s.events() if e["event"] == "refused" and "why" in e]


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_200_idle_connections_do_not_keep_the_owner_out(tmp_path: Path) -> None:
    with server(tmp_path) as s, ExitStack() as stack:
        crowd = strangers(stack, s.port, 200)
        with admitted(s.port) as owner:
            assert asked(owner, 2, 0, 0)[0] == 0
            assert sum(map(is_open, crowd)) < WAITING, "he took the place of one of them"
            assert [e["pid"] for e in s.events() if e["event"] == "client"] == [s.child()], "he alone has a process"
            assert "too many connections wait without a token" in reasons(s)


def test_an_address_that_holds_most_loses_its_own_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    """Another machine's flood does not push out a client that is slow with its hello; who says nothing is closed."""
    with server(tmp_path, "--allow", "127.0.0.1,127.0.0.2") as s, ExitStack() as stack:
        slow, silent = strangers(stack, s.port, 2)
        slow.sendall(hello()[4:100])
        crowd = strangers(stack, s.port, 60, "127.0.0.2")
        wait_for(lambda: len(reasons(s)) >= 60 + 2 - WAITING)
        assert is_open(silent)
        slow.settimeout(10)
        slow.sendall(hello()[100:])
        assert welcomed(slow) == 2
        wait_for(lambda: not is_open(silent) and not any(map(is_open, crowd)), TOKEN_S + 5)
        assert reasons(s).count("no token in time") == WAITING - 1


def test_connections_that_say_nothing_do_not_come_as_far_as_the_door(tmp_path: Path) -> None:
    with server(tmp_path) as s, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", s.port)))
        with admitted(s.port) as owner:
            assert asked(owner, 2, 0, 0)[0] == 0
            assert len(reasons(s)) < 200 - WAITING, "the kernel has them still"


def test_who_has_the_token_gets_in_whatever_others_do_and_not_each_of_them_is_told(tmp_path: Path) -> None:
    with server(tmp_path) as s:
        command = [sys.executable, "-c", FLOODS, str(s.port), "x" * 8]
        flooders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        try:
            for one in flooders:
                assert one.stdout is not None
                assert one.stdout.readline() == "floods\n"
            for _ in range(6):
                with admitted(s.port) as owner:
                    assert asked(owner, 2, 0, 0)[0] == 0
        finally:
            for one in flooders:
                one.kill()
                one.wait()
                assert one.stdout is not None
                one.stdout.close()
        for _ in range(TOLD + 50):
            with socket.create_connection(("127.0.0.1", s.port)) as one:
                one.sendall(b"no client of ours" * 100)
                with suppress(ConnectionResetError):
                    assert one.recv(1) == b""
        windows = 1 + sum("left_out" in e for e in s.events())
        assert len([e for e in s.events() if e["event"] == "refused" and "why" in e]) <= windows * TOLD


def test_no_more_than_128_clients_with_the_token(tmp_path: Path) -> None:
    with server(tmp_path) as s, ExitStack() as stack:
        for _ in range(128):
            stack.enter_context(admitted(s.port))
        one_more = strangers(stack, s.port, 1)[0]
        one_more.sendall(hello()[4:])
        assert one_more.recv(1) == b""
        assert reasons(s) == ["128 connections are open"]


@pytest.mark.rest
def test_a_driver_that_starts_slowly_is_waited_for(tmp_path: Path) -> None:
    """Without persistence mode a server's GPUs start for longer than any client waits for an address to answer."""
    slow = tmp_path / "slow"
    slow.mkdir()
    first = "    int all = 0, count = config_read(gpus, &all);"
    text = (build.SOURCES / "devices/seen.c").read_text().replace(first, f"    sleep(8);\n{first}")
    assert "sleep(8)" in text
    (slow / "seen.c").write_text(f"#include <unistd.h>\n{text}")
    sources = [str(slow / "seen.c"), *(str(build.SOURCES / s) for s in build.DRIVER if s != "devices/seen.c")]
    flags = [
        *build.FLAGS,
        "-shared",
        f"-I{build.SOURCES / 'devices'}",
        '-DRUNS_NO_KERNELS="x"',
        *build.emulated_flags(),
    ]
    subprocess.run(["gcc", *flags, "-o", str(slow / "libcuda.so.1"), *sources], check=True)
    with server(tmp_path, LD_LIBRARY_PATH=str(slow)) as a, server(tmp_path / "b", LD_LIBRARY_PATH=str(slow)) as b:
        script = "cuda.cuInit(0); n = c_int(); cuda.cuDeviceGetCount(byref(n)); said(n.value)"
        assert client_of(a, b).run(script) == (4, "")
