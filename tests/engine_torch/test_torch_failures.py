"""What a program on a leased GPU is told when a side of it dies, hangs, is interrupted, or has no memory left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.torch_engine import Server, ended, go_on, line, run, server, start, wait_until
from tests.support.torch_env import ROOT

MIB = 1 << 20
LIMIT = 256 * MIB
#: An operator that takes minutes on one thread and needs no memory, and a tensor to begin with.
BEGIN = """
import time, torch
x = torch.ones(3, device="cuda")
def endless(): return x[:1].expand(1 << 40).sum()
def tell(word): print(word, flush=True)
def caught(what):
    try:
        what()
        tell("nothing was raised")
    except BaseException as fault:
        tell(f"{time.monotonic()} {type(fault).__name__} {fault}")
x.sum().item()
"""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sessions share 256 MiB, and that tells of an operator after a second."""
    with server(tmp_path_factory.mktemp("torch-failures"), "--memory-limit", str(LIMIT), "--busy", "1") as running:
        yield running


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], int, float]]:
    """A program that sends much to a stopped session, the session, and since when; other tests run beside it."""
    with server(tmp_path_factory.mktemp("torch-stalled")) as slow:
        program, session = started(slow, HUNG + "y = (big + 7).cuda(); tell(f'{float(y[-1])} {x.sum().item()}')")
        os.kill(session, signal.SIGSTOP)
        go_on(program)
        yield program, session, time.monotonic()
        if program.poll() is None:
            program.kill()
            os.kill(session, signal.SIGCONT)


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Programs whose network is cut, in a namespace of their own; other tests run beside them."""
    if os.geteuid():
        pytest.skip("a network namespace needs root")
    command = ["unshare", "-n", sys.executable, "-m", "tests.support.torch_cut", str(tmp_path_factory.mktemp("cut"))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def early(one: Server, stalled: tuple[subprocess.Popen[str], int, float], request: pytest.FixtureRequest) -> None:
    """What takes as long as the keep-alive begins with the first test."""
    if not os.geteuid():
        request.getfixturevalue("cut")


def alone(one: Server) -> None:
    """No session of an earlier test is left."""
    wait_until(lambda: not one.children(), "all sessions are gone")


def started(one: Server, rest: str) -> tuple[subprocess.Popen[str], int]:
    """A program that has said "ready", and its session's process."""
    alone(one)
    program = start(BEGIN + rest, "remote", one)
    line(program, "ready")
    [session] = one.children()
    return program, session


LOST = "start the program again from its last checkpoint"


def test_a_session_that_is_killed_is_named_at_the_next_use(one: Server) -> None:
    """The server, and what then; every later use says the same; the program ends by itself."""
    program, session = started(one, "tell('ready'); input(); [caught(lambda: (x + 1).sum().item()) for _ in range(2)]")
    os.kill(session, signal.SIGKILL)
    alone(one)
    go_on(program)
    done = ended(program)
    assert done.code == 0, done.err
    for said in done.out.splitlines():
        assert f"the GPU server 127.0.0.1:{one.port}" in said
        assert LOST in said
    assert len(done.out.splitlines()) == 2
    assert "Traceback" not in done.err


def test_a_session_that_is_killed_is_told_to_who_waits(one: Server) -> None:
    """At once: the issue's bound is a second; this one leaves room for a busy machine."""
    program, session = started(one, "tell('ready'); caught(lambda: endless().item())")
    time.sleep(0.5)
    killed = time.monotonic()
    os.kill(session, signal.SIGKILL)
    told, _, said = ended(program).out.partition(" ")
    assert LOST in said
    assert float(told) - killed < 3


def test_a_server_that_stops_is_told(tmp_path: Path) -> None:
    """SIGTERM of the whole server, as a lease's end sends it."""
    with server(tmp_path) as leaving:
        program, _ = started(leaving, "tell('ready'); input(); caught(x.sum().item)")
        leaving.process.terminate()
        leaving.process.wait(20)
        go_on(program)
        assert f"the GPU server 127.0.0.1:{leaving.port}" in ended(program).out


