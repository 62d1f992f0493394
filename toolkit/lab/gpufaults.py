"""Faults of a node's emulated GPUs: another description of them, which CUDA and NVML read when a program starts.

They are of the last GPU alone, so that whoever finds one has to name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h).
GPU_IDLE, HW_SLOWDOWN, HW_THERMAL_SLOWDOWN = 0x1, 0x8, 0x40
EXCLUSIVE_PROCESS = 3  # nvmlComputeMode_t
FABRIC_IN_PROGRESS = 2  # NVML_GPU_FABRIC_STATE_IN_PROGRESS


@dataclass(frozen=True)
class GpuFault:
    """What it does, in words, the criteria that find it, and what the description then says of the last GPU.

    missing: it says nothing of it.
    """

    about: str
    found_by: tuple[str, ...]
    says: Mapping[str, int] = field(default_factory=dict)
    missing: bool = False


GPU_FAULTS = {
    "gpu-missing": GpuFault(
        "the last emulated GPU of the node is not there", ("pf.gpuhealth", "tr.matrix"), missing=True
    ),
    "gpu-lost": GpuFault(
        "the last emulated GPU falls off the bus after 400 copies, in mid-run",
        ("pf.gpuhealth", "tr.matrix"),
        {"lost_after": 400},
    ),
    "gpu-xid": GpuFault(
        "an uncorrectable memory error of the last emulated GPU after 400 copies ends all CUDA work of its process",
        ("pf.gpuhealth", "tr.matrix"),
        {"xid_after": 400},
    ),
    "gpu-illegal": GpuFault(
        "the last emulated GPU's kernels meet an illegal address from a process's 20th launch on",
        ("tr.matrix",),
        {"illegal_after": 20},
    ),
    "gpu-hang": GpuFault(
        "a kernel of the last emulated GPU never ends, after a process's 20th launch",
        ("tr.matrix",),
        {"endless_after": 20},
    ),
    "ecc": GpuFault(
        "the last emulated GPU has uncorrectable memory errors, and a page that is to be retired",
        ("pf.gpuhealth",),
        {"ecc_uncorrected": 2, "pages_retired": 1, "repair_pending": 1},
    ),
    "ecc-off": GpuFault("the last emulated GPU has ECC switched off", ("pf.gpuhealth",), {"ecc_enabled": 0}),
    "throttled": GpuFault(
        "the last emulated GPU is too hot and says that the hardware lowers its clock",
        ("pf.gpuhealth", "tr.clocks"),
        {"temperature_c": 88, "throttle_reasons": HW_SLOWDOWN | HW_THERMAL_SLOWDOWN, "sm_mhz": 765},
    ),
    "pcie-x8": GpuFault(
        "the last emulated GPU's PCIe link has 8 of its 16 lanes", ("pf.gpuhealth",), {"pcie_width": 8}
    ),
    "nvlink-missing": GpuFault(
        "one of the NVLinks between the last two emulated GPUs is down", ("pf.nvlink",), {"nvlinks_up": 5}
    ),
    "fabric-unready": GpuFault(
        "the last emulated GPU's registration with an NVLink fabric does not come to its end",
        ("pf.fabric",),
        {"fabric_state": FABRIC_IN_PROGRESS},
    ),
    "no-persistence": GpuFault(
        "the last emulated GPU's persistence mode is off", ("pf.gpuhealth",), {"persistence": 0}
    ),
    "gpu-exclusive": GpuFault(
        "the last emulated GPU's compute mode is exclusive to one process",
        ("pf.gpuhealth",),
        {"compute_mode": EXCLUSIVE_PROCESS},
    ),
    "wrong-result": GpuFault(
        "one bit of each copy of 4 KiB or more into the last emulated GPU's memory is wrong",
        ("tr.matrix",),
        {"wrong_bits": 1},
    ),
    "slow-gpu": GpuFault(
        "copies to, from and inside the last emulated GPU take four times as long",
        ("tr.uniform",),
        {"slow_percent": 75},
    ),
}


def described(gpus: Sequence[Mapping[str, Any]], kind: str | None) -> list[dict[str, Any]]:
    """A node's GPUs with that fault; as they are where it is none of GPUs."""
    found = [dict(gpu) for gpu in gpus]
    fault = GPU_FAULTS.get(kind or "")
    if fault is None:
        return found
    *others, last = found
    return others if fault.missing else [*others, {**last, **fault.says}]
