"""A session by RDMA verbs: the same bits, nothing by TCP but the door, and never TCP in its place.

The device is a libibverbs of the tests' own (tests/support/fake_verbs.c); between machines:
tests/integration/test_vm_verbs.py.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import torch_wire as wire
from tests.support.engine_verbs import LACKS, REFUSALS, Wire, library, settings
from tests.support.torch_engine import TOKEN, Server, built, ended, go_on, line, run, server, start, wait_until
from tests.support.torch_env import python
from tests.support.torch_verbs import PROGRAM, UP
from toolkit.engine import torch_build

pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
LIMIT_S = 300  # of a machine that is busy with much else
END = struct.Struct("<4IQ")  # struct verbs_end of verbs_port.h
TOUCH = "import torch; print(torch.ones(3, device='cuda').sum().item())"
WAITS = """
import sys, torch
x = torch.ones(3, device="cuda"); x.sum().item()
print("ready", flush=True)
sys.stdin.readline()
print((x + 1).sum().item())
"""


@pytest.fixture(scope="module")
def device() -> Iterator[Wire]:
    """The device of servers and programs here."""
    with tempfile.TemporaryDirectory(prefix="eai-wire-") as folder:  # short: names of sockets have 108 bytes
        yield Wire(Path(folder))


@pytest.fixture(scope="module")
def has(device: Wire) -> dict[str, str]:
    """By which a server or a program has it."""
    return {**settings(device.folder), "LD_LIBRARY_PATH": str(library())}


@pytest.fixture(scope="module")
def asks(has: dict[str, str]) -> dict[str, str]:
    """A program that is to go by verbs."""
    return {**has, "ELASTIC_AI_TRANSPORT": "verbs"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, has: dict[str, str]) -> Iterator[Server]:
    """A server that offers TCP and verbs."""
    with server(tmp_path_factory.mktemp("torch-verbs"), "--transport", "tcp,verbs", **has) as running:
        yield running


def test_all_of_a_session_goes_by_verbs_with_the_same_bits(both: Server, device: Wire, asks: dict[str, str]) -> None:
    native = run(PROGRAM, "native", limit_s=LIMIT_S)
    before = device.bytes
    by_verbs = run(PROGRAM, "remote", both, limit_s=LIMIT_S, **asks)
    went = device.bytes - before
    by_tcp = run(PROGRAM, "remote", both, limit_s=LIMIT_S, **{**asks, "ELASTIC_AI_TRANSPORT": "tcp"})
    assert native.losses == by_verbs.losses == by_tcp.losses
    assert ("device cpu" in native.out, "device cuda" in by_verbs.out, len(native.losses)) == (True, True, 6)
    (same, tcp), (same_by_tcp, all_by_tcp) = by_verbs.result(), by_tcp.result()
    assert same
    assert same_by_tcp
    assert went > 4 * UP
    assert tcp < 2_000, "hello, and the ends of a queue pair"
    assert all_by_tcp > 4 * UP
    assert device.bytes - before == went, "TCP where it is asked for, at the same server"
    told = [event for event in both.events() if event["event"] == "verbs"]
    assert [event["device"] for event in told] == ["fake_verbs0"]
    assert told[0]["pid"] in [event["pid"] for event in both.events() if event["event"] == "client"]


def half_hour(cases: Iterable[str], *chosen: str) -> list[Any]:
    """All of them, of which the half hour has those chosen."""
    return [pytest.param(one, marks=() if one in chosen else pytest.mark.rest) for one in cases]


def refused(on: Server, words: str, **more: str) -> None:
    done = run(TOUCH, "remote", on, check=False, **more)
    assert done.code == 1
    assert done.out == ""
    last = done.err.strip().splitlines()[-1]
    assert re.search(f"cannot be had(,| there,) and nothing else was asked for: .*{words}", last), done.err


@pytest.mark.parametrize("case", half_hour(REFUSALS, "no device", "lost packets"))
def test_verbs_that_a_program_cannot_have_are_one_sentence_and_never_tcp(
    both: Server, asks: dict[str, str], case: str
) -> None:
    faulty, words = REFUSALS[case]
    refused(both, words, **{**asks, **faulty})
    wait_until(lambda: not both.children(), "its session is gone")


@pytest.mark.parametrize("case", half_hour(["memory", "lost packets"], "memory"))
def test_verbs_that_a_server_cannot_give_are_one_sentence_and_never_tcp(
    tmp_path: Path, has: dict[str, str], asks: dict[str, str], case: str
) -> None:
    faulty, words = REFUSALS[case]
    with server(tmp_path, "--transport", "verbs", **{**has, **faulty}) as one:
        refused(one, words, **asks)
        wait_until(lambda: not one.children(), "its session is gone")
        assert b"offers verbs alone, and this program's ELASTIC_AI_TRANSPORT asks for tcp" in answer(one, 0)


def answer(one: Server, transport: int, behind: bytes = b"") -> bytes:
    """All that a client gets that asks for that, and then says so much more."""
    with socket.create_connection(("127.0.0.1", one.port), 20) as connection:
        connection.sendall(wire.hello(TOKEN, transport=transport))
        got = connection.recv(65536)
        if behind:
            while got.count(b"\x07\x18\0\0\0") == 0 and (part := connection.recv(65536)):
                got += part
            connection.sendall(behind)
        return got + wire.rest_of(connection)


def test_a_server_has_the_port_or_does_not_start(tmp_path: Path, has: dict[str, str]) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    words = [str(python()), str(built() / "bin" / torch_build.LAUNCHER), "--transport", "verbs"]
    words += ["--token-file", str(tmp_path / "token"), "--allow", "127.0.0.1"]
    environment = {"PATH": os.environ["PATH"], **has, **REFUSALS["no such address"][0]}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert re.search(REFUSALS["no such address"][1], done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ends_that_do_not_agree_are_told_so(both: Server, tmp_path: Path, asks: dict[str, str]) -> None:
    assert b"offers tcp and verbs alone" in answer(both, 7)
    done = run(TOUCH, "remote", both, check=False, **{**asks, "ELASTIC_AI_TRANSPORT": "rdma"})
    assert done.code == 1
    assert 'ELASTIC_AI_TRANSPORT is "rdma": give tcp or verbs' in done.err


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        (wire.message(wire.VERBS, END.pack(1 << 24, 0, 3, 1, 0)), b"makes no sense"),
        (wire.message(wire.VERBS, END.pack(1, 1, 6, 1, 0)), b"makes no sense"),
        (wire.message(wire.SYNC, END.pack(1, 1, 3, 1, 0)), b"its answer makes no sense"),
        (wire.message(wire.VERBS, bytes(8)) + bytes(16), b"its answer makes no sense"),
        (wire.message(wire.VERBS, END.pack(1, 1, 3, 1, 0)) + b"x", b"more came by TCP"),
        (
            wire.message(wire.VERBS, END.pack(9999, 1, 3, 1, (1 << 64) - 1)),
            b"",
        ),  # it may be somewhere, and nobody is there
    ],
)
def test_ends_of_a_queue_pair_are_checked(both: Server, behind: bytes, words: bytes) -> None:
    assert words in answer(both, 1, behind)
    wait_until(lambda: not both.children(), "the session is gone")


def test_a_killed_session_ends_the_program_and_a_killed_program_its_session(both: Server, asks: dict[str, str]) -> None:
    programs = [start(WAITS, "remote", both, **asks) for _ in range(2)]
    for program in programs:
        line(program, "ready")
    first = both.children()[0]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: first not in both.children(), "the killed session is gone")
    for program in programs:
        go_on(program)
    ran = [ended(program) for program in programs]
    assert sorted(one.code for one in ran) == [0, 1], "the other one goes on"
    lost = next(one for one in ran if one.code)
    assert "is lost" in lost.err.splitlines()[-1]
    assert "start the program again from its last checkpoint" in lost.err
    wait_until(lambda: not both.children(), "no session is left")
    program = start(WAITS, "remote", both, **asks)
    line(program, "ready")
    (child,) = both.children()
    program.kill()
    program.communicate()
    wait_until(lambda: child not in both.children(), "the session of a killed program is gone")


#: No bytes, taken what was never sent, beyond the ring.
@pytest.mark.parametrize("fault", half_hour(["word=0xffffffff", "word=0", "word=0x40001", "reach"], "word=0xffffffff"))
def test_a_client_that_lies_over_rdma_ends_its_own_session(both: Server, asks: dict[str, str], fault: str) -> None:
    lies = "import torch\nx = torch.ones(3, device='cuda')\nfor i in range(99): x.sum().item(); x += 1\n"
    other = start(WAITS, "remote", both, **asks)
    line(other, "ready")
    (kept,) = both.children()
    done = run(lies, "remote", both, check=False, **{**asks, "FAKE_VERBS_FAULT": fault})
    assert done.code == 1
    wait_until(lambda: both.children() == [kept], "the liar's session is gone")
    assert [e["status"] for e in both.events() if e["event"] == "gone"][-1] in (0, 1), "ended in order, and no crash"
    go_on(other)
    assert ended(other).out.endswith("6.0\n"), "nobody else has noticed"


@pytest.mark.rest
def test_packets_that_are_lost_later_end_both_sides_within_half_a_minute(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """TCP beside it lives on and tells nothing: what was sent and is not acknowledged does."""
    with tempfile.TemporaryDirectory(prefix="eai-wire-") as folder:
        has = {**settings(Path(folder)), "LD_LIBRARY_PATH": str(library())}
        with server(tmp_path, "--transport", "verbs", **has) as one:
            program = start(WAITS, "remote", one, **{**has, "ELASTIC_AI_TRANSPORT": "verbs"})
            line(program, "ready")
            (child,) = one.children()
            (Path(folder) / "cut").touch()
            go_on(program)
            done = ended(program, 60)
            assert (done.code, "is lost (Connection timed out)" in done.err) == (1, True)
            wait_until(lambda: child not in one.children(), "its session is gone", 10)
