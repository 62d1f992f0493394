"""The one client of this process: the lease, the library, and when they meet (at the first use of CUDA)."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import torch

from elastic_ai_torch.lease import Lease, LeaseFault, visible_devices

#: CUDA of the ordinary wheel of a PyTorch release: what torch.version.cuda says until the server has told its own.
_CUDA_OF_RELEASE = {"2.9": "12.8", "2.10": "12.8", "2.11": "13.0", "2.12": "13.0", "2.13": "13.0", "2.14": "13.0"}


class Library(Protocol):
    """What of `native.Native` the plug-in uses."""

    def register(self, devices: int, where: str) -> None: ...  # noqa: D102
    def connect(self) -> None: ...  # noqa: D102
    def connected(self) -> bool: ...  # noqa: D102
    def foreign(self) -> list[str]: ...  # noqa: D102
    def device(self) -> int: ...  # noqa: D102
    def set_device(self, device: int) -> None: ...  # noqa: D102
    def properties(self, device: int) -> dict[str, Any]: ...  # noqa: D102
    def synchronize(self, device: int) -> None: ...  # noqa: D102
    def memory(self, device: int) -> list[int]: ...  # noqa: D102
    def empty_cache(self) -> None: ...  # noqa: D102
    def reset_peak(self, device: int) -> None: ...  # noqa: D102
    def keep_state(self, device: int) -> int: ...  # noqa: D102
    def use_state(self, device: int, state: int) -> None: ...  # noqa: D102
    def drop_state(self, device: int, state: int) -> None: ...  # noqa: D102
    def member(self, device: int) -> str: ...  # noqa: D102
    def join(self, device: int, request: str) -> int: ...  # noqa: D102
    def leave(self, device: int, group: int) -> None: ...  # noqa: D102
    def work_stream(self, device: int, work: int) -> None: ...  # noqa: D102
    def after_fork(self) -> None: ...  # noqa: D102
    def in_bad_fork(self) -> bool: ...  # noqa: D102
    def shutdown(self) -> None: ...  # noqa: D102


class Client:
    """The lease's devices as the program sees them."""

    def __init__(self, lease: Lease, library: Library, minor: str) -> None:
        """Registers the kernels; opens nothing."""
        self.lease = lease
        self.library = library
        self._minor = minor
        self._lock = threading.Lock()
        self._ready = False
        self._told: dict[int, dict[str, Any]] = {}
        try:
            visible, tokens = visible_devices(len(lease.entries)), lease.tokens()
        except LeaseFault:  # said at the first use of CUDA, where the program may have set other variables
            visible, tokens = list(range(len(lease.entries))), []
        library.register(len(visible), lease.where(visible, tokens))
        self._count = len(visible)

    def count(self) -> int:
        """How many devices the program sees; CUDA_VISIBLE_DEVICES is read until the first use, as CUDA does."""
        if not self._ready and not self.library.in_bad_fork():
            try:
                seen = visible_devices(len(self.lease.entries))
            except LeaseFault as fault:
                raise RuntimeError(str(fault)) from None
            if len(seen) != self._count:
                self._count = len(seen)
                self.library.register(len(seen), self.lease.where(seen, []))
        return self._count

    def initialise(self) -> None:
        """The first use of CUDA: connect. RuntimeError says which server, why, and what next."""
        with self._lock:
            if self._ready:
                return
            try:
                visible = visible_devices(len(self.lease.entries))
                tokens = self.lease.tokens() if visible else []
            except LeaseFault as fault:
                raise RuntimeError(str(fault)) from None
            if not visible:
                raise RuntimeError(
                    "No CUDA GPUs are available: CUDA_VISIBLE_DEVICES leaves none of the lease's devices"
                )
            if not self.library.connected():
                self.library.register(len(visible), self.lease.where(visible, tokens))
                self._count = len(visible)
                self.library.connect()
            self._ready = True
        told = self.first().get("cuda")
        if told:
            torch.version.cuda = str(told)
        torch.cuda.default_generators = tuple(self.generator(i) for i in range(self._count))

    def generator(self, device: int) -> Any:
        """The device's default generator, the very object that operators use."""
        return torch.ops.elastic_ai.default_generator(device)

    def initialised(self) -> bool:
        """Whether CUDA was used."""
        return self._ready

    def on_processors(self) -> bool:
        """Whether the server that is connected computes on processors, as a lab's does."""
        return self._ready and bool(self.first().get("processor"))

    def first(self) -> dict[str, Any]:
        """What holds for all servers of the lease, as the one that was connected first told it."""
        if not self._told:
            self.properties(self.library.device())
        return next(iter(self._told.values()))

    def properties(self, device: int) -> dict[str, Any]:
        """What the server told of the device; connects when needed."""
        if device not in self._told:
            self.initialise()
            self._told[device] = self.library.properties(device)
        return self._told[device]

    def cuda_version(self) -> str:
        """The server's CUDA as 13.0; before the connection, or where it has none, that of this release's wheel."""
        told = self.first().get("cuda") if self._told else None
        return str(told or _CUDA_OF_RELEASE.get(self._minor, "13.0"))

    def check(self, device: int) -> int:
        """The device's number; CUDA's error where there is no such device."""
        if not 0 <= device < self._count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return device
