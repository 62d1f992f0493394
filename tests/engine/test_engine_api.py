"""The driver API as a program sees it through the reference engine: order, asynchrony, errors, threads, symbols."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.engine_run import built, client_of, server, wait_for
from tests.support.engine_wire import admitted, asked, reply, request
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")


def test_copies_in_both_directions_at_once_do_not_wait_for_each_other(tmp_path: Path):
    """Much is under way both ways before anybody waits: a client that does not read would stop the server."""
    script = """
start(); n = 20 << 20
stream = c_void_p(); cuda.cuStreamCreate(byref(stream), 1)
data = [os.urandom(1 << 20) * 20 for _ in range(2)]
a, b = alloc(n), alloc(n)
back = [ctypes.create_string_buffer(n) for _ in range(2)]
for turn in range(2):
    cuda.cuMemcpyHtoDAsync_v2(a, data[turn], c_size_t(n), stream)
    cuda.cuMemcpyDtoDAsync_v2(b, a, c_size_t(n), stream)
    cuda.cuMemcpyDtoHAsync_v2(back[turn], b, c_size_t(n), stream)
cuda.cuStreamSynchronize(stream)
said([bytes(back[i]) [:n] == data[i] for i in range(2)])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(script, limit_s=240)[0] == [True, True]  # by verbs on a busy machine half a minute


def test_asynchronous_data_come_while_the_program_does_something_else(tmp_path: Path):
    script = """
start(); n = 32 << 20; p = alloc(n); cuda.cuMemsetD8_v2(p, 7, c_size_t(n))
back = ctypes.create_string_buffer(n)
cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(n), None)
until = time.monotonic() + 20
while back.raw[-1] != 7 and time.monotonic() < until: time.sleep(.01)  # no CUDA call meanwhile
said([back.raw[-1], back.raw == b"\\7" * n])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(script)[0] == [7, True]


def test_threads_share_a_connection(tmp_path: Path):
    script = """
context = start(); wrong = []
def work(seed):
    cuda.cuCtxSetCurrent(context)
    stream = c_void_p(); cuda.cuStreamCreate(byref(stream), 0)
    for turn in range(15):
        n = 100_000 + seed * 7919 + turn
        data = bytes([seed * 16 + turn]) * n
        p = alloc(n); back = ctypes.create_string_buffer(n)
        if turn % 2:
            cuda.cuMemcpyHtoDAsync_v2(p, data, c_size_t(n), stream)
            cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(n), stream)
            cuda.cuStreamSynchronize(stream)
        else:
            cuda.cuMemcpyHtoD_v2(p, data, c_size_t(n)); cuda.cuMemcpyDtoH_v2(back, p, c_size_t(n))
        if back.raw != data: wrong.append((seed, turn))
        cuda.cuMemFree_v2(p)
    cuda.cuStreamDestroy_v2(stream)
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
said([wrong, info()[0] == info()[1]])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(script)[0] == [[], True]


def test_only_device_memory_is_reached(tmp_path: Path):
    script = """
start(); p = alloc(4096); q = alloc(4096); b = ctypes.create_string_buffer(1 << 20); z = c_size_t
at = lambda pointer, offset: c_uint64(pointer.value + offset)
host = c_uint64(ctypes.addressof(b))
said([
    code(cuda.cuMemcpyDtoH_v2, b, p, z(4097)), code(cuda.cuMemcpyDtoH_v2, b, at(p, 1), z(4096)),
    code(cuda.cuMemcpyDtoH_v2, b, at(p, -1), z(1)), code(cuda.cuMemcpyDtoH_v2, b, c_uint64(0), z(1)),
    code(cuda.cuMemcpyDtoH_v2, b, host, z(1)), code(cuda.cuMemcpyHtoD_v2, host, b, z(1)),
    code(cuda.cuMemcpyHtoD_v2, at(p, 4000), b, z(1 << 20)), code(cuda.cuMemcpyDtoD_v2, q, host, z(8)),
    code(cuda.cuMemsetD8_v2, p, 1, z(1 << 63)), code(cuda.cuMemsetD32_v2, at(p, 2), 1, z(1)),
    code(cuda.cuMemFree_v2, at(p, 16)), code(cuda.cuMemFree_v2, c_uint64(1 << 60)),
    code(cuda.cuMemAlloc_v2, byref(c_uint64()), z(0)), code(cuda.cuMemAlloc_v2, byref(c_uint64()), z(2**64 - 1)),
])
codes = [code(cuda.cuMemcpyDtoH_v2, b, at(p, 4000), z(96)), code(cuda.cuMemFree_v2, p), code(cuda.cuMemFree_v2, p)]
said([codes, code(cuda.cuMemcpyDtoH_v2, b, p, z(1)), code(cuda.cuCtxSynchronize)])
"""
    with server(tmp_path) as s:
        process = client_of(s).start(script)
        out, err = process.communicate(timeout=30)
    refused, rest = (line for line in out.splitlines())
    assert refused == str([1] * 14), err
    assert rest == "[[0, 0, 1], 1, 0]"


