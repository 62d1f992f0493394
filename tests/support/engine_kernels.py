"""Programs that launch the toolkit's kernels: to be put before a client's script."""

from __future__ import annotations

import functools

from toolkit.engine import host_modules

CHECKS = host_modules.KERNELS / "checks.cu"
LAUNCHES = f"""
import array, struct
PTX = open({str(CHECKS.with_suffix(".ptx"))!r}, "rb").read()
def load(image=None):
    module = c_void_p()
    cuda.cuModuleLoadData(byref(module), image or PTX)
    return module
def function(module, name):
    found = c_void_p()
    cuda.cuModuleGetFunction(byref(found), module, name.encode())
    return found
def launch(f, grid, block, *values, shared=0, stream=None):
    grid, block = [tuple(s) + (1,) * (3 - len(s)) if isinstance(s, tuple) else (s, 1, 1) for s in (grid, block)]
    given = (c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    cuda.cuLaunchKernel(f, *grid, *block, shared, stream, given, None)
def put(kind, values):
    data = array.array(kind, values)
    at, size = data.buffer_info()[0], len(data) * data.itemsize
    pointer = alloc(size)
    cuda.cuMemcpyHtoD_v2(pointer, c_void_p(at), c_size_t(size))
    return pointer
def got(kind, pointer, count):
    data = array.array(kind, [0] * count)
    cuda.cuMemcpyDtoH_v2(c_void_p(data.buffer_info()[0]), pointer, c_size_t(count * data.itemsize))
    return data.tolist()
"""


@functools.cache
def archived() -> bytes:
    """The checks' PTX with their host module."""
    return host_modules.archive(CHECKS, CHECKS.with_suffix(".ptx").read_bytes())
