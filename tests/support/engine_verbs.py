"""The engine's second transport on a machine without RDMA: by a libibverbs of the tests' own (fake_verbs.c)."""

from __future__ import annotations

import atexit
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support import engine_run
from tests.support.engine_run import Carrier
from toolkit.engine import build

SOURCE = Path(__file__).with_name("fake_verbs.c")
#: What an end that cannot have verbs says, by what is faulty: variables of its environment, a pattern.
REFUSALS = {
    "no such address": ({"FAKE_VERBS_ADDRESSES": "10.1.2.3"}, "no RDMA port has the address 127.0.0.1 for RoCE v2"),
    "no device": ({"FAKE_VERBS_DIR": ""}, r"no RDMA port has the address 127.0.0.1 .*\(0 RDMA devices\)"),
    "port down": ({"FAKE_VERBS_FAULT": "down"}, "port 1 of fake_verbs0, which has the address 127.0.0.1, is down"),
    "memory": ({"FAKE_VERBS_FAULT": "memory"}, r"4096 KiB of memory cannot be locked .*ulimit -l"),
    "lost packets": ({"FAKE_VERBS_FAULT": "silent"}, "got no answer .*UDP port 4791"),
}
COUNTERS = struct.Struct("<3Q")
LACKS = build.missing_tools() or ("" if "verbs" in build.transports() else "missing package: libibverbs-dev")
#: What a client script does to learn the bytes of payload that its TCP connections have sent and got.
TCP_BYTES = """
def tcp_bytes():
    import socket, struct
    total = [0, 0]
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family == socket.AF_INET and one.type == socket.SOCK_STREAM:
                    told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
                    sent, got = struct.unpack_from("<QQ", told, 120)  # bytes acked, bytes received: linux/tcp.h
                    total[0] += sent
                    total[1] += got
        except OSError:
            pass
    return total
"""


@cache
def library() -> Path:
    """A folder with that libibverbs.so.1, built once for a test run."""
    folder = Path(tempfile.mkdtemp(prefix="eai-verbs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    words = ["gcc", "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-pthread"]
    words += ["-shared", "-o", str(folder / "libibverbs.so.1"), str(SOURCE)]
    subprocess.run(words, check=True)
    return folder


@dataclass
class Wire:
    """What has gone over the device so far."""

    folder: Path

    def told(self) -> tuple[int, int, int]:
        """Queue pairs ever, packets, bytes of payload."""
        path = self.folder / "counters"
        return COUNTERS.unpack(path.read_bytes()[: COUNTERS.size]) if path.exists() else (0, 0, 0)

    @property
    def bytes(self) -> int:
        """Of payload, in both directions."""
        return self.told()[2]


def settings(folder: Path, addresses: str = "127.0.0.1") -> dict[str, str]:
    """A device for a program, by its environment."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"FAKE_VERBS_DIR": str(folder), "FAKE_VERBS_ADDRESSES": addresses}


@contextmanager
def over_verbs(offered: str = "tcp,verbs") -> Iterator[Wire]:
    """All servers and clients of engine_run have the device; servers offer, and clients ask for, verbs."""
    with tempfile.TemporaryDirectory(prefix="eai-wire-") as wire:  # short: names of sockets have 108 bytes
        device = settings(Path(wire))
        before = engine_run.carrier
        engine_run.carrier = Carrier(
            ("--transport", offered), device, device | {"ELASTIC_AI_TRANSPORT": "verbs"}, str(library())
        )
        try:
            yield Wire(Path(wire))
        finally:
            engine_run.carrier = before
