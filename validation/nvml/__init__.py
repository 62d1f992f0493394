"""NVML of this machine, by NVIDIA's own binding: who the GPUs are, who works on them, what they are doing right now.

The one place that asks NVML, for probes, leases and the exporter. A driver may be older than the binding and lack a
function: then that one figure is not said. What a GPU or its driver does not say is None, never 0. Needed is only what
every driver since R450 has.

    with Nvml() as nvml:
        for gpu in nvml.gpus():
            gpu.uuid, gpu.processes(), gpu.state(), gpu.said("EccMode")
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from typing import Any

from validation.nvml import binding

LIBRARY = "libnvidia-ml.so.1"
EMULATED = "elasticAiEmulated"  # what the library of the lab's emulated devices exports, and none of NVIDIA's
OK, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 0, 2, 3, 7, 13  # nvmlReturn_t
BARRED = {4: "this user has no right to it: look at its device file"}  # NVML_ERROR_NO_PERMISSION
GONE = {15: "it has fallen off the bus", 16: "it has to be reset"}  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
INIT = {
    4: "this user cannot open the device files (such as /dev/nvidiactl)",
    9: "the kernel module of the driver is not loaded: modprobe nvidia",
    12: "a library of the driver is missing: install the driver again",
    18: "library and kernel module of the driver are of different versions: load the installed module, or reboot",
}
"""nvmlReturn_t of nvmlInit (nvml.h) -> what an operator looks at."""
GRAPHICS, SM, MEMORY = 0, 1, 2  # nvmlClockType_t
TEMPERATURE = 0  # NVML_TEMPERATURE_GPU
NOT_SAID = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
MILLI = 1000.0
#: NVML lists clients of MPS, and programs that draw, apart from other processes.
LISTS = tuple(f"{kind}RunningProcesses" for kind in ("Compute", "MPSCompute", "Graphics"))
ROOM = (64, 4096, 65536)  # processes that are asked for at first, and where there are more
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


class Unaskable(NvmlError):
    """NVML is there, and NVIDIA's binding of it is not."""


class NoNvml(NvmlError):
    """There is no library of NVML."""


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


class Device:
    """A GPU or a MIG instance of one. index: the GPU's. uuid: "" where it does not say."""

    def __init__(self, nvml: Nvml, index: int, handle: Any) -> None:
        """As NVML gave its handle."""
        self.nvml, self.index, self.handle = nvml, index, handle
        self.uuid = str(self.said("UUID") or "")

    def asked(self, name: str, *given: Any) -> tuple[int, Any]:
        """nvmlReturn_t of nvmlDeviceGet`name`, and what the binding makes of the answer; None where it failed."""
        return self.nvml.called(f"nvmlDeviceGet{name}", self.handle, *given)

    def there(self, code: int) -> bool:
        """Whether a call succeeded; NvmlError where it shows that the GPU is gone: then nothing is merely unsaid."""
        if code in GONE:
            raise NvmlError(f"GPU {self.index}: NVML error {code}, {GONE[code]}")
        return code == OK

    def said(self, name: str, *given: Any) -> Any:
        """What nvmlDeviceGet`name` answers to `given`, as the binding has it: a number, a text, a list or a structure.

        None where the GPU, its driver or the binding does not say.
        """
        code, answer = self.asked(name, *given)
        return answer if self.there(code) else None

    @property
    def memory(self) -> tuple[int, int] | None:
        """(total, used) bytes. Before R510 `used` has what the driver keeps for itself, hundreds of MiB, in it."""
        found = self.said("MemoryInfo", self.nvml.binding.nvmlMemory_v2) or self.said("MemoryInfo")
        return (found.total, found.used) if found else None

    def processes(self) -> dict[int, int] | None:
        """PID of each process that has a context here -> bytes of memory, 0 where NVML does not say how many.

        PIDs are those of the outermost PID namespace. None where NVML does not list them: nobody knows who works here.
        """
        held: dict[int, int] = {}
        lists = [listed for listed in map(self._listed, LISTS) if listed is not None]
        for pid, used in (one for listed in lists for one in listed):
            held[pid] = max(held.get(pid, 0), used)
        return held if lists else None

    def _listed(self, name: str) -> list[tuple[int, int]] | None:
        """Processes of one list, with their bytes; None where NVML has it not.

        Not by the binding's function. It asks for the newest form, _v3, which older drivers lack, and of which the
        first of R535 (up to .86) write entries of 32 bytes, so that each is read out of another: _v2 is of one size
        wherever it is. And it asks first how many there are, and fails where many more have begun meanwhile.
        """
        forms = (getattr(self.nvml.library, f"nvmlDeviceGet{name}{version}", None) for version in ("_v2", "_v3"))
        query = next((form for form in forms if form is not None), None)
        for room in ROOM:
            if query is None:
                break
            count, infos = ctypes.c_uint(room), (self.nvml.binding.c_nvmlProcessInfo_v2_t * room)()
            code = query(self.handle, ctypes.byref(count), infos)
            if code == OK:
                found = ((int(info.pid), int(info.usedGpuMemory)) for info in infos[: count.value])
                return [(pid, 0 if used == NOT_SAID else used) for pid, used in found]
            if code != INSUFFICIENT_SIZE:
                break
        return None

    def utilisation(self) -> int | None:
        """Percent of NVML's last sample period in which a kernel ran."""
        used = self.said("UtilizationRates")
        return int(used.gpu) if used else None


