"""The server of engine tensorflow and the forwarder beside a program: real processes, sockets and Landlock, with a
stand-in for TensorFlow whose server does what it is told (tests/support/tensorflow_engine.py)."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.tensorflow_engine import TOKEN, Running, installed, server, stub_python

WAIT_S = 20.0


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def engine_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("engine")
    return installed(root, stub_python(root / "python"))


@pytest.fixture(scope="module")
def lease(engine_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with server(engine_dir, tmp_path_factory.mktemp("lease") / "s") as running:
        yield running


class Client:
    """A forwarder, as a program's TensorFlow starts it."""

    def __init__(self, lease: Running, folder: Path, **other: Any) -> None:
        release = json.loads((lease.engine_dir / "engine.json").read_text())["release"]
        self.folder = folder
        given = {
            "address": "127.0.0.1", "port": lease.port, "token": TOKEN, "wire": 1, "release": release,
            "tensorflow": "2.21.3", "socket": str(folder / "server"), "back": str(folder / "client"), **other,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(lease.engine_dir / "python/elastic_ai_tensorflow/forwarder.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        self.answer = json.loads(self.process.stdout.readline())

    def open(self) -> socket.socket:
        """What TensorFlow would open."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(WAIT_S)
        sock.connect(str(self.folder / "server"))
        return sock

    def ask(self, line: str) -> Any:
        """The stand-in's answer."""
        with self.open() as sock, sock.makefile("rw") as file:
            file.write(line + "\n")
            file.flush()
            return eval(file.readline())  # what repr() wrote

    def end(self) -> str:
        """As when its program ends; what it said."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)
        return self.process.stderr.read()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for sockets, whose paths have 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="eai") as folder:
        yield Path(folder)


@contextmanager
def client(lease: Running, folder: Path, **other: Any) -> Iterator[Client]:
    folder.mkdir(exist_ok=True)
    found = Client(lease, folder, **other)
    try:
        yield found
    finally:
        found.end()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_bytes_come_to_a_session_s_own_server_and_back(lease: Running, short: Path) -> None:
    with client(lease, short / "a") as one, client(lease, short / "b") as other:
        assert one.answer["tensorflow"] == "2.21.0"
        pids = [int(each.ask("pid")) for each in (one, other, one)]
        assert pids[0] == pids[2] != pids[1]
        big = "x" * 3_000_000
        assert one.ask(big) == big
    until(lambda: all(gone(pid) for pid in pids))


def test_the_server_reaches_its_client_by_a_connection_of_the_client_s(lease: Running, short: Path) -> None:
    (short / "a").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "a/client"))
        listener.listen()
        with client(lease, short / "a") as one, one.open() as sock:
            for word in (b"one", b"two", b"three"):
                sock.sendall(b"back " + word + b"\n")
                inner, _ = listener.accept()
                assert inner.recv(9) == word
                inner.sendall(word * 2)
                assert word * 2 in sock.recv(99)
                inner.close()


@pytest.mark.parametrize("file", ["/etc/passwd", "/etc/hostname", "/proc/1/environ", "{log}", "{token}", "{program}"])
def test_a_session_reads_no_file_of_the_machine_nor_of_the_lease(
    lease: Running, tmp_path: Path, short: Path, file: str
) -> None:
    (tmp_path / "program").write_text("secret")
    path = file.format(log=lease.folder / "log", token=lease.folder / "token", program=tmp_path / "program")
    with client(lease, short / "a") as one:
        assert one.ask(f"read {path}") == "PermissionError"
        assert one.ask(f"write {path}.new") in ("PermissionError", "FileNotFoundError")
        assert one.ask(f"list {Path(path).parent}") == "PermissionError"
        assert one.ask("write mine") == "written", "its own folder"
        assert one.ask("read mine") == "x"


def test_a_session_reaches_no_other_session_nor_the_lease_s_token(lease: Running, short: Path) -> None:
    with client(lease, short / "a") as one, client(lease, short / "b") as other:
        assert one.ask("write mine") == "written"
        mine = next(lease.home.glob("tf*/s*/scratch/mine"))
        assert other.ask(f"read {mine}") == "PermissionError"
        assert other.ask(f"list {mine.parents[2]}") == "PermissionError"
        environment = other.ask("environ")
        assert TOKEN not in environment
        for pid in (lease.process.pid, int(one.ask("pid"))):
            assert other.ask(f"read /proc/{pid}/environ") == "PermissionError"
            assert other.ask(f"read /proc/{pid}/maps") == "PermissionError"


def _landlock() -> int:
    from ctypes import CDLL, c_size_t

    return int(CDLL(None).syscall(444, None, c_size_t(0), 1))


@pytest.mark.skipif(_landlock() < 4, reason="this kernel's Landlock knows no TCP (Linux 6.7)")
def test_a_session_opens_no_connection(lease: Running, short: Path) -> None:
    with client(lease, short / "a") as one:
        assert one.ask(f"tcp 127.0.0.1:{lease.port}") == "PermissionError"
        if _landlock() >= 6:
            assert one.ask(f"kill {lease.process.pid}") == "PermissionError"


def test_nothing_of_it_listens_but_the_door(lease: Running, short: Path) -> None:
    with client(lease, short / "a") as one:
        pids = {lease.process.pid, int(one.ask("pid"))}
        links = {str(link.readlink()) for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()}
        rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
        heard = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in links]
        assert [int(where.rsplit(":", 1)[1], 16) for where in heard] == [lease.port]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"token": "wrong" * 5}, "the server does not know this token"),
        ({"token": ""}, "the server does not know this token"),
        ({"tensorflow": "2.20.0"}, "the program has TensorFlow 2.20.0, and the server of the lease 2.21.0; install "),
        ({"release": "other"}, "the client has release other of the engine, the server "),
        ({"wire": 2}, "run site.yml for both"),
        ({"port": 1}, "it does not answer"),
    ],
)
def test_who_may_not_is_told_in_a_sentence(lease: Running, short: Path, other: dict[str, Any], words: str) -> None:
    with client(lease, short / "a", **other) as one:
        assert words in one.answer["refused"]
        assert "\n" not in one.answer["refused"]
        assert one.process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    "bytes_", [b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"[]\n", b'{"token": 1}\n', b"\xff\n", b"x" * 9000]
)
def test_a_stranger_s_bytes_end_his_connection_alone(lease: Running, short: Path, bytes_: bytes) -> None:
    with client(lease, short / "a") as one:
        with socket.create_connection(("127.0.0.1", lease.port), timeout=WAIT_S) as sock:
            sock.sendall(bytes_)
            try:
                while sock.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        assert one.ask("still") == "still"


def test_strangers_who_wait_keep_nobody_out(lease: Running, short: Path) -> None:
    many = [socket.create_connection(("127.0.0.1", lease.port)) for _ in range(40)]
    for sock in many:
        sock.sendall(b"{")
    with client(lease, short / "a") as one:
        assert one.ask("here") == "here"
    for sock in many:
        sock.close()


def test_a_stream_needs_a_session_that_is_there(lease: Running, tmp_path: Path) -> None:
    release = json.loads((lease.engine_dir / "engine.json").read_text())["release"]
    for name, back in (("0" * 16, False), ("0" * 16, True), ("../x", False)):
        with socket.create_connection(("127.0.0.1", lease.port), timeout=WAIT_S) as sock:
            hello = {"wire": 1, "release": release, "token": TOKEN, "session": name, "back": back}
            sock.sendall(json.dumps(hello).encode() + b"\n")
            assert b"this session has ended" in sock.recv(4096)


def test_a_killed_program_leaves_no_process_and_no_file(lease: Running, short: Path) -> None:
    with client(lease, short / "a") as one:
        assert one.ask("take 50000000") == "taken"
        pid = int(one.ask("pid"))
        assert one.ask("write mine") == "written"
        one.process.kill()  # as its program's kill -9 ends it: by the end of its input
        until(lambda: gone(pid))
        until(lambda: not list(lease.home.glob("tf*/s*/scratch/mine")))


def test_a_server_that_ends_is_told_in_a_sentence(lease: Running, short: Path) -> None:
    with client(lease, short / "a") as one:
        with one.open() as sock:
            sock.sendall(b"die\n")
            assert sock.recv(9) == b"", "the call fails instead of waiting"
        one.process.wait(WAIT_S)
        assert "TensorFlow's server was ended by SIGABRT" in one.end()
    with client(lease, short / "b") as next_one:
        assert next_one.ask("new") == "new"


def test_a_part_has_one_program_at_a_time_and_holds_it_to_its_memory(engine_dir: Path, short: Path) -> None:
    with server(engine_dir, short / "s", limit_mib=100) as part:
        with client(part, short / "a") as one:
            environment = one.ask("environ")  # what holds a real TensorFlow: test_tensorflow_programs.py
            assert "'TF_CPU_ALLOCATOR_USE_BFC': '1'" in environment
            assert "'TF_CPU_BFC_MEM_LIMIT_IN_MB': '100'" in environment
            with client(part, short / "b") as other:
                assert "one program of TensorFlow at a time" in other.answer["refused"]

        def begins() -> bool:
            with client(part, short / f"c{time.monotonic_ns()}") as again:
                return "refused" not in again.answer

        until(begins)


def test_a_server_ahead_that_was_killed_is_replaced(engine_dir: Path, short: Path) -> None:
    with server(engine_dir, short / "s") as running:
        pid = running.process.pid
        (ahead,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        os.kill(ahead, signal.SIGKILL)
        until(lambda: Path(f"/proc/{ahead}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        with client(running, short / "a") as one:
            assert one.ask("pid") != str(ahead)


def test_the_lease_s_end_is_heard_by_whichever_thread(engine_dir: Path, short: Path) -> None:
    """The kernel gives a process's signal to any of its threads."""
    with server(engine_dir, short / "s") as ending, client(ending, short / "a"):
        pid = ending.process.pid
        threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
        other = next(one for one in threads if one != pid)
        assert ctypes.CDLL(None).tgkill(pid, other, int(signal.SIGTERM)) == 0
        ending.process.wait(WAIT_S)


def test_the_lease_s_end_is_a_sentence_and_leaves_nothing(engine_dir: Path, short: Path) -> None:
    with server(engine_dir, short / "s") as ending, client(ending, short / "a") as one:
        pid = int(one.ask("pid"))
        ending.process.terminate()
        assert ending.process.wait(WAIT_S) == 0
        one.process.wait(WAIT_S)
        assert "elastic-ai: the lease's server 127.0.0.1:" in one.end()
        assert gone(pid)
        assert list(ending.home.iterdir()) == []


def test_a_python_without_tensorflow_and_a_part_that_is_too_small_are_refused_at_the_start(
    engine_dir: Path, tmp_path: Path, short: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    common = ["--token-file", str(token), "--allow", "127.0.0.1", "--scratch", str(short)]
    program = str(engine_dir / "bin/elastic-ai-tfserver")
    stub = json.loads((engine_dir.parent / "server.json").read_text())["python"]
    for python, more, words in (
        (sys.executable, (), "has no TensorFlow that can be imported"),
        (stub, ("--memory-limit", "1000", "--context-bytes", "1000"), "a context takes 1000 of them: ask for a larger"),
        (stub, ("--bind", "gpu1"), "--bind gpu1: give an IP address"),
    ):
        done = subprocess.run([python, "-I", program, *common, *more], capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2)
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_without_what_confines_it_no_server_starts(engine_dir: Path, tmp_path: Path) -> None:
    """A filter of calls that knows no Landlock, as an older kernel."""
    (tmp_path / "token").write_text(TOKEN)
    code = (
        f"import sys; sys.path.insert(0, {str(engine_dir / 'lib')!r})\n"
        "from elastic_ai_tfserver import confine, main\n"
        "def refuses(number, *words): raise OSError(38, 'Function not implemented')\n"
        "confine._call = refuses\n"
        f"sys.argv[1:] = ['--token-file', {str(tmp_path / 'token')!r}, '--allow', '127.0.0.1']\n"
        "main.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "this kernel cannot keep TensorFlow's server from the machine's files" in done.stderr) == (
        1, True,
    )  # fmt: skip
