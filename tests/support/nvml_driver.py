"""A driver of NVML in Python: what its functions write, as ctypes passes it. Tests add what theirs says."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

NOT_SUPPORTED, GPU_IS_LOST = 3, 15  # nvmlReturn_t


class Driver:
    """One GPU that says who it is and nothing else; what it lacks is a function that this driver has not."""

    gpus, lost = 1, ()

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = self.gpus
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        ctypes.memmove(handle, ctypes.byref(ctypes.c_void_p(7 + index.value)), ctypes.sizeof(ctypes.c_void_p))
        return GPU_IS_LOST if index.value in self.lost else 0

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, length: Any) -> int:
        buffer.value = b"Emulated by name alone"
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, length: Any) -> int:
        buffer.value = b"GPU-%d" % number(handle)
        return 0


def number(handle: Any) -> int:
    """Which GPU a handle is of."""
    return (ctypes.cast(handle, ctypes.c_void_p).value or 0) - 7


def drive(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    """Whatever loads a library gets this one."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