def test_ctrl_c_ends_a_wait_and_the_session_goes_on(one: Server) -> None:
    """A notebook's user interrupts; what the GPU holds is still there once the operator has ended."""
    rest = "a = torch.rand(1200, 1200, device='cuda'); (a @ a / 600).sum().item(); tell('ready')\n"
    rest += (
        "def long():\n    b = a\n    for _ in range(60): b = (b @ a) / 600\n    b.sum().item()\n    tell('too short')\n"
    )
    rest += "caught(long); caught(lambda: tell(x.sum().item()))"
    program, _ = started(one, rest)
    time.sleep(0.5)
    program.send_signal(signal.SIGINT)
    done = ended(program)
    assert "KeyboardInterrupt" in done.out.splitlines()[0]
    assert done.out.splitlines()[1] == "3.0"


STALL_S = 36  # the keep-alive is 30
HUNG = "big = torch.zeros(32 << 20, dtype=torch.uint8); tell('ready'); input()\n"


def test_a_program_ends_beside_a_server_that_hangs(one: Server) -> None:
    """Its last messages wait a second, not for good."""
    program, session = started(
        one, HUNG + "z = big.pin_memory(); y = [z.cuda(non_blocking=True) for _ in range(4)]; tell('over')"
    )
    os.kill(session, signal.SIGSTOP)
    try:
        go_on(program)
        done = ended(program, 25)
        assert (done.out.strip(), done.code) == ("over", 0)
    finally:
        os.kill(session, signal.SIGCONT)


def test_memory_that_is_full_is_torchs_error_and_freeing_goes_on(one: Server) -> None:
    """At the line, again and again; what is freed can be had."""
    rest = """
held = []
def fill():
    while True: held.append(torch.ones(16 << 20, dtype=torch.uint8, device="cuda"))
for _ in range(3):
    caught(fill)
    torch.cuda.synchronize()
    tell(len(held))
    held.clear()
a = torch.ones(24 << 20, device="cuda")
def results(): return (a + a).sum().item(), (a * 2 + a.sin() * a.cos()).sum().item()
caught(results)
try: results()
except torch.cuda.OutOfMemoryError as fault: tell("caught by its class")
del a
tell(torch.ones(30 << 20, device="cuda").sum().item())
tell(x.sum().item())
"""
    alone(one)
    done = run(BEGIN + rest, "remote", one)
    lines = done.out.splitlines()
    assert [words.split()[1] for words in lines[0:6:2]] == ["OutOfMemoryError"] * 3, lines
    assert [int(words) for words in lines[1:6:2]] == [15] * 3
    assert "CUDA out of memory. Tried to allocate 16.00 MiB" in lines[0]
    assert "OutOfMemoryError" in lines[6]
    assert lines[7:] == ["caught by its class", str(float(30 << 20)), "3.0"]
    assert done.err == ""


def test_an_operator_without_end_is_ended_after_its_client(one: Server) -> None:
    """Ten seconds after the client has gone."""
    program, session = started(one, "tell('ready'); endless().item()")
    time.sleep(0.5)
    program.kill()
    program.wait()
    wait_until(lambda: session not in one.children(), "the session is ended")
    wait_until(lambda: status_of(one, session) is not None, "its end is reported")
    assert status_of(one, session) == 4


def status_of(one: Server, session: int) -> int | None:
    """How the session ended, by the server's report."""
    ends = [event["status"] for event in one.events() if event["event"] == "gone" and event["pid"] == session]
    return ends[0] if ends else None


