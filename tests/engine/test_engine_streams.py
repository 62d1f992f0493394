"""Streams and events of an emulated device with work under way: order in a stream, and streams beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_kernels import LAUNCHES
from tests.support.engine_run import Client, describe, local
from toolkit.engine import build, host_modules

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
STREAMS = (
    LAUNCHES
    + """
def stream(apart=1):
    found = c_void_p()
    cuda.cuStreamCreate(byref(found), ctypes.c_uint(apart))
    return found
def event():
    found = c_void_p()
    cuda.cuEventCreate(byref(found), ctypes.c_uint(0))
    return found
def busy(s): return code(cuda.cuStreamQuery, s)
def release(flag, s=None): cuda.cuMemcpyHtoDAsync_v2(flag, struct.pack("i", 1), c_size_t(4), s)
context = start(); module = load()
wait, spin, scale = (function(module, n) for n in ("wait", "spin", "scale"))
flag = put("i", [0])
"""
)


@pytest.fixture
def device(tmp_path: Path) -> Client:
    return local(tmp_path, describe(tmp_path))


def said(device: Client, script: str) -> Any:
    return device.run(STREAMS + script)[0]


def test_a_stream_waits_and_others_go_on(device: Client):
    script = """
a, b, done, beside, data = stream(), stream(), event(), event(), put("f", [1.0] * 4)
launch(wait, 1, 1, flag, stream=a)
launch(scale, 1, 4, data, c_float(3), ctypes.c_uint(4), stream=a)
cuda.cuEventRecord(done, a)
launch(scale, 1, 4, c_uint64(data.value + 8), c_float(5), ctypes.c_uint(2), stream=b)
cuda.cuEventRecord(beside, b)
cuda.cuEventSynchronize(beside)
early = [busy(a), busy(b), code(cuda.cuEventQuery, done), code(cuda.cuEventQuery, beside), got("f", data, 4)]
release(flag, b)
cuda.cuStreamSynchronize(a)
said([early, busy(a), code(cuda.cuEventQuery, done), got("f", data, 4)])
"""
    early, *after = said(device, script)
    assert early == [600, 0, 600, 0, [1, 1, 5, 5]]
    assert after == [0, 0, [3, 3, 15, 15]]


def test_an_event_of_one_stream_holds_another_up(device: Client):
    script = """
a, b, c, done, data = stream(), stream(), stream(), event(), put("f", [1.0])
never = event()
cuda.cuStreamWaitEvent(b, never, ctypes.c_uint(0))
launch(wait, 1, 1, flag, stream=a)
launch(scale, 1, 1, data, c_float(3), ctypes.c_uint(1), stream=a)
cuda.cuEventRecord(done, a)
cuda.cuStreamWaitEvent(b, done, ctypes.c_uint(0))
cuda.cuEventDestroy_v2(done)
launch(scale, 1, 1, data, c_float(0.5), ctypes.c_uint(1), stream=b)
cuda.cuStreamDestroy_v2(a)
time.sleep(0.05)
early = busy(b)
release(flag, c)
cuda.cuStreamSynchronize(b)
said([early, got("f", data, 1)])
"""
    assert said(device, script) == [600, [1.5]]


def test_the_default_stream_waits_for_those_that_are_not_apart(device: Client):
    script = """
a, b, apart, data = stream(0), stream(0), stream(), put("f", [1.0])
launch(wait, 1, 1, flag, stream=apart)
cuda.cuMemsetD32_v2(data, 0x40000000, c_size_t(1))
early = [busy(apart), got("f", data, 1)]
release(flag, b); cuda.cuCtxSynchronize(); cuda.cuMemsetD32_v2(flag, 0, c_size_t(1))
launch(wait, 1, 1, flag, stream=a)
launch(scale, 1, 1, data, c_float(3), ctypes.c_uint(1))  # behind a
launch(scale, 1, 1, data, c_float(5), ctypes.c_uint(1), stream=b)  # behind the default stream
time.sleep(0.05)
held = [busy(a), busy(None), busy(b), busy(apart)]
release(flag, apart)
said([early, held, got("f", data, 1)])
"""
    assert said(device, script) == [[600, [2]], [600, 600, 600, 0], [30]]


def test_a_thousand_launches_keep_their_order(device: Client):
    script = """
a, to = stream(), put("i", [0] * 1000)
at, size, f = c_uint64(), c_size_t(), function(module, "count")
cuda.cuModuleGetGlobal_v2(byref(at), byref(size), module, b"launches")
for i in range(1000):
    launch(f, 1, 1, to, stream=a) if i % 2 else launch(scale, 1, 1, c_uint64(0), c_float(0), ctypes.c_uint(0), stream=a)
