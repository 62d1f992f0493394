"""Random states that only come back to where they were taken: kept by the server under a number, without a wait.

torch.utils.checkpoint takes one for each block, fork_rng one for each use. What a program takes itself
(torch.cuda.get_rng_state) is CUDA's 16 bytes, as ever.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from elastic_ai_torch.client import Client, Library


class KeptState:
    """A state of a device's default generator, kept by the server; dropped with this object."""

    def __init__(self, library: Library, device: int) -> None:
        """Of now."""
        self._library = library
        self._device = device
        self._number = library.keep_state(device)
        weakref.finalize(self, _drop, library, device, self._number)

    def use(self, device: int) -> None:
        """The device's generator goes on from here."""
        if device == self._device:
            self._library.use_state(device, self._number)


def _drop(library: Library, device: int, number: int) -> None:
    try:
        if not library.in_bad_fork():
            library.drop_state(device, number)
    except RuntimeError:  # the connection is gone, and the state with it
        pass


def install(client: Client) -> None:
    """In torch.utils.checkpoint, where the states never leave it."""
    import torch.utils.checkpoint as theirs

    own_get, own_set = theirs.get_device_states, theirs.set_device_states

    def get_device_states(*tensors: Any) -> tuple[list[int], list[Any]]:
        if theirs._infer_device_type(*tensors) != "cuda":
            got: tuple[list[int], list[Any]] = own_get(*tensors)
            return got
        devices: list[int] = []

        def add(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.device.type == "cuda":
                devices.append(value.get_device())
            return value

        torch.utils._pytree.tree_map(add, tensors)
        return devices, [KeptState(client.library, device) for device in devices]

    def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
        if not any(isinstance(state, KeptState) for state in states):
            own_set(devices, states, device_type=device_type)
            return
        for device, state in zip(devices, states, strict=False):
            state.use(device)

    theirs.get_device_states, theirs.set_device_states = get_device_states, set_device_states
    _fork_rng(client)


def _fork_rng(client: Client) -> None:
    """torch.random.fork_rng: the devices' states stay on the server, the processor's is torch's own to keep."""
    own = torch.random.fork_rng

    @contextlib.contextmanager
    def fork_rng(devices: Any = None, enabled: bool = True, **named: Any) -> Iterator[None]:
        if devices is None and client.count() == 1:
            devices = [0]
        if not enabled or devices is None or named.get("device_type", "cuda") != "cuda":
            with own(devices, enabled, **named):
                yield
            return
        torch.cuda._lazy_init()
        numbers = [torch.cuda._utils._get_device_index(device, optional=True) for device in devices]
        kept = [(number, KeptState(client.library, number)) for number in numbers]
        with own([], enabled, **named):
            try:
                yield
            finally:
                for number, state in kept:
                    state.use(number)

    fork_rng.__doc__ = own.__doc__
    torch.random.fork_rng = fork_rng
