"""A lease's agent on loopback, with a TCP stand-in for the engine's server: who may speak to it, and when it ends."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import lease_forms
from tests.support.crowds import FLOODS
from tests.support.lease_agents import ENGINE, TOKEN, Start, agents, answers, in_s
from toolkit.lease import LeaseError, heartbeat, wire

pytestmark = pytest.mark.engines


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with agents(tmp_path) as go:
        yield go


def test_it_lives_with_its_owner_and_ends_with_it(start: Start) -> None:
    lease = start()
    (keeper,), lost = heartbeat.keep([lease.endpoint])
    keeper.start()
    assert not lost.wait(2.5)  # more than twice its grace
    assert lease.process.poll() is None
    keeper.end()
    assert lease.ended().startswith("its client")
    assert not answers(lease.instance.port)


def test_a_client_that_closes_is_gone_sooner_than_one_that_is_silent(start: Start) -> None:
    lease = start(grace_s=60.0, first_s=60.0)
    keepers, _lost = heartbeat.keep([lease.endpoint])
    keepers[0]._connection.sock.close()
    assert lease.ended() == "its client is gone"


def test_a_client_that_never_comes(start: Start) -> None:
    assert start(first_s=1.2).ended() == "its client was silent for 1 s"


def test_a_client_that_falls_silent(start: Start) -> None:
    lease = start()
    sock, nonce = lease.connect()
    sock.sendall(f"owner {wire.proof(TOKEN, 'owner', nonce)}\n".encode())
    assert lease.ended() == "its client was silent for 1 s"
    sock.close()


def test_a_short_break_is_forgiven(start: Start) -> None:
    lease = start(grace_s=5.0)
    (keeper,), lost = heartbeat.keep([lease.endpoint])
    keeper.start()
    keeper._connection.sock.shutdown(socket.SHUT_RDWR)  # as a network that was cut
    assert not lost.wait(2)
    assert lease.process.poll() is None
    keeper.end()


def test_silence_without_an_end_is_noticed(start: Start) -> None:
    """As with a dead switch: no connection breaks, nothing comes any more."""
    lease = start(grace_s=20.0)
    (keeper,), lost = heartbeat.keep([lease.endpoint])
    keeper.start()
    lease.process.send_signal(signal.SIGSTOP)
    try:
        assert lost.wait(15)
        assert keeper.ending == wire.Ending(wire.EndCode.LOST, "gpu1 did not answer for 1 s")
    finally:
        lease.process.send_signal(signal.SIGCONT)


def test_nobody_speaks_to_it_without_the_token(start: Start) -> None:
    lease = start()
    sock, nonce = lease.connect()
    answer = f"owner {wire.proof(TOKEN, 'owner', nonce)}\n".encode()
    sock.sendall(answer)
    assert sock.recv(200).startswith(b"welcome ")
    for attempt in (f"owner {TOKEN}\n".encode(), b"owner \n", b"alive\n", b"x" * 2000, answer):  # the last: a replay
        other, other_nonce = lease.connect()
        assert other_nonce != nonce
        other.sendall(attempt)
        with contextlib.suppress(ConnectionResetError):
            assert other.recv(200) == b""
        other.close()
        sock.sendall(b"alive\n")
    assert lease.process.poll() is None
    sock.close()


def test_connections_of_strangers_do_not_keep_it_alive_or_fill_it(start: Start) -> None:
    lease = start(first_s=2.5)
    strangers = [socket.create_connection(("127.0.0.1", lease.instance.agent_port)) for _ in range(40)]
    assert lease.ended() == "its client was silent for 1 s"
    for stranger in strangers:
        stranger.close()


def test_connections_that_prove_nothing_do_not_keep_the_owner_out(start: Start) -> None:
    """Anybody on the owner's machine may connect; after a cut of some seconds the owner has to come back in."""
    lease = start(first_s=8.0)
    strangers = [socket.create_connection(("127.0.0.1", lease.instance.agent_port)) for _ in range(40)]
    sock, nonce = lease.connect()
    sock.sendall(f"owner {wire.proof(TOKEN, 'owner', nonce)}\n".encode())
    assert sock.recv(200).startswith(b"welcome ")
    for one in (*strangers, sock):
        one.close()