data, stray = put("i", [0]), function(module, "stray")
for _ in range(20):  # 1, and doubled three times as the smallest of all floats
    launch(stray, 1, 1, data, ctypes.c_longlong(0), stream=a)
    for _ in range(3): launch(scale, 1, 1, data, c_float(2), ctypes.c_uint(1), stream=a)
cuda.cuMemcpyDtoHAsync_v2(ctypes.create_string_buffer(4), data, c_size_t(4), a)
said([got("I", at, 1), got("i", data, 1)])
"""
    assert said(device, script) == [[500], [8]]


def test_events_measure_what_ran_between_them(device: Client):
    script = """
a, begin, end, to = stream(), event(), event(), alloc(4)
before = time.monotonic()
cuda.cuEventRecord(begin, a)
cuda.cuEventSynchronize(begin)
after = time.monotonic()
launch(spin, 1, 1, to, ctypes.c_uint(300_000_000), stream=a)
cuda.cuEventRecord(end, a)
ms = c_float()
least = time.monotonic() - after
early = code(cuda.cuEventElapsedTime, byref(ms), begin, end)
cuda.cuEventSynchronize(end)
most = time.monotonic() - before
cuda.cuEventElapsedTime(byref(ms), begin, end)
said([early, least, most, ms.value / 1e3])
"""
    early, least, most, measured = said(device, script)
    assert early == 600
    assert least < measured <= most + 0.001
    assert measured > 0.01


def test_a_kernel_that_never_ends_ends_with_its_context(device: Client):
    script = """
other = start(1); ours = put("i", [7]); cuda.cuCtxSetCurrent(context)
a, mine = stream(), c_void_p()
launch(wait, 1, 1, flag, stream=a)
launch(scale, 1, 1, flag, c_float(1), ctypes.c_uint(1), stream=a)
early = busy(a)
cuda.cuCtxSetCurrent(other); beside = got("i", ours, 1)
began = time.monotonic()
cuda.cuDevicePrimaryCtxRelease_v2(0)
took = time.monotonic() - began
start(0); again = put("f", [2.0]); launch(function(load(), "scale"), 1, 1, again, c_float(4), ctypes.c_uint(1))
said([early, beside, took < 5, got("f", again, 1)])
"""
    assert said(device, script) == [600, [7], True, [8]]


def test_a_kernel_that_never_ends_can_be_planted(tmp_path: Path):
    device = local(tmp_path, describe(tmp_path, endless_after=2))
    script = """
to = alloc(4)
codes = []
for _ in range(3):
    launch(spin, 1, 1, to, ctypes.c_uint(5)); time.sleep(0.2)
    codes.append(busy(None))
nvml = ctypes.CDLL("libnvidia-ml.so.1"); nvml.nvmlInit_v2()
handle, use = c_void_p(), (ctypes.c_uint * 2)()
nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(handle))
nvml.nvmlDeviceGetUtilizationRates(handle, use); time.sleep(0.3)
nvml.nvmlDeviceGetUtilizationRates(handle, use)
said([codes, use[0] > 50])
"""
    assert said(device, script) == [[0, 0, 600], True], "and the program ends"


def test_what_waits_behind_a_fault_is_not_run(device: Client):
    script = """
a, b, done, data = stream(), stream(), event(), put("i", [0, 0])
launch(wait, 1, 1, flag, stream=a)
launch(function(module, "stray"), 1, 1, data, ctypes.c_longlong(1 << 22), stream=a)
launch(function(module, "stray"), 1, 1, data, ctypes.c_longlong(1), stream=a)
cuda.cuEventRecord(done, a)
cuda.cuStreamWaitEvent(b, done, ctypes.c_uint(0))
release(flag, stream())
said([code(cuda.cuStreamSynchronize, a), code(cuda.cuStreamSynchronize, b), code(cuda.cuEventSynchronize, done),
      busy(None)])
"""
    assert said(device, script) == [700] * 4


def test_work_under_way_is_not_a_forked_childs(device: Client):
    script = """
launch(wait, 1, 1, flag)
child = os.fork()
if not child:
    code(cuda.cuCtxSynchronize)
    os._exit(3)
ended = os.waitpid(child, 0)[1]
release(flag, stream())
cuda.cuCtxSynchronize()
said(os.WEXITSTATUS(ended))
"""
    assert said(device, script) == 3
