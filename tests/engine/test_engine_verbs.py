"""Verbs as the engine's second transport: what TCP does, by a queue pair, and never TCP in its place."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.test_engine_reference import alive
from tests.support.engine_run import MIB, built, client_of, server, wait_for
from tests.support.engine_verbs import LACKS, REFUSALS, TCP_BYTES, Wire, library, over_verbs, settings
from tests.support.engine_wire import REPLY, admitted, asked, read, request
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
OP_VERBS = 64
END = struct.Struct("<4IQ")  # struct verbs_end of verbs.h
INIT = "said(code(cuda.cuInit, 0))"
COPIES = """
start(); n = 24 << 20; p = alloc(n); data = os.urandom(n); back = ctypes.create_string_buffer(n)
cuda.cuMemcpyHtoD_v2(p, data, c_size_t(n)); cuda.cuMemcpyDtoH_v2(back, p, c_size_t(n))
said([back.raw == data, tcp_bytes()])
"""
COPIED = 48 * MIB


def closed(sock: socket.socket) -> bool:
    """By the other side, be it with what it had not read."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture(autouse=True)
def wire() -> Iterator[Wire]:
    """Every server and client here speaks verbs, where its test says nothing else."""
    with over_verbs() as found:
        yield found


def test_copies_go_by_verbs_and_nothing_of_them_by_tcp(tmp_path: Path, wire: Wire):
    with server(tmp_path) as s:
        (same, tcp), err = client_of(s).run(TCP_BYTES + COPIES)
        assert (same, err) == (True, "")
        assert wire.bytes > COPIED
        assert sum(tcp) < 20_000, "hello, welcome, two devices and the ends of a queue pair"
        (event,) = [e for e in s.events() if e["event"] == "verbs"]
        assert (event["device"], event["pid"]) == ("fake_verbs0", s.child())
        before = wire.bytes
        (same, tcp), _ = client_of(s, more={"ELASTIC_AI_TRANSPORT": "tcp"}).run(TCP_BYTES + COPIES)
        assert same
        assert (wire.bytes, sum(tcp) > COPIED) == (before, True), "TCP where it is asked for, at the same server"


def test_the_server_names_the_port(tmp_path: Path):
    script = "start(); t = ctypes.create_string_buffer(9999); cuda.elasticAiServerInfo(t, c_size_t(9999)); "
    script += "print(t.value.decode())"
    with server(tmp_path) as s:
        ((info,), _) = client_of(s).run(script)
    assert info["transport"] == "verbs"
    assert info["verbs"] == {"device": "fake_verbs0", "port": 1, "gid_index": 1, "mtu_bytes": 1024}, "not RoCE v1"


@pytest.mark.parametrize(
    ("end", "case"), [*(("client", case) for case in REFUSALS), ("server", "memory"), ("server", "lost packets")]
)
def test_verbs_that_cannot_be_had_are_one_sentence_and_never_tcp(tmp_path: Path, end: str, case: str):
    faulty, words = REFUSALS[case]
    if (end, case) == ("server", "lost packets"):
        words = "got no answer"  # the client's packets arrive
    with server(tmp_path, **(faulty if end == "server" else {})) as s:
        said, err = client_of(s, more=faulty if end == "client" else {}).run(INIT)
        assert said == 46
        assert re.search(f"verbs to the server .* cannot be had, and nothing else was asked for: .*{words}", err), err
        assert len(err.strip().splitlines()) == 1, err
        assert client_of(s, more={"ELASTIC_AI_TRANSPORT": "tcp"}).run(INIT)[0] == 0


