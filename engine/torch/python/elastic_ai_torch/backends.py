"""cuDNN's and cuFFT's settings, NVTX, profiler, TorchScript's fuser: what a wheel for processors has not."""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

import torch

from elastic_ai_torch.client import Client

_EMULATED_CUDNN = 91000  # of a server of processors, which has none


def install(client: Client) -> None:
    """All of them."""
    _cudnn(client)
    _nvtx()
    _plan_cache()
    _profiler()
    torch._C._jit_override_can_fuse_on_gpu(False)  # its fuser makes kernels for a GPU that is here


def _cudnn(client: Client) -> None:
    """torch.backends.cudnn.version() is the server's, or an emulated one's: programs compare it with a number."""

    def version() -> int:
        told = client.first()
        return int(told.get("cudnn") or (_EMULATED_CUDNN if told.get("emulated") else 0))

    module = torch.backends.cudnn.m if hasattr(torch.backends.cudnn, "m") else torch.backends.cudnn
    module.version = version
    module._init = lambda: True
    runtime = types.ModuleType("torch._C._cudnn")
    runtime.is_cuda = True  # type: ignore[attr-defined]
    runtime.getVersionInt = version  # type: ignore[attr-defined]
    runtime.getRuntimeVersion = runtime.getCompileVersion = lambda: _three(version())  # type: ignore[attr-defined]
    torch._C._cudnn = runtime


def _three(version: int) -> tuple[int, int, int]:
    """cuDNN's 91002 as 9, 10, 2; its 8907 as 8, 9, 7."""
    unit = 10000 if version >= 90000 else 1000
    return version // unit, version % unit // 100, version % 100


class _Marks:
    """NVTX without a profiler: depth and handles as it gives them, and nothing else."""

    def __init__(self) -> None:
        self._depth = 0
        self._handles = itertools.count(1)

    def rangePushA(self, message: str) -> int:
        self._depth += 1
        return self._depth - 1

    def rangePop(self) -> int:
        self._depth = max(self._depth - 1, 0)
        return self._depth

    def rangeStartA(self, message: str) -> int:
        return next(self._handles)

    def rangeEnd(self, handle: int) -> None:
        return None

    def markA(self, message: str) -> None:
        return None

    def deviceRangeStart(self, message: str, stream: Any = None) -> int:
        return next(self._handles)

    def deviceRangeEnd(self, handle: int, stream: Any = None) -> None:
        return None


def _nvtx() -> None:
    torch.cuda.nvtx._nvtx = torch._C._nvtx = _Marks()

    def device_range_start(message: str, stream: Any = 0) -> int:
        return int(torch.cuda.nvtx._nvtx.rangeStartA(message))

    torch.cuda.nvtx._device_range_start = device_range_start
    torch.cuda.nvtx._device_range_end = lambda handle, stream=0: None


def _profiler() -> None:
    """torch.profiler sees this machine: the GPU's own times are not in its tables, which is said once."""
    theirs = torch.autograd.profiler
    own = theirs.profile.__init__
    said: list[bool] = []

    def __init__(self: Any, *arguments: Any, use_device: Any = None, use_cuda: bool = False, **named: Any) -> None:
        if use_device == "cuda" or use_cuda:
            use_device = None
            if not said:
                said.append(True)
                print(
                    "torch.profiler: the times are this machine's; those of a leased GPU's kernels are not seen",
                    file=sys.stderr,
                )
        own(self, *arguments, use_device=use_device, **named)

    theirs.profile.__init__ = __init__

    def nothing(self: Any, *_: Any) -> Any:
        return self

    theirs.emit_nvtx.__enter__, theirs.emit_nvtx.__exit__ = nothing, lambda self, *_: False


def _plan_cache() -> None:
    """torch.backends.cuda.cufft_plan_cache: plans are kept by the server; here only the size that was set."""
    sizes: dict[int, int] = {}
    theirs = torch.backends.cuda
    prop = theirs.cuFFTPlanCacheAttrContextProp
    theirs.cuFFTPlanCache.size = prop(
        lambda device: 0, ".size is a read-only property showing the number of plans currently in the cache. "
        "To change the cache capacity, set cufft_plan_cache.max_size."
    )  # fmt: skip
    theirs.cuFFTPlanCache.max_size = prop(
        lambda device: sizes.get(int(device), 4096), lambda device, size: sizes.__setitem__(int(device), int(size))
    )
    theirs.cuFFTPlanCache.clear = lambda self: None