@pytest.mark.parametrize("word", ["", f"knock {'0' * 32} {'0' * 64}\n", "owner x\n"])
def test_who_has_the_token_gets_in_whatever_others_do(start: Start, word: str) -> None:
    """Thousands of connections a second from the owner's own machine, and he comes back each time."""
    lease = start(mode="hold")
    command = [sys.executable, "-c", FLOODS, str(lease.instance.agent_port), word]
    flooders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for one in flooders:
            assert one.stdout is not None
            assert one.stdout.readline() == "floods\n"
        for _ in range(6):
            (keeper,), _lost = heartbeat.keep([lease.endpoint])
            keeper._connection.sock.close()
    finally:
        for one in flooders:
            one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()
    assert lease.process.poll() is None
    lease.process.terminate()
    lease.process.wait(10)
    assert lease.process.stderr is not None
    lines = [line for line in lease.process.stderr.read().splitlines() if line.startswith("refused")]
    assert len(lines) <= 40, "told, and not each of them"
    assert all("times more" in line for line in lines[10:11])


def test_a_knock_is_heard_once_and_opens_nothing(start: Start) -> None:
    lease = start()
    first = wire.knock(TOKEN)
    for attempt, answered in ((first, True), (first, False), ("knock x y", False), (wire.knock("z" * 43), False)):
        sock, nonce = lease.connect()
        sock.sendall(f"{attempt}\nowner {wire.proof(TOKEN, 'owner', nonce)}\n".encode())
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(200).startswith(b"welcome ") == answered
        sock.close()
    sock, _nonce = lease.connect()
    sock.sendall(f"{wire.knock(TOKEN)}\nalive\n".encode())
    with contextlib.suppress(ConnectionResetError):
        assert sock.recv(200) == b""
    sock.close()


def test_time_is_up_whether_anybody_is_there_or_not(start: Start) -> None:
    lease = start(mode="hold", deadline=in_s(1.5))
    assert lease.ended() == "its time is over"


def test_an_extension_reaches_it(start: Start) -> None:
    lease = start(mode="hold", deadline=in_s(1.5))
    lease.due(60)
    time.sleep(2.5)
    assert lease.process.poll() is None
    lease.due(-1)
    assert lease.ended() == "its time is over"


def test_a_step_of_the_clock_ends_no_lease(start: Start) -> None:
    """Until when a lease is good is for people; what ends it is a span that no setting of a clock changes."""
    lease = start(mode="hold", deadline=wire.Deadline(time.time() - 3600, time.monotonic() + 3, wire.EndCode.TIME))
    time.sleep(1.5)
    assert lease.process.poll() is None
    assert lease.ended() == "its time is over"


def test_the_owner_hears_why(start: Start) -> None:
    lease = start()
    (keeper,), lost = heartbeat.keep([lease.endpoint])
    keeper.start()
    lease.process.send_signal(signal.SIGTERM)
    assert lost.wait(5)
    assert keeper.ending == wire.Ending(wire.EndCode.TAKEN_BACK, "it was taken back")


def test_it_ends_with_its_engine(start: Start) -> None:
    lease = start(
        engine=ENGINE.replace("while True:\n    server.accept()[0].close()", "import time; time.sleep(1); 1/0")
    )
    assert lease.ended() == "the engine's server ended with exit code 1"


def test_an_engine_that_does_not_start_is_named(start: Start) -> None:
    lease = start(engine="#!/bin/sh\nexit 3\n")
    assert lease.process.wait(5) == 1
    assert lease.ended() == "the engine's server ended at its start with exit code 3"


def test_an_impostor_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            sock = server.accept()[0]
            sock.sendall(f"{wire.GREETING} {'0' * 32}\n".encode())
            sock.recv(200)
            sock.sendall(b"welcome - " + b"0" * 64 + b"\n")
            sock.close()

        thread = threading.Thread(target=pretend)
        thread.start()
        port = server.getsockname()[1]
        endpoint = lease_forms.endpoint(agent_port=port)
        with pytest.raises(LeaseError, match="does not know this lease"):
            heartbeat.keep([endpoint])
        thread.join()
