"""Health of this node's GPUs by NVML: memory errors, repairs, throttling, PCIe link, modes, versions; and Xids.

Read before and after the load of a run; what counts is judged by its growth.

`stdout`: the facts as JSON. `facts`: as GpuHealthFacts. What a GPU does not say is null, never 0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from validation.nvml import GRAPHICS, LIBRARY, Gpu, Nvml, NvmlError
from validation.probes import ProbeDoc, kernel_log
from validation.probes.tool import Ran, document

CORRECTED, UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
VOLATILE, AGGREGATE = 0, 1  # nvmlEccCounterType_t: since the driver was loaded, in the GPU's life
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}  # nvmlComputeMode_t
CAUSES = (0, 1)  # nvmlPageRetirementCause_t: several single-bit errors, one double-bit error


@dataclass
class Asked:
    """What is asked of this probe."""

    library: str = LIBRARY
    kmsg: str = kernel_log.KMSG


def _on(value: int | None) -> bool | None:
    """nvmlEnableState_t."""
    return None if value is None else value == 1


def memory_errors(gpu: Gpu) -> int | None:
    """Uncorrectable ones since the driver was loaded; None: it does not say."""
    errors: int | None = gpu.said("TotalEccErrors", UNCORRECTED, VOLATILE)
    return errors


def _retired(gpu: Gpu) -> int | None:
    """Pages retired, of both causes; None of a GPU that remaps rows instead."""
    lists = [pages for pages in (gpu.said("RetiredPages", cause) for cause in CAUSES) if pages is not None]
    return sum(map(len, lists)) if lists else None


def one(gpu: Gpu) -> dict[str, Any]:
    """A GPU as GpuReading."""
    ecc, mig, rows, repairs = map(gpu.said, ("EccMode", "MigMode", "RemappedRows", "RepairStatus"))
    mode, set_mhz = gpu.said("ComputeMode"), gpu.said("ApplicationsClock", GRAPHICS)
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "address": gpu.address,
        "serial": gpu.said("Serial") or "",
        "vbios": gpu.said("VbiosVersion") or "",
        "persistence": _on(gpu.said("PersistenceMode")),
        "compute_mode": None if mode is None else COMPUTE_MODES.get(mode, str(mode)),
        "mig": _on(mig[0]) if mig else None,
        "mig_pending": _on(mig[1]) if mig else None,
        "ecc": _on(ecc[0]) if ecc else None,
        "ecc_pending": _on(ecc[1]) if ecc else None,
        "ecc_uncorrected": memory_errors(gpu),
        "ecc_corrected": gpu.said("TotalEccErrors", CORRECTED, VOLATILE),
        "ecc_uncorrected_ever": gpu.said("TotalEccErrors", UNCORRECTED, AGGREGATE),
        "ecc_corrected_ever": gpu.said("TotalEccErrors", CORRECTED, AGGREGATE),
        "pages_retired": _retired(gpu),
        "pages_pending": _on(gpu.said("RetiredPagesPendingStatus")),
        "rows_corrected": rows[0] if rows else None,
        "rows_uncorrected": rows[1] if rows else None,
        "rows_pending": bool(rows[2]) if rows else None,
        "rows_failed": bool(rows[3]) if rows else None,
        "channel_repair_pending": bool(repairs[0]) if repairs else None,
        "tpc_repair_pending": bool(repairs[1]) if repairs else None,
        "memory_unrepairable": gpu.unrepairable(),
        "pcie_generation": gpu.said("CurrPcieLinkGeneration"),
        "pcie_max_generation": gpu.said("MaxPcieLinkGeneration"),
        "pcie_width": gpu.said("CurrPcieLinkWidth"),
        "pcie_max_width": gpu.said("MaxPcieLinkWidth"),
        "pcie_replays": gpu.said("PcieReplayCounter"),
        "slowdown_c": gpu.said("TemperatureThreshold", 1),  # NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        "set_mhz": set_mhz,
        "default_mhz": None if set_mhz is None else gpu.said("DefaultApplicationsClock", GRAPHICS),
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
