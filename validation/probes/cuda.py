"""The CUDA driver API by ctypes, as probes need it: devices with their contexts, memory, streams, events, copies.

Any libcuda.so.1 will do: the driver's of real GPUs, or the emulated one of a lab. The only kernel that is ever started
is an empty one (gpu_kernel.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

LIBRARY = "libcuda.so.1"
EMULATED = "elasticAiEmulated"  # what the library of the lab's emulated devices exports, and none of NVIDIA's
PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
HINTS = {
    2: "the memory is taken by somebody else, or there is less than asked for",
    34: "this libcuda is the CUDA toolkit's stub and no driver's: look at LD_LIBRARY_PATH",
    46: "its compute mode is exclusive or prohibited, or somebody holds it",
    214: "an uncorrectable memory error: look at dmesg for NVRM and Xid 48, 63, 64, 94 or 95",
    220: "an NVLink error: look at dmesg for NVRM and Xid 74",
    100: "the driver shows this user no GPU: look at the rights of /dev/nvidia*, and at CUDA_VISIBLE_DEVICES",
    304: "may this user open /dev/nvidia*?",
    700: "look at dmesg for NVRM and Xid",
    719: "look at dmesg for NVRM and Xid",
    802: "the NVSwitch fabric is not ready: is nvidia-fabricmanager running?",
    803: "libcuda and the kernel module are of different versions: reload the module, or reboot",
    804: "CUDA's forward compatibility (cuda-compat) does not serve this GPU: take it off the loader's path",
    805: "its MPS control daemon or server does not answer: look at nvidia-cuda-mps-control",
    806: "its MPS server does not answer: look at nvidia-cuda-mps-control",
    807: "its MPS server is not ready: measure again",
    999: "look at dmesg for NVRM and Xid; of the very first call /dev/nvidia-uvm may be missing: modprobe nvidia_uvm, "
    "or nvidia-modprobe -u -c 0",
}
"""CUresult (cuda.h) -> what an operator looks at."""
NOT_READY = 600  # CUDA_ERROR_NOT_READY: its stream has work left
HELD = -2  # no CUresult: somebody works on it, by NVML
HOLDERS = (HELD, 2, 46)  # and with CUDA_ERROR_OUT_OF_MEMORY and _DEVICE_UNAVAILABLE somebody has it or its memory


class CudaError(Exception):
    """The driver is not there, or a call failed; in words. `code` is the CUresult, -1 without one."""

    def __init__(self, words: str, code: int = -1) -> None:
        """`words`: what failed and how."""
        super().__init__(words)
        self.code = code


class NoDriver(CudaError):
    """There is no library of the driver."""


class Cuda:
    """The driver API: `cuda.cuMemAlloc_v2(...)` raises CudaError unless it succeeds.

    `stuck`: a kernel does not end, and what gives memory back would wait for it: all is left to the process's end.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        """Load and start it; CudaError where it is not there or has no device."""
        os.environ.setdefault("CUDA_CACHE_DISABLE", "1")  # else the driver keeps code that it compiled in ~/.nv
        try:
            self.library = ctypes.CDLL(library)
        except OSError:
            raise NoDriver(f"no {library}: the GPU driver is not installed") from None
        self.emulated = hasattr(self.library, EMULATED)
        self.stuck = False
        self.cuInit(0)

    def __getattr__(self, name: str) -> Any:
        """A function of the driver API that raises CudaError unless it succeeds."""
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise CudaError(f"this driver has no {name}") from None

        def call(*arguments: Any) -> None:
            code = int(function(*arguments))
            if code:
                raise self.error(name, code)

        setattr(self, name, call)
        return call

    def error(self, name: str, code: int) -> CudaError:
        """What a function's CUresult says."""
        return CudaError(f"{name}: {self.error_name(code)} ({code})" + _hint(code), code)

    def error_name(self, code: int) -> str:
        """CUDA_ERROR_..., or "unknown error"."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"unknown error").decode()

    def version(self) -> int:
        """The API's, as 12040."""
        found = ctypes.c_int()
        self.cuDriverGetVersion(ctypes.byref(found))
        return found.value

    def count(self) -> int:
        """How many devices this process sees."""
        found = ctypes.c_int()
        self.cuDeviceGetCount(ctypes.byref(found))
        return found.value

    def host_alloc(self, size: int) -> int:
        """Address of pinned host memory, in bytes."""
        found = ctypes.c_void_p()
        self.cuMemHostAlloc(ctypes.byref(found), ctypes.c_size_t(size), ctypes.c_uint(PORTABLE))
        return found.value or 0

    def host_free(self, address: int) -> None:
        """Give it back."""
        if not self.stuck:
            self.cuMemFreeHost(ctypes.c_void_p(address))


