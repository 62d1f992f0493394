#!/usr/bin/python3
"""The GPUs of this node for Prometheus: what NVML says, as a file that node-exporter serves.

    gpu_metrics.py --output FILE.prom [--interval S] [--once]

Needs the driver's libnvidia-ml.so.1, and validation/nvml beside it, which the role puts there with NVIDIA's binding.
What a GPU does not support is left out, never shown as 0. A lab's GPUs, which host memory stands in for, carry
emulated="true". NVML is opened for each reading and closed after it, so that the driver can be replaced.
"""

import sys

from textfile import run_command

from validation.nvml import OK, TEMPERATURE, Nvml, NvmlError
from validation.probes import nvlinks

UNCORRECTED, VOLATILE = 1, 0  # nvmlMemoryErrorType_t; nvmlEccCounterType_t: since the driver was loaded
#: nvml.h, nvmlClocksEventReasons: what no healthy GPU has. Its own power cap and an idle clock are usual.
THROTTLED = {0x20: "driver, heat", 0x40: "hardware, heat", 0x80: "hardware, power supply"}


#: nvml.h: fields of a link's errors (Hopper and later), and nvmlNvLinkErrorCounter_t, which older ones have
LINK_ERRORS = {"replay": (161, 0), "recovery": (162, 1), "crc": (163, 2)}


def figures(gpu):
    """What one GPU says, by metric; what it does not support is not in it."""
    memory, milliwatts = gpu.said("MemoryInfo"), gpu.said("PowerUsage")
    percent, degrees = gpu.utilisation(), gpu.said("Temperature", TEMPERATURE)
    found = {
        "elastic_ai_gpu_memory_total_bytes": memory and memory.total,
        "elastic_ai_gpu_memory_used_bytes": memory and memory.used,
        "elastic_ai_gpu_utilization_ratio": None if percent is None else percent / 100,
        "elastic_ai_gpu_temperature_celsius": degrees,
        "elastic_ai_gpu_power_watts": None if milliwatts is None else milliwatts / 1000,
        **health(gpu),
    }
    return {metric: value for metric, value in found.items() if value is not None}


def health(gpu):
    """Errors, repairs and link of one GPU, by metric."""
    lanes, most = gpu.said("CurrPcieLinkWidth"), gpu.said("MaxPcieLinkWidth")
    rows, repairs = gpu.said("RemappedRows"), gpu.said("RepairStatus")  # rows: from Ampere on
    _, remapped, pending, failed = rows or (0, None, gpu.said("RetiredPagesPendingStatus"), None)
    return {
        "elastic_ai_gpu_uncorrectable_errors": gpu.said("TotalEccErrors", UNCORRECTED, VOLATILE),
        "elastic_ai_gpu_pcie_lanes_ratio": lanes / most if lanes is not None and most else None,
        "elastic_ai_gpu_pcie_replays": gpu.said("PcieReplayCounter"),
        "elastic_ai_gpu_rows_remapped": remapped,
        "elastic_ai_gpu_repair_pending": 1 if any(repairs or ()) else pending,
        "elastic_ai_gpu_repair_failed": 1 if gpu.unrepairable() else failed,
    }


def throttled(gpu):
    """(reason in words, 1 or 0) for each reason that no healthy GPU has; none where the driver does not say."""
    bits = gpu.reasons()
    return [] if bits is None else [(words, int(bool(bits & bit))) for bit, words in THROTTLED.items()]


def modes(gpu):
    """(mode, 1 or 0): what a GPU of a pool has on; none of what it does not say."""
    ecc, persistence, shared = map(gpu.said, ("EccMode", "PersistenceMode", "ComputeMode"))
    found = {"ecc": ecc and ecc[0], "persistence": persistence, "shared": None if shared is None else shared == 0}
    return [(mode, int(value)) for mode, value in found.items() if value is not None]


def links(gpu):
    """Samples of a GPU's NVLinks and of its place in their fabric; none of a GPU without."""
    found, fabric = unless_silent(nvlinks.links, gpu) or [], unless_silent(nvlinks.fabric, gpu)
    samples = [("elastic_ai_gpu_nvlinks_down", {}, sum(not one["up"] for one in found))] if found else []
    for kind, (field, counter) in LINK_ERRORS.items():
        counts = [errors(gpu, one["number"], field, counter) for one in found if one["up"]]
        if counts and None not in counts:
            samples.append(("elastic_ai_gpu_nvlink_errors", {"kind": kind}, sum(counts)))
    if fabric is not None and fabric["state"] != "not supported":
        ready = fabric["state"] == "completed" and fabric["status"] == 0 and not fabric["unhealthy"]
        samples.append(("elastic_ai_gpu_fabric_ready", {}, int(ready)))
    return samples


