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
