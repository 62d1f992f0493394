"""The server of engine torch on a GPU, by a CUDA runtime and a `torch` without one: what its sessions leave behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import torch_wire as wire
from tests.support.cuda_guard import DEVICE_BYTES, MIB, SOURCES, Kit, build, compile_c
from toolkit.engine import torch_build

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
TOKEN = "0123456789abcdef-cuda"
LIMIT_S = 120


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Kit]:
    """The engine without a library for any PyTorch, and what stands in for those and for CUDA."""
    folder = tmp_path_factory.mktemp("server")
    kit = build(folder / "cuda")
    engine = folder / "engine"
    torch_build.build_folder(engine, [], "r1")
    linked = (f"-L{folder / 'cuda'}", "-l:libcudart.so.13", f"-Wl,-rpath,{folder / 'cuda'}")
    session = engine / "lib/libelastic_ai_torchserver-2.13.so"
    compile_c(session, "-shared", f"-DWIRE_VERSION={torch_build.PROTOCOL}", str(SOURCES / "session.c"), *linked)
    (folder / "site/torch").mkdir(parents=True)
    shutil.copy(SOURCES / "torch_of_cuda.py", folder / "site/torch/__init__.py")
    return engine, kit


class Running:
    """A server and what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self.folder = process, folder
        self.port = 0

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.folder / "events").read_text().splitlines(keepends=True)
        return [event for line in lines if line.endswith("\n") and (event := json.loads(line))["event"] == kind]

    def ended(self, count: int) -> list[int]:
        """How so many sessions have ended."""
        until = time.monotonic() + LIMIT_S
        while len(self.events("gone")) < count:
            assert time.monotonic() < until, self.log()
            time.sleep(0.01)
        return [event["status"] for event in self.events("gone")]

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in listed]


def begin(built: tuple[Path, Kit], folder: Path, *options: str, **settings: str) -> Running:
    engine, kit = built
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(f"{TOKEN}\n")
    command = [sys.executable, str(engine / "bin" / torch_build.LAUNCHER), "--device", "cuda", "--allow", "127.0.0.1"]
    command += ["--token-file", str(folder / "token"), "--port-file", str(folder / "port")]
    environment = {
        **kit.environment(guarded=False), "PYTHONPATH": str(kit.cudart.parents[1] / "site"),
        "FAKE_CUDART_PAST": "", "FAKE_CUDART_USER": str(kit.user), **settings,
    }  # fmt: skip
    with (folder / "log").open("wb") as log, (folder / "events").open("wb") as events:
        process = subprocess.Popen(
            [*command, "--report-fd", str(events.fileno()), *options],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[events.fileno()],
        )  # fmt: skip
    return Running(process, folder)


@contextmanager
def server(built: tuple[Path, Kit], folder: Path, *options: str, **settings: str) -> Iterator[Running]:
    built[1].clear()
    one = begin(built, folder, *options, **settings)
    try:
        until = time.monotonic() + LIMIT_S
        while not (folder / "port").exists():
            assert one.process.poll() is None, one.log()
            assert time.monotonic() < until, one.log()
            time.sleep(0.01)
        one.port = int((folder / "port").read_text())
        yield one
    finally:
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(LIMIT_S)


