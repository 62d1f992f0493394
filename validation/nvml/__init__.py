"""The GPUs of this node by NVML: who they are, who works on them, what they are doing right now.

Through ctypes, for nodes have no pynvml: functions, structures and values as in NVIDIA's nvml.h; only what every driver
since R450 has, and newer functions where they are there. What a GPU or its driver does not say is None, never 0.

    with Nvml() as nvml:
        for gpu in nvml.gpus():
            gpu.uuid, gpu.processes(), gpu.state()
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
EMULATED = "elasticAiEmulated"  # what the library of the lab's emulated devices exports, and none of NVIDIA's
OK, INSUFFICIENT_SIZE = 0, 7  # nvmlReturn_t
BARRED = {4: "this user has no right to it: look at its device file"}  # NVML_ERROR_NO_PERMISSION
GONE = {15: "it has fallen off the bus", 16: "it has to be reset"}  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
INIT = {
    4: "this user cannot open the device files (such as /dev/nvidiactl)",
    9: "the kernel module of the driver is not loaded: modprobe nvidia",
    12: "a library of the driver is missing: install the driver again",
    18: "library and kernel module of the driver are of different versions: load the installed module, or reboot",
}
"""nvmlReturn_t of nvmlInit (nvml.h) -> what an operator looks at."""
MEMORY_V2 = 0x02000028  # nvmlMemory_v2: its size, and 2
GRAPHICS, SM, MEMORY = 0, 1, 2  # nvmlClockType_t
NOT_SAID = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
MILLI = 1000.0
#: Bits of nvmlDeviceGetCurrentClocksEventReasons (nvmlClocksEventReason*, before R535 nvmlClocksThrottleReason*).
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


class NvmlError(Exception):
    """NVML is not there or does not answer; in words."""


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pci_device_id", "pci_subsystem_id")),
        ("bus_id", ctypes.c_char * 32),
    ]


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t, percent."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    """nvmlMemory_t, bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Memory2(ctypes.Structure):
    """nvmlMemory_v2_t, bytes; what the driver keeps for itself is `reserved`, and not `used`."""

    _fields_ = [
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    ]


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t, and nvmlProcessInfo_t of _v3 in all drivers but the first of R535."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


@dataclass(frozen=True)
class State:
    """What a GPU is doing at one moment; None: it does not say.

    Clocks in MHz, power in W, temperature in degrees Celsius, utilisation in percent of NVML's last sample period (1/6
    to 1 s) in which a kernel ran or memory was in use. throttle_reasons: names of REASONS, sorted; a bit that
    has no name here is written as its number.
    """

    sm_mhz: int | None
    sm_max_mhz: int | None
    memory_mhz: int | None
    memory_max_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    utilisation_percent: int | None
    memory_utilisation_percent: int | None
    throttle_reasons: tuple[str, ...] | None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        reasons = None if self.throttle_reasons is None else list(self.throttle_reasons)
        return {**asdict(self), "throttle_reasons": reasons}


def reason_names(bits: int) -> tuple[str, ...]:
    """The reasons of a mask by name; of a bit that has none here its number, each by itself."""
    return tuple(sorted(REASONS.get(1 << n, hex(1 << n)) for n in range(64) if bits >> n & 1))


