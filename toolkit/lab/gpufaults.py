"""Faults of a node's emulated GPUs: another description of them, which CUDA and NVML read when a program starts.

They are of the last GPU alone, so that whoever finds one has to name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h).
GPU_IDLE, HW_SLOWDOWN, HW_THERMAL_SLOWDOWN = 0x1, 0x8, 0x40


@dataclass(frozen=True)
class GpuFault:
    """What it does, in words, and what the description then says of the last GPU; missing: it says nothing of it."""

    about: str
    says: Mapping[str, int] = field(default_factory=dict)
    missing: bool = False


GPU_FAULTS = {
    "gpu-missing": GpuFault("the last emulated GPU of the node is not there", missing=True),
    "ecc": GpuFault(
        "the last emulated GPU has uncorrectable memory errors, and a page that is to be retired",
        {"ecc_uncorrected": 2, "pages_retired": 1, "repair_pending": 1},
    ),
    "throttled": GpuFault(
        "the last emulated GPU is too hot and says that the hardware lowers its clock",
        {"temperature_c": 88, "throttle_reasons": HW_SLOWDOWN | HW_THERMAL_SLOWDOWN, "sm_mhz": 765},
    ),
    "pcie-x8": GpuFault("the last emulated GPU's PCIe link has 8 of its 16 lanes", {"pcie_width": 8}),
}


def described(gpus: Sequence[Mapping[str, Any]], kind: str | None) -> list[dict[str, Any]]:
    """A node's GPUs with that fault; as they are where it is none of GPUs."""
    found = [dict(gpu) for gpu in gpus]
    fault = GPU_FAULTS.get(kind or "")
    if fault is None:
        return found
    *others, last = found
    return others if fault.missing else [*others, {**last, **fault.says}]
