"""A lease's agent on loopback, with a TCP stand-in for the engine's server: who may speak to it, and when it ends."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.crowds import FLOODS
from tests.support.lease_host import FakeHost
from toolkit.lease import LeaseError, heartbeat, wire
from toolkit.lease.client import running
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.instance_record import Instance

pytestmark = pytest.mark.engines

REPO = Path(__file__).parents[2]
TOKEN = lease_forms.TOKEN
ENGINE = """#!{python}
import os, signal, socket, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert open(options["--token-file"]).read().strip() == "{token}"
assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-0" and options["--memory-limit"] == str(128 << 20)
server = socket.create_server((options["--bind"], int(options["--port"])))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(options["--port-file"], "w").write(options["--port"])
while True:
    server.accept()[0].close()
"""


def in_s(seconds: float, code: wire.EndCode = wire.EndCode.TIME) -> wire.Deadline:
    """As root writes it."""
    return wire.Deadline(time.time() + seconds, time.monotonic() + seconds, code)


def free_port() -> int:
    """One that the kernel gives to no connection by itself, so that it is still free when it is used."""
    while True:
        port = random.randint(10000, 30000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass
class Running:
    process: subprocess.Popen[str]
    instance: Instance
    folder: Path

    @property
    def endpoint(self) -> LeaseEndpoint:
        devices = tuple(replace(device, emulated=True) for device in self.instance.devices)
        owners = replace(self.instance, devices=devices, heartbeat_s=0.2, grace_s=1.0, where="client")
        return LeaseEndpoint.of(owners, TOKEN, "gpu1")

    def ended(self, within_s: float = 8) -> str:
        self.process.wait(within_s)
        return (self.folder / "reason").read_text().strip()

    def due(self, seconds: float, code: wire.EndCode = wire.EndCode.TIME) -> None:
        """It has so long from now, however long it took to start."""
        (self.folder / "deadline").write_text(in_s(seconds, code).text())

    def connect(self) -> tuple[socket.socket, str]:
        sock = socket.create_connection(("127.0.0.1", self.instance.agent_port), timeout=3)
        return sock, wire.nonce_of(sock.makefile().readline().strip())


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def go(engine: str = ENGINE, **changes: Any) -> Running:
        program = tmp_path / "engine" / "bin" / "elastic-ai-refserver"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(engine.format(python=sys.executable, token=TOKEN))
        program.chmod(0o755)
        deadline = changes.pop("deadline", wire.Deadline())
        told: dict[str, Any] = {
            "port": free_port(),
            "agent_port": free_port(),
            "devices": (LeasedGpu(0, "GPU-0", "Emulated X", 256, 70, 140, 128),),
            "engine_dir": tmp_path / "engine",
            "deadline": deadline.until,
            "deadline_file": tmp_path / "deadline",
            "grace_s": 1.0,
            "first_s": 5.0,
        }
        instance = lease_forms.instance(**(told | changes))
        (tmp_path / "deadline").write_text(deadline.text())
        (tmp_path / "token").write_text(TOKEN + "\n")
        (tmp_path / "instance").write_text(instance.text())
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(10)
        environment = {
            "CREDENTIALS_DIRECTORY": str(tmp_path),
            "RUNTIME_DIRECTORY": str(tmp_path),
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "PATH": os.environ["PATH"],
        }
        code = "import sys; from toolkit.lease.server.agent import main; sys.exit(main())"
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, cwd=REPO, text=True, stderr=subprocess.PIPE
        )
        started.append(Running(process, instance, tmp_path))
        with notified:
            while process.poll() is None:
                try:
                    notified.settimeout(0.2)
                    assert notified.recv(64) == b"READY=1"
                    break
                except TimeoutError:
                    continue
        return started[-1]

    yield go
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()  # it ends its engine; killed, it leaves that to its unit, which is not here
        one.process.wait(10)
        one.process.stderr.close()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


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


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """This machine, with an engine of the server's release."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    host = FakeHost(folder=tmp_path)
    host.serve()
    return host


def test_a_program_gets_its_servers_and_leaves_no_token(start: Start, host: FakeHost) -> None:
    lease = start(grace_s=30.0)
    show = 'echo "$ELASTIC_AI_SERVERS $ELASTIC_AI_LEASE"'
    script = f'cat "$ELASTIC_AI_TOKEN_FILE" > {host.folder}/seen; {show} >> {host.folder}/seen; exit 3'
    told: list[str] = []
    assert running.start_and_wait(host, ["sh", "-c", script], [lease.endpoint], told.append) == 3
    assert (host.folder / "seen").read_text() == f"{TOKEN}\n127.0.0.1:{lease.instance.port} 41\n"
    assert list((host.folder / "mine").iterdir()) == []
    assert told == []
    assert lease.ended() == "its client is gone"


