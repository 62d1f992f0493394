"""Kernels by the reference engine where that differs from a device of one's own: ends, late errors, several servers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engine_kernels import LAUNCHES
from tests.support.engine_run import Client, Server, client_of, describe, local, server, wait_for
from tests.support.engine_wire import admitted, asked, launch
from toolkit.engine import build, host_modules

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
PTX = (host_modules.KERNELS / "checks.ptx").read_bytes()
ENDLESS = LAUNCHES + "start(); flag = put('i', [0]); launch(function(load(), 'wait'), 1, 1, flag); said(1); "


def ended(one: Server, pid: int) -> bool:
    return any(e["event"] == "gone" and e["pid"] == pid for e in one.events())


def trained(client: Client, devices: int) -> list[str]:
    """Losses and weights of a short training, as elastic-ai-train shows them."""
    command = [sys.executable, "-m", "toolkit.lease.programs.train", "--steps", "6", "--json"]
    done = subprocess.run(command, env=client.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["devices"]) == devices
    return [*map(repr, said["losses"]), said["weights_sha256"]]


def test_training_by_the_engine_has_the_losses_of_the_devices_themselves(tmp_path: Path):
    """Also when the devices are those of two servers."""
    both = describe(tmp_path)
    here = trained(local(tmp_path, both), 2)
    with server(tmp_path, devices=both) as s:
        assert trained(client_of(s), 2) == here
    with (
        server(tmp_path / "a", devices=both, CUDA_VISIBLE_DEVICES="0") as a,
        server(tmp_path / "b", devices=both, CUDA_VISIBLE_DEVICES="1") as b,
    ):
        assert trained(client_of(a, b), 2) == here


@pytest.mark.parametrize("end", ["client killed", "client waits", "lease ends"])
def test_a_kernel_that_never_ends_goes_with_its_client_and_with_its_lease(tmp_path: Path, end: str):
    """And a neighbour in the same lease works meanwhile."""
    with server(tmp_path) as s:
        client = client_of(s).start(
            ENDLESS + ("cuda.cuCtxSynchronize()" if end == "client waits" else "time.sleep(60)")
        )
        assert client.stdout.readline() == "1\n"
        pid = s.child()
        assert client_of(s).run("start(); alloc(64); said(code(cuda.cuCtxSynchronize))")[0] == 0
        assert not ended(s, pid)
        if end == "lease ends":
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(10) == 0
        else:
            client.kill()
        wait_for(lambda: ended(s, pid), 10)
        assert not Path(f"/proc/{pid}").exists()
        client.kill()
        client.communicate()


def test_servers_that_give_the_same_addresses(tmp_path: Path):
    """Each is asked again until the addresses differ; where that does not help, one clear error."""
    same = {"ELASTIC_AI_EMULATED_ADDRESS": "300000000000"}
    script = """
first = start(0); mine = [alloc(4096) for _ in range(3)]
for i, p in enumerate(mine): cuda.cuMemsetD8_v2(p, i, c_size_t(4096))
second = start(2); other = [alloc(4096) for _ in range(3)]
for i, p in enumerate(other): cuda.cuMemsetD8_v2(p, 100 + i, c_size_t(4096))
back = ctypes.create_string_buffer(1); found = []
for p in mine + other: cuda.cuMemcpyDtoH_v2(back, p, c_size_t(1)); found.append(back.raw[0])
left = info()
cuda.cuCtxSetCurrent(first); more = [alloc(4096) for _ in range(40)]
cuda.cuCtxSetCurrent(second); refused = code(alloc, 4096)
freed = [code(cuda.cuMemFree_v2, p) for p in other]
said([len({p.value for p in mine + other}), found, left[1] - left[0], refused, freed])
"""
    with server(tmp_path / "a", **same) as a, server(tmp_path / "b", **same) as b:
        found, err = client_of(a, b).run(script)
    assert found == [6, [0, 1, 2, 100, 101, 102], 3 * 4096, 2, [0, 0, 0]]
    assert "no memory at an address that no other server has given" in err


def test_what_the_drivers_compiler_says_is_said_where_no_one_asked(tmp_path: Path):
    with server(tmp_path) as s:
        code, err = client_of(s).run(LAUNCHES + "start(); said(code(load, PTX.replace(b'.version 6', b'.version 99')))")
    assert code == 222
    assert re.search(r"elastic-ai: the driver of 127\.0\.0\.1:\d+ does not take a module: .*newer than", err)


def test_what_a_pointer_is(tmp_path: Path):
    script = """
context = start(1); p = alloc(5000); inside = c_uint64(p.value + 4999); past = c_uint64(p.value + 5000)
host = c_void_p(); cuda.cuMemAllocHost_v2(byref(host), c_size_t(64))
def attribute(which, pointer, kind=ctypes.c_uint):
    value = kind(77); return code(cuda.cuPointerGetAttribute, byref(value), which, pointer) or [value.value]