class Session:
    """A client of the fake's."""

    def __init__(self, one: Running) -> None:
        self.socket = socket.create_connection(("127.0.0.1", one.port), LIMIT_S)
        self.socket.sendall(wire.hello(TOKEN))
        self.lines = self.socket.makefile("rb")
        assert self.lines.read(5) == struct.pack("<BI", wire.STARTING, 0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()
        self.socket.close()

    def say(self, what: str, number: int = 0) -> list[int]:
        self.socket.sendall(struct.pack("<cI", what.encode(), number))
        line = self.lines.readline()
        assert line, "the session has ended"
        return [int(word) for word in line.split()]

    def refused(self) -> str:
        kind, length = struct.unpack("<BI", self.lines.read(5))
        assert kind == wire.REFUSED
        return self.lines.read(length)[5:].decode()


def test_the_server_starts_itself_anew_with_the_library(built: tuple[Path, Kit], tmp_path: Path) -> None:
    """In the same process, before torch; programs that it starts have what the site had there."""
    guard = str(built[0] / "lib" / torch_build.CUDA_MEMORY)
    with server(built, tmp_path, LD_PRELOAD="") as one:
        assert guard in Path(f"/proc/{one.process.pid}/maps").read_text()
        assert one.log().count("torch sees") == 1
        assert "LD_PRELOAD" not in one.log()
    other = str(built[1].guard.with_name("libuser.so"))
    with server(built, tmp_path, LD_PRELOAD=other) as one:
        assert f"'LD_PRELOAD': '{other}'" in one.log()
        assert guard in Path(f"/proc/{one.process.pid}/maps").read_text()


def test_sessions_share_the_limit_of_their_lease(built: tuple[Path, Kit], tmp_path: Path) -> None:
    """With contexts; what a killed one had is there again; and the file of use says it."""
    limits = ("--memory-limit", str(6 * MIB), "--context-bytes", str(MIB // 2), "--use-file", str(tmp_path / "use"))
    with server(built, tmp_path, *limits, CUDA_VISIBLE_DEVICES="GPU-0") as one:
        with Session(one) as first, Session(one) as second:
            second.say("i")
            assert first.say("i") == [0, 3 * MIB, 6 * MIB], "two contexts, and a megabyte that each begins with"
            assert first.say("m", 2) == [0, 0]
            assert second.say("m", 2) == [2, 0]
            assert second.say("m", 1) == [0, 0]
            assert first.say("f", 0) == [0]
            assert second.say("i") == [0, 2 * MIB, 6 * MIB]
            os.kill(one.children()[0], signal.SIGKILL)
            one.ended(1)
            assert second.say("i") == [0, int(3.5 * MIB), 6 * MIB]
            until = time.monotonic() + LIMIT_S
            while not (tmp_path / "use").exists() or (tmp_path / "use").read_text() != f"{int(2.5 * MIB)}\n":
                assert time.monotonic() < until, (tmp_path / "use").read_text()
                time.sleep(0.05)
        assert one.ended(2) == [137, 0]


@pytest.mark.parametrize("end", ["client", "session", "server"])
def test_a_session_leaves_nothing_in_memory(built: tuple[Path, Kit], tmp_path: Path, end: str) -> None:
    """Its client goes, it is ended, the server is: what it wrote is overwritten."""
    with server(built, tmp_path) as one, Session(one) as session:
        assert session.say("m", 3) == [0, 0]
        session.say("w", 0x11)
        assert built[1].not_old() == 3 * MIB
        if end == "client":
            session.socket.shutdown(socket.SHUT_RDWR)
        else:
            os.kill(one.process.pid if end == "server" else one.children()[0], signal.SIGTERM)
        assert one.ended(1) == [0]
        assert built[1].not_old() == 0
        assert built[1].zeros() == 4 * MIB


def test_what_a_killed_session_left_is_in_no_other(built: tuple[Path, Kit], tmp_path: Path) -> None:
    """Nobody overwrote it, and the next one finds zeros; also where a session answers nobody any more."""
    with server(built, tmp_path) as one:
        with Session(one) as session:
            session.say("m", 6)
            session.say("w", 0x11)
            assert session.say("i") == [0, MIB, DEVICE_BYTES]
            session.socket.sendall(struct.pack("<cI", b"e", 0))
            os.kill(one.children()[0], signal.SIGKILL)
            one.ended(1)
        assert built[1].not_old() == 6 * MIB
        with Session(one) as following:
            assert following.say("m", 7) == [0, 0]


def test_no_server_of_a_gpu_runs_without_the_library(built: tuple[Path, Kit], tmp_path: Path) -> None:
    """It is not there; it cannot be preloaded."""
    engine, kit = built
    copy = tmp_path / "engine"
    shutil.copytree(engine, copy)
    (copy / "lib" / torch_build.CUDA_MEMORY).unlink()
    for folder, words in ((copy, "is not there"), (tmp_path / "with space", "cannot be preloaded")):
        if folder != copy:
            shutil.copytree(engine, folder)
        one = begin((folder, kit), tmp_path / "run")
        assert one.process.wait(LIMIT_S) == 1
        assert f"{folder}/lib/{torch_build.CUDA_MEMORY} {words}" in one.log()
        assert "no memory of a GPU is overwritten between sessions" in one.log()
        assert "torch sees" not in one.log()


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_settings_that_take_memory_elsewhere_are_refused(built: tuple[Path, Kit], tmp_path: Path, name: str) -> None:
    """Whichever of torch's variables has them; others are kept."""
    for given, part in (
        ("backend:cudaMallocAsync", "backend:cudaMallocAsync"),
        ("max_split_size_mb:64, expandable_segments: True", "expandable_segments:True"),
    ):
        one = begin(built, tmp_path / "run", **{name: given})
        assert one.process.wait(LIMIT_S) == 2
        assert f"{name}: {part} takes memory" in one.log()
        assert "neither counted nor overwritten; leave it out of the server's environment" in one.log()
    with server(built, tmp_path, **{name: "max_split_size_mb:64"}) as kept:
        assert f"'{name}': 'max_split_size_mb:64,backend:native,expandable_segments:False'" in kept.log()


def test_a_pytorch_that_takes_memory_past_the_library_serves_nobody(built: tuple[Path, Kit], tmp_path: Path) -> None:
    """One with a runtime of its own inside, for example."""
    with server(built, tmp_path, FAKE_CUDART_PAST=str(built[1].cudart)) as one, Session(one) as session:
        assert session.refused() == (
            "the server's device does not start: this PyTorch takes memory past libelastic_ai_cuda_memory.so, "
            "so that it would not be overwritten"
        )
        assert one.ended(1) == [3]


def test_a_session_has_no_copy_of_the_token(built: tuple[Path, Kit], tmp_path: Path) -> None:
    """In no page of its memory; the launcher has the one that it compares with."""

    def copies(pid: int) -> int:
        count = 0
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                first, last = (int(word, 16) for word in line.split()[0].split("-"))
                if "rw" in line.split()[1] and "libcudart" not in line:
                    memory.seek(first)
                    count += memory.read(last - first).count(TOKEN.encode())
        return count

    with server(built, tmp_path) as one, Session(one) as session:
        session.say("i")
        assert copies(one.children()[0]) == 0
        assert copies(one.process.pid) == 1


def test_sessions_that_begin_together_keep_nothing_of_each_other(built: tuple[Path, Kit], tmp_path: Path) -> None:
    """Two show their token in one moment; the end of one's session is seen by its client while the other goes on."""
    hello = wire.hello(TOKEN)
    with server(built, tmp_path) as one:
        clients = [socket.create_connection(("127.0.0.1", one.port), LIMIT_S) for _ in range(2)]
        for client in clients:
            client.sendall(hello[:20])
        with Session(one):  # behind them at the door
            pass
        one.ended(1)
        one.process.send_signal(signal.SIGSTOP)
        for client in clients:
            client.sendall(hello[20:])
        one.process.send_signal(signal.SIGCONT)
        for client in clients:
            assert client.recv(5) == struct.pack("<BI", wire.STARTING, 0)
        for client, child in zip(clients[::-1], one.children()[::-1], strict=True):
            os.kill(child, signal.SIGKILL)
            assert client.recv(1) == b""
            client.close()
