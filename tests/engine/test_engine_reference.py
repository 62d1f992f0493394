"""The reference engine on loopback, over the emulated driver: what a client gets, and what nobody gets."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import (
    MIB,
    ROOT,
    TOKEN,
    UUIDS,
    Client,
    built,
    client_of,
    describe,
    local,
    server,
    wait_for,
)
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def test_copies_between_all_endpoints_of_two_servers(tmp_path: Path):
    with server(tmp_path / "a") as a, server(tmp_path / "b") as b:
        program = [sys.executable, str(ROOT / "toolkit/lease/programs/copybench.py"), "--bytes", "9M", "--repeat", "1"]
        done = subprocess.run(
            [*program, "--latency-count", "3", "--json"],
            env=client_of(a, b).environment(),
            capture_output=True,
            text=True,
        )
        people = subprocess.run(
            [*program, "--latency-count", "3"], env=client_of(a, b).environment(), capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert (people.returncode, people.stderr) == (0, "")
    is_a_table_for_people(people.stdout, document := json.loads(done.stdout))
    ends = ["H", "0", "1", "2", "3"]
    assert {(p["source"], p["target"]) for p in document["pairs"]} == {(s, t) for s in ends for t in ends} - {
        ("H", "H")
    }
    assert document["verified"]
    assert all(p["verified"] for p in document["pairs"])
    assert document["emulated"]
    assert [s["server"] for s in document["servers"]] == [f"127.0.0.1:{a.port}", f"127.0.0.1:{b.port}"]


def is_a_table_for_people(text: str, document: dict[str, Any]) -> None:
    """A line for each device, a heading, a line for each pair, and what it comes to; no data meant for programs."""
    assert "{" not in text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    for number, device in enumerate(document["devices"]):
        assert any(line.split()[:1] == [str(number)] and device["name"] in line and ", at 1" in line for line in lines)
    heading = next(i for i, line in enumerate(lines) if line.split()[:2] == ["FROM", "TO"])
    rows = [line.split() for line in lines[heading + 1 : heading + 1 + len(document["pairs"])]]
    assert [row[:2] for row in rows] == [[p["source"], p["target"]] for p in document["pairs"]]
    assert all(float(row[2]) > 0 and float(row[3]) > 0 and row[4] == "right" for row in rows)
    assert "all data were right" in text
    assert lines[-1] == "Emulated devices: not a GPU's figures."


def test_wrong_data_are_found(tmp_path: Path):
    """The benchmark compares: a driver that loses a byte does not pass."""
    broken = tmp_path / "broken"
    broken.mkdir()
    sources = [build.SOURCES / s for s in build.DRIVER if s != "devices/memory.c"]
    copy = "        memmove(at,"
    spoilt = (build.SOURCES / "devices/memory.c").read_text().replace(copy, f"if (bytes > 1000) bytes--;\n{copy}")
    assert "bytes--" in spoilt
    (broken / "memory.c").write_text(spoilt)
    flags = [*build.FLAGS, "-shared", f"-I{build.SOURCES / 'devices'}", '-DRUNS_NO_KERNELS="x"']
    flags += build.emulated_flags()
    subprocess.run(
        ["gcc", *flags, "-o", str(broken / "libcuda.so.1"), str(broken / "memory.c"), *map(str, sources)], check=True
    )
    environment = local(tmp_path, describe(tmp_path), LD_LIBRARY_PATH=str(broken)).environment()
    program = [sys.executable, str(ROOT / "toolkit/lease/programs/copybench.py"), "--bytes", "1M", "--repeat", "1"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "  WRONG" in done.stdout
    assert "data were wrong after: H -> 0" in done.stdout
    told = subprocess.run([*program, "--json"], env=environment, capture_output=True, text=True)
    assert (told.returncode, json.loads(told.stdout)["verified"]) == (1, False)


def test_sources_compile_without_warnings():
    for source in sorted(build.SOURCES.rglob("*.c")):
        options = ["-Werror", '-DENGINE_RELEASE="x"', '-DRUNS_NO_KERNELS="x"', *build.emulated_flags()]
        options += ["-c", "-o", "/dev/null"]
        done = subprocess.run(["gcc", *build.FLAGS[:-2], *options, str(source)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_memory_limit_holds_over_all_clients_and_is_exact_after_kills(tmp_path: Path):
    hold = "start(); pointer = alloc({} << 20); said(info()); sys.stdin.read()"
    with server(tmp_path, "--memory-limit", str(100 * MIB)) as s:
        client = client_of(s)
        first = client.start(hold.format(60))
        assert json.loads(first.stdout.readline()) == [40 * MIB, 100 * MIB]
        assert client.run("start(); said([code(alloc, 41 << 20), code(alloc, 40 << 20), info()])")[0] == [
            2,
            0,
            [0, 100 * MIB],
        ]
        other_device = client.run("start(1); alloc(100 << 20); said(info())")[0]
        assert other_device == [0, 100 * MIB]
        first.kill()  # the client
        first.wait()
        wait_for(lambda: client.run("start(); said(info()[0])")[0] == 100 * MIB, 5)
        second = client.start(hold.format(100))
        assert json.loads(second.stdout.readline())[0] == 0
        os.kill(s.child(), signal.SIGKILL)  # the server's child
        wait_for(lambda: client.run("start(); said(info()[0])")[0] == 100 * MIB, 5)
        second.communicate()
        for event in (e for e in s.events() if e["event"] == "client"):
            assert not alive(event["pid"])


def test_a_dead_clients_child_is_gone_within_a_second(tmp_path: Path):
    with server(tmp_path) as s:
        client = client_of(s).start("start(); alloc(1 << 20); said(1); sys.stdin.read()")
        client.stdout.readline()
        child = s.child()
        assert alive(child)
        client.kill()
        client.communicate()
        wait_for(lambda: not alive(child), 1)
        wait_for(lambda: s.events()[-1]["event"] == "gone", 1)


def test_limit_shows_in_total_and_beside_the_device(tmp_path: Path):
    script = "start(); n = c_size_t(); cuda.cuDeviceTotalMem_v2(byref(n), 0); said([n.value, *info()])"
    with server(tmp_path, "--memory-limit", str(100 * MIB)) as s:
        assert client_of(s).run(script)[0] == [100 * MIB] * 3
    with server(tmp_path, "--memory-limit", str(1000 * MIB)) as s:  # more than there is
        assert client_of(s).run(script)[0] == [256 * MIB] * 3


def test_refusals_are_one_sentence_and_an_error(tmp_path: Path):
    init = "said(code(cuda.cuInit, 0)); said(code(cuda.cuInit, 0))"
    with server(tmp_path / "a") as s, server(tmp_path / "b", "--allow", "10.1.2.3") as elsewhere:
        for client, status, words in (
            (client_of(s, token="0123456789abcdef-other"), 46, "refused the token"),
            (client_of(s, token=TOKEN + "x"), 46, "refused the token"),
            (client_of(s, token=TOKEN[:-1]), 46, "refused the token"),
            (client_of(s, library="other/lib"), 803, "is release other and the server .* is release test"),
            (client_of(elsewhere), 46, "may not allow this machine's address"),
            (client_of(s, more={"ELASTIC_AI_TOKEN_FILE": "/nowhere"}), 46, "cannot be read"),
            (client_of(s, more={"ELASTIC_AI_SERVERS": "host"}), 1, "'host' is not host:port"),
            (client_of(s, more={"ELASTIC_AI_SERVERS": ""}), 100, "no remote GPU is leased"),
            (client_of(s, elsewhere), 46, f"127.0.0.1:{elsewhere.port} cannot be reached"),
        ):
            said, err = client.run(init)
            assert said == status, err
            assert re.search(words, err), err
            assert len(err.strip().splitlines()) == 1, "said once"
        assert client_of(s).run(init)[0] == 0
        refused = [e for e in s.events() if e["event"] == "refused"]
        assert [e["why"] for e in refused] == ["token refused"] * 3 + ["release differs"]
        assert TOKEN not in (s.folder / "events").read_text()


def test_unreachable_servers_are_given_up_within_five_seconds(tmp_path: Path):
    with socket.socket() as free, socket.socket() as full:
        free.bind(("127.0.0.1", 0))
        full.bind(("127.0.0.1", 0))
        full.listen(1)  # accepted by the kernel, never by a program
        for port, words in ((free.getsockname()[1], "refused"), (full.getsockname()[1], "did not answer")):
            address = f"127.0.0.1:{port}"
            began = time.monotonic()
            said, err = Client(address, tmp_path).run("said(code(cuda.cuInit, 0))")
            assert said == 46
            assert words in err
            assert address in err
            assert time.monotonic() - began < 7  # 5 s and Python's own start on a busy machine


def test_lost_connection_fails_every_later_call_at_once(tmp_path: Path):
    script = """
