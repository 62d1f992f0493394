"""A `torch` with a GPU of the fake runtime, of so much as the launcher asks."""

import ctypes
import os
import sys
from types import SimpleNamespace

__version__ = "2.13.0"
_library = ctypes.CDLL(os.environ["FAKE_CUDART_PAST"] or os.environ["FAKE_CUDART_USER"])
_malloc = _library.cudaMalloc if os.environ["FAKE_CUDART_PAST"] else _library.user_malloc
_names = ("LD_PRELOAD", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
print("torch sees", {name: os.environ[name] for name in _names if name in os.environ}, file=sys.stderr)


def empty(_size: int, device: str) -> None:
    """A megabyte of the device, as torch's allocator takes two."""
    if _malloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 20)):
        raise RuntimeError("CUDA out of memory")


def _properties(_index: int) -> SimpleNamespace:
    return SimpleNamespace(
        name="Fake", major=9, minor=0, total_memory=8 << 20, multi_processor_count=1, uuid="0", warp_size=32,
        L2_cache_size=0, max_threads_per_multi_processor=1,
    )  # fmt: skip


version = SimpleNamespace(cuda="13.0")
backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 1))
distributed = SimpleNamespace(is_nccl_available=lambda: False)
cuda = SimpleNamespace(
    device_count=lambda: 1,
    get_arch_list=list,
    get_device_properties=_properties,
    get_rng_state=lambda _index: SimpleNamespace(numel=lambda: 16),
)


def get_num_threads() -> int:
    """One."""
    return 1