def test_errors_of_asynchronous_calls_come_once_with_the_next_wait(tmp_path: Path):
    script = """
start(); p = alloc(64); b = ctypes.create_string_buffer(b"a" * 64, 64)
first = [code(cuda.cuMemcpyHtoDAsync_v2, c_uint64(p.value + 64), b, c_size_t(64), None),
         code(cuda.cuMemcpyHtoDAsync_v2, p, b, c_size_t(64), None),
         code(cuda.cuMemcpyDtoHAsync_v2, b, c_uint64(5), c_size_t(64), None)]
said([first, code(cuda.cuStreamSynchronize, None), code(cuda.cuStreamSynchronize, None), b.raw == b"a" * 64])
"""
    with server(tmp_path) as s:
        assert client_of(s).run(script)[0] == [[0, 0, 0], 1, 0, True]


def test_streams_events_and_contexts(tmp_path: Path):
    script = """
cuda.cuInit(0); a, b, top = c_void_p(), c_void_p(), c_void_p(); device = c_int()
before = code(cuda.cuCtxSynchronize)
cuda.cuCtxCreate_v2(byref(a), 0, 0); cuda.cuCtxCreate_v4(byref(b), None, 0, 1)
cuda.cuCtxGetDevice(byref(device)); stack = [device.value]
cuda.cuCtxPopCurrent_v2(byref(top)); cuda.cuCtxGetDevice(byref(device)); stack += [device.value, top.value == b.value]
start_, end, other = c_void_p(), c_void_p(), c_void_p()
for e in (start_, end): cuda.cuEventCreate(byref(e), 0)
stream = c_void_p(); cuda.cuStreamCreateWithPriority(byref(stream), 0, -1)
p = alloc(32 << 20)
cuda.cuEventRecord(start_, stream)
cuda.cuMemsetD32Async(p, 0xdeadbeef, c_size_t(8 << 20), stream)
cuda.cuEventRecord(end, stream)
cuda.cuStreamWaitEvent(stream, end, 0); cuda.cuEventSynchronize(end)
took = c_float(); cuda.cuEventElapsedTime(byref(took), start_, end)
word = ctypes.c_uint32(); cuda.cuMemcpyDtoH_v2(byref(word), c_uint64(p.value + (32 << 20) - 4), c_size_t(4))
fine = [code(cuda.cuEventQuery, end), code(cuda.cuStreamQuery, stream), code(cuda.cuStreamQuery, None), took.value > 0]
cuda.cuCtxDestroy_v2(a)
gone = [code(cuda.cuMemcpyDtoH_v2, byref(word), p, c_size_t(4)), code(cuda.cuCtxDestroy_v2, a),
        code(cuda.cuStreamSynchronize, stream)]
cuda.cuCtxSetCurrent(b)
said([before, stack, fine, hex(word.value), [bool(g) for g in gone], info()[0] == info()[1]])
"""
    with server(tmp_path) as s:
        said, _ = client_of(s).run(script)
    assert said == [201, [1, 0, True], [0, 0, 0, True], "0xdeadbeef", [True] * 3, True]