start(); p = alloc(1 << 20); said(1); sys.stdin.readline()
began = time.monotonic()
codes = [code(cuda.cuCtxSynchronize), code(alloc, 5), code(cuda.cuMemcpyHtoD_v2, p, b"x" * 100, c_size_t(100)),
         code(cuda.cuMemcpyDtoHAsync_v2, ctypes.create_string_buffer(9), p, c_size_t(9), None),
         code(cuda.cuStreamSynchronize, None), code(cuda.cuInit, 0)]
said([codes, time.monotonic() - began < 1])
"""
    with server(tmp_path) as s:
        client = client_of(s).start(script)
        client.stdout.readline()
        os.kill(s.child(), signal.SIGKILL)
        out, err = client.communicate("\n", timeout=20)
    assert json.loads(out) == [[46] * 6, True]
    assert err.count("is lost") == 1


def test_sigterm_ends_everything(tmp_path: Path):
    with server(tmp_path) as s:
        clients = [client_of(s).start("start(); alloc(1 << 20); said(1); sys.stdin.read()") for _ in range(3)]
        for c in clients:
            c.stdout.readline()
        children = [e["pid"] for e in s.events() if e["event"] == "client"]
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(5) == 0
        assert not any(map(alive, children))
        assert not (tmp_path / "port").exists()
        assert s.events()[-1] == {"event": "stopped", "why": "SIGTERM"}
        for c in clients:
            c.communicate("")


def test_children_die_with_a_killed_server(tmp_path: Path):
    with server(tmp_path) as s:
        client = client_of(s).start("start(); said(1); sys.stdin.read()")
        client.stdout.readline()
        child = s.child()
        s.process.kill()
        s.process.wait()
        wait_for(lambda: not alive(child), 2)
        client.communicate("")


def test_idle_server_ends_itself_and_a_busy_one_does_not(tmp_path: Path):
    with server(tmp_path, "--idle-timeout", "1") as s:
        client = client_of(s).start("start(); said(1); sys.stdin.readline()")
        client.stdout.readline()
        time.sleep(1.5)
        assert s.process.poll() is None
        client.communicate("\n")
        assert s.process.wait(5) == 0
        assert s.events()[-1]["why"] == "idle"


def test_token_shows_nowhere(tmp_path: Path):
    with server(tmp_path) as s:
        client = client_of(s).start("start(); said(1); sys.stdin.read()")
        client.stdout.readline()
        for pid in (s.process.pid, s.child()):
            for name in ("cmdline", "environ"):
                assert TOKEN.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        client.kill()
        client.communicate()


def test_strangers_do_not_disturb(tmp_path: Path):
    """Noise, half a hello: the next client is served."""
    with server(tmp_path) as s:
        for data in (b"GET / HTTP/1.1\r\n\r\n" * 40, b"EAIREF1\n", os.urandom(4096)):
            with socket.create_connection(("127.0.0.1", s.port)) as noise:
                noise.sendall(data)
        assert client_of(s).run("said(code(cuda.cuInit, 0))")[0] == 0
        assert not [e for e in s.events()[:-2] if e["event"] == "client"], "no process for who has no token"


def test_what_the_server_says_of_itself(tmp_path: Path):
    script = (
        "start(); t = ctypes.create_string_buffer(99999); cuda.elasticAiServerInfo(t, c_size_t(99999)); "
        "print(t.value.decode())"
    )
    settings = {"CUDA_VISIBLE_DEVICES": UUIDS[1], "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": '14.29"\\\n'}
    with server(tmp_path, "--memory-limit", str(MIB), **settings) as s:
        (info,), _ = client_of(s).run(script)
    assert info["devices"] == [{"name": "Emulated V100", "uuid": UUIDS[1], "memory_bytes": MIB, "used_bytes": 0}]
    assert info["environment"] == settings
    assert (info["memory_limit_bytes"], info["emulated"], info["release"]) == (MIB, True, "test")
    assert info["transport"] == "tcp"


@pytest.mark.parametrize(
    "wrong",
    [
        ["--port", "x"],
        ["--port", "70000"],
        ["--memory-limit", "0"],
        ["--memory-limit", "-1"],
        ["--allow", "1.2.3"],
        ["--bind", "nowhere"],
        ["--report-fd", "77"],
        ["--nonsense"],
        ["word"],
    ],
)
def test_server_refuses_wrong_arguments(tmp_path: Path, wrong: list[str]):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    command = [str(built() / "bin/elastic-ai-refserver"), "--token-file", str(token), "--allow", "127.0.0.1", *wrong]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert "elastic-ai-refserver" in done.stderr


@pytest.mark.parametrize(("content", "words"), [("", "16 to 255"), ("short", "16 to 255"), ("x" * 256, "16 to 255")])
def test_server_refuses_weak_tokens(tmp_path: Path, content: str, words: str):
    token = tmp_path / "token"
    token.write_text(content)
    command = [str(built() / "bin/elastic-ai-refserver"), "--token-file", str(token), "--allow", "127.0.0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert words in done.stderr
    assert not content or content not in done.stderr


def test_clients_and_children_killed_in_the_middle_of_copies_leave_nothing(tmp_path: Path):
    script = """
