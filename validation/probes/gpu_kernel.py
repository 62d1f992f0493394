"""An empty kernel on a GPU: that it ends, and how long a launch takes until the GPU is done.

The code is PTX, which the driver compiles for its GPU; it asks for nothing newer than Pascal and CUDA 9.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from validation.probes.cuda import NOT_READY, Device

ENDLESS_S = 10.0  # after which an empty kernel counts as one that never ends; it takes microseconds
TRIES = 10  # launches that are not timed
PTX = """\
// empty.cu, sha256 6452a75de05b00b3eebc72cc8055b55de1ef41d4f1349d8e347760077bfbcc44
// nvcc 13.0.88 -ptx -arch=compute_75 -fmad=false -O3; compiled by ptxas for sm_60 sm_61 sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120; see tools/make_ptx.py

.version 6.0
.target sm_60
.address_size 64

	// .globl	empty

.visible .entry empty()
{



	ret;

}
"""  # noqa: E501 - byte by byte
"""As engine/kernels/empty.ptx, by whose bytes an emulated GPU finds its own code."""


class Endless(Exception):
    """A kernel has not ended: nothing on this GPU ever will, and nobody may wait for it."""


def loaded(gpu: Device, ptx: str, name: bytes) -> ctypes.c_void_p:
    """A kernel of a text; CudaError where the GPU does not take its code."""
    gpu.use()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    gpu.cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(ptx.encode()))
    gpu.cuda.cuModuleGetFunction(ctypes.byref(function), module, name)
    return function


def empty(gpu: Device) -> Callable[[], None]:
    """What launches the kernel on the GPU's stream; CudaError where its code is not taken."""
    function = loaded(gpu, PTX, b"empty")
    one, none = ctypes.c_uint(1), ctypes.c_uint(0)
    call, stream = gpu.cuda.cuLaunchKernel, gpu.stream
    return lambda: call(function, one, one, one, one, one, one, none, stream, None, None)


def wait(gpu: Device) -> None:
    """Until the GPU's stream is done, by asking it; Endless where it is not after ENDLESS_S, CudaError as it says."""
    until, query, stream = time.monotonic() + ENDLESS_S, gpu.cuda.library.cuStreamQuery, gpu.stream
    while code := int(query(stream)):  # without an exception each time, which takes longer than a kernel
        if code != NOT_READY:
            raise gpu.cuda.error("cuStreamQuery", code)
        if time.monotonic() > until:
            gpu.cuda.stuck = True
            raise Endless(f"GPU {gpu.ordinal} of CUDA: an empty kernel had not ended after {ENDLESS_S:g} s")


def latencies_us(gpu: Device, launch: Callable[[], None], count: int) -> list[float]:
    """Microseconds of each launch until the GPU is done; errors as of `wait`."""
    found = []
    for number in range(TRIES + count):
        began = time.perf_counter()
        launch()
        wait(gpu)
        if number >= TRIES:
            found.append(round((time.perf_counter() - began) * 1e6, 2))
    return found