def test_primary_context_gives_its_memory_back(tmp_path: Path):
    script = """
start(); start(); alloc(200 << 20); a = info()[0]
cuda.cuDevicePrimaryCtxRelease_v2(0); b = info()[0]
cuda.cuDevicePrimaryCtxRelease_v2(0); c = code(cuda.cuCtxSynchronize)
start(); d = info(); p = alloc(200 << 20)
said([a < (57 << 20), a == b, c, d[0] == d[1]])
"""
    with server(tmp_path, "--memory-limit", str(250 << 20)) as s:
        assert client_of(s).run(script)[0] == [True, True, 709, True]


def test_forked_child_has_no_devices_and_keeps_no_connection(tmp_path: Path):
    script = """
start(); p = alloc(4096); r, w = os.pipe()
if os.fork() == 0:
    os.write(w, json.dumps([code(cuda.cuCtxSynchronize), code(cuda.cuInit, 0)]).encode()); os.close(w)
    time.sleep(3); os._exit(0)
os.close(w); child = json.loads(os.read(r, 100))
said([child, code(cuda.cuCtxSynchronize)]); os._exit(0)
"""
    with server(tmp_path) as s:
        process = client_of(s).start(script)
        assert process.stdout.readline() == "[[3, 3], 0]\n"
        process.wait()
        # The forked child lives for three more seconds.
        wait_for(lambda: any(e["event"] == "gone" for e in s.events()), 2)
        process.communicate()


def test_devices_of_two_machines_have_no_pci_address_in_common(tmp_path: Path):
    """Servers of one model have the same, and NCCL takes two of the same for one GPU. Two servers of one machine may
    really serve one GPU: theirs stay equal."""
    allow = ("--allow", "127.0.0.1,127.0.0.2")
    other = (*allow, "--bind", "127.0.0.2")
    with (
        server(tmp_path, *allow) as one,
        server(tmp_path / "b", *other) as two,
        server(tmp_path / "c", *allow) as three,
    ):
        client = client_of(one)
        client.addresses = f"127.0.0.1:{one.port},127.0.0.2:{two.port},127.0.0.1:{three.port}"
        script = """
n = c_int(); name = ctypes.create_string_buffer(32); domain = c_int(); back = c_int(); found = []
cuda.cuInit(0); cuda.cuDeviceGetCount(byref(n))
for i in range(n.value):
    cuda.cuDeviceGetPCIBusId(name, 32, i); cuda.cuDeviceGetAttribute(byref(domain), 50, i)
    cuda.cuDeviceGetByPCIBusId(byref(back), name); found.append([name.value.decode(), domain.value, back.value])
said(found)
"""
        assert client.run(script)[0] == [
            ["0000:10:00.0", 0, 0],
            ["0000:11:00.0", 0, 1],
            ["1000:10:00.0", 4096, 2],
            ["1000:11:00.0", 4096, 3],
            ["0000:10:00.0", 0, 0],
            ["0000:11:00.0", 0, 1],
        ]


@pytest.mark.parametrize("library", ["lib", "devices"])
def test_symbols_are_those_of_the_table(library: str):
    shown = subprocess.run(["objdump", "-T", str(built() / library / "libcuda.so.1")], capture_output=True, text=True)
    exported = {line.split()[-1] for line in shown.stdout.splitlines() if re.search(" [gw] .* .text", line)}
    header = "".join(path.read_text() for path in sorted((build.SOURCES / "shared").glob("cu*.h")))
    table = set(re.findall(r"X\(cu\w+, \d+,[ \\\n]+(cu\w+)", header))
    assert len(table) > 60
    assert exported == table | {"elasticAiServerInfo" if library == "lib" else "elasticAiEmulated"}