class Gpu(Device):
    """One GPU that NVML has found. index: NVML's (by PCI address), which CUDA counts by only if it is told to."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        """Its handle; NvmlError where it does not answer, as one that has fallen off the bus."""
        code, handle = nvml.called("nvmlDeviceGetHandleByIndex", index)
        if code != OK:
            why = {**GONE, **BARRED}.get(code)
            raise NvmlError(f"GPU {index}: NVML error {code}" + (f", {why}" if why else ""))
        super().__init__(nvml, index, handle)
        self.emulated, self.name = nvml.emulated, str(self.said("Name") or "")

    @property
    def address(self) -> str:
        """PCI address as sysfs writes it, "" where it does not say."""
        return address(self.said("PciInfo_v3"))

    def instances(self) -> tuple[list[Device], int] | None:
        """Its MIG instances, and of how many slices all of it is; None where it is not in MIG mode."""
        mode, slices = self.said("MigMode"), self.said("MaxMigDeviceCount")
        if not mode or not mode[0] or slices is None:
            return None
        handles = (self.said("MigDeviceHandleByIndex", place) for place in range(slices))
        return [Device(self.nvml, self.index, handle) for handle in handles if handle is not None], slices

    def unrepairable(self) -> bool | None:
        """Whether it has memory that cannot be repaired; of drivers from 590 on, None where it does not say.

        Not by the binding's function: in nvml.h the structure is that one number, and the binding has a version before
        it, so that it reads behind what a driver writes. What comes back of the version tells which of both it was.
        """
        status = self.nvml.binding.c_nvmlUnrepairableMemory_v1_t()
        function, version = getattr(self.nvml.library, "nvmlDeviceGetUnrepairableMemoryFlag_v1", None), status.version
        if function is None or not self.there(function(self.handle, ctypes.byref(status))):
            return None
        return bool(status.unrepairableMemory if status.version == version else status.version)

    def reasons(self) -> int | None:
        """Why its clocks are where they are: bits of REASONS."""
        bits = self.said("CurrentClocksEventReasons")
        return self.said("CurrentClocksThrottleReasons") if bits is None else int(bits)

    def state(self) -> State:
        """What it is doing at this moment."""
        used, bits = self.said("UtilizationRates"), self.reasons()
        power, limit = self.said("PowerUsage"), self.said("EnforcedPowerLimit")
        return State(
            sm_mhz=self.said("ClockInfo", SM),
            sm_max_mhz=self.said("MaxClockInfo", SM),
            memory_mhz=self.said("ClockInfo", MEMORY),
            memory_max_mhz=self.said("MaxClockInfo", MEMORY),
            power_w=None if power is None else power / MILLI,
            power_limit_w=None if limit is None else limit / MILLI,
            temperature_c=self.said("Temperature", TEMPERATURE),
            utilisation_percent=used.gpu if used else None,
            memory_utilisation_percent=used.memory if used else None,
            throttle_reasons=None if bits is None else reason_names(bits),
        )


def address(info: Any) -> str:
    """A PCI address as sysfs writes it; "" where there is none."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0" if info else ""


class Nvml:
    """NVML, opened; `with` closes it."""

    def __init__(self, name: str = LIBRARY) -> None:
        """Load it and the binding; NvmlError where either is not there.

        Loaded and opened here, not by the binding: that knows one name of the library, and its nvmlInit is another
        function, whose return value says the same.
        """
        try:
            self.library: Any = ctypes.CDLL(name)
        except OSError:
            raise NoNvml(f"no {name}: the GPU driver is not installed") from None
        if not hasattr(self.library, "nvmlInit_v2"):
            raise NvmlError(f"{name} is not NVML")
        try:
            self.binding = binding.load(self.library)
        except binding.Unusable as fault:
            raise Unaskable(f"there is nothing to ask NVML by: {fault}") from None

    def __enter__(self) -> Nvml:
        """Open; NvmlError where the driver does not answer."""
        code = self.library.nvmlInit_v2()
        if code != OK:
            raise NvmlError(f"nvmlInit_v2: NVML error {code}; {INIT.get(code, 'does nvidia-smi work?')}")
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.library.nvmlShutdown()

    def called(self, name: str, *given: Any) -> tuple[int, Any]:
        """nvmlReturn_t of a function, and what the binding makes of the answer; None where it failed.

        The driver may lack the function, or the binding, whichever is older: FUNCTION_NOT_FOUND. A text is decoded
        here, for the binding fails at one that is not UTF-8.
        """
        function = getattr(self.binding, name, None)
        if function is None:
            return FUNCTION_NOT_FOUND, None
        try:
            answer = getattr(function, "__wrapped__", function)(*given)
        except self.binding.NVMLError as fault:
            return int(fault.value), None
        return OK, answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer

    @property
    def emulated(self) -> bool:
        """Host memory stands in for the GPUs."""
        return hasattr(self.library, EMULATED)

    def driver(self) -> str:
        """Version of the driver, "" where it does not say."""
        return str(self.called("nvmlSystemGetDriverVersion")[1] or "")

    def count(self) -> int:
        """How many GPUs there are; NvmlError where NVML cannot tell."""
        code, count = self.called("nvmlDeviceGetCount")
        if code != OK:
            raise NvmlError(f"nvmlDeviceGetCount_v2: NVML error {code}")
        return int(count)

    def gpu(self, index: int) -> Gpu:
        """One GPU by index; NvmlError where it does not answer."""
        return Gpu(self, index)

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
