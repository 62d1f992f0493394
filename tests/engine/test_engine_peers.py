"""Peer access of emulated devices, and pinned host memory: CUDA's answers and errors, also through the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.engine_run import client_of, describe, local, server
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
PEERS = """
cuda.cuInit(0)
a, b, own, n = c_void_p(), c_void_p(), c_void_p(), c_int(7)
for context, ordinal in ((a, 0), (b, 1)): cuda.cuDevicePrimaryCtxRetain(byref(context), ordinal)
cuda.cuCtxSetCurrent(a)
def can(one, other): return [code(cuda.cuDeviceCanAccessPeer, byref(n), one, other), n.value]
def p2p(what, one, other): return [code(cuda.cuDeviceGetP2PAttribute, byref(n), what, one, other), n.value]
enable = lambda context, flags=0: code(cuda.cuCtxEnablePeerAccess, context, flags)
disable = lambda context: code(cuda.cuCtxDisablePeerAccess, context)
def copied():
    there, back = c_uint64(), (ctypes.c_ubyte * 4096)()
    here = alloc(4096); cuda.cuMemsetD8_v2(here, 42, c_size_t(4096))
    cuda.cuCtxSetCurrent(b); cuda.cuMemAlloc_v2(byref(there), c_size_t(4096)); cuda.cuCtxSetCurrent(a)
    cuda.cuMemcpyPeer(there, b, here, a, c_size_t(4096)); cuda.cuMemcpyDtoH_v2(back, there, c_size_t(4096))
    return set(back) == {42}
asked = {"can": [can(0, 1), can(1, 0), can(0, 0), can(0, 9)[0]],
         "p2p": [p2p(2, 0, 1), p2p(3, 0, 1), p2p(2, 0, 0)[0], p2p(9, 0, 1)[0]],
         "enable": [enable(b, 1), enable(None), enable(b), enable(b)], "copied": copied(),
         "disable": [disable(b), disable(b), disable(None)]}
"""
#: Host memory: flags of cuda.h, among them one that there is not (64) and I/O memory (4 of cuMemHostRegister).
PINNED = """
p, n = c_void_p(), ctypes.c_uint()
early = code(cuda.cuMemHostAlloc, byref(p), c_size_t(4096), 0); start()
block = (ctypes.c_ubyte * 8192)(); at = ctypes.addressof(block)
register = lambda where, size, flags=0: code(cuda.cuMemHostRegister_v2, c_void_p(where), c_size_t(size), flags)
unregister = lambda where: code(cuda.cuMemHostUnregister, c_void_p(where))
def flags(where): return [code(cuda.cuMemHostGetFlags, byref(n), c_void_p(where)), n.value]
take = lambda bits: code(cuda.cuMemHostAlloc, byref(p), c_size_t(4096), bits)
give = lambda where: code(cuda.cuMemFreeHost, c_void_p(where))
said([take(64), take(5), flags(p.value + 4095), unregister(p.value), give(p.value + 1), give(p.value), give(p.value),
      register(at, 4096, 2), flags(at + 4095), flags(at + 4096)[0], register(at + 4095, 2), register(at + 4096, 4096),
      register(at, 0), register(at, 1, 4), give(at), unregister(at + 1), unregister(at), unregister(at),
      register(at, 4096), early])
"""
EXPECTED = [1, 0, [0, 5], 713, 1, 0, 1, 0, [0, 2], 1, 712, 0, 1, 801, 1, 713, 0, 713, 0, 3]


def test_peers_reach_each_other_once_it_is_enabled(tmp_path: Path):
    script = """
cuda.cuDevicePrimaryCtxRelease_v2(1)
ended = enable(b)
cuda.cuDevicePrimaryCtxRetain(byref(b), 1)
again = [enable(b)]; cuda.cuDevicePrimaryCtxRelease_v2(1); cuda.cuDevicePrimaryCtxRetain(byref(b), 1)
again += [disable(b), enable(b)]
said([asked, ended, again])
"""
    asked, ended, again = local(tmp_path, describe(tmp_path)).run(PEERS + script)[0]
    assert asked == {
        "can": [[0, 1], [0, 1], [0, 0], 101],
        "p2p": [[0, 1], [0, 0], 101, 1],
        "enable": [1, 201, 0, 704],
        "copied": True,
        "disable": [0, 705, 201],
    }
    assert ended == 201
    assert again == [0, 705, 0], "a context that has begun anew is another one"


def test_gpus_of_different_groups_copy_without_reaching_each_other(tmp_path: Path):
    devices = describe(tmp_path)
    path = tmp_path / "gpus.json"
    entries = json.loads(path.read_text())["gpus"]
    path.write_text(json.dumps({"gpus": [entry | {"peer_group": i} for i, entry in enumerate(entries)]}))
    asked, _ = local(tmp_path, devices).run(PEERS + "said(asked)")
    assert asked["can"] == [[0, 0], [0, 0], [0, 0], 101]
    assert asked["p2p"][0] == [0, 0]
    assert (asked["enable"], asked["disable"]) == ([1, 201, 217, 217], [705, 705, 201])
    assert asked["copied"] is True


def test_the_engine_offers_no_peer_access_and_copies_all_the_same(tmp_path: Path):
    with server(tmp_path) as s:
        asked, _ = client_of(s).run(PEERS + "said(asked)")
    assert asked == {
        "can": [[0, 0], [0, 0], [0, 0], 101],
        "p2p": [[0, 0], [0, 0], 101, 1],
        "enable": [1, 201, 217, 217],
        "copied": True,
        "disable": [705, 705, 201],
    }


def test_host_memory_is_pinned_once_and_freed_by_whom_it_is_of(tmp_path: Path):
    assert local(tmp_path, describe(tmp_path)).run(PINNED)[0] == EXPECTED
    with server(tmp_path) as s:
        assert client_of(s).run(PINNED)[0] == EXPECTED
