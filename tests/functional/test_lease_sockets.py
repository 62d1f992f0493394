"""Whose a port is, with real sockets of real processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.lease_host import FakeClock, FakeHost
from toolkit.lease import LeaseError
from toolkit.lease.machine import sockets
from toolkit.lease.server import ports

pytestmark = pytest.mark.engines

NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it looks into other users' processes")
ALICE = 12_345
#: Sits down on ports as the user of its first word: `bind`, `listen` or `six` (IPv6).
PROGRAM = """
import ctypes, os, socket, sys, threading, time
uid, how, ports = int(sys.argv[1]), sys.argv[2], map(int, sys.argv[3:])
kept = []
os.setresuid(uid, uid, uid)
def sit_down():
  if how.startswith("apart"):
    assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
  for port in ports:
    kept.append(socket.socket(socket.AF_INET6 if how == "six" else socket.AF_INET))
    kept[-1].bind(("::" if how == "six" else "0.0.0.0", port))
    if how not in ("bind", "apart-bind"):
        kept[-1].listen()
  print("there", flush=True)
  time.sleep(600)
threading.Thread(target=sit_down).start()
"""
Sit = Callable[..., subprocess.Popen[str]]


def some(count: int) -> list[int]:
    """Ports beside each other that are free."""
    while True:
        first = random.randint(10_000, 30_000)
        wanted = list(range(first, first + count))
        if all(sockets.free("0.0.0.0", port) for port in wanted):
            return wanted


@pytest.fixture
def sit() -> Iterator[Sit]:
    started: list[subprocess.Popen[str]] = []

    def go(how: str, *wanted: int, uid: int = ALICE) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", PROGRAM, str(uid), how, *map(str, wanted)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        return process

    yield go
    for one in started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


@NEEDS_ROOT
@pytest.mark.parametrize("how", ["listen", "bind", "six"])
def test_a_port_is_taken_however_somebody_sits_on_it(sit: Sit, how: str) -> None:
    port, other = some(2)
    process = sit(how, port)
    assert not sockets.free("127.0.0.1", port)
    assert sockets.free("127.0.0.1", other)
    listed = [(one.uid, one.pids) for one in sockets.listeners([port, other])]
    assert listed == ([] if how == "bind" else [(ALICE, (process.pid,))]), "what only is bound is in no table"
    assert [(one.process.pid, one.ports) for one in sockets.occupants(port, other)] == [(process.pid, (port,))]


def test_a_connection_that_has_just_ended_leaves_a_port_to_servers(sit: Sit) -> None:
    (port,) = some(1)
    with socket.create_server(("127.0.0.1", port)) as server:
        one = socket.create_connection(("127.0.0.1", port))
        other = server.accept()[0]
        other.close()  # the server's side first: it keeps the port for a minute
        one.close()
    assert not sockets.free("127.0.0.1", port)
    assert sockets.free("127.0.0.1", port, lenient=True)


def a_host(tmp_path: Path, first: int, last: int) -> tuple[FakeHost, ports.ServerConf]:
    host = FakeHost(folder=tmp_path)
    object.__setattr__(host, "sockets", sockets)
    conf = host.serve()
    return host, ports.ServerConf(conf.node, conf.address, (first, last), conf.engine_dir)


@NEEDS_ROOT
@pytest.mark.parametrize("how", ["apart", "apart-bind"])
def test_a_thread_with_open_files_of_its_own_hides_no_port(sit: Sit, how: str) -> None:
    (port,) = some(1)
    process = sit(how, port)
    try:
        os.close(os.pidfd_open(os.getpid(), sockets._PIDFD_THREAD))
    except OSError:
        if how == "apart-bind":
            pytest.skip("this machine looks at no single threads (Linux before 6.9)")
    assert [(one.process.pid, one.ports) for one in sockets.occupants(port, port)] == [(process.pid, (port,))]
    if how == "apart":
        assert [one.pids for one in sockets.listeners([port])] == [(process.pid,)]


@NEEDS_ROOT
def test_a_job_on_all_ports_neither_starves_a_lease_nor_stays(sit: Sit, tmp_path: Path) -> None:
    """Who sits on some is passed over; who leaves none is ended, and told."""
    wanted = some(8)
    host, conf = a_host(tmp_path, wanted[0], wanted[-1])
    some_of_them = sit("listen", *wanted[:4])
    port, agent_port, told = ports.free_ports(host, conf, {})
    assert {port, agent_port} <= set(wanted[4:])
    assert (told, some_of_them.poll()) == ([], None)
    the_rest = sit("bind", *wanted[4:7])
    object.__setattr__(host, "clock", __import__("time"))
    port, agent_port, told = ports.free_ports(host, conf, {})
    assert some_of_them.wait(5) == -signal.SIGKILL, "who has most of them"
    assert the_rest.poll() is None
    assert f"process {some_of_them.pid} (python" in told[0]
    assert "has 4 of the leases' ports, and is ended" in told[0]


@NEEDS_ROOT
def test_who_takes_a_port_that_was_given_out_is_ended_and_root_is_not(sit: Sit, tmp_path: Path) -> None:
    port, other = some(2)
    host, _conf = a_host(tmp_path, port, other)
    process, roots = sit("listen", port), sit("listen", other, uid=0)
    (told,) = ports.taken_back(host, [port, other])
    assert f"took port {port} of a lease" in told
    assert process.wait(5) == -signal.SIGKILL
    assert roots.poll() is None
    host, conf = a_host(tmp_path, other, other + 1)
    with contextlib.closing(socket.create_server(("0.0.0.0", other + 1))), pytest.raises(LeaseError, match="in use"):
        ports.free_ports(host, conf, {})


def test_what_listens_on_a_leases_port_is_the_leases_or_not(tmp_path: Path) -> None:
    host = FakeHost(folder=tmp_path, clock=FakeClock())
    host.sockets.whose = {31000: 64_000, 31001: ALICE}
    own, others = ports.still_ours(host, [31000, 31001, 31002], {64_000}, {})
    assert own == ["something still listens on port 31000"]
    assert others == [f"process 4711 of uid {ALICE} listens on port 31001, which was the lease's"]


def test_ports_are_reserved_beside_those_of_others(tmp_path: Path) -> None:
    path = tmp_path / "reserved"
    path.write_text("8080,21005,30000-30002\n")
    sockets.reserve(21000, 21010, path=path)
    assert path.read_text() == "8080,21000-21010,30000-30002\n"
    before = path.stat().st_mtime_ns
    sockets.reserve(21000, 21010, path=path)
    assert path.stat().st_mtime_ns == before
    sockets.reserve(21000, 21010, keep=False, path=path)
    assert path.read_text() == "8080,30000-30002\n"
    sockets.reserve(1, 2, path=tmp_path / "none")  # a container without it
