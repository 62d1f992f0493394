"""Parts of GPUs as MIG instances: hardware of their own, which nothing of another tenant reaches.

The administrator divides GPUs (`nvidia-smi mig`); a lease of a part gets an instance that exists and is free, of
exactly the slices that it asks for: 1/7 of an H200 is one slice of seven. Nothing is created or destroyed here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.fraction import share_text
from toolkit.lease.machine.fence import CAPABILITIES
from toolkit.lease.machine.nvml import Gpu, MigInstance
from toolkit.lease.server_conf import ServerConf

DEVICES = Path("/dev/nvidia-caps")


class NoInstance(LeaseError):
    """All instances of that size are in use, or the GPU has none of it."""


def instance_for(gpu: Gpu, shards: int, of: int, taken: Collection[str]) -> MigInstance:
    """A free instance of a GPU for a part. LeaseError where this GPU never has one, NoInstance where none is free.

    taken: UUIDs that other leases have.
    """
    if gpu.mig is None:
        raise LeaseError(
            f"GPU {gpu.index} is not divided by MIG, which is to hold parts here (remoting_server_enforcement): "
            f"nvidia-smi -i {gpu.index} -mig 1, then nvidia-smi mig -i {gpu.index} -cgi … -C"
        )
    sizes = [Fraction(instance.slices, gpu.mig_slices) for instance in gpu.mig]
    wanted = Fraction(shards, of)
    if wanted not in sizes:
        there = ", ".join(dict.fromkeys(str(size) for size in sorted(sizes))) or "none"
        words = f"GPU {gpu.index} has no MIG instance of {share_text(shards, of)} (there are: {there})"
        raise LeaseError(words if wanted < 1 else f"{words}; whole GPUs are those that are not divided")
    free = [one for one, size in zip(gpu.mig, sizes) if size == wanted and one.uuid not in taken]
    if not free:
        raise NoInstance(f"all MIG instances of {wanted} of GPU {gpu.index} are in use")
    return free[0]


def leased(gpu: Gpu, shards: int, of: int, conf: ServerConf, lower_mib: int, taken: Collection[str]) -> LeasedGpu:
    """An instance as a lease gets it; lower_mib: a lower limit of memory that the lease asks for, 0 for none."""
    if conf.enforcement != "mig":
        raise LeaseError(f"GPU {gpu.index} is divided by MIG; set remoting_server_enforcement: mig")
    found = instance_for(gpu, shards, of, taken)
    files = () if gpu.emulated else device_files(gpu.index, found)
    limit = min(lower_mib, found.memory_mib) if lower_mib else None
    about = (gpu.index, found.uuid, gpu.name, found.memory_mib, shards, of, limit, gpu.emulated)
    one = LeasedGpu(*about, gpu_uuid=gpu.uuid, device_files=files)
    return replace(one, capability=gpu.capability, driver=gpu.driver, cuda=gpu.cuda)


def device_files(index: int, instance: MigInstance) -> tuple[str, ...]:
    """The device files that an instance needs beside those of its GPU; made where they are not there yet."""
    folder = CAPABILITIES / f"gpu{index}" / "mig" / f"gi{instance.gpu_instance}"
    files = []
    for access in (folder / "access", folder / f"ci{instance.compute_instance}" / "access"):
        try:
            minor = re.search(r"^DeviceFileMinor: (\d+)$", access.read_text(), re.MULTILINE)
        except OSError as fault:
            raise LeaseError(f"MIG instance {instance.uuid}: {access}: {fault.strerror}") from None
        if minor is None:
            raise LeaseError(f"MIG instance {instance.uuid}: {access} names no device file")
        path = DEVICES / f"nvidia-cap{minor[1]}"
        if not path.exists():
            with suppress(OSError):  # it is not installed: the error below says what is missing
                subprocess.run(["nvidia-modprobe", "-f", str(access)], capture_output=True, check=False, timeout=20)
        if not path.exists():
            raise LeaseError(f"MIG instance {instance.uuid}: {path} is not there; nvidia-modprobe -f {access} makes it")
        files.append(str(path))
    return tuple(files)
