"""The gate of Lupine's server, in a stand-in for that server: it loads the provider as the publisher's does, for each
connection in a process of its own, and answers those that the provider lets through."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.engine import build
from toolkit.lease import LeaseError
from toolkit.lease.engines import EngineStart, LeasedGpu, Server, lupine, refuse_open
from toolkit.lease.engines.lupine import _frame

pytestmark = [
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
    pytest.mark.skipif(
        not ctypes.util.find_library("nghttp2"), reason="no libnghttp2 here, to which the server is linked"
    ),
]
TOKEN = "AbC-" + "t" * 39
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = _frame(4, 0, 0, bytes(6))
REQUEST = b"\x83\x86\x84\x41\x06lupine"
HOST = r"""
#include <arpa/inet.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
struct provider { size_t size; uint32_t abi; int (*start)(void); int (*restore)(const char *); };
int main(int argc, char **argv) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof where;
    int door = socket(AF_INET, SOCK_STREAM, 0);
    dlopen("libnghttp2.so.14", RTLD_NOW | RTLD_GLOBAL);
    signal(SIGCHLD, SIG_IGN);
    if (bind(door, (struct sockaddr *)&where, sizeof where) || listen(door, 10)) return 1;
    getsockname(door, (struct sockaddr *)&where, &length);
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    for (;;) {
        int one = accept(door, 0, 0);
        if (fork()) { close(one); continue; }
        close(door);
        const char *path = getenv("LUPINE_CHECKPOINT_LIBRARY");
        void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : 0;
        if (library) {
            const struct provider *(*get)(void);
            *(void **)&get = dlsym(library, "lupinecr_get_lupine_provider_v1");
            if (get()->start() || (argc > 1 && get()->restore(argv[1]))) return 1;
        }
        char seen[24];
        if (write(one, "in", 2) == 2 && recv(one, seen, sizeof seen, MSG_WAITALL) > 0) write(one, seen, 3);
        return 0;
    }
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    subprocess.run(["gcc", "-o", folder / "host", "-xc", "-", "-ldl"], input=HOST, text=True, check=True)
    (folder / "lib-server").mkdir()
    gate = folder / "lib-server/libelastic-ai-gate.so"
    build.compile_library(gate, (build.SOURCES / "gate/gate.c",), ("-ldl",))
    (folder / "token").write_text(TOKEN + "\n")
    return folder


