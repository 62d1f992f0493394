"""What leases are told of GPUs by NVML, as far as no emulated device says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.nvml_driver import GPU_IS_LOST, NOT_SUPPORTED, Driver, drive, number
from toolkit.lease import LeaseError
from toolkit.lease.machine import nvml


def lists(*pids: int) -> Callable[..., int]:
    """A driver's function that names these processes."""

    def query(_self: object, _handle: object, count: Any, infos: Any) -> int:
        count._obj.value = len(pids)
        for info, pid in zip(infos, pids, strict=False):
            info.pid = pid
        return 0

    return query


def test_clients_of_mps_are_seen_on_a_gpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML lists them apart: an end that leaves one of them must drain the server."""

    class Mps(Driver):
        nvmlDeviceGetComputeRunningProcesses_v3 = lists(7, 8)
        nvmlDeviceGetGraphicsRunningProcesses_v2 = lists(10)
        nvmlDeviceGetMPSComputeRunningProcesses_v2 = lists(8, 9)

    drive(monkeypatch, Mps())
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
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], cores: int, sms: int | None
) -> None:
    class Counted(Driver):
        def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
            memory._obj.total = 16 << 30
            return 0

        def nvmlDeviceGetNumGpuCores(self, handle: Any, into: Any) -> int:
            into._obj.value = cores
            return 0

        def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
            major._obj.value, minor._obj.value = capability
            return 0

    drive(monkeypatch, Counted())
    [gpu] = nvml.gpus()
    assert (gpu.sm_count, gpu.memory_mib, gpu.reserved_mib, gpu.index) == (sms, 16384, 0, 0)
    monkeypatch.delattr(Counted, "nvmlDeviceGetNumGpuCores")  # a driver before R470
    drive(monkeypatch, Counted())
    assert nvml.gpus()[0].sm_count is None


def test_a_driver_whose_third_version_is_another_structure_is_asked_for_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R535 up to .86: each entry of _v3 has 32 bytes there, and the second process would be read out of the first."""

    class Early(Driver):
        nvmlDeviceGetComputeRunningProcesses_v2 = lists(7, 8)

        def nvmlDeviceGetComputeRunningProcesses_v3(self, *_args: object) -> int:
            raise AssertionError("asked in a version that has two structures")

    drive(monkeypatch, Early())
    assert nvml.processes() == {"GPU-0": [7, 8]}


def test_more_processes_than_there_was_room_for_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with many small programs must not hide one of them: an end would not see it."""
    rooms = []

    class Crowded(Driver):
        def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: object, count: Any, infos: Any) -> int:
            rooms.append(count._obj.value)
            return 7 if count._obj.value < 5000 else lists(*range(1, 5001))(self, handle, count, infos)

    drive(monkeypatch, Crowded())
    assert (len(nvml.processes()["GPU-0"]), rooms) == (5000, [64, 4096, 65536])


def test_a_gpu_that_does_not_say_how_busy_it_is_costs_no_other_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Three(Driver):
        gpus = 3

        def nvmlDeviceGetUtilizationRates(self, handle: Any, into: Any) -> int:
            into._obj.gpu = 40 + number(handle)
            return (0, NOT_SUPPORTED, GPU_IS_LOST)[number(handle)]

    drive(monkeypatch, Three())
    assert nvml.utilisation() == {"GPU-0": 40, "GPU-1": None, "GPU-2": None}


@pytest.mark.parametrize("lacks", ["nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"])
def test_a_gpu_that_does_not_say_what_it_is_is_not_lent(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    class Silent(Driver):
        def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
            return 0

    drive(monkeypatch, Silent())
    assert len(nvml.gpus()) == 1
    monkeypatch.setattr(Silent, lacks, lambda *_: NOT_SUPPORTED, raising=False)
    drive(monkeypatch, Silent())
    with pytest.raises(LeaseError, match="GPU 0 does not say what it is"):
        nvml.gpus()


def test_a_server_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.nvml.Nvml.__init__.__defaults__", ("libnvidia-ml-of-nobody.so.1",))
    with pytest.raises(LeaseError, match=r"no libnvidia-ml-of-nobody\.so\.1: the GPU driver is not installed"):
        nvml.gpus()