def test_symbols_by_name_are_the_ones_for_the_version(tmp_path: Path):
    script = """
def find(name, version, v2=True):
    f, status = c_void_p(), c_int(-1)
    if v2: c = code(cuda.cuGetProcAddress_v2, name.encode(), byref(f), version, c_uint64(0), byref(status))
    else: c = code(cuda.cuGetProcAddress, name.encode(), byref(f), version, c_uint64(0))
    real = {ctypes.cast(getattr(cuda.library, n), c_void_p).value: n for n in
            ("cuMemAlloc_v2", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuEventElapsedTime",
             "cuEventElapsedTime_v2", "cuCtxSynchronize", "cuCtxSynchronize_v2")}
    return [c, real.get(f.value), status.value]
said([find("cuMemAlloc", 12000), find("cuMemAlloc", 12000, False), find("cuCtxCreate", 11000),
      find("cuCtxCreate", 12000), find("cuCtxCreate", 12050), find("cuCtxCreate", 13000),
      find("cuEventElapsedTime", 12000), find("cuMemAllocAsync", 13000),
      find("cuMemAlloc", 2000), find("cuMemAlloc_v2", 13000), find("cuMemAllocAsync", 13000, False),
      find("cuCtxSynchronize", 12090), find("cuCtxSynchronize", 13000)])
"""
    with server(tmp_path) as s:
        said, _ = client_of(s).run(script)
    assert said == [
        [0, "cuMemAlloc_v2", 0],
        [0, "cuMemAlloc_v2", -1],
        [0, "cuCtxCreate_v2", 0],
        [0, "cuCtxCreate_v3", 0],
        [0, "cuCtxCreate_v4", 0],
        [0, "cuCtxCreate_v4", 0],
        [0, "cuEventElapsedTime", 0],
        [0, None, 1],  # CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND is no failure of the call
        [0, None, 2],
        [0, None, 1],
        [500, None, -1],
        [0, "cuCtxSynchronize", 0],
        [0, "cuCtxSynchronize_v2", 0],
    ]


def test_a_primary_context_retained_twice_does_not_pass_the_memory_limit(tmp_path: Path):
    """It is one context: giving it back once must not give back the accounts of memory that it still holds."""
    limit = 64 << 20
    with server(tmp_path, "--memory-limit", str(limit)) as s, admitted(s.port) as sock:
        for _ in range(3):
            first, _second = asked(sock, 2, 0, 0)[1], asked(sock, 2, 0, 0)[1]
            assert asked(sock, 6, limit, context=first)[0] == 0
            assert asked(sock, 4, first)[0] == 0
        with server(tmp_path / "all", devices=s.devices) as whole:  # the same devices, without a limit
            free, total = client_of(whole).run("start(); said(info())")[0]
        assert total - free <= limit


def test_a_hostile_client_gets_errors_and_harms_nobody(tmp_path: Path):
    """Whoever has a token may say anything: handles and operations that do not exist, sizes that overflow."""
    evil = [0, 1, 2, 77, 1 << 31, 1 << 47, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    with server(tmp_path, "--memory-limit", str(1 << 20)) as s:
        other = client_of(s).start(
            "start(); p = alloc(4096); cuda.cuMemsetD8_v2(p, 9, c_size_t(4096)); said(1); sys.stdin.readline(); "
            "b = ctypes.create_string_buffer(4096); cuda.cuMemcpyDtoH_v2(b, p, c_size_t(4096)); "
            "said(b.raw == b'\\t' * 4096)"
        )
        other.stdout.readline()
        with admitted(s.port) as sock:
            sock.sendall(request(2, 0, 0))
            assert reply(sock)[0] == 0
            for op in [*range(2, 40), 1 << 31]:
                for a in evil:
                    for b in evil:
                        context = 1 if op in (2, 3, 4) else a
                        if op == 4 and a == 1:
                            continue  # its own context, which the next requests are about
                        sock.sendall(request(op, a, b, b, a, 4, b, context=context))
                        status, _ = reply(sock)
                        assert status in (0, 1, 2, 100, 101, 201, 400, 500, 600, 801), (op, a, b)
            sock.sendall(request(9, 1 << 40, 64, size=64) + b"x" * 64)
            assert reply(sock)[0] == 1, "still in step after a payload for nowhere"
            sock.sendall(request(3, size=10))  # a payload where there is none
            assert sock.recv(1) == b""
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "true\n"
        other.communicate()