def unless_silent(ask, gpu):
    """What a GPU answers; None where its driver or the binding does not say, which costs no other figure."""
    try:
        return ask(gpu)
    except (NvmlError, AttributeError):
        return None


def errors(gpu, link, field, counter):
    """Errors of one kind of a link; None where the driver does not say."""
    code, fields = gpu.asked("FieldValues", [(field, link)])
    if code == OK and fields[0].nvmlReturn == OK:
        value = fields[0].value
        return int(value.uiVal if fields[0].valueType == nvlinks.UNSIGNED_INT else value.ullVal)
    return gpu.said("NvLinkErrorCounter", link, counter)


HELP = {
    "elastic_ai_gpu_info": "1 for each GPU of the node.",
    "elastic_ai_gpu_memory_total_bytes": "Memory of the GPU.",
    "elastic_ai_gpu_memory_used_bytes": "Memory of the GPU that is taken.",
    "elastic_ai_gpu_utilization_ratio": "Share of the last sample period in which a kernel ran, 0 to 1.",
    "elastic_ai_gpu_temperature_celsius": "Temperature of the GPU.",
    "elastic_ai_gpu_power_watts": "Power that the GPU draws.",
    "elastic_ai_gpu_uncorrectable_errors": "Uncorrectable memory errors since the driver was loaded.",
    "elastic_ai_gpu_repair_pending": "1 where a repair of memory or of a TPC waits for a reset of the GPU.",
    "elastic_ai_gpu_repair_failed": "1 where a memory repair failed, or memory cannot be repaired.",
    "elastic_ai_gpu_rows_remapped": "Rows of memory that were replaced after uncorrectable errors, in the GPU's life.",
    "elastic_ai_gpu_nvlinks_down": "NVLinks of the GPU that are down.",
    "elastic_ai_gpu_nvlink_errors": "Errors of the GPU's NVLinks since its driver was loaded, by kind.",
    "elastic_ai_gpu_fabric_ready": "1 where the GPU is registered with its NVLink fabric, which says of no fault.",
    "elastic_ai_gpu_throttled": "1 where heat or the power supply lowers the clock, by reason.",
    "elastic_ai_gpu_pcie_lanes_ratio": "Lanes of the PCIe link as trained, of those that it can have, 0 to 1.",
    "elastic_ai_gpu_pcie_replays": "PCIe packets that were sent again since the driver was loaded.",
    "elastic_ai_gpu_mode": "1 where ECC, persistence or the use by several processes is on, 0 where it is off.",
    "elastic_ai_gpu_nvml_up": "1 where NVML answers, 0 where it does not.",
}


def reading():
    """(samples, what went wrong or None)."""
    samples, lost = [], []
    try:
        with Nvml() as nvml:
            for index in range(nvml.count()):
                try:
                    samples += of_gpu(nvml.gpu(index))
                except NvmlError as fault:  # it has fallen off the bus: the others answer
                    lost.append(str(fault))
    except NvmlError as fault:
        return [("elastic_ai_gpu_nvml_up", {}, 0)], str(fault)
    return [*samples, ("elastic_ai_gpu_nvml_up", {}, 1)], "; ".join(lost) or None


def of_gpu(gpu):
    """Samples of one GPU; NvmlError where it does not say which it is."""
    if not gpu.uuid or not gpu.name:
        raise NvmlError(f"GPU {gpu.index} does not say its name and UUID")
    labels = {"gpu": gpu.index, "uuid": gpu.uuid, "emulated": str(gpu.emulated).lower()}
    samples = [("elastic_ai_gpu_info", {**labels, "name": gpu.name}, 1)]
    samples += [(metric, labels, value) for metric, value in figures(gpu).items()]
    samples += [(metric, {**labels, **more}, value) for metric, more, value in links(gpu)]
    samples += [("elastic_ai_gpu_mode", {**labels, "mode": mode}, value) for mode, value in modes(gpu)]
    return samples + [
        ("elastic_ai_gpu_throttled", {**labels, "reason": words}, value) for words, value in throttled(gpu)
    ]


if __name__ == "__main__":
    sys.exit(run_command(__doc__, HELP, reading))
