"""Requests that want no reply: they travel together, in order, and none stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine_run import client_of, server
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
#: What the kernel counts of the connections: bytes that have arrived, segments with data (tcp_info of linux/tcp.h).
SENT = """
import socket, struct
def sent():
    found = [0, 0]
    for fd in map(int, os.listdir("/proc/self/fd")):
        try: one = socket.socket(fileno=os.dup(fd))
        except OSError: continue
        if one.family == socket.AF_INET:
            told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
            found[0] += struct.unpack_from("<Q", told, 120)[0]; found[1] += struct.unpack_from("<I", told, 156)[0]
        one.close()
    return found
"""


def test_requests_without_reply_travel_together_and_leave_by_themselves(tmp_path: Path):
    """2,000 of them in few packets; the last one leaves although no call comes after it."""
    script = """
start(); event = c_void_p(); cuda.cuEventCreate(byref(event), 2); record = cuda.library.cuEventRecord
before = sent()
failed = sum(record(event, None) != 0 for _ in range(2000))
until = time.monotonic() + 5
while sent()[0] - before[0] < 2000 * 80 and time.monotonic() < until: time.sleep(.01)
after = sent()
time.sleep(.3); record(event, None); record(event, None)  # after a pause, the first alone
time.sleep(.3); later = sent()
said([failed, after[0] - before[0], after[1] - before[1], later[0] - after[0], code(cuda.cuCtxSynchronize)])
"""
    with server(tmp_path) as s:
        failed, bytes_sent, segments, later, status = client_of(s).run(SENT + script)[0]
    assert (failed, bytes_sent, later, status) == (0, 2000 * 80, 2 * 80, 0)
    assert segments < 400, "each by itself costs a call of the system"


def test_order_holds_between_requests_with_and_without_reply(tmp_path: Path):
    """Small and large ones, from several threads that share a connection."""
    script = """
context = start(); wrong = []
def work(seed):
    cuda.cuCtxSetCurrent(context); stream = c_void_p(); cuda.cuStreamCreate(byref(stream), 1)
    n = 64 << 10; p = alloc(n); back = ctypes.create_string_buffer(n)
    for turn in range(40):
        size = (3, 100, 5000, n)[turn % 4]; data = bytes([seed * 50 + turn]) * size
        for value in range(20): cuda.cuMemsetD8Async(p, value, c_size_t(n), stream)
        cuda.cuMemcpyHtoDAsync_v2(p, data, c_size_t(size), stream)
        cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(n), stream); cuda.cuStreamSynchronize(stream)
        if back.raw != data + bytes([19]) * (n - size): wrong.append((seed, turn))
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
said(wrong)
"""
    with server(tmp_path) as s:
        assert client_of(s).run(script)[0] == []
