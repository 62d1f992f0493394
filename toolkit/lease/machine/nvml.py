"""The GPUs of this server as leases need them, by NVML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from toolkit.lease import LeaseError
from validation import nvml
from validation.nvml import Device, Nvml, NvmlError

MIB = 1 << 20
#: A driver's version, as leases carry it.
DRIVER = r"[A-Za-z0-9._+-]{0,79}"


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
    for one that is not. capability: "9.0", driver: its version, cuda: the newest that it has, as 13000; "" and 0 where
    that is not said."""

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
    capability: str = ""
    driver: str = ""
    cuda: int = 0


#: FP32 cores of one SM by compute capability: CUDA C++ Programming Guide, "Arithmetic Instructions" (per clock; those
#: before 7.0 in its editions of CUDA 11 and 12). 8.7 and 11.0 are Jetson's, 10.3 is B300's, 12.1 is DGX Spark's.
CORES_PER_SM = {
    **dict.fromkeys(((3, 0), (3, 2), (3, 5), (3, 7)), 192),
    **dict.fromkeys(((5, 0), (5, 2), (5, 3), (6, 1), (6, 2)), 128),
    **dict.fromkeys(((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)), 64),
    **dict.fromkeys(((8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)), 128),
}


@contextmanager
def _opened() -> Iterator[Nvml]:
    try:
        with Nvml() as opened:
            yield opened
    except NvmlError as fault:
        raise LeaseError(f"this server's GPUs cannot be asked: {fault}") from None


def _gpu(gpu: nvml.Gpu) -> Gpu:
    memory, minor, divided = gpu.said("MemoryInfo"), gpu.said("MinorNumber"), gpu.instances()
    if memory is None or not gpu.uuid or not gpu.name:
        raise LeaseError(f"GPU {gpu.index} does not say what it is: its UUID, name or memory; look at nvidia-smi")
    mig, slices = divided or (None, 0)
    capability = gpu.said("CudaComputeCapability")
    return Gpu(
        # a device that is none of the driver's, as an emulated one, may have no minor number
        index=gpu.index if minor is None else minor,
        uuid=gpu.uuid,
        name=gpu.name,
        memory_mib=memory.total // MIB,
        used_mib=memory.used // MIB,
        emulated=gpu.emulated,
        sm_count=_sm_count(gpu),
        mig=None if mig is None else tuple(one for one in map(_instance, mig) if one is not None),
        mig_slices=slices,
        reserved_mib=-(-_reserved(gpu) // MIB),
        capability=".".join(map(str, capability)) if capability else "",
        driver=found if re.fullmatch(DRIVER, found := gpu.nvml.driver()) else "",
        cuda=int(gpu.nvml.called("nvmlSystemGetCudaDriverVersion_v2")[1] or 0),
    )


def _instance(device: Device) -> MigInstance | None:
    """One that is held apart whole: several compute instances of one share its memory, and are left out."""
    about, first, second = map(device.said, ("Attributes_v2", "GpuInstanceId", "ComputeInstanceId"))
    if about is None or first is None or second is None or not device.uuid:
        raise LeaseError(f"a MIG instance of GPU {device.index} does not answer NVML; look at nvidia-smi -L")
    if about.gpuInstanceSliceCount != about.computeInstanceSliceCount:
        return None
    slices, memory_mib, sm_count = about.gpuInstanceSliceCount, about.memorySizeMB, about.multiprocessorCount
    return MigInstance(device.uuid, first, second, slices, memory_mib, sm_count)


def _sm_count(gpu: Device) -> int | None:
    """NVML counts cores and no SMs; None for a driver (before R470) or a generation that does not say."""
    cores, capability = gpu.said("NumGpuCores"), gpu.said("CudaComputeCapability")
    per_sm = CORES_PER_SM.get(tuple(capability)) if capability else None
    return None if cores is None or per_sm is None else int(cores) // per_sm


def _reserved(gpu: Device) -> int:
    """Bytes that the driver keeps for itself; 0 where it is too old to say so (before R510)."""
    memory = gpu.said("MemoryInfo", gpu.nvml.binding.nvmlMemory_v2)
    return int(memory.reserved) if memory else 0


def gpus() -> list[Gpu]:
    """All GPUs of this server, by index."""
    with _opened() as opened:
        return sorted(map(_gpu, opened.gpus()), key=lambda gpu: gpu.index)


def memory_by_process() -> dict[str, dict[int, int]]:
    """Bytes that each process has on each GPU and MIG instance: UUID -> PID -> bytes, 0 where NVML does not say how
    many. One that cannot say is left out."""
    with _opened() as opened:
        whole = opened.gpus()
        parts = [one for gpu in whole for one in (gpu.instances() or ([], 0))[0]]
        lists = [(device.uuid, device.processes()) for device in (*whole, *parts)]
    return {uuid: held for uuid, held in lists if held is not None}


def processes() -> dict[str, list[int]]:
    """PIDs with memory on each GPU and MIG instance, by UUID. One that cannot say is left out."""
    return {uuid: list(held) for uuid, held in memory_by_process().items()}


def utilisation() -> dict[str, int | None]:
    """Share of time (%) in which each GPU worked, over the driver's last sample (up to a second), by UUID; None where
    it does not say, as of one that is divided by MIG."""
    with _opened() as opened:
        rates = {gpu.uuid: gpu.asked("UtilizationRates")[1] for gpu in opened.gpus()}
    return {uuid: rate.gpu if rate else None for uuid, rate in rates.items()}


def driver_version() -> str:
    """The driver's version."""
    with _opened() as opened:
        return opened.driver()
