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
        nvmlDeviceGetGraphicsRunningProcesses_v2 = staticmethod(lists(10))
        nvmlDeviceGetMPSComputeRunningProcesses_v2 = staticmethod(lists(8, 9))

    monkeypatch.setattr(nvml, "_opened", lambda: nullcontext(Driver))
    monkeypatch.setattr(nvml, "_handles", lambda _library: [None])
    monkeypatch.setattr(nvml, "_mig_handles", lambda *_: None)
    monkeypatch.setattr(nvml, "_text", lambda *_: "GPU-0")
    assert nvml.processes() == {"GPU-0": [7, 8, 9, 10]}


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


def test_a_driver_whose_third_version_is_another_structure_is_asked_for_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R535 up to .86: each entry of _v3 has 32 bytes there, and the second process would be read out of the first."""

    class Driver:
        nvmlDeviceGetUUID = None
        nvmlDeviceGetComputeRunningProcesses_v2 = staticmethod(lists(7, 8))

        @staticmethod
        def nvmlDeviceGetComputeRunningProcesses_v3(*_args: object) -> int:
            raise AssertionError("asked in a version that has two structures")

    monkeypatch.setattr(nvml, "_opened", lambda: nullcontext(Driver))
    monkeypatch.setattr(nvml, "_handles", lambda _library: [None])
    monkeypatch.setattr(nvml, "_mig_handles", lambda *_: None)
    monkeypatch.setattr(nvml, "_text", lambda *_: "GPU-0")
    assert nvml.processes() == {"GPU-0": [7, 8]}


def test_more_processes_than_there_was_room_for_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with many small programs must not hide one of them: an end would not see it."""
    rooms = []

    def query(handle: object, count: Any, infos: Any) -> int:
        rooms.append(count._obj.value)
        return 7 if count._obj.value < 300 else lists(*range(1, 301))(handle, count, infos)

    class Driver:
        nvmlDeviceGetUUID = None
        nvmlDeviceGetComputeRunningProcesses_v2 = staticmethod(query)

    monkeypatch.setattr(nvml, "_opened", lambda: nullcontext(Driver))
    monkeypatch.setattr(nvml, "_handles", lambda _library: [None])
    monkeypatch.setattr(nvml, "_mig_handles", lambda *_: None)
    monkeypatch.setattr(nvml, "_text", lambda *_: "GPU-0")
    assert (len(nvml.processes()["GPU-0"]), rooms) == (300, [256, 4096])
