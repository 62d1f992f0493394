"""What a GPU was doing while something was measured on it, by NVML: clocks, the reasons for them, power, heat."""

from __future__ import annotations

import ctypes
import statistics
import threading
from typing import Any

from validation.probes.nvml import Gpu, Nvml, NvmlError

SAMPLE_S = 0.2  # between two looks


class Watch:
    """Looks at a GPU's clocks, power and temperature from beside, from `with` to its end."""

    def __init__(self, address: str) -> None:
        """`address`: on the PCI bus, as CUDA tells it. Who works there now is somebody else."""
        self.address, self.said = address, ""
        self.states: list[dict[str, Any]] = []
        self.who: dict[str, Any] = {"others": {}}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        try:
            with Nvml() as nvml:
                gpu = self._mine(nvml)
                self.who.update(uuid=gpu.uuid, serial=gpu.text("Serial") or "", others=gpu.processes() or {})
        except (NvmlError, AttributeError, OSError) as fault:
            self.said = str(fault)

    def _mine(self, nvml: Nvml) -> Gpu:
        for gpu in nvml.gpus():
            if self.address and gpu.address == self.address:
                return gpu
        raise NvmlError(f"NVML has no GPU at {self.address or 'an unknown address'}")

    def _look(self) -> None:
        try:
            with Nvml() as nvml:
                gpu = self._mine(nvml)
                while not self.over.wait(SAMPLE_S):
                    self.states.append(gpu.state().document())
        except (NvmlError, AttributeError, OSError) as fault:
            self.said = str(fault)

    def __enter__(self) -> Watch:
        """Begin to look."""
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self.over.set()
        self.thread.join(5)

    def document(self) -> dict[str, Any]:
        """How many looks, the middle and the extremes of what was seen, and the share of looks with each reason."""
        document: dict[str, Any] = {"samples": len(self.states), "said": self.said}
        for key in ("sm_mhz", "power_w", "temperature_c"):
            seen = [state[key] for state in self.states if state[key] is not None]
            if seen:
                document[key] = {"least": min(seen), "median": statistics.median(seen), "most": max(seen)}
        for key in ("sm_max_mhz", "power_limit_w"):
            document[key] = next((state[key] for state in self.states if state[key] is not None), None)
        reasons = [name for state in self.states for name in state["throttle_reasons"] or ()]
        document["reasons"] = {name: reasons.count(name) / len(self.states) for name in sorted(set(reasons))}
        return document


def address(index: int) -> str:
    """PCI address of CUDA's device, as sysfs writes it; "" where the driver does not say. Makes no context there."""
    buffer = ctypes.create_string_buffer(32)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        handle = ctypes.c_int()
        code = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(handle), index)
            or driver.cuDeviceGetPCIBusId(buffer, 32, handle)
        )
    except (OSError, AttributeError):
        return ""
    return "" if code else buffer.value.decode().lower()[-12:]
