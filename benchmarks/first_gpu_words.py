"""What a driver and its libraries say of themselves and of the GPUs, for first_gpu.py: one JSON document each.

    benchmarks/first_gpu_words.py driver | machine | kernels

driver: functions by name and version, errors with their texts, attributes, limits, codes of NVML, faults that a program
meets. machine: nvidia-smi and the kernel, in their own words. kernels: the toolkit's own kernels, compiled by this
driver and held against what they have to compute. What a part cannot ask costs no other ("failed" in its place).
Exit code 1 where something was not answered or a kernel computed wrongly, 3 where there is no driver.
"""

from __future__ import annotations

import ctypes
import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = (2000, 3020, 4000, 7000, 11030, 11040, 12000, 12040, 12050, 12080, 13000)
"""Of CUDA, at which a function changed."""
ERRORS, ATTRIBUTES, LIMITS, LINKS, FUNCTION_ATTRIBUTES = 1000, 200, 14, 40, 20
"""Numbers below which all are asked for."""
NO_DRIVER = 3
"""Exit code where there is no driver, or no GPU that it finds."""
ONE_NUMBER = (
    "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth",
    "GpuMaxPcieLinkGeneration", "PcieReplayCounter", "PcieSpeed", "PcieLinkMaxSpeed", "PowerUsage",
    "EnforcedPowerLimit", "PowerManagementLimit", "PersistenceMode", "ComputeMode", "MinorNumber", "NumGpuCores",
    "MaxMigDeviceCount", "RetiredPagesPendingStatus", "NumaNodeId", "GspFirmwareMode",
)  # fmt: skip
BY_KIND = {
    "TemperatureThreshold": 8, "ClockInfo": 4, "MaxClockInfo": 4, "ApplicationsClock": 4, "DefaultApplicationsClock": 4,
    "Temperature": 1,
}  # fmt: skip
SMI = ("", "-L", "-q", "topo -m", "nvlink -s", "nvlink -R", "mig -lgip")
"""What nvidia-smi is asked."""
WORDS = (
    ("uname", "-a"), ("nproc",), ("systemd-detect-virt",), ("cat", "/etc/os-release"), ("ldconfig", "-p"),
    *(("nvidia-smi", *one.split()) for one in SMI), ("cat", "/proc/driver/nvidia/version"),
    ("cat", "/proc/driver/nvidia/params"), ("nvcc", "--version"), ("gcc", "--version"),
)  # fmt: skip


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def name_of(address: int | None) -> str | None:
    """Of a function in memory, by the loader."""
    if not address:
        return None
    info = _Symbol()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    return info.name.decode() if found and info.name else "no name"


def entries() -> list[tuple[str, int, str]]:
    """(name, version of CUDA, function) of all that the engine declares."""
    text = "".join(path.read_text() for path in sorted((ROOT / "engine/shared").glob("cu*.h")))
    return [(name, int(version), symbol) for name, version, symbol in re.findall(r"X\((\w+), (\d+), (\w+),", text)]


def number(call: Callable[..., int], *given: Any, kind: Any = ctypes.c_int, after: Sequence[Any] = ()) -> list[int]:
    """Code and value of a function whose first argument, or that after `given`, takes a number."""
    value = kind(0)
    code = call(*given, ctypes.byref(value), *after)
    return [code, value.value]


def part(call: Callable[[], Any]) -> Any:
    """What it says, or why it cannot: an older driver lacks functions."""
    try:
        return call()
    except Exception as fault:  # nobody asks this machine a second time
        return {"failed": f"{type(fault).__name__}: {fault}"}


def address_of(cuda: ctypes.CDLL, name: str, version: int) -> list[Any]:
    """Code, status and name of what cuGetProcAddress finds; before CUDA 12.0 it tells no status."""
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    given = (name.encode(), ctypes.byref(found), version, ctypes.c_uint64(0))
    if hasattr(cuda, "cuGetProcAddress_v2"):
        return [cuda.cuGetProcAddress_v2(*given, ctypes.byref(status)), status.value, name_of(found.value)]
    return [cuda.cuGetProcAddress(*given), None, name_of(found.value)]


def functions(cuda: ctypes.CDLL, newest: int) -> dict[str, Any]:
    """What cuGetProcAddress answers for every name at every version, and where the engine has another function."""
    declared, table = entries(), {}
    for name in sorted({name for name, _, _ in declared} | {"cuGetExportTable", "cuNoSuchFunction"}):
        for version in (*VERSIONS, newest):
            table[f"{name} {version}"] = address_of(cuda, name, version)
    others = [
        [name, version, symbol, table[f"{name} {version}"][2]]
        for name, version, symbol in declared
        if table.get(f"{name} {version}", [0, 0, None])[2] not in (symbol, None)
    ]
    absent = sorted({symbol for _, _, symbol in declared if not hasattr(cuda, symbol)})
    return {"by_version": table, "engine_has_another": others, "absent": absent}


