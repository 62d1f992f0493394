#!/usr/bin/python3
"""The GPUs of this node for Prometheus: what NVML says, as a file that node-exporter serves.

    gpu_metrics.py --output FILE.prom [--interval S] [--once]

Needs the driver's libnvidia-ml.so.1 and nothing else: Debian 12 has no pynvml, and few functions of NVML are enough.
What a GPU does not support is left out, never shown as 0. A lab's GPUs, which host memory stands in for, carry
emulated="true". NVML is opened for each reading and closed after it, so that the driver can be replaced.
"""

import ctypes
import sys

from textfile import run_command

LIBRARY = "libnvidia-ml.so.1"
TEMPERATURE_GPU = 0  # nvml.h: NVML_TEMPERATURE_GPU
EMULATED = "elasticAiEmulated"  # exported by the emulated devices' library, and by no driver of NVIDIA's
UNCORRECTED, VOLATILE = 1, 0  # nvmlMemoryErrorType_t; nvmlEccCounterType_t: since the driver was loaded
#: nvml.h, nvmlClocksEventReasons: what no healthy GPU has. Its own power cap and an idle clock are usual.
THROTTLED = {0x20: "driver, heat", 0x40: "hardware, heat", 0x80: "hardware, power supply"}
NAME_BYTES = 96  # nvml.h: NVML_DEVICE_NAME_V2_BUFFER_SIZE; a UUID needs as much


class Memory(ctypes.Structure):
    """nvml.h: nvmlMemory_t, bytes."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Utilization(ctypes.Structure):
    """nvml.h: nvmlUtilization_t, percent of the last sample period in which a kernel ran."""

    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class RepairStatus(ctypes.Structure):
    """nvml.h: nvmlRepairStatus_v1_t, of drivers from 580 on."""

    _fields_ = [(name, ctypes.c_uint) for name in ("version", "channel", "tpc")]


class UnrepairableMemory(ctypes.Structure):
    """nvml.h: nvmlUnrepairableMemoryStatus_v1_t, of drivers from 580 on."""

    _fields_ = [(name, ctypes.c_uint) for name in ("version", "unrepairable")]


def versioned(structure):
    """A structure that tells its own size and version, 1: NVML_STRUCT_VERSION."""
    return structure(version=ctypes.sizeof(structure) | 1 << 24)


class NvmlError(Exception):
    """What NVML does not do, and its number."""


class Nvml:
    """NVML, opened; `with` closes it."""

    def __init__(self):
        """Load it; NvmlError where it is not there."""
        try:
            self.lib = ctypes.CDLL(LIBRARY)
        except OSError as fault:
            raise NvmlError(str(fault)) from None

    def call(self, name, *arguments):
        """A function by name; NvmlError with its return value where it is not NVML_SUCCESS."""
        function = getattr(self.lib, name, None)
        if function is None:
            raise NvmlError(f"{name}: not in {LIBRARY}")
        returned = function(*arguments)
        if returned:
            raise NvmlError(f"{name}: {returned}")

    def __enter__(self):
        """Open."""
        self.call("nvmlInit_v2")
        return self

    def __exit__(self, *_):
        """Close."""
        self.call("nvmlShutdown")

    def tried(self, name, *arguments, into):
        """`into` filled by a function, None where the device does not support it."""
        try:
            self.call(name, *arguments, ctypes.byref(into))
        except NvmlError:
            return None
        return into

    def text(self, name, handle):
        """A name or UUID."""
        buffer = ctypes.create_string_buffer(NAME_BYTES)
        self.call(name, handle, buffer, NAME_BYTES)
        return buffer.value.decode("utf-8", "replace")

    def devices(self):
        """(index, handle) of all GPUs; NvmlError in place of the handle of one that does not answer."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            handle = ctypes.c_void_p()
            try:
                self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            except NvmlError as fault:  # it has fallen off the bus: the others answer
                yield index, fault
                continue
            yield index, handle