start(); said(1); data = os.urandom(1 << 20) * 8; back = ctypes.create_string_buffer(8 << 20); n = c_size_t(8 << 20)
while True:
    p = alloc(8 << 20)
    cuda.cuMemcpyHtoDAsync_v2(p, data, n, None); cuda.cuMemcpyDtoHAsync_v2(back, p, n, None)
    cuda.cuCtxSynchronize(); assert back.raw == data; cuda.cuMemFree_v2(p)
"""
    chance = random.Random(5)
    with server(tmp_path, "--memory-limit", str(100 * MIB)) as s:
        for _ in range(3):
            clients = [client_of(s).start(script) for _ in range(4)]
            for one in clients:
                assert one.stdout.readline() == "1\n"
            children = [e["pid"] for e in s.events() if e["event"] == "client"][-4:]
            for client, child in zip(clients, children, strict=True):
                time.sleep(chance.random() / 10)
                # Children are in the order of connections, not of clients: so now one's own is hit, now another's.
                with contextlib.suppress(ProcessLookupError):  # gone with its client
                    os.kill(chance.choice([client.pid, child]), signal.SIGKILL)
            wait_for(lambda pids=tuple(children): sum(map(alive, pids)) <= 3)
            for one in clients:
                one.kill()
                err = one.communicate()[1]
                assert "AssertionError" not in err, "data were wrong"
        wait_for(lambda: not any(alive(e["pid"]) for e in s.events() if e["event"] == "client"))
        assert client_of(s).run("start(); alloc(100 << 20); said(info())")[0] == [0, 100 * MIB]
        children_of = Path(f"/proc/{s.process.pid}/task/{s.process.pid}/children")
        wait_for(lambda: not [pid for pid in children_of.read_text().split() if alive(int(pid))])