def errors(cuda: ctypes.CDLL) -> dict[int, list[str]]:
    """Name and text of every error number that has one."""
    found = {}
    for code in range(ERRORS):
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        if cuda.cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value:
            cuda.cuGetErrorString(code, ctypes.byref(text))
            found[code] = [name.value.decode(), (text.value or b"").decode()]
    return found


def met(cuda: ctypes.CDLL) -> dict[str, int]:
    """Codes of faults that a program meets."""
    module, memory = ctypes.c_void_p(), ctypes.c_uint64()
    head = b".address_size 64\n\0"
    return {
        "no code": cuda.cuModuleLoadData(ctypes.byref(module), b"nothing\0"),
        "newer PTX": cuda.cuModuleLoadData(ctypes.byref(module), b".version 99.0\n.target sm_90\n" + head),
        "newer GPU": cuda.cuModuleLoadData(ctypes.byref(module), b".version 8.0\n.target sm_999\n" + head),
        "free of what is not allocated": cuda.cuMemFree_v2(ctypes.c_uint64(4096)),
        "too much memory": cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 42)),
        "no bytes": cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(0)),
    }


def device(cuda: ctypes.CDLL, index: int) -> dict[str, Any]:
    """Every attribute of a GPU that has one."""
    code, handle = number(cuda.cuDeviceGet, after=(index,))
    asked = {key: number(cuda.cuDeviceGetAttribute, after=(key, handle)) for key in range(ATTRIBUTES)}
    return {"code": code, "attributes": asked}


def in_context(cuda: ctypes.CDLL) -> dict[str, Any]:
    """Limits, memory and faults of the first GPU."""
    context = ctypes.c_void_p()
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    if code:
        return {"failed": f"cuDevicePrimaryCtxRetain: code {code}"}
    cuda.cuCtxSetCurrent(context)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def memory() -> list[int]:
        return [cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), free.value, total.value]

    def limits() -> dict[int, list[int]]:
        return {k: number(cuda.cuCtxGetLimit, kind=ctypes.c_size_t, after=(k,)) for k in range(LIMITS)}

    return {"limits": part(limits), "memory": part(memory), "faults": part(lambda: met(cuda))}


def driver() -> dict[str, Any]:
    """Of libcuda and NVML."""
    cuda = ctypes.CDLL("libcuda.so.1")
    told: dict[str, Any] = {"cuInit": cuda.cuInit(0), "version": number(cuda.cuDriverGetVersion)}
    told["emulated"] = hasattr(cuda, "elasticAiEmulated")
    told["functions"] = part(lambda: functions(cuda, told["version"][1]))
    told["errors"] = part(lambda: errors(cuda))
    count = number(cuda.cuDeviceGetCount)[1]
    told["devices"] = [part(lambda index=index: device(cuda, index)) for index in range(count)]
    if told["devices"]:
        told |= in_context(cuda)
    told["nvml"] = part(nvml)
    return told


def unanswered(told: Any) -> list[str]:
    """What parts said why they could not, at any depth."""
    if isinstance(told, dict):
        own = [told["failed"]] if "failed" in told else []
        return own + [words for value in told.values() for words in unanswered(value)]
    return [words for value in told for words in unanswered(value)] if isinstance(told, list) else []