def test_a_first_attempt_that_failed_is_no_bar_to_the_next(one: Server) -> None:
    """A server that drops the connection at first, and then is there: a notebook's user runs the cell again."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        rest = "tell('ready'); caught(lambda: torch.ones(1, device='cuda')); input()\n"
        rest += "caught(lambda: tell(torch.ones(4, device='cuda').sum().item()))"
        address = f"127.0.0.1:{door.getsockname()[1]}"
        begin = BEGIN.replace('x = torch.ones(3, device="cuda")', "").replace("x.sum().item()", "")
        program = start(begin + rest, "remote", one, ELASTIC_AI_TORCH_SERVERS=address)
        line(program, "ready")
        door.accept()[0].close()
        assert f"the connection to the GPU server {address} is lost" in line(program)
        go_on(program)
        client, server_side = door.accept()[0], socket.create_connection(("127.0.0.1", one.port))
        for source, target in ((client, server_side), (server_side, client)):
            threading.Thread(target=forward, args=(source, target), daemon=True).start()
        assert ended(program).out.splitlines()[0] == "4.0"


def forward(source: socket.socket, target: socket.socket) -> None:
    """Bytes, until their end."""
    try:
        while part := source.recv(1 << 16):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_a_server_that_takes_nothing_for_longer_than_the_keep_alive_is_not_lost(
    stalled: tuple[subprocess.Popen[str], int, float],
) -> None:
    """As one whose operator runs a minute while the program goes on: its machine answers, so nothing is cut."""
    program, session, since = stalled
    time.sleep(max(0.0, since + STALL_S - time.monotonic()))
    os.kill(session, signal.SIGCONT)
    assert ended(program).out.splitlines() == ["7.0 3.0"]


def test_a_cut_network_is_told_within_the_keep_alive(cut: subprocess.Popen[str]) -> None:
    """To who asks after the cut, and to who waited before it; both sessions end, one of them in an endless operator."""
    out, _ = cut.communicate(timeout=120)
    assert cut.returncode == 0
    told = json.loads(out)
    assert len(told["told"]) == 2
    for one in told["told"]:
        assert f"the GPU server 127.0.0.1:{told['port']}" in one["words"]
        assert LOST in one["words"]
        assert one["after_s"] < 35  # 30, and room for a busy machine
    assert told["gone_s"] < 50


def test_ctrl_c_ends_sending_to_a_server_that_takes_nothing(one: Server) -> None:
    """A copy up, and a queue that is full; all of what was begun arrives, so that the session goes on."""
    rest = """
big = torch.full((48 << 20,), 7, dtype=torch.uint8)
text = torch.zeros(15 << 10, dtype=torch.uint8)
y = torch.zeros(48 << 20, dtype=torch.uint8, device="cuda")
z = torch.zeros(15 << 10, dtype=torch.uint8, device="cuda")
x.sum().item()
tell("ready"); input()
caught(lambda: y.copy_(big))
tell("again"); input()
def fill():
    for _ in range(100000): z.copy_(text)
caught(fill)
tell("third"); input()
tell(f"{(y == 7).all().item()} {x.sum().item()}")
"""
    program, session = started(one, rest)
    os.kill(session, signal.SIGSTOP)
    try:
        for after in ("again", "third"):
            go_on(program)
            time.sleep(2 if after == "again" else 8)
            interrupted = time.monotonic()
            program.send_signal(signal.SIGINT)
            told, _, said = line(program).partition(" ")
            assert said.startswith("KeyboardInterrupt")
            assert float(told) - interrupted < 10  # a second, and room for a busy machine
            line(program, after)
    finally:
        os.kill(session, signal.SIGCONT)
    go_on(program)
    done = ended(program)
    assert done.out.strip() == "True 3.0", done.err


def test_ctrl_c_ends_reading_of_half_a_message(one: Server) -> None:
    """The server stops in the middle of a copy down; what is left of it is read by whoever reads next."""
    rest = """
y = torch.full((48 << 20,), 7, dtype=torch.uint8, device="cuda")
x.sum().item()
tell("ready"); input()
caught(lambda: y.cpu())
tell("again"); input()
tell(f"{int(y.cpu().sum()) == 7 * (48 << 20)} {x.sum().item()}")
"""
    alone(one)
    with relay(one.port, 20 * MIB + 1000) as (port, go):
        program = start(BEGIN + rest, "remote", one, ELASTIC_AI_TORCH_SERVERS=f"127.0.0.1:{port}")
        line(program, "ready")
        go_on(program)
        time.sleep(2)
        interrupted = time.monotonic()
        program.send_signal(signal.SIGINT)
        told, _, said = line(program).partition(" ")
        assert said.startswith("KeyboardInterrupt")
        assert float(told) - interrupted < 10
        line(program, "again")
        go.set()
        go_on(program)
        assert ended(program).out.strip() == "True 3.0"


@contextmanager
def relay(port: int, most: int) -> Iterator[tuple[int, threading.Event]]:
    """A connection to the server that passes so many bytes down, and the rest when it is told to."""
    go = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            client, server_side = door.accept()[0], socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=forward, args=(client, server_side), daemon=True).start()
            left = most
            while left and (part := server_side.recv(min(left, 1 << 16))):
                client.sendall(part)
                left -= len(part)
            go.wait()
            forward(server_side, client)

        threading.Thread(target=serve, daemon=True).start()
        yield door.getsockname()[1], go