def _hint(code: int) -> str:
    return f"; {HINTS[code]}" if code in HINTS else ""


class Device:
    """A device, its primary context, a stream and two timing events; `close` gives back all that was taken.

    `broken`: why it was not taken; whoever uses it gets this error.
    """

    def __init__(self, cuda: Cuda, ordinal: int, refused: str = "", code: int = HELD) -> None:
        """Look at device number `ordinal`, and take it, unless it is `refused` for a reason, with its CUresult."""
        self.cuda, self.ordinal = cuda, ordinal
        self.broken: CudaError | None = CudaError(refused, code) if refused else None
        self.name, self.uuid, self.address, self.memory_bytes = "", f"unknown-{ordinal}", "", 0
        self.device, self.context, self._blocks = ctypes.c_int(), ctypes.c_void_p(), list[ctypes.c_uint64]()
        self.stream, self.start, self.end = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self._look()
            if self.broken is None:
                self._take()
        except CudaError as fault:
            self.broken = CudaError(f"GPU {ordinal} of CUDA: {fault}", fault.code)

    def _look(self) -> None:
        """Who it is, which takes nothing of it."""
        cuda, size = self.cuda, ctypes.c_size_t()
        name, bus = ctypes.create_string_buffer(128), ctypes.create_string_buffer(32)
        uuid = (16 * ctypes.c_ubyte)()
        cuda.cuDeviceGet(ctypes.byref(self.device), self.ordinal)
        cuda.cuDeviceGetName(name, 128, self.device)
        newer = hasattr(cuda.library, "cuDeviceGetUuid_v2")  # since R470
        (cuda.cuDeviceGetUuid_v2 if newer else cuda.cuDeviceGetUuid)(uuid, self.device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(size), self.device)
        cuda.cuDeviceGetPCIBusId(bus, 32, self.device)
        digits = bytes(uuid).hex()
        self.name = name.value.decode(errors="replace")
        self.uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        self.address = bus.value.decode(errors="replace").lower()
        self.memory_bytes = size.value

    def _take(self) -> None:
        self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), self.device)
        self.use()
        self.cuda.cuStreamCreate(ctypes.byref(self.stream), ctypes.c_uint(1))  # CU_STREAM_NON_BLOCKING
        for event in (self.start, self.end):
            self.cuda.cuEventCreate(ctypes.byref(event), ctypes.c_uint(0))

    @property
    def held(self) -> bool:
        """Not taken, because somebody else has it or its memory."""
        return self.broken is not None and self.broken.code in HOLDERS

    def use(self) -> None:
        """Make its context current."""
        if self.broken is not None:
            raise self.broken
        self.cuda.cuCtxSetCurrent(self.context)

    def free_bytes(self) -> int:
        """Of its memory, what can still be had."""
        self.use()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return free.value

    def alloc(self, size: int) -> ctypes.c_uint64:
        """A block of its memory."""
        self.use()
        block = ctypes.c_uint64()
        self.cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size))
        self._blocks.append(block)
        return block

    def wait(self) -> None:
        """Until its stream is done."""
        self.cuda.cuStreamSynchronize(self.stream)

    def elapsed_s(self) -> float:
        """Seconds between its two events."""
        found = ctypes.c_float()
        self.cuda.cuEventElapsedTime(ctypes.byref(found), self.start, self.end)
        return found.value / 1e3

    def close(self) -> None:
        """Give everything back; a device that no longer answers gives it back when the process ends."""
        if not self.context or self.cuda.stuck:
            return
        with contextlib.suppress(CudaError):
            self.cuda.cuCtxSetCurrent(self.context)
            for block in self._blocks:
                self.cuda.cuMemFree_v2(block)
            for event in filter(None, (self.start, self.end)):
                self.cuda.cuEventDestroy_v2(event)
            if self.stream:
                self.cuda.cuStreamDestroy_v2(self.stream)
        with contextlib.suppress(CudaError):
            self.cuda.cuDevicePrimaryCtxRelease_v2(self.device)