def gpu(nvml, handle):
    """What one GPU says, by metric; what it does not support is not in it."""
    memory = nvml.tried("nvmlDeviceGetMemoryInfo", handle, into=Memory())
    load = nvml.tried("nvmlDeviceGetUtilizationRates", handle, into=Utilization())
    degrees = nvml.tried("nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU, into=ctypes.c_uint())
    milliwatts = nvml.tried("nvmlDeviceGetPowerUsage", handle, into=ctypes.c_uint())
    found = {}
    if memory is not None:
        found["elastic_ai_gpu_memory_total_bytes"] = memory.total
        found["elastic_ai_gpu_memory_used_bytes"] = memory.used
    if load is not None:
        found["elastic_ai_gpu_utilization_ratio"] = load.gpu / 100
    if degrees is not None:
        found["elastic_ai_gpu_temperature_celsius"] = degrees.value
    if milliwatts is not None:
        found["elastic_ai_gpu_power_watts"] = milliwatts.value / 1000
    return {**found, **health(nvml, handle)}


def health(nvml, handle):
    """Errors, repairs and link of one GPU, by metric."""
    errors = nvml.tried("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE, into=ctypes.c_ulonglong())
    lanes = nvml.tried("nvmlDeviceGetCurrPcieLinkWidth", handle, into=ctypes.c_uint())
    most = nvml.tried("nvmlDeviceGetMaxPcieLinkWidth", handle, into=ctypes.c_uint())
    replays = nvml.tried("nvmlDeviceGetPcieReplayCounter", handle, into=ctypes.c_uint())
    pages = nvml.tried("nvmlDeviceGetRetiredPagesPendingStatus", handle, into=ctypes.c_int())
    rows = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed: from Ampere on
    remapped = nvml.tried("nvmlDeviceGetRemappedRows", handle, *map(ctypes.byref, rows[:3]), into=rows[3])
    found = {}
    if errors is not None:
        found["elastic_ai_gpu_uncorrectable_errors"] = errors.value
    if lanes is not None and most is not None and most.value:
        found["elastic_ai_gpu_pcie_lanes_ratio"] = lanes.value / most.value
    if replays is not None:
        found["elastic_ai_gpu_pcie_replays"] = replays.value
    if remapped is not None:
        found["elastic_ai_gpu_repair_pending"] = rows[2].value
        found["elastic_ai_gpu_repair_failed"] = rows[3].value
    elif pages is not None:
        found["elastic_ai_gpu_repair_pending"] = pages.value
    repairs = nvml.tried("nvmlDeviceGetRepairStatus", handle, into=versioned(RepairStatus))
    if repairs is not None and (repairs.channel or repairs.tpc):
        found["elastic_ai_gpu_repair_pending"] = 1
    lasting = nvml.tried("nvmlDeviceGetUnrepairableMemoryFlag_v1", handle, into=versioned(UnrepairableMemory))
    if lasting is not None and lasting.unrepairable:
        found["elastic_ai_gpu_repair_failed"] = 1
    return found


def throttled(nvml, handle):
    """(reason in words, 1 or 0) for each reason that no healthy GPU has; none where the driver does not say."""
    # drivers before R535 know the second name alone
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    said = (nvml.tried(name, handle, into=ctypes.c_ulonglong()) for name in names)
    bits = next((found.value for found in said if found is not None), None)
    return [] if bits is None else [(words, int(bool(bits & bit))) for bit, words in THROTTLED.items()]


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
    "elastic_ai_gpu_throttled": "1 where heat or the power supply lowers the clock, by reason.",
    "elastic_ai_gpu_pcie_lanes_ratio": "Lanes of the PCIe link as trained, of those that it can have, 0 to 1.",
    "elastic_ai_gpu_pcie_replays": "PCIe packets that were sent again since the driver was loaded.",
    "elastic_ai_gpu_nvml_up": "1 where NVML answers, 0 where it does not.",
}


def reading():
    """(samples, what went wrong or None)."""
    samples, lost = [], []
    try:
        with Nvml() as nvml:
            emulated = str(hasattr(nvml.lib, EMULATED)).lower()
            for index, handle in nvml.devices():
                if isinstance(handle, NvmlError):
                    lost.append(f"GPU {index}: {handle}")
                    continue
                try:
                    samples += of_gpu(nvml, index, handle, emulated)
                except NvmlError as fault:
                    lost.append(f"GPU {index}: {fault}")
    except NvmlError as fault:
        return [("elastic_ai_gpu_nvml_up", {}, 0)], str(fault)
    return [*samples, ("elastic_ai_gpu_nvml_up", {}, 1)], "; ".join(lost) or None


def of_gpu(nvml, index, handle, emulated):
    """Samples of one GPU; NvmlError where it does not say which it is."""
    name = nvml.text("nvmlDeviceGetName", handle)
    labels = {"gpu": index, "uuid": nvml.text("nvmlDeviceGetUUID", handle), "emulated": emulated}
    samples = [("elastic_ai_gpu_info", {**labels, "name": name}, 1)]
    samples += [(metric, labels, value) for metric, value in gpu(nvml, handle).items()]
    return samples + [
        ("elastic_ai_gpu_throttled", {**labels, "reason": words}, value) for words, value in throttled(nvml, handle)
    ]


if __name__ == "__main__":
    sys.exit(run_command(__doc__, HELP, reading))
