"""The GPUs of this server by NVML, through ctypes: nodes have no pynvml.

Functions and structures as in nvml.h; only what every driver since R450 has.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.lease import LeaseError

LIBRARY = "libnvidia-ml.so.1"
MIB = 1 << 20
#: What the libraries of emulated devices export, and no driver of NVIDIA's (engine/devices/emulated.h).
EMULATED = "elasticAiEmulated"
_SUCCESS, _INSUFFICIENT_SIZE = 0, 7
_NOT_SAID = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
#: NVML lists clients of MPS, and programs that draw, apart from other processes.
_PROCESSES = tuple(f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "MPSCompute", "Graphics"))


@dataclass(frozen=True)
class MigInstance:
    """A MIG instance that exists, one compute instance of all of its slices. sm_count: its multiprocessors."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    slices: int
    memory_mib: int
    sm_count: int


@dataclass(frozen=True)
class Gpu:
    """One GPU. index: the N of /dev/nvidiaN, by which Slurm counts. memory_mib: total, rounded down; reserved_mib: what
    the driver keeps of it, rounded up. emulated: host memory stands in for it. sm_count: its streaming multiprocessors,
    None where they are not known. mig: the instances of mig_slices slices that a GPU in MIG mode is divided into, None
    for one that is not."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int
    emulated: bool = False
    sm_count: int | None = None
    mig: tuple[MigInstance, ...] | None = None
    mig_slices: int = 0
    reserved_mib: int = 0


#: FP32 cores of one SM by compute capability: CUDA C++ Programming Guide, "Arithmetic Instructions" (per clock; those
#: before 7.0 in its editions of CUDA 11 and 12). 8.7 and 11.0 are Jetson's, 10.3 is B300's, 12.1 is DGX Spark's.
CORES_PER_SM = {
    **dict.fromkeys(((3, 0), (3, 2), (3, 5), (3, 7)), 192),
    **dict.fromkeys(((5, 0), (5, 2), (5, 3), (6, 1), (6, 2)), 128),
    **dict.fromkeys(((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)), 64),
    **dict.fromkeys(((8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)), 128),
}


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _MemoryV2(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class _ProcessInfo(ctypes.Structure):  # nvmlProcessInfo_v2_t and _v3_t
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Attributes(ctypes.Structure):  # nvmlDeviceAttributes_t
    _fields_ = [
        *(
            (name, ctypes.c_uint)
            for name in ("sms", "copy", "decoders", "encoders", "jpeg", "ofa", "gpu_slices", "compute_slices")
        ),
        ("memory_mib", ctypes.c_ulonglong),
    ]


@contextmanager
def _opened() -> Iterator[Any]:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise LeaseError(f"this server has no {LIBRARY}: the GPU driver is not installed") from None
    code = library.nvmlInit_v2()
    if code != _SUCCESS:
        raise LeaseError(f"nvmlInit failed (error {code}); check the GPU driver with nvidia-smi")
    try:
        yield library
    finally:
        library.nvmlShutdown()


def _text(function: Any, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(96)
    code = function(handle, buffer, ctypes.c_uint(96))
    if code != _SUCCESS:
        raise LeaseError(f"NVML error {code} ({function.__name__})")
    return buffer.value.decode()


def _handles(library: Any) -> list[ctypes.c_void_p]:
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        raise LeaseError("NVML cannot count the GPUs")
    handles = []
    for position in range(count.value):
        handle = ctypes.c_void_p()
        code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(position), ctypes.byref(handle))
        if code != _SUCCESS:
            raise LeaseError(f"GPU {position} does not answer (NVML error {code})")
        handles.append(handle)
    return handles


def _gpu(library: Any, position: int, handle: ctypes.c_void_p) -> Gpu:
    minor, memory = ctypes.c_uint(), _Memory()
    # A device that is none of the driver's, as an emulated one, may have no minor number.
    known = library.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor)) == _SUCCESS
    code = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    if code != _SUCCESS:
        raise LeaseError(f"GPU {position}: cannot read memory size (NVML error {code})")
    mig, slices = _mig(library, handle)
    return Gpu(
        index=minor.value if known else position,
        uuid=_text(library.nvmlDeviceGetUUID, handle),
        name=_text(library.nvmlDeviceGetName, handle),
        memory_mib=memory.total // MIB,
        used_mib=memory.used // MIB,
        emulated=hasattr(library, EMULATED),
        sm_count=_sm_count(library, handle),
        mig=mig,
        mig_slices=slices,
        reserved_mib=-(-_reserved(library, handle) // MIB),
    )


def _mig_handles(library: Any, handle: ctypes.c_void_p) -> tuple[list[ctypes.c_void_p], int] | None:
    """The MIG devices of a GPU, and how many slices it has; None where it is not in MIG mode."""
    now, later, slices = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    mode = getattr(library, "nvmlDeviceGetMigMode", None)  # from R450 on
    if mode is None or mode(handle, ctypes.byref(now), ctypes.byref(later)) != _SUCCESS or not now.value:
        return None
    if library.nvmlDeviceGetMaxMigDeviceCount(handle, ctypes.byref(slices)) != _SUCCESS:
        return None
    found = []
    for position in range(slices.value):
        device = ctypes.c_void_p()
        place = ctypes.c_uint(position)
        if library.nvmlDeviceGetMigDeviceHandleByIndex(handle, place, ctypes.byref(device)) == _SUCCESS:
            found.append(device)
    return found, slices.value


def _mig(library: Any, handle: ctypes.c_void_p) -> tuple[tuple[MigInstance, ...] | None, int]:
    """The instances that are held apart whole: several compute instances of one share its memory, and are left out."""
    handles = _mig_handles(library, handle)
    if handles is None:
        return None, 0
    found = []
    for device in handles[0]:
        about, gpu_instance, compute_instance = _Attributes(), ctypes.c_uint(), ctypes.c_uint()
        codes = (
            library.nvmlDeviceGetAttributes_v2(device, ctypes.byref(about)),
            library.nvmlDeviceGetGpuInstanceId(device, ctypes.byref(gpu_instance)),
            library.nvmlDeviceGetComputeInstanceId(device, ctypes.byref(compute_instance)),
        )
        if any(codes):
            raise LeaseError(f"a MIG instance does not answer (NVML errors {codes})")
        if about.gpu_slices == about.compute_slices:
            uuid = _text(library.nvmlDeviceGetUUID, device)
            ids = (gpu_instance.value, compute_instance.value)
            found.append(MigInstance(uuid, *ids, about.gpu_slices, about.memory_mib, about.sms))
    return tuple(found), handles[1]


def _sm_count(library: Any, handle: ctypes.c_void_p) -> int | None:
    """NVML counts cores and no SMs; None for a driver (before R470) or a generation that does not say."""
    cores, major, minor = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int()
    function = getattr(library, "nvmlDeviceGetNumGpuCores", None)
    if function is None or function(handle, ctypes.byref(cores)) != _SUCCESS:
        return None
    if library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) != _SUCCESS:
        return None
    per_sm = CORES_PER_SM.get((major.value, minor.value))
    return cores.value // per_sm if per_sm else None


def _reserved(library: Any, handle: ctypes.c_void_p) -> int:
    """Bytes that the driver keeps for itself; 0 where it is too old to say so (before R470)."""
    memory = _MemoryV2(version=ctypes.sizeof(_MemoryV2) | 2 << 24)
    if not hasattr(library, "nvmlDeviceGetMemoryInfo_v2"):
        return 0
    code = library.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory))
    return int(memory.reserved) if code == _SUCCESS else 0


def gpus() -> list[Gpu]:
    """All GPUs of this server, by index."""
    with _opened() as library:
        found = [_gpu(library, i, handle) for i, handle in enumerate(_handles(library))]
    return sorted(found, key=lambda gpu: gpu.index)


def _listed(query: Any, handle: ctypes.c_void_p) -> tuple[ctypes.c_uint, Any, int]:
    """The processes of a device, however many there are."""
    for room in (256, 4096, 65536):
        count, infos = ctypes.c_uint(room), (_ProcessInfo * room)()
        code = int(query(handle, ctypes.byref(count), infos))
        if code != _INSUFFICIENT_SIZE:
            break
    return count, infos, code


def memory_by_process() -> dict[str, dict[int, int]]:
    """Bytes that each process has on each GPU and MIG instance: UUID -> PID -> bytes, 0 where NVML does not say how
    many. One that cannot say is left out."""
    found: dict[str, dict[int, int]] = {}
    with _opened() as library:
        queries = [query for query in map(partial(_known, library), _PROCESSES) if query is not None]
        whole = _handles(library)
        for handle in [*whole, *(one for gpu in whole for one in (_mig_handles(library, gpu) or ([], 0))[0])]:
            for query in queries:
                count, infos, code = _listed(query, handle)
                if code == _SUCCESS:
                    held = found.setdefault(_text(library.nvmlDeviceGetUUID, handle), {})
                    for info in infos[: count.value]:
                        held.setdefault(info.pid, info.used_memory if info.used_memory != _NOT_SAID else 0)
    return found


def _known(library: Any, name: str) -> Any:
    """A function in the version whose structure is known here; None where this driver has it in none. Not _v3 where
    there is a _v2: of the first drivers of R535 (up to .86) its structure is another, of 32 bytes."""
    versions = (getattr(library, f"{name}{version}", None) for version in ("_v2", "_v3"))
    return next((function for function in versions if function is not None), None)


def processes() -> dict[str, list[int]]:
    """PIDs with memory on each GPU and MIG instance, by UUID. One that cannot say is left out."""
    return {uuid: list(held) for uuid, held in memory_by_process().items()}


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def utilisation() -> dict[str, int | None]:
    """Share of time (%) in which each GPU worked, over the driver's last sample (up to a second), by UUID; None where
    it does not say, as of one that is divided by MIG."""
    found: dict[str, int | None] = {}
    with _opened() as library:
        for handle in _handles(library):
            rates = _Utilisation()
            said = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == _SUCCESS
            found[_text(library.nvmlDeviceGetUUID, handle)] = rates.gpu if said else None
    return found


def driver_version() -> str:
    """The driver's version."""
    with _opened() as library:
        buffer = ctypes.create_string_buffer(96)
        library.nvmlSystemGetDriverVersion(buffer, ctypes.c_uint(96))
        return buffer.value.decode()


def contexts(cache: Path) -> dict[str, int]:
    """What a context takes of each GPU (bytes), by UUID, as measured on this server (module context_size)."""
    from toolkit.lease import context_size

    return context_size.measured(cache)
