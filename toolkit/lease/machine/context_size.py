"""What a CUDA context takes of each GPU of this server, measured: programs need one before they have any memory.

A program of its own makes the contexts, one after the other, and NVML says what that process then has. Done once for a
driver and its GPUs, until the server restarts.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.machine import nvml

#: The program ends itself after so long; a driver without persistence mode starts its GPUs first.
MEASURE_S = 90


def hold() -> None:
    """In the program: a context on each GPU, held until the input ends; a line when they are there."""
    signal.alarm(MEASURE_S)
    library, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if code := library.cuInit(0):
        sys.exit(f"cuInit: CUDA error {code}")
    library.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        if code := library.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), ordinal):
            print(f"GPU {ordinal}: CUDA error {code}", file=sys.stderr)
    print(flush=True)
    sys.stdin.read()


def measure() -> dict[str, int]:
    """Bytes of a context by GPU, those left out on which none could be made or where NVML does not say whose memory is
    whose. Of MIG instances CUDA shows a program one alone. LeaseError where there is no such GPU."""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    code = "import sys; sys.path.insert(0, sys.argv[1]); from toolkit.lease.machine.context_size import hold; hold()"
    command = [sys.executable, "-I", "-c", code, str(Path(__file__).parents[3])]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        while program.stdout.readline() not in ("", "\n"):
            pass
        held = nvml.memory_by_process()
        _, words = program.communicate()
    found = {uuid: holders.get(program.pid, 0) for uuid, holders in held.items()}
    if not any(found.values()):
        said = words.strip().splitlines() or ["NVML does not say what it takes"]
        raise LeaseError(f"the size of a CUDA context could not be measured: {said[-1]}")
    return {uuid: size for uuid, size in found.items() if size}


def measured(path: Path) -> dict[str, int]:
    """As `measure`, from the file where this driver and these GPUs were measured before; {} where all GPUs are divided
    by MIG, whose instances are not cut."""
    uuids = sorted(gpu.uuid for gpu in nvml.gpus() if gpu.mig is None)
    if not uuids:
        return {}
    of = {"driver": nvml.driver_version(), "gpus": uuids}
    try:
        known = json.loads(path.read_text())
        if known["of"] == of:
            return {str(uuid): int(size) for uuid, size in known["bytes"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    found = {uuid: size for uuid, size in measure().items() if uuid in uuids}
    if len(found) == len(uuids):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps({"of": of, "bytes": found}))
        scratch.replace(path)
    return found


def context_of(gpu: nvml.Gpu, part: str, limit_mib: int, contexts: dict[str, int]) -> int:
    """What a context takes (bytes) of a part that has room for more than one; LeaseError where it has not."""
    if gpu.uuid not in contexts:
        raise LeaseError(f"GPU {gpu.index} gives no parts: what a context takes of its memory could not be measured")
    size = contexts[gpu.uuid]
    if size >= limit_mib * nvml.MIB:
        raise LeaseError(
            f"{part} of GPU {gpu.index} is {limit_mib} MiB, and a program's context alone takes "
            f"{size / nvml.MIB:.3g} MiB; request a larger part"
        )
    return size


def memory_notes(devices: Sequence[LeasedGpu]) -> list[str]:
    """What the owner of parts ought to know of their memory."""
    sizes = sorted({device.context_bytes for device in devices} - {0})
    if not sizes:
        return []
    said = " or ".join(f"{size / nvml.MIB:.3g}" for size in sizes)
    return [f"each program's CUDA context takes {said} MiB of a part's memory, as measured on its server"]