@contextlib.contextmanager
def serving(made: Path, *words: str, gate: bool = True, token: Path | None = None) -> Iterator[int]:
    environment = {"PATH": os.environ["PATH"], "ELASTIC_AI_TOKEN_FILE": str(token or made / "token")}
    if gate:
        environment["LUPINE_CHECKPOINT_LIBRARY"] = str(made / "lib-server/libelastic-ai-gate.so")
    process = subprocess.Popen(
        [made / "host", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def header(name: str, value: str) -> bytes:
    """A literal header field of RFC 7541, in no index and not compressed."""
    size = (
        bytes([len(value)])
        if len(value) < 127
        else bytes([127, (len(value) - 127) % 128 | 128, (len(value) - 127) // 128])
    )
    return b"\0" + bytes([len(name)]) + name.encode() + size + value.encode()


def first(session: str | None, flags: int = 4, kind: int = 1) -> bytes:
    block = REQUEST + (header("x-lupine-session", session) if session is not None else b"")
    return PREFACE + SETTINGS + _frame(8, 0, 0, b"\0\0\1\0") + _frame(kind, flags, 1, block)


def admitted(port: int, data: bytes, pieces: int = 0) -> bool:
    """Whether who sends this is answered; what he sent is the server's to read."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as sock:
        for i in range(0, len(data), pieces or len(data)):
            sock.sendall(data[i : i + (pieces or len(data))])
            if pieces:
                time.sleep(0.002)
        try:
            answer = sock.recv(2)
            return bool(answer) and sock.recv(3) == b"PRI"
        except ConnectionError:
            return False


def test_the_token_opens_and_nothing_else_does(made: Path) -> None:
    others = ",".join(f"{n}" * 43 for n in range(6))
    with serving(made) as port:
        for name, data in {
            "the token": first(TOKEN),
            "of several servers": first(f"{others},{TOKEN}"),
            "and nothing follows": first(TOKEN, flags=5),
        }.items():
            assert admitted(port, data), name
        assert admitted(port, first(TOKEN), pieces=7), "what comes in pieces is waited for"
        for name, data in {
            "none": first(None),
            "empty": first(""),
            "another": first("0" * 43),
            "others' alone": first(others),
            "a part of it": first(TOKEN[:-1]),
            "more than it": first(TOKEN + "t"),
            "other letters": first(TOKEN.swapcase()),
            "with a blank": first(TOKEN + " "),
            "in another header": PREFACE + SETTINGS + _frame(1, 4, 1, REQUEST + header("x-lupine", TOKEN)),
            "twice, the last one wrong": PREFACE
            + _frame(1, 4, 1, header("x-lupine-session", TOKEN) + header("x-lupine-session", "0" * 43)),
            "headers to be continued": first(TOKEN, flags=0),
            "padded": first(TOKEN, flags=12),
            "data first": first(TOKEN, kind=0),
            "no HTTP/2": b"GET / HTTP/1.1\r\nx-lupine-session: " + TOKEN.encode() + b"\r\n\r\n",
            "no header block": PREFACE + _frame(1, 4, 1, b"\xff" * 60),
            "a frame that never ends": PREFACE + b"\xff\xff\xff\1\4\0\0\0\1" + bytes(100),
        }.items():
            assert not admitted(port, data), name


def test_who_says_nothing_is_sent_away(made: Path) -> None:
    with serving(made) as port:
        began = time.monotonic()
        assert not admitted(port, PREFACE)
        assert 4 < time.monotonic() - began < 12


def test_a_server_without_a_token_or_another_session_is_closed_to_all(made: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("short\n")
    for token, session in ((tmp_path / "none", TOKEN), (short, "short"), (short, "")):
        with serving(made, token=token) as port:
            assert not admitted(port, first(session)), token
    with serving(made, "0" * 43) as port:
        assert not admitted(port, first(TOKEN)), "the session that the server heard is another"
    with serving(made, TOKEN) as port:
        assert admitted(port, first(TOKEN))


def test_a_server_that_answers_without_a_token_is_not_used(made: Path) -> None:
    with serving(made) as port:
        refuse_open("lupine", Server("127.0.0.1", port, TOKEN, 1))
    with serving(made, gate=False) as port:
        server = Server("127.0.0.1", port, TOKEN, 1)
        with pytest.raises(LeaseError, match=f"127.0.0.1:{port} answers without the lease's token"):
            refuse_open("lupine", server)
        refuse_open("reference", server)  # whose own server asks
    with (
        pytest.raises(LeaseError, match="did not say whether it asks"),
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        refuse_open("lupine", Server("127.0.0.1", silent.getsockname()[1], TOKEN, 1))


def test_no_server_is_started_without_a_gate(made: Path, tmp_path: Path) -> None:
    device = LeasedGpu(0, "GPU-0", "H200", 143771, 5040, 5040)
    start = EngineStart(made, "r", "10.0.0.1", 21000, Path("/p"), Path("/run/t"), ("10.0.0.2",), (device,))
    environment = dict(lupine.command(start).environment)
    assert environment["LUPINE_CHECKPOINT_LIBRARY"] == str(made / "lib-server/libelastic-ai-gate.so")
    assert (environment["ELASTIC_AI_TOKEN_FILE"], environment["LUPINE_LOG_LEVEL"]) == ("/run/t", "error")
    assert environment["LD_LIBRARY_PATH"] == f"{made}/lib-server", "the client's libcuda.so.1 is in lib"
    gate = tmp_path / "lib-server/libelastic-ai-gate.so"
    with pytest.raises(LeaseError, match=r"is not there, so nobody would be asked .* toolkit engine pack lupine"):
        lupine.gate_of(tmp_path)
    gate.parent.mkdir()
    gate.write_bytes(b"no library")
    with pytest.raises(LeaseError, match="cannot be loaded"):
        lupine.gate_of(tmp_path)
    gate.unlink()  # a library that was loaded is not loaded anew from the same file
    source = "struct { long size; int abi; } two = {16, 2}; void *lupinecr_get_lupine_provider_v1() { return &two; }"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", gate, "-xc", "-"], input=source, text=True, check=True)
    with pytest.raises(LeaseError, match="is no provider of version 1"):
        lupine.gate_of(tmp_path)
