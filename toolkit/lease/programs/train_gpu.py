"""A device as elastic-ai-train uses it: memory, a stream, kernels by name; everything that it asks for is counted."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolkit.lease.programs.copybench import Cuda, CudaError

LOG_BYTES = 4096
ERROR_LOG, ERROR_LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, ..._SIZE_BYTES of cuda.h
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
NO_BINARY, INVALID_PTX, NEWER_PTX, NOT_SUPPORTED, ILLEGAL_ADDRESS = 209, 218, 222, 801, 700  # CUresult
#: What a person does about it; the driver's own words come before.
REMEDIES = {
    NO_BINARY: "the code is for another architecture than this GPU's",
    INVALID_PTX: "the driver's compiler does not take the code",
    NEWER_PTX: "the driver is older than the code: it needs PTX 6.0, which CUDA 9.0 came with",
    NOT_SUPPORTED: "the engine or the driver here lacks what the program needs",
    ILLEGAL_ADDRESS: "a kernel met an illegal address; what the program held on that GPU is lost",
}


@dataclass
class Counted:
    """What a program asked of its devices. Bytes are those of copies between host and devices."""

    launches: int = 0
    bytes_to_devices: int = 0
    bytes_from_devices: int = 0
    synchronisations: int = 0


def said(fault: CudaError) -> str:
    """One sentence for a failed call."""
    remedy = REMEDIES.get(fault.code)
    return f"{fault}; {remedy}" if remedy else str(fault)


class Pinned:
    """Pinned host memory of so many bytes."""

    def __init__(self, cuda: Cuda, size: int) -> None:
        """CudaError where there is none."""
        found = ctypes.c_void_p()
        cuda.cuMemHostAlloc(ctypes.byref(found), ctypes.c_size_t(size), ctypes.c_uint(PORTABLE))
        self.address, self.size = found.value or 0, size

    def write(self, data: bytes) -> None:
        """From its beginning."""
        ctypes.memmove(self.address, data, len(data))

    def read(self, size: int) -> bytes:
        """So many bytes from its beginning."""
        return ctypes.string_at(self.address, size)


class Gpu:
    """A device with its primary context. CudaError where a call fails."""

    def __init__(self, cuda: Cuda, ordinal: int, code: bytes, counted: Counted) -> None:
        """Take device number `ordinal` and give it the code."""
        self.cuda, self.ordinal, self.counted = cuda, ordinal, counted
        device, name, uuid = ctypes.c_int(), ctypes.create_string_buffer(128), (16 * ctypes.c_ubyte)()
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        cuda.cuDeviceGetName(name, 128, device)
        cuda.cuDeviceGetUuid_v2(uuid, device)
        digits = bytes(uuid).hex()
        self.name = name.value.decode(errors="replace")
        self.uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        self.context, self.stream, self.module = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device)
        self.use()
        cuda.cuStreamCreate(ctypes.byref(self.stream), ctypes.c_uint(NON_BLOCKING))
        self._load(code)
        self._functions: dict[str, ctypes.c_void_p] = {}

    def _load(self, code: bytes) -> None:
        """With the words of the driver's compiler, where it has any."""
        log = ctypes.create_string_buffer(LOG_BYTES)
        names = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        try:
            self.cuda.cuModuleLoadDataEx(ctypes.byref(self.module), code, 2, names, values)
        except CudaError as fault:
            words = " ".join(log.value.decode(errors="replace").split())
            text = self.cuda.error_name(fault.code)
            raise CudaError(fault.call, fault.code, f"{text}: {words}" if words else text) from None

    def use(self) -> None:
        """Make its context current."""
        self.cuda.cuCtxSetCurrent(self.context)

    def alloc(self, size: int) -> ctypes.c_uint64:
        """A block of its memory, zero to begin with."""
        block = ctypes.c_uint64()
        self.cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size))
        self.cuda.cuMemsetD8_v2(block, 0, ctypes.c_size_t(size))
        return block

    def launcher(self, name: str, grid: tuple[int, int], block: tuple[int, int], *values: Any) -> Callable[[], None]:
        """A function that launches the kernel with these parameters each time."""
        if name not in self._functions:
            self._functions[name] = ctypes.c_void_p()
            self.cuda.cuModuleGetFunction(ctypes.byref(self._functions[name]), self.module, name.encode())
        given = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        shape = (*grid, 1, *block, 1, 0)
        function, stream, launch, counted = self._functions[name], self.stream, self.cuda.cuLaunchKernel, self.counted

        def launched(_held: Any = values) -> None:  # the driver reads them where they are
            launch(function, *shape, stream, given, None)
            counted.launches += 1

        return launched

    def take(self, to: Any, host: Pinned, size: int, offset: int = 0) -> None:
        """Bytes of pinned memory from `offset` on, in the order of its stream."""
        source = ctypes.c_void_p(host.address + offset)
        self.cuda.cuMemcpyHtoDAsync_v2(to, source, ctypes.c_size_t(size), self.stream)
        self.counted.bytes_to_devices += size

    def give(self, host: Pinned, source: Any, size: int) -> None:
        """Bytes to pinned memory, in the order of its stream."""
        self.cuda.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(host.address), source, ctypes.c_size_t(size), self.stream)
        self.counted.bytes_from_devices += size

    def wait(self) -> None:
        """Until its stream is done."""
        self.cuda.cuStreamSynchronize(self.stream)
        self.counted.synchronisations += 1