def test_a_lease_that_ends_first_is_said_and_the_program_ends(start: Start, host: FakeHost) -> None:
    lease = start(mode="hold")
    lease.due(1.5)
    told: list[str] = []
    assert (
        running.start_and_wait(host, ["sleep", "60"], [lease.endpoint], told.append, patience_s=0.5)
        == 128 + signal.SIGTERM
    )
    assert told == ["lease 41 has ended: its time is over"]
    with pytest.raises(LeaseError, match="does not answer"):
        running.start_and_wait(host, ["true"], [lease.endpoint], told.append)


@pytest.mark.parametrize(
    ("code", "chosen", "ends", "words"),
    [
        (wire.EndCode.PREEMPTED, signal.SIGUSR1, 7, "a job of higher priority needs its GPUs"),
        (wire.EndCode.ADMINISTRATOR, None, 128 + signal.SIGTERM, "the administrator ended it"),
    ],
)
def test_a_grace_reaches_the_program(
    start: Start, host: FakeHost, code: wire.EndCode, chosen: signal.Signals | None, ends: int, words: str
) -> None:
    """Its signal comes while it still has its GPUs, and the reason before the signal."""
    lease = start()
    program = "trap 'exit 7' USR1; touch $0; while :; do sleep 0.1; done"
    told: list[str] = []

    def warn() -> None:
        while not (host.folder / "started").exists():
            time.sleep(0.05)
        lease.due(30, code)

    thread = threading.Thread(target=warn)
    thread.start()
    argv = ["sh", "-c", program, str(host.folder / "started")]
    assert running.start_and_wait(host, argv, [lease.endpoint], told.append, chosen) == ends
    thread.join()
    (line,) = told
    name = (chosen or signal.SIGTERM).name
    assert re.fullmatch(rf"lease 41 ends in (29|30) s: {words}; the program is sent {name}", line)


def test_idle_gpus_are_told_without_a_signal_and_then_taken_back(start: Start, host: FakeHost) -> None:
    """The program can use them again, so nothing ends it before they go."""
    lease = start()
    told: list[str] = []
    path = lease.instance.deadline_file
    later = in_s(600)

    def write(deadline: wire.Deadline) -> None:
        scratch = path.with_name(".deadline")
        scratch.write_text(deadline.text())
        scratch.replace(path)
        time.sleep(1.2)

    def sweep() -> None:
        while not (host.folder / "started").exists():
            time.sleep(0.05)
        idle = replace(later, idle_due=time.monotonic() + 300, idle_s=1500.0)
        write(idle)
        write(later)  # used again
        write(idle)
        write(wire.Deadline(time.time(), time.monotonic(), wire.EndCode.IDLE))

    thread = threading.Thread(target=sweep)
    thread.start()
    argv = ["sh", "-c", "touch $0; trap 'exit 7' TERM; while :; do sleep 0.1; done", str(host.folder / "started")]
    assert running.start_and_wait(host, argv, [lease.endpoint], told.append) == 7
    thread.join()
    notices = [line for line in told if "not used for 25 minutes" in line]
    assert len(notices) == 2, told
    assert re.fullmatch(
        r"lease 41: its GPUs were not used for 25 minutes; it ends in (29\d|300) s unless they are", notices[0]
    )
    assert told[-1] == f"lease 41 has ended: {wire.WORDS[wire.EndCode.IDLE]}"
    assert lease.ended() == wire.WORDS[wire.EndCode.IDLE]


def test_a_program_that_takes_no_notice_has_its_grace_and_then_hears_the_same_reason(
    start: Start, host: FakeHost
) -> None:
    lease = start()
    lease.due(1.5, wire.EndCode.PREEMPTED)  # already on its way when the program starts
    told: list[str] = []
    argv = ["sh", "-c", "trap '' USR1; while :; do sleep 0.1; done"]
    ended = running.start_and_wait(host, argv, [lease.endpoint], told.append, signal.SIGUSR1, patience_s=0.5)
    assert ended == 128 + signal.SIGTERM
    assert [line.partition(": ")[2] for line in told] == [
        "a job of higher priority needs its GPUs; the program is sent SIGUSR1",
        "a job of higher priority needs its GPUs",
    ]
    assert lease.ended() == "a job of higher priority needs its GPUs"


def test_a_lease_that_ends_without_notice_sends_the_chosen_signal_at_once(start: Start, host: FakeHost) -> None:
    lease = start(mode="hold")
    lease.due(1.5)
    told: list[str] = []
    argv = ["sh", "-c", "trap 'exit 7' USR1; while :; do sleep 0.1; done"]
    assert running.start_and_wait(host, argv, [lease.endpoint], told.append, signal.SIGUSR1) == 7
    assert told == ["lease 41 has ended: its time is over"]


def test_a_program_whose_parent_died_before_it_could_ask_to_follow_it_does_not_start() -> None:
    done = subprocess.run(["echo", "started"], preexec_fn=partial(running.die_with, 1), capture_output=True)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, b"")