@pytest.mark.parametrize("case", ["no such address", "no device", "port down"])
def test_a_server_without_the_port_does_not_start_with_verbs(tmp_path: Path, case: str):
    faulty, words = REFUSALS[case]
    (tmp_path / "token").write_text("0123456789abcdef-token\n")
    device = settings(tmp_path / "wire") | faulty
    command = [
        str(built() / "bin/elastic-ai-refserver"),
        "--token-file",
        str(tmp_path / "token"),
        "--allow",
        "127.0.0.1",
    ]
    done = subprocess.run(
        [*command, "--transport", "verbs"],
        env=device | {"LD_LIBRARY_PATH": str(library())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert re.search(words, done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1
    wrong = subprocess.run([*command, "--transport", "rdma"], capture_output=True, text=True)
    assert (wrong.returncode, "give tcp, verbs or tcp,verbs" in wrong.stderr) == (2, True)


def test_without_libibverbs_it_is_named(tmp_path: Path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "libibverbs.so.1").write_text("")
    with server(tmp_path / "s") as s:
        said, err = client_of(s, more={"LD_LIBRARY_PATH": f"{built() / 'lib'}:{broken}"}).run(INIT)
        assert said == 46
        assert "libibverbs cannot be loaded" in err
        assert "libibverbs1" in err


def test_ends_that_do_not_agree_are_told_which(tmp_path: Path):
    with server(tmp_path / "a", "--transport", "tcp") as tcp, server(tmp_path / "b", "--transport", "verbs") as verbs:
        for client, words in (
            (client_of(tcp), "offers tcp alone, and .* asks for verbs"),
            (client_of(verbs, more={"ELASTIC_AI_TRANSPORT": "tcp"}), "offers verbs alone, and .* asks for tcp"),
            (client_of(verbs, more={"ELASTIC_AI_TRANSPORT": ""}), "offers verbs alone"),
            (client_of(tcp, verbs), "offers tcp alone"),
        ):
            said, err = client.run(INIT)
            assert (said, len(err.splitlines())) == (46, 1)
            assert re.search(words, err), err
        said, err = client_of(verbs, more={"ELASTIC_AI_TRANSPORT": "rdma"}).run(INIT)
        assert (said, "give tcp or verbs" in err) == (1, True)
        assert client_of(verbs).run(INIT)[0] == 0


def test_an_engine_built_without_the_header_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "VERBS_HEADER", tmp_path / "none")
    made = build.build_engine(tmp_path / "engine.tar.gz", "test")
    assert made.info.transports == ("tcp",)
    build.compile_engine(tmp_path / "plain", "test")
    with server(tmp_path / "s") as s:
        plain = {"LD_LIBRARY_PATH": str(tmp_path / "plain/lib")}
        said, err = client_of(s, more=plain).run(INIT)
        assert (said, "was built where libibverbs' header was not there" in err) == (46, True)
        assert client_of(s, more=plain | {"ELASTIC_AI_TRANSPORT": "tcp"}).run(INIT)[0] == 0


#: No bytes, more than a ring has, more than a message may have, taken what was never sent, beyond the ring.
LIES = ["word=0", "word=0x7fffffff", "word=0x40001", "word=0xffffffff", "reach"]


@pytest.mark.parametrize("fault", LIES)
def test_a_client_that_lies_over_rdma_ends_its_own_child(tmp_path: Path, fault: str):
    script = "start(); said([code(info) if i else 0 for i in range(60)])"
    with server(tmp_path) as s:
        other = client_of(s).start("start(); p = alloc(4096); said(1); sys.stdin.readline(); said(code(info))")
        assert other.stdout
        other.stdout.readline()
        said, _ = client_of(s, more={"FAKE_VERBS_FAULT": fault}).run(script)
        liar = s.child()
        assert said[-1] == 46, "its connection is lost"
        wait_for(lambda: any(e["event"] == "gone" and e["pid"] == liar for e in s.events()))
        assert not alive(liar)
        gone = [e["status"] for e in s.events() if e["event"] == "gone"]
        # On a loaded machine the child may see that its client has gone before it sees the lie.
        assert gone in ([0], [1]), "ended in order, and no crash"
        assert other.communicate("\n")[0] == "0\n", "nobody else has noticed"
        assert client_of(s).run(INIT)[0] == 0


def test_a_server_that_lies_over_rdma_is_a_lost_connection(tmp_path: Path):
    with server(tmp_path, FAKE_VERBS_FAULT="word=0x7fffffff") as s:
        said, err = client_of(s).run("start(); said([code(info) for i in range(60)])")
        assert (said[-1], "Protocol error" in err) == (46, True)


@pytest.mark.parametrize(
    ("end", "refused"),
    [
        (END.pack(1 << 24, 0, 3, 1, 0), True),
        (END.pack(1, 1 << 31, 3, 1, 0), True),
        (END.pack(1, 1, 0, 1, 0), True),
        (END.pack(1, 1, 6, 1, 0), True),
        (END.pack(9999, 1, 3, 1, (1 << 64) - 1), False),
        (b"", None),
        (bytes(8), None),
        (bytes(65536), None),
    ],
)
def test_ends_of_a_queue_pair_are_checked(tmp_path: Path, end: bytes, refused: bool | None):
    """None: the payload is of another size, so the child ends; False: it may be somewhere, and nobody is there."""
    with server(tmp_path) as s:
        with admitted(s.port) as sock:
            sock.sendall(request(OP_VERBS, size=len(end)) + end)
            if refused is None:
                assert closed(sock)
                assert any(e["event"] == "broken" for e in s.events())
            else:
                _, status, size, _, _ = REPLY.unpack(read(sock, REPLY.size))
                payload = read(sock, size)
                assert (status, b"makes no sense" in payload) == ((801, True) if refused else (0, False))
                if refused:
                    assert asked(sock, 8)[0] != 0, "still TCP, and served"
                else:
                    sock.sendall(request(8))
                    assert closed(sock), "nothing is said by TCP any more"
        wait_for(lambda: s.events()[-1]["event"] == "gone")
        assert client_of(s).run(INIT)[0] == 0


def test_nothing_is_served_by_tcp_where_verbs_alone_are_offered(tmp_path: Path):
    with server(tmp_path, "--transport", "verbs") as s, admitted(s.port) as sock:
        sock.sendall(request(6, 1))
        assert closed(sock)
        wait_for(lambda: any(e["event"] == "broken" and e["why"] == "TCP is not offered" for e in s.events()))


def test_queue_pairs_go_with_their_processes(tmp_path: Path, wire: Wire):
    """A killed client's child ends at once: TCP tells it."""
    with server(tmp_path) as s:
        client = client_of(s).start("start(); said(1); sys.stdin.readline()")
        assert client.stdout
        client.stdout.readline()
        child = s.child()
        assert wire.told()[0] == 2
        client.kill()
        client.communicate()
        wait_for(lambda: not alive(child), 2)


def test_a_peer_that_answers_late_ends_no_connection(tmp_path: Path, wire: Wire):
    """Soft-RoCE answers by a processor, which a busy machine may have for others for seconds: TCP beside it waits too.
    The device's time runs ten times as fast here: four seconds and more of a real one."""
    script = "start(); said(1); sys.stdin.readline(); said([code(info), code(info)])"
    with server(tmp_path) as s:
        client = client_of(s).start(script)
        assert client.stdout
        assert client.stdin
        client.stdout.readline()
        (wire.folder / "late").touch()
        client.stdin.write("\n")
        client.stdin.flush()
        time.sleep(0.5)
        (wire.folder / "late").unlink()
        out, err = client.communicate(timeout=60)
        assert (json.loads(out), err) == ([0, 0], "")


@pytest.mark.rest
def test_a_connection_that_is_cut_later_is_lost_within_half_a_minute_on_both_ends(tmp_path: Path, wire: Wire):
    """TCP beside it lives on and tells nothing: what was sent and is not acknowledged does."""
    script = "start(); said(1); sys.stdin.readline(); began = time.monotonic(); first = code(info); "
    script += "said([first, code(info), time.monotonic() - began])"
    with server(tmp_path) as s:
        client = client_of(s).start(script)
        assert client.stdout
        client.stdout.readline()
        child = s.child()
        (wire.folder / "cut").touch()
        out, err = client.communicate("\n", timeout=60)
        first, second, took_s = json.loads(out)
        assert (first, second) == (46, 46)
        assert took_s < 30
        assert "timed out" in err.lower()
        wait_for(lambda: not alive(child), 2)
