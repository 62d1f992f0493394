"""What a tenant's program does in a lease, for the probes of remoting: each prints one line of JSON.

    python -m validation.probes.remoting_attempts device              its devices: UUIDs, memory
    python -m validation.probes.remoting_attempts take SHARE          allocate that share of the part's memory
    python -m validation.probes.remoting_attempts twice SHARE         the same in two programs of one lease at a time
    python -m validation.probes.remoting_attempts fill                when told: take all of it, write it, hold it
    python -m validation.probes.remoting_attempts crash               allocate, copy, and die of SIGKILL
    python -m validation.probes.remoting_attempts connect HOST PORT   a plain connection: kept, or not

What its share of the device comes to, the lease says (ELASTIC_AI_GPUS); a device may show its whole size.
`code` is the CUresult of the call that failed, 0 where none did.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

KEPT_S = 3.0  # a server that refuses closes at once; one that still listens after so long has accepted
MIB = 1 << 20
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
PAGE = 2 * MIB  # allocations of the CUDA driver are multiples of it


class CudaError(Exception):
    """A call failed; its name and CUresult."""

    def __init__(self, call: str, code: int) -> None:
        """Keep both."""
        super().__init__(f"{call}: {code}")
        self.code = code


class Cuda:
    """The first device of the driver library that the dynamic linker finds."""

    def __init__(self) -> None:
        """Open it; CudaError where the library refuses."""
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the driver API by its name in the library."""
        code = int(getattr(self.library, name)(*arguments))
        if code:
            raise CudaError(name, code)

    def count(self) -> int:
        """Number of devices."""
        found = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def device(self, ordinal: int) -> dict[str, Any]:
        """UUID, name and memory of a device."""
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        name, total = ctypes.create_string_buffer(128), ctypes.c_size_t()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDeviceGetUuid_v2", uuid, device)
        self.call("cuDeviceGetName", name, 128, device)
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        digits = bytes(uuid).hex()
        dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        return {"uuid": f"GPU-{dashed}", "name": name.value.decode("utf-8", "replace"), "total_bytes": total.value}

    def use(self) -> None:
        """Take the first device's primary context."""
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> ctypes.c_uint64:
        """Memory of the first device."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer


def device() -> dict[str, Any]:
    """All devices that the program sees."""
    cuda = Cuda()
    return {"devices": [cuda.device(i) for i in range(cuda.count())]}


def part() -> dict[str, Any]:
    """The first GPU of the lease, as `toolkit run` tells its programs; OSError where it does not."""
    try:
        return dict(json.loads(os.environ["ELASTIC_AI_GPUS"])[0])
    except (KeyError, ValueError, IndexError):
        raise OSError("this program was not started by toolkit run: ELASTIC_AI_GPUS does not name a GPU") from None


def take(share: str, hold: bool = False) -> dict[str, Any]:
    """Allocate a share of what the lease has of the device, and write to its ends."""
    cuda, total = Cuda(), int(part()["memory_bytes"])
    cuda.use()
    size = int(total * float(share))
    found = {"total_bytes": total, "asked_bytes": size}
    try:
        pointer = cuda.allocate(size)
        for at in (0, size - 4):
            cuda.call("cuMemsetD8_v2", ctypes.c_uint64(pointer.value + at), 7, ctypes.c_size_t(4))
    except CudaError as fault:
        return {**found, "code": fault.code}
    if hold:
        print(json.dumps({**found, "code": 0}), flush=True)
        sys.stdin.readline()
    return {**found, "code": 0}


def twice(share: str) -> dict[str, Any]:
    """A second program of the same lease beside one that holds its share."""
    here = [sys.executable, "-m", "validation.probes.remoting_attempts"]
    with subprocess.Popen(
        [*here, "hold", share], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    ) as first:
        assert first.stdout is not None
        held = json.loads(first.stdout.readline() or '{"code": -1}')
        second = subprocess.run([*here, "take", share], capture_output=True, text=True, cwd="/", check=False)
        found = json.loads(second.stdout.splitlines()[-1] if second.stdout.strip() else '{"code": -1}')
        if first.stdin is not None:
            first.stdin.write("\n")
    return {"first": held["code"], "code": found["code"]}


def fill() -> dict[str, Any]:
    """All of the part's memory, all of it written, in steps from a quarter down to a page; begun when a line comes (one
    goes out before: the context is there), and held until the input ends."""
    cuda = Cuda()
    about = {**cuda.device(0), "total_bytes": int(part()["memory_bytes"])}
    cuda.use()
    print(json.dumps(about), flush=True)
    if not sys.stdin.readline():
        return about
    taken, size = 0, max(int(about["total_bytes"]) // 4 // PAGE * PAGE, PAGE)
    code = 0
    while size >= PAGE:
        try:
            pointer = cuda.allocate(size)
        except CudaError as fault:
            code, size = fault.code, size // 2 // PAGE * PAGE
            if code != OUT_OF_MEMORY:
                break
            continue
        cuda.call("cuMemsetD8_v2", pointer, 7, ctypes.c_size_t(size))
        taken += size
    found = {**about, "taken_bytes": taken, "code": code}
    print(json.dumps(found), flush=True)
    sys.stdin.read()
    return found


def crash() -> dict[str, Any]:
    """Dies in the middle of its work, as a broken program does."""
    cuda = Cuda()
    cuda.use()
    size = 4 * MIB
    pointer, block = cuda.allocate(size), ctypes.create_string_buffer(size)
    cuda.call("cuMemcpyHtoD_v2", pointer, block, ctypes.c_size_t(size))
    print(json.dumps({"code": 0}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def connect(host: str, port: str) -> dict[str, Any]:
    """A plain connection: refused, dropped, closed by the server, answered or kept; or untried, and why."""
    began, how, why = time.monotonic(), "kept", ""
    try:
        with socket.create_connection((host, int(port)), timeout=KEPT_S) as connection:
            connection.settimeout(KEPT_S)
            try:
                how = "answered" if connection.recv(1) else "closed"
            except OSError as fault:  # Python 3.9 knows a timeout as socket.timeout alone
                how = "kept" if isinstance(fault, socket.timeout) else "closed"
    except socket.gaierror as fault:
        how, why = "untried", str(fault.strerror)
    except OSError as fault:
        late = isinstance(fault, socket.timeout)
        how, why = ("dropped", "") if late else ("refused", os.strerror(fault.errno) if fault.errno else str(fault))
    return {"how": how, "why": why, "after_s": round(time.monotonic() - began, 3)}


def main(words: list[str]) -> int:
    """Run one; what it found goes to stdout."""
    programs = {
        "device": device, "take": take, "twice": twice, "fill": fill, "crash": crash, "connect": connect,
        "hold": lambda share: take(share, hold=True),
    }  # fmt: skip
    try:
        found = programs[words[0]](*words[1:])  # type: ignore[operator]
    except CudaError as fault:
        found = {"code": fault.code, "refused": str(fault)}
    except OSError as fault:
        found = {"code": -1, "refused": str(fault)}
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