base, size = c_uint64(), c_size_t()
cuda.cuMemGetAddressRange_v2(byref(base), byref(size), inside)
values = [ctypes.c_uint(9), c_uint64(9)]
cuda.cuPointerGetAttributes(2, (c_int * 2)(2, 7), (c_void_p * 2)(*map(ctypes.addressof, values)), past)
word = ctypes.create_string_buffer(b"abcdefgh", 8); back = ctypes.create_string_buffer(8)
cuda.cuMemcpy(p, c_uint64(ctypes.addressof(word)), c_size_t(8))
cuda.cuMemcpyAsync(c_uint64(p.value + 8), p, c_size_t(8), None)
cuda.cuMemcpy(c_uint64(ctypes.addressof(back)), c_uint64(p.value + 8), c_size_t(8))
said([attribute(2, inside), attribute(2, past), attribute(2, host), attribute(9, p, c_int),
      attribute(1, p, c_uint64) == [context.value], attribute(11, inside, c_uint64) == [p.value], base.value == p.value,
      size.value, [v.value for v in values], back.raw.decode(), cuda.cuMemFree_v2(p), attribute(2, p)])
"""
    with server(tmp_path) as s:
        said = client_of(s).run(script)[0]
    assert said == [[2], 1, [1], [1], True, True, True, 5000, [0, 0], "abcdefgh", None, 1]


def test_copies_in_two_dimensions(tmp_path: Path):
    """A window of a picture there, moved on the device, and back; what lies beside it stays."""
    script = """
class Copy(ctypes.Structure):
    _fields_ = [(n, t) for side in ("from", "to") for n, t in (
        [(f"{side}_x", c_size_t), (f"{side}_y", c_size_t), (f"{side}_type", c_int), (f"{side}_host", c_void_p),
         (f"{side}_device", c_uint64), (f"{side}_array", c_void_p), (f"{side}_pitch", c_size_t)])
    ] + [("width", c_size_t), ("height", c_size_t)]
start(); p = alloc(64 * 20); cuda.cuMemsetD8_v2(p, 46, c_size_t(64 * 20))
picture = ctypes.create_string_buffer(bytes(range(97, 97 + 24)), 24); back = ctypes.create_string_buffer(b"." * 30, 30)
here, there = ctypes.addressof(picture), ctypes.addressof(back)
to = Copy(from_type=1, from_host=here, from_x=1, from_y=1, from_pitch=6,
          to_type=2, to_device=p.value, to_x=2, to_y=3, to_pitch=64, width=4, height=3)
on = Copy(from_type=2, from_device=p.value, from_x=2, from_y=3, from_pitch=64,
          to_type=4, to_device=p.value, to_x=8, to_y=10, to_pitch=64, width=4, height=3)
off = Copy(from_type=2, from_device=p.value, from_x=7, from_y=10, from_pitch=64,
           to_type=1, to_host=there, to_pitch=10, width=6, height=3)
for one in (to, on, off): cuda.cuMemcpy2D_v2(byref(one))
off.to_type = 3; codes = [code(cuda.cuMemcpy2D_v2, byref(off))]
off.to_type, off.to_pitch = 1, 5; codes.append(code(cuda.cuMemcpy2D_v2, byref(off)))
off.to_pitch, off.height = 10, 1 << 60; codes.append(code(cuda.cuMemcpy2D_v2, byref(off)))
said([back.raw.decode(), codes])
"""
    with server(tmp_path) as s:
        said = client_of(s).run(script)[0]
    assert said == [".hijk......nopq......tuvw.....", [801, 1, 1]]


def test_a_launch_takes_no_more_and_no_less_than_its_parameters(tmp_path: Path):
    """Whatever length a client gives; handles of another kind are none."""
    with server(tmp_path) as s, admitted(s.port) as sock:
        context = asked(sock, 2, 0, 0)[1]
        pointer = asked(sock, 6, 4096, context=context)[1]
        module = asked(sock, 25, 0, context=context, payload=PTX)[1]
        status, spin = asked(sock, 27, module, payload=b"spin")
        assert status == 0
        right = pointer.to_bytes(8, "little") + bytes(4)
        stream = asked(sock, 14, 0, 0, context=context)[1]

        def tried(arguments: list[int], payload: bytes) -> int:
            return asked(sock, 30, *arguments, context=context, payload=payload)[0]

        assert tried(launch(spin, (1,), (4,), stream), right) == 0
        for payload in (b"", right[:-1], right + b"x", bytes(40_000)):
            assert tried(launch(spin, (1,), (4,)), payload) == 1
        for count in (1, 17, 1 << 31):
            arguments = launch(spin, (1,), (4,))
            arguments[5] |= count << 32
            assert tried(arguments, right) == 1, "attributes that are not there"
        refused = launch(spin, (1,), (4,))
        refused[5] |= 1 << 32
        assert tried(refused, right + (7).to_bytes(8, "little") + bytes(64)) == 801, "an event's address"
        for wrong in (0, module, stream, 99):
            assert tried(launch(wrong, (1,), (4,)), right) == 400
        assert tried(launch(spin, (1,), (4,), spin), right) == 400
        assert asked(sock, 7, asked(sock, 28, module, payload=b"table")[1])[0] == 1, "a variable is not freed"
        assert asked(sock, 26, module)[0] == 0
        assert tried(launch(spin, (1,), (4,)), right) == 400
        os.kill(s.child(), 0)
