"""The functions of torch._C that torch.cuda calls; a wheel for processors lacks them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from elastic_ai_torch import overrides, streams
from elastic_ai_torch.client import Client
from elastic_ai_torch.devices import Devices, _CudaDeviceProperties
from elastic_ai_torch.memory import Memory
from elastic_ai_torch.refusals import refusal, refuse


def install(client: Client) -> None:
    """All of them, each a function of its own."""
    devices, memory = Devices(client), Memory(client)
    core = torch._C
    for name, function in {**_device_names(client, devices), **_memory_names(memory), **_settings(client)}.items():
        setattr(core, name, _named(name, function))
    core._has_cuda = core._has_cudnn = True
    core._CudaDeviceProperties = _CudaDeviceProperties
    cuda = torch.cuda
    cuda._CudaDeviceProperties = _CudaDeviceProperties
    cuda._get_device_properties = devices.properties
    cuda._is_in_bad_fork = core._cuda_isInBadFork
    cuda._exchange_device = core._cuda_exchangeDevice
    cuda._maybe_exchange_device = core._cuda_maybeExchangeDevice
    cuda._device_count_nvml = lambda: -1  # NVML would count this machine's own
    cuda._cudart = core._cudart = Cudart(memory)
    streams.install(client)
    torch.version.cuda = client.cuda_version()


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own with that name: dynamo tells functions apart by the object."""

    def named(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    named.__name__ = named.__qualname__ = name
    return named


def _device_names(client: Client, devices: Devices) -> dict[str, Callable[..., Any]]:
    library = client.library

    def initialise() -> None:
        if not client.initialised():
            client.initialise()
            overrides.check(library)

    def exchange(device: int) -> int:
        before = library.device()
        if device >= 0:
            library.set_device(device)
        return before

    def maybe_exchange(device: int) -> int:
        return exchange(device)

    def arch_flags() -> str:
        return " ".join(client.first().get("arch_list") or [])

    def compiled_version() -> int:
        major, _, minor = client.cuda_version().partition(".")
        return int(major) * 1000 + int(minor.partition(".")[0] or 0) * 10

    def nccl_version() -> int:
        major, minor, patch = client.first().get("nccl") or (0, 0, 0)
        return int(major) << 32 | int(minor) << 16 | int(patch)

    return {
        "_cuda_init": initialise,
        "_cuda_getDeviceCount": lambda: client.count(),
        "_cuda_isInBadFork": lambda: library.in_bad_fork(),
        "_cuda_hasPrimaryContext": lambda device: library.memory(device)[6] > 0,  # of a server that is connected
        "_cuda_getDevice": lambda: library.device(),
        "_cuda_setDevice": lambda device: library.set_device(device),
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": maybe_exchange,
        "_cuda_synchronize": lambda: library.synchronize(-1),
        "_cuda_canDeviceAccessPeer": devices.same_server,
        "_cuda_getArchFlags": arch_flags,
        "_cuda_getCompiledVersion": compiled_version,
        "_nccl_version": nccl_version,
        "_nccl_version_suffix": lambda: b"",
    }


def _memory_names(memory: Memory) -> dict[str, Callable[..., Any]]:
    def caching(enabled: bool) -> None:
        if not enabled:
            refuse("caching_allocator_enable(False)", "the allocator is the server's")

    return {
        "_cuda_emptyCache": memory.empty_cache,
        "_cuda_memoryStats": memory.stats,
        "_cuda_resetPeakMemoryStats": memory.reset_peak,
        "_cuda_resetAccumulatedMemoryStats": memory.reset_accumulated,
        "_cuda_hostMemoryStats": dict,
        "_cuda_resetPeakHostMemoryStats": lambda: None,
        "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
        "_cuda_setMemoryFraction": memory.set_fraction,
        "_cuda_getMemoryFraction": memory.fraction,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_enable": caching,
        "_host_emptyCache": lambda: None,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_clearCublasWorkspaces": lambda: None,
    }


def _settings(client: Client) -> dict[str, Callable[..., Any]]:
    """What is only remembered: it changes nothing that a program can see."""
    kept: dict[str, Any] = {"sync": 0, "cudnn_limit": 10, "cublas": 0, "cublaslt": 0, "empty_cache": False}

    def getter(name: str) -> Callable[[], Any]:
        return lambda: kept[name]

    def setter(name: str) -> Callable[[Any], None]:
        return lambda value: kept.__setitem__(name, value)

    def resetter(name: str) -> Callable[[], None]:
        return lambda: kept.__setitem__(name, 0)

    return {
        "_cuda_get_sync_debug_mode": getter("sync"),
        "_cuda_set_sync_debug_mode": setter("sync"),
        "_cuda_get_cudnn_benchmark_limit": getter("cudnn_limit"),
        "_cuda_set_cudnn_benchmark_limit": setter("cudnn_limit"),
        "_cuda_getCublasWorkspaceSize": getter("cublas"),
        "_cuda_setCublasWorkspaceSize": setter("cublas"),
        "_cuda_resetCublasWorkspaceSize": resetter("cublas"),
        "_cuda_getCublasLtWorkspaceSize": getter("cublaslt"),
        "_cuda_setCublasLtWorkspaceSize": setter("cublaslt"),
        "_cuda_resetCublasLtWorkspaceSize": resetter("cublaslt"),
        "_cuda_get_conv_benchmark_empty_cache": getter("empty_cache"),
        "_cudnn_set_conv_benchmark_empty_cache": setter("empty_cache"),
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_tunableop_tuning_is_enabled": lambda: False,
        "_cuda_record_untuned_is_enabled": lambda: False,
        "_cuda_isHistoryEnabled": lambda: False,
    }


class Cudart:
    """torch.cuda.cudart(): what torch itself asks, profiling markers do nothing, all else refuses."""

    class cudaError(int):
        """A result of cudart."""

        success = 0

    cudaOutputMode = types.SimpleNamespace(KeyValuePair=0, CSV=1)

    def __init__(self, memory: Memory) -> None:
        """With the count of memory."""
        self._memory = memory

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        """Free and total of the lease's part."""
        return self._memory.info(device)

    def cudaGetErrorString(self, error: int) -> str:
        """Text of a result."""
        return "no error" if int(error) == 0 else f"error {int(error)}"

    def cudaProfilerStart(self) -> int:
        """Nothing is profiled here."""
        return 0

    def cudaProfilerStop(self) -> int:
        """Nothing is profiled here."""
        return 0

    def __getattr__(self, name: str) -> Any:
        """Whatever else cudart has."""
        if name.startswith("__"):
            raise AttributeError(name)
        return refusal(f"torch.cuda.cudart().{name}")
