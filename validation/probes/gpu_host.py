"""The host's side of copies to a GPU: memory near it, what is copied, and who works on the GPU."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from validation.base.counting import number_of
from validation.nvml import Gpu, Nvml, NvmlError
from validation.probes import virtualisation
from validation.probes.cuda import Cuda, CudaError

DEVICES, NODES = Path("/sys/bus/pci/devices"), Path("/sys/devices/system/node")
BUSY_BYTES = 1 << 30  # an idle GPU's driver keeps less
HELD_BYTES = 256 << 20
"""A process that holds more of a GPU's memory works there. A context takes about as much; an MPS server, a display or a
monitor that is merely there takes less. Project default."""
BUSY_PERCENT = 10
"""From this utilisation on whoever is there works, however little memory he holds: an idle display is below. Project
default."""


def pattern(seed: int) -> bytes:
    """Bytes that differ for each seed, of a prime's length: repeated, they are not in step with chunks of a copy."""
    return hashlib.shake_128(b"%d" % seed).digest(1048573)


def who(pid: int, held: int, proc: Path = Path("/proc")) -> str:
    """`7 (python, user ops, 300 MiB)`, as far as this process may see it; `held`: bytes, 0 where nobody says.

    The kernel cuts names after 15 bytes, in the middle of a letter too.
    """
    try:
        name = (proc / str(pid) / "comm").read_text(errors="replace").strip()
        number = (proc / str(pid)).stat().st_uid
    except OSError:
        said = ["of another container or user"]
    else:
        try:
            said = [name, f"user {pwd.getpwuid(number).pw_name}"]
        except KeyError:
            said = [name, f"user {number}"]
    return f"{pid} ({', '.join([*said, *([f'{held >> 20} MiB'] if held else [])])})"


def working(
    processes: dict[int, int] | None,
    memory: tuple[int, int] | None,
    percent: int | None,
    least_bytes: int = HELD_BYTES,
) -> dict[int, int]:
    """Of the processes that have a context on a GPU those that work there, by memory or by the GPU's utilisation.

    Who holds nobody knows how much (0) is taken for one that works where the GPU's memory in use is that of work.
    """
    there = processes or {}
    if percent is not None and percent >= BUSY_PERCENT:
        return there
    untold = memory is None or memory[1] >= least_bytes + sum(there.values())
    return {pid: held for pid, held in there.items() if held >= least_bytes or (not held and untold)}


def beside(gpu: Gpu) -> str:
    """In words, whose processes are on a GPU; "" where there is none."""
    names = [who(pid, held) for pid, held in (gpu.processes() or {}).items()]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"process {', '.join(names[:4])}{more} is there too" if names else ""


def refusal(gpu: Gpu, least_bytes: int = HELD_BYTES) -> str:
    """In words, who works on a GPU; "" where nobody does."""
    return busy(gpu.address, gpu.processes(), gpu.memory, gpu.utilisation(), least_bytes)


def busy(
    address: str,
    processes: dict[int, int] | None,
    memory: tuple[int, int] | None,
    percent: int | None = None,
    least_bytes: int = HELD_BYTES,
) -> str:
    """The same of what NVML said of it."""
    mine = working(processes, memory, percent, least_bytes)
    names = [who(pid, held) for pid, held in mine.items()]
    if names:
        return f"GPU {address} is in use by process {', '.join(names[:4])}: end it, or measure with --anyway"
    if memory is not None and memory[1] > BUSY_BYTES:
        held = f"{memory[1] >> 20} of {memory[0] >> 20} MiB of its memory are held, and NVML does not say by whom"
        return f"GPU {address} is in use: {held}; end what holds it, or measure with --anyway"
    return ""


def in_use(least_bytes: int = HELD_BYTES) -> str:
    """In words, who works on the GPUs of this node; "" where nobody does, or NVML does not tell."""
    try:
        with Nvml() as nvml:
            return "; ".join(filter(None, (refusal(gpu, least_bytes) for gpu in nvml.answering()[0])))
    except NvmlError:
        return ""


def given(on_buses: int, contained: bool | None = None) -> int:
    """How many GPUs this machine has to compute with, of which so many are on its PCI buses.

    A container sees those of its host there, and one like gVisor none: NVML counts what it was given, unless that is
    emulated. `contained` None: found out here.
    """
    if on_buses and not (virtualisation.detect()[1] if contained is None else contained):
        return on_buses
    try:
        with Nvml() as nvml:
            return on_buses if nvml.emulated else nvml.count() or on_buses
    except NvmlError:
        return on_buses


def hidden(shown: int, there: int, wanted: int, mig: bool) -> str:
    """In words, why CUDA shows fewer GPUs than there are; "" where it shows all that are wanted, or nothing tells why.

    `shown`: by CUDA; `there`: by NVML; `wanted`: as many as the node is said to have, 0 where nobody says.
    """
    if shown >= (wanted or there) or shown >= there:
        return ""
    said = f"CUDA shows {shown} of the {number_of(there, 'GPU')} that NVML shows"
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return f"{said}: CUDA_VISIBLE_DEVICES is set to {visible!r}"
    if mig:
        return f"{said}: MIG is on, and of its instances CUDA shows one"
    return "" if wanted else said


def local_cpus(address: str) -> set[int]:
    """Processors of the NUMA node of a PCI device, none where sysfs does not say.

    Of a device that the firmware gives no node (-1) the kernel lists all processors (drivers/pci/pci-sysfs.c): these
    are its own only where there is one node.
    """
    try:
        folder = DEVICES / address
        lists = [node / "cpulist" for node in NODES.glob("node[0-9]*")]
        with_cpus = [path for path in lists if not path.exists() or path.read_text().strip()]  # others: a GPU's memory
        if (folder / "numa_node").read_text().strip() == "-1" and len(with_cpus) > 1:
            return set()
        text = (folder / "local_cpulist").read_text()
        spans = [part.split("-") for part in text.strip().split(",") if part]
        return {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}
    except (OSError, ValueError):
        return set()


@contextlib.contextmanager
def near(address: str, everywhere: set[int]) -> Iterator[bool]:
    """Run on the processors of a GPU's NUMA node; False where nothing says which, or none of them may be used."""
    cpus = local_cpus(address) & everywhere
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
        yield bool(cpus)
    finally:
        os.sched_setaffinity(0, everywhere)


class Buffers:
    """Host memory of one GPU's turn: `out` and `back`, pinned and pageable."""

    def __init__(self, cuda: Cuda, size: int, pin: bool = True) -> None:
        """All of it touched here, so that it lies in the memory of the processors that this runs on.

        pin: False where the driver pins none: what is called pinned then is not, and nothing may be timed with it.
        """
        self.cuda, self.size = cuda, size
        self._maps = [mmap.mmap(-1, size) for _ in range(2)]
        pageable = [ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in self._maps]
        for address in pageable:
            ctypes.memset(address, 1, size)
        self._pinned: list[int] = []
        try:
            while pin and len(self._pinned) < 2:
                self._pinned.append(cuda.host_alloc(size))
        except CudaError:
            self.close()
            raise
        self.memory = {"pinned": self._pinned if pin else pageable, "pageable": pageable}

    def fill(self, data: bytes) -> None:
        """Both `out` get these bytes, again and again."""
        for out, _ in self.memory.values():
            for offset in range(0, self.size, len(data)):
                ctypes.memmove(out + offset, data, min(len(data), self.size - offset))

    def close(self) -> None:
        """Give the pinned memory back."""
        for address in self._pinned:
            with contextlib.suppress(CudaError):
                self.cuda.host_free(address)
