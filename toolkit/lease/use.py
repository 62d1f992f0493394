"""What the GPUs of a lease do, as their server's NVML says it, for its owner: the agent looks, and `toolkit run` keeps
the last word in a file, which the program's own NVML reads (engine/nvml).

Of a part it is told what the lease's own processes hold, and nothing of how busy the GPU is: that is its neighbours'
too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from toolkit.lease.engines import LeasedGpu, load
from toolkit.lease.heartbeat import Keeper
from toolkit.lease.instance_record import Instance
from toolkit.lease.machine.processes import groups_of
from toolkit.lease.wire import Use
from validation.nvml import Device, Nvml, NvmlError

#: In the folder that a lease's program has for itself.
FILE = "use"
#: By which a program's NVML finds it (engine/nvml/lease.h).
VARIABLE = "ELASTIC_AI_GPUS_USE"


def _of_unit(pids: Collection[int]) -> list[int]:
    """Those in this process's control group, which is the unit's."""
    own = groups_of(os.getpid())
    return [pid for pid in pids if own and groups_of(pid) == own]


def _used_of_part(device: Device, emulated: bool) -> int | None:
    """What this unit's processes hold; None where NVML does not say how much that is of one of them."""
    held = device.processes()
    if held is None:
        return None
    mine = [held[pid] for pid in _of_unit(held)]
    return None if not emulated and 0 in mine else sum(mine)


def use_of(nvml: Nvml, gpu: LeasedGpu) -> Use:
    """What a leased device does."""
    code, handle = nvml.called("nvmlDeviceGetHandleByUUID", gpu.uuid.encode())
    if code:
        return Use()
    device = Device(nvml, gpu.index, handle)
    if not gpu.whole and not gpu.mig:
        return Use(_used_of_part(device, gpu.emulated))
    memory, rates = device.memory, None if gpu.mig else device.said("UtilizationRates")
    busy = (int(rates.gpu), int(rates.memory)) if rates else (None, None)
    return Use(memory[1] if memory else None, *busy)


def looked_at(instance: Instance) -> bool:
    """Whether NVML knows what the engine's server does with the lease's devices: of emulated ones it counts what was
    taken by the driver API, and an engine without it computes elsewhere."""
    if instance.native:
        return False
    return load(instance.engine).RUNS_DRIVER_API or not any(device.emulated for device in instance.devices)


class Looker(threading.Thread):
    """Looks when it is asked to, beside the agent's own work, which a driver that hangs must not hold up. `said`: what
    it saw last, by the devices' places; () where NVML does not answer."""

    def __init__(self, devices: Sequence[LeasedGpu]) -> None:
        """It does not run yet."""
        super().__init__(daemon=True, name="use")
        self.devices, self.said = devices, tuple[Use, ...]()
        self._wanted = threading.Event()
        self._wanted.set()  # so that the first who asks hears something

    def ask(self) -> None:
        """Somebody wants to know."""
        self._wanted.set()

    def run(self) -> None:
        """The thread; its end is that of NVML."""
        try:
            with Nvml() as nvml:
                while self._wanted.wait():
                    self._wanted.clear()
                    self.said = tuple(use_of(nvml, device) for device in self.devices)
        except NvmlError:
            self.said = ()


class UseFile:
    """The file, as long as the program runs; written when a server has said something."""

    def __init__(self, folder: Path, keepers: Sequence[Keeper]) -> None:
        """Nothing is written yet."""
        self.path, self._keepers, self._told = folder / FILE, keepers, 0

    def update(self) -> None:
        """A line for each device, in the order of the program's, in one rename. A disk that is full keeps it old."""
        told = sum(keeper.use_told for keeper in self._keepers)
        if told == self._told:
            return
        self._told = told
        uses = [
            keeper.use.get(place, Use()) for keeper in self._keepers for place in range(len(keeper.endpoint.devices))
        ]
        new = self.path.with_name(f".{FILE}")
        try:
            new.write_text("".join(f"{use.words()}\n" for use in uses))
            new.replace(self.path)
        except OSError:
            return
