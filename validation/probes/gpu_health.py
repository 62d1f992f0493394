"""Health of this node's GPUs by NVML: memory errors, repairs, throttling, PCIe link, modes, versions; and Xids.

Read before and after the load of a run; what counts is judged by its growth. By ctypes, as validation/nvml/:
NVIDIA's own binding (nvidia-ml-py) would have to be packed into the archive of the probes, which is built from this
package alone and runs on nodes without any index of packages.

`stdout`: the facts as JSON. `facts`: as validation.facts.GpuHealthFacts. What a GPU does not say is null, never 0.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any

from validation.nvml import GRAPHICS, INSUFFICIENT_SIZE, LIBRARY, OK, Gpu, Nvml, NvmlError
from validation.probes import ProbeDoc, kernel_log
from validation.probes.tool import Ran, document

CORRECTED, UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
VOLATILE, AGGREGATE = 0, 1  # nvmlEccCounterType_t: since the driver was loaded, in the GPU's life
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}  # nvmlComputeMode_t
CAUSES = (0, 1)  # nvmlPageRetirementCause_t: several single-bit errors, one double-bit error
PAGES = 512  # more than any GPU can retire (64, NVIDIA, Dynamic Page Retirement)


@dataclass
class Asked:
    """What is asked of this probe."""

    library: str = LIBRARY
    kmsg: str = kernel_log.KMSG


class _Repairs(ctypes.Structure):
    """nvmlRepairStatus_v1_t."""

    _fields_ = [("version", ctypes.c_uint), ("channel", ctypes.c_uint), ("tpc", ctypes.c_uint)]


class _Unrepairable(ctypes.Structure):
    """nvmlUnrepairableMemoryStatus_v1_t."""

    _fields_ = [("version", ctypes.c_uint), ("unrepairable", ctypes.c_uint)]


def _version(of: type[ctypes.Structure], number: int = 1) -> int:
    """NVML_STRUCT_VERSION of nvml.h."""
    return ctypes.sizeof(of) | number << 24


def _on(value: int | None) -> bool | None:
    """nvmlEnableState_t."""
    return None if value is None else value == 1


def _ecc(gpu: Gpu, kind: int, counter: int) -> int | None:
    return gpu.number("TotalEccErrors", kind, counter, of=ctypes.c_ulonglong)


def memory_errors(gpu: Gpu) -> int | None:
    """Uncorrectable ones since the driver was loaded; None: it does not say."""
    return _ecc(gpu, UNCORRECTED, VOLATILE)


def _retired(gpu: Gpu) -> int | None:
    """Pages retired, of both causes; None of a GPU that remaps rows instead."""
    query, total, said = gpu.function("RetiredPages"), 0, False
    for cause in CAUSES if query is not None else ():
        room, addresses = ctypes.c_uint(PAGES), (ctypes.c_ulonglong * PAGES)()
        code = query(gpu.handle, ctypes.c_int(cause), ctypes.byref(room), addresses)
        if code in (OK, INSUFFICIENT_SIZE):
            total, said = total + room.value, True
    return total if said else None


def one(gpu: Gpu) -> dict[str, Any]:
    """A GPU as validation.facts.GpuReading."""
    ecc, mig = gpu.numbers("EccMode", of=ctypes.c_int, count=2), gpu.numbers("MigMode", count=2)
    rows = gpu.numbers("RemappedRows", count=4)
    repairs = gpu.structure("RepairStatus", _Repairs(version=_version(_Repairs)))
    lasting = gpu.structure("UnrepairableMemoryFlag_v1", _Unrepairable(version=_version(_Unrepairable)))
    mode = gpu.number("ComputeMode", of=ctypes.c_int)
    set_mhz = gpu.number("ApplicationsClock", GRAPHICS)
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "address": gpu.address,
        "serial": gpu.text("Serial") or "",
        "vbios": gpu.text("VbiosVersion") or "",
        "persistence": _on(gpu.number("PersistenceMode", of=ctypes.c_int)),
        "compute_mode": None if mode is None else COMPUTE_MODES.get(mode, str(mode)),
        "mig": _on(mig[0]) if mig else None,
        "mig_pending": _on(mig[1]) if mig else None,
        "ecc": _on(ecc[0]) if ecc else None,
        "ecc_pending": _on(ecc[1]) if ecc else None,
        "ecc_uncorrected": memory_errors(gpu),
        "ecc_corrected": _ecc(gpu, CORRECTED, VOLATILE),
        "ecc_uncorrected_ever": _ecc(gpu, UNCORRECTED, AGGREGATE),
        "ecc_corrected_ever": _ecc(gpu, CORRECTED, AGGREGATE),
        "pages_retired": _retired(gpu),
        "pages_pending": _on(gpu.number("RetiredPagesPendingStatus", of=ctypes.c_int)),
        "rows_corrected": rows[0] if rows else None,
        "rows_uncorrected": rows[1] if rows else None,
        "rows_pending": bool(rows[2]) if rows else None,
        "rows_failed": bool(rows[3]) if rows else None,
        "channel_repair_pending": bool(repairs.channel) if repairs else None,
        "tpc_repair_pending": bool(repairs.tpc) if repairs else None,
        "memory_unrepairable": bool(lasting.unrepairable) if lasting else None,
        "pcie_generation": gpu.number("CurrPcieLinkGeneration"),
        "pcie_max_generation": gpu.number("MaxPcieLinkGeneration"),
        "pcie_width": gpu.number("CurrPcieLinkWidth"),
        "pcie_max_width": gpu.number("MaxPcieLinkWidth"),
        "pcie_replays": gpu.number("PcieReplayCounter"),
        "slowdown_c": gpu.number("TemperatureThreshold", 1),  # NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        "set_mhz": set_mhz,
        "default_mhz": None if set_mhz is None else gpu.number("DefaultApplicationsClock", GRAPHICS),
        "state": gpu.state().document(),
    }


def collect(library: str = LIBRARY) -> dict[str, Any]:
    """All GPUs of this node. One that does not answer, as one that has fallen off the bus, is told by its number."""
    found: dict[str, Any] = {
        "type": "gpu-health",
        "driver": "",
        "emulated": False,
        "gpus": [],
        "lost": [],
        "unread": "",
    }
    try:
        with Nvml(library) as nvml:
            found |= {"driver": nvml.driver(), "emulated": nvml.emulated}
            for index in range(nvml.count()):
                try:
                    found["gpus"].append(one(nvml.gpu(index)))
                except NvmlError as fault:
                    found["lost"].append(str(fault))
    except NvmlError as fault:
        found["unread"] = str(fault)
    return found


def probe(args: Asked) -> ProbeDoc:
    """Read the GPUs once. That there is none, or no driver, is a finding and no failure of this probe."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts = {**collect(args.library), "kernel_log": kernel_log.collect(args.kmsg)}
        return Ran(["gpu-health"], 0, json.dumps(facts, indent=1, sort_keys=True), ""), facts, None

    return document("gpu-health", "NVML", measure, lambda ran: _driver(ran.stdout))


def _driver(said: str) -> str:
    """The driver's version out of the report."""
    try:
        return str(json.loads(said)["driver"])
    except (ValueError, KeyError):
        return ""