class Gpu:
    """One GPU that NVML has found. index: NVML's (by PCI address), which CUDA counts by only if it is told to."""

    def __init__(self, library: Any, index: int) -> None:
        """Its handle; NvmlError where it does not answer, as one that has fallen off the bus."""
        self.library, self.index = library, index
        self.handle = ctypes.c_void_p()
        code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self.handle))
        if code != OK:
            why = {**GONE, **BARRED}.get(code)
            raise NvmlError(f"GPU {index}: NVML error {code}" + (f", {why}" if why else ""))
        self.uuid, self.name = self.text("UUID") or "", self.text("Name") or ""
        self.emulated = hasattr(library, EMULATED)

    def function(self, name: str) -> Any:
        """nvmlDeviceGet`name`, None where this driver has none of that name."""
        return getattr(self.library, f"nvmlDeviceGet{name}", None)

    def there(self, code: int) -> bool:
        """Whether a call succeeded; NvmlError where it shows that the GPU is gone: then nothing is merely unsaid."""
        if code in GONE:
            raise NvmlError(f"GPU {self.index}: NVML error {code}, {GONE[code]}")
        return code == OK

    def number(self, name: str, *before: int, of: Any = ctypes.c_uint) -> int | None:
        """What nvmlDeviceGet`name` writes: a number, after the arguments `before`. None where it does not say."""
        found = self.numbers(name, *before, of=of, count=1)
        return found[0] if found else None

    def numbers(self, name: str, *before: int, of: Any = ctypes.c_uint, count: int) -> list[int] | None:
        """The same of a function that writes several."""
        function, values = self.function(name), [of() for _ in range(count)]
        if function is None:
            return None
        code = function(self.handle, *(ctypes.c_int(one) for one in before), *(ctypes.byref(v) for v in values))
        return [int(value.value) for value in values] if self.there(code) else None

    def text(self, name: str) -> str | None:
        """What nvmlDeviceGet`name` writes: a text."""
        function, buffer = self.function(name), ctypes.create_string_buffer(96)
        if function is None or not self.there(function(self.handle, buffer, ctypes.c_uint(96))):
            return None
        return buffer.value.decode("utf-8", "replace")

    def structure(self, name: str, into: Any) -> Any:
        """`into` as nvmlDeviceGet`name` fills it, None where it does not."""
        function = self.function(name)
        return into if function is not None and self.there(function(self.handle, ctypes.byref(into))) else None

    @property
    def address(self) -> str:
        """PCI address as sysfs writes it, "" where it does not say."""
        info = self.structure("PciInfo_v3", _PciInfo()) or self.structure("PciInfo_v2", _PciInfo())
        return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0" if info else ""

    @property
    def memory(self) -> tuple[int, int] | None:
        """(total, used) bytes. Before R510 `used` has what the driver keeps for itself, hundreds of MiB, in it."""
        found = self.structure("MemoryInfo_v2", _Memory2(version=MEMORY_V2)) or self.structure("MemoryInfo", _Memory())
        return (found.total, found.used) if found else None

    def processes(self) -> dict[int, int] | None:
        """PID of each process that has a context here -> bytes of memory, 0 where NVML does not say how many.

        PIDs are those of the outermost PID namespace. None where NVML does not list them: nobody knows who works here.
        """
        held: dict[int, int] = {}
        answered = False
        for name in ("ComputeRunningProcesses", "MPSComputeRunningProcesses", "GraphicsRunningProcesses"):
            query = self.function(f"{name}_v2") or self.function(f"{name}_v3")  # R535 up to .86: _v3 is 32 bytes there
            for room in (64, 4096):
                count, infos = ctypes.c_uint(room), (_ProcessInfo * room)()
                code = query(self.handle, ctypes.byref(count), infos) if query else INSUFFICIENT_SIZE
                if code == OK:
                    answered = True
                    for info in infos[: count.value]:
                        held[info.pid] = info.used_bytes if info.used_bytes != NOT_SAID else 0
                if code != INSUFFICIENT_SIZE:
                    break
        return held if answered else None

    def reasons(self) -> tuple[str, ...] | None:
        """Why its clocks are where they are."""
        bits = self.number("CurrentClocksEventReasons", of=ctypes.c_ulonglong)
        if bits is None:
            bits = self.number("CurrentClocksThrottleReasons", of=ctypes.c_ulonglong)
        return None if bits is None else reason_names(bits)

    def utilisation(self) -> int | None:
        """Percent of NVML's last sample period in which a kernel ran."""
        used = self.structure("UtilizationRates", _Utilization())
        return used.gpu if used else None

    def state(self) -> State:
        """What it is doing at this moment."""
        used = self.structure("UtilizationRates", _Utilization())
        power, limit = self.number("PowerUsage"), self.number("EnforcedPowerLimit")
        return State(
            sm_mhz=self.number("ClockInfo", SM),
            sm_max_mhz=self.number("MaxClockInfo", SM),
            memory_mhz=self.number("ClockInfo", MEMORY),
            memory_max_mhz=self.number("MaxClockInfo", MEMORY),
            power_w=None if power is None else power / MILLI,
            power_limit_w=None if limit is None else limit / MILLI,
            temperature_c=self.number("Temperature", 0),  # NVML_TEMPERATURE_GPU
            utilisation_percent=used.gpu if used else None,
            memory_utilisation_percent=used.memory if used else None,
            throttle_reasons=self.reasons(),
        )


class Nvml:
    """NVML, opened; `with` closes it."""

    def __init__(self, name: str = LIBRARY) -> None:
        """Load it; NvmlError where it is not there."""
        try:
            self.library: Any = ctypes.CDLL(name)
        except OSError:
            raise NvmlError(f"no {name}: the GPU driver is not installed") from None
        if not hasattr(self.library, "nvmlInit_v2"):
            raise NvmlError(f"{name} is not NVML")

    def __enter__(self) -> Nvml:
        """Open; NvmlError where the driver does not answer."""
        code = self.library.nvmlInit_v2()
        if code != OK:
            raise NvmlError(f"nvmlInit_v2: NVML error {code}; {INIT.get(code, 'does nvidia-smi work?')}")
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.library.nvmlShutdown()

    @property
    def emulated(self) -> bool:
        """Host memory stands in for the GPUs."""
        return hasattr(self.library, EMULATED)

    def driver(self) -> str:
        """Version of the driver, "" where it does not say."""
        buffer = ctypes.create_string_buffer(96)
        code = self.library.nvmlSystemGetDriverVersion(buffer, ctypes.c_uint(96))
        return buffer.value.decode("utf-8", "replace") if code == OK else ""

    def count(self) -> int:
        """How many GPUs there are; NvmlError where NVML cannot tell."""
        count = ctypes.c_uint()
        code = self.library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        if code != OK:
            raise NvmlError(f"nvmlDeviceGetCount_v2: NVML error {code}")
        return count.value

    def gpu(self, index: int) -> Gpu:
        """One GPU by index; NvmlError where it does not answer."""
        return Gpu(self.library, index)

    def gpus(self) -> list[Gpu]:
        """All GPUs by index; NvmlError where they cannot be counted or one does not answer."""
        return [self.gpu(index) for index in range(self.count())]

    def answering(self) -> tuple[list[Gpu], list[str]]:
        """The GPUs that answer, by index, and in words why each other one does not; NvmlError where none is counted."""
        found: list[Gpu] = []
        silent: list[str] = []
        for index in range(self.count()):
            try:
                found.append(self.gpu(index))
            except NvmlError as fault:
                silent.append(str(fault))
        return found, silent