def nvml() -> dict[str, Any]:
    """Codes and values of its numbers, of every GPU and link."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as fault:
        return {"absent": str(fault)}
    told: dict[str, Any] = {"init": library.nvmlInit_v2(), "gpus": []}
    for index in range(number(library.nvmlDeviceGetCount_v2, kind=ctypes.c_uint)[1]):
        handle = ctypes.c_void_p()
        said: dict[str, Any] = {"handle": library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))}
        for name in ONE_NUMBER:
            call = getattr(library, f"nvmlDeviceGet{name}", None)
            said[name] = None if call is None else number(call, handle, kind=ctypes.c_uint)
        for name, most in BY_KIND.items():
            call = getattr(library, f"nvmlDeviceGet{name}", None)
            said[name] = None if call is None else [number(call, handle, k) for k in range(most)]
        for name in ("CurrentClocksEventReasons", "SupportedClocksEventReasons"):
            call = getattr(library, f"nvmlDeviceGet{name}", None)
            said[name] = None if call is None else number(call, handle, kind=ctypes.c_ulonglong)
        call = getattr(library, "nvmlDeviceGetNvLinkState", None)
        said["nvlinks"] = None if call is None else [number(call, handle, link) for link in range(LINKS)]
        told["gpus"].append(said)
    return told


def machine() -> dict[str, Any]:
    """Commands with what they say; their exit code, or why they did not run."""
    told: dict[str, Any] = {}
    for words in WORDS:
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, timeout=20)
            told[" ".join(words)] = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
        except (OSError, subprocess.TimeoutExpired) as fault:
            told[" ".join(words)] = {"code": None, "out": "", "err": str(fault)}
    for device in sorted(Path("/sys/bus/pci/devices").glob("*")):
        if _text(device / "vendor") != "0x10de":
            continue
        keys = ("device", "class", "numa_node", "current_link_speed", "current_link_width", "max_link_speed")
        told[device.name] = {key: _text(device / key) for key in (*keys, "max_link_width")}
    return told


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as fault:
        return str(fault)


class Kernels:
    """The kernels of engine/kernels/checks.ptx on GPU 0."""

    def __init__(self) -> None:
        """RuntimeError, with the call and its code, where the driver refuses something."""
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self._do("cuInit", 0)
        context, self.module = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._do("cuCtxSetCurrent", context)
        ptx = (ROOT / "engine/kernels/checks.ptx").read_bytes()
        self._do("cuModuleLoadData", ctypes.byref(self.module), ptx + b"\0")
        self.names = re.findall(rb"\.visible \.entry (\w+)", ptx)

    def _do(self, name: str, *given: Any) -> None:
        code = getattr(self.cuda, name)(*given)
        if code:
            raise RuntimeError(f"{name}: code {code}")

    def function(self, name: str) -> ctypes.c_void_p:
        """By its name."""
        found = ctypes.c_void_p()
        self._do("cuModuleGetFunction", ctypes.byref(found), self.module, name.encode())
        return found

    def memory(self, data: bytes) -> ctypes.c_uint64:
        """Of the GPU, with these bytes."""
        at = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(len(data)))
        self._do("cuMemcpyHtoD_v2", at, data, ctypes.c_size_t(len(data)))
        return at

    def back(self, at: ctypes.c_uint64, form: str) -> tuple[Any, ...]:
        """What is there, as struct reads it."""
        size = struct.calcsize(form)
        into = ctypes.create_string_buffer(size)
        self._do("cuMemcpyDtoH_v2", into, at, ctypes.c_size_t(size))
        return struct.unpack(form, into.raw)

    def launch(self, name: str, grid: int, block: int, given: Sequence[Any], shared: int = 0) -> None:
        """And wait for its end."""
        each = [ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in given]
        shape = [ctypes.c_uint(n) for n in (grid, 1, 1, block, 1, 1, shared)]
        self._do("cuLaunchKernel", self.function(name), *shape, None, (ctypes.c_void_p * len(each))(*each), None)
        self._do("cuCtxSynchronize")

    def attributes(self) -> dict[str, Any]:
        """Of every kernel, as this driver compiled it."""
        return {
            name.decode(): [
                number(self.cuda.cuFuncGetAttribute, after=(key, self.function(name.decode())))
                for key in range(FUNCTION_ATTRIBUTES)
            ]
            for name in self.names
        }


def kernels() -> dict[str, Any]:
    """Whether each computed what it has to, and the attributes of all."""
    gpu, right = Kernels(), {}
    numbers = gpu.memory(struct.pack("1000f", *range(1000)))
    gpu.launch("scale", 4, 256, [numbers, ctypes.c_float(0.5), ctypes.c_uint(1000)])
    right["scale"] = gpu.back(numbers, "1000f") == tuple(i * 0.5 for i in range(1000))
    many, total = gpu.memory(struct.pack("10000i", *range(10000))), gpu.memory(bytes(4))
    gpu.launch("sum", 40, 256, [many, total, ctypes.c_uint(10000)])
    right["sum"] = gpu.back(total, "i") == (sum(range(10000)),)
    turned = gpu.memory(struct.pack("1024i", *range(1024)))
    gpu.launch("turn", 4, 256, [turned], 1024)
    right["turn"] = gpu.back(turned, "1024i") == tuple(b * 256 + 255 - k for b in range(4) for k in range(256))
    return {"right": right, "attributes": gpu.attributes()}


def main() -> int:
    """Command line."""
    what = {"driver": driver, "machine": machine, "kernels": kernels}.get(sys.argv[1] if len(sys.argv) == 2 else "")
    if what is None:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        told = what()
    except (OSError, RuntimeError) as fault:
        print(fault, file=sys.stderr)
        return NO_DRIVER if isinstance(fault, OSError) else 1
    print(json.dumps(told, indent=1))
    if told.get("cuInit", 0) != 0:
        print(f"cuInit: code {told['cuInit']}", file=sys.stderr)
        return NO_DRIVER
    for words in unanswered(told):
        print(words, file=sys.stderr)
    return int(bool(unanswered(told)) or not all(told.get("right", {}).values()))


if __name__ == "__main__":
    sys.exit(main())
