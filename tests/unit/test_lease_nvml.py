"""What NVML says, as far as no emulated device says it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from toolkit.lease import nvml


def lists(*pids: int) -> Callable[..., int]:
    """A driver's function that names these processes."""

    def query(_handle: object, count: Any, infos: Any) -> int:
        count._obj.value = len(pids)
        for info, pid in zip(infos, pids, strict=False):
            info.pid = pid
        return 0

    return query


def test_clients_of_mps_are_seen_on_a_gpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML lists them apart: an end that leaves one of them must drain the server."""

    class Driver:
        nvmlDeviceGetUUID = None
        nvmlDeviceGetComputeRunningProcesses_v3 = staticmethod(lists(7, 8))
        nvmlDeviceGetMPSComputeRunningProcesses_v2 = staticmethod(lists(8, 9))

    monkeypatch.setattr(nvml, "_opened", lambda: nullcontext(Driver))
    monkeypatch.setattr(nvml, "_handles", lambda _library: [None])
    monkeypatch.setattr(nvml, "_mig_handles", lambda *_: None)
    monkeypatch.setattr(nvml, "_text", lambda *_: "GPU-0")
    assert nvml.processes() == {"GPU-0": [7, 8, 9]}


@pytest.mark.parametrize(
    ("capability", "cores", "sms"),
    [
        ((6, 0), 3584, 56),  # P100
        ((6, 1), 3840, 30),  # P40
        ((7, 0), 5120, 80),  # V100
        ((8, 0), 6912, 108),  # A100
        ((9, 0), 16896, 132),  # H100 SXM5
        ((10, 3), 20480, 160),  # B300
        ((12, 1), 6144, 48),  # GB10
        ((99, 0), 6144, None),  # of which nothing is known
    ],
)
def test_multiprocessors_follow_from_cores_by_generation(
    capability: tuple[int, int], cores: int, sms: int | None
) -> None:
    def counted(_handle: object, into: Any) -> int:
        into._obj.value = cores
        return 0

    def told(_handle: object, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = capability
        return 0

    class Driver:
        nvmlDeviceGetNumGpuCores = staticmethod(counted)
        nvmlDeviceGetCudaComputeCapability = staticmethod(told)

    assert nvml._sm_count(Driver, nvml.ctypes.c_void_p()) == sms
