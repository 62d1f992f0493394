"""The client's library (client/api.h) by ctypes: it holds the connections, the kernels and the memory's count."""

from __future__ import annotations

import ctypes
import json
import platform
from pathlib import Path
from typing import Any

import torch

#: Kinds of errors (enum in client/api.h) that have a class of their own.
_KINDS: dict[int, Any] = {
    1: IndexError,
    2: TypeError,
    3: ValueError,
    4: NotImplementedError,
    5: torch.linalg.LinAlgError,
    6: torch.OutOfMemoryError,
    7: getattr(torch, "AcceleratorError", RuntimeError),
}
_INTERRUPTED = 100
_EVERY = {
    "eat_error": (ctypes.c_char_p, []),
    "eat_error_kind": (ctypes.c_int, []),
    "eat_register": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p]),
    "eat_registered": (ctypes.c_int, []),
    "eat_foreign": (ctypes.c_char_p, []),
    "eat_connect": (ctypes.c_int, []),
    "eat_is_initialized": (ctypes.c_int, []),
    "eat_device_count": (ctypes.c_int, []),
    "eat_device": (ctypes.c_int, []),
    "eat_set_device": (ctypes.c_int, [ctypes.c_int]),
    "eat_properties": (ctypes.c_char_p, [ctypes.c_int]),
    "eat_synchronize": (ctypes.c_int, [ctypes.c_int]),
    "eat_memory": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(ctypes.c_int64)]),
    "eat_empty_cache": (ctypes.c_int, []),
    "eat_memory_reset_peak": (ctypes.c_int, [ctypes.c_int]),
    "eat_rng_keep": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(ctypes.c_uint32)]),
    "eat_rng_use": (ctypes.c_int, [ctypes.c_int, ctypes.c_uint32]),
    "eat_rng_drop": (ctypes.c_int, [ctypes.c_int, ctypes.c_uint32]),
    "eat_member": (ctypes.c_char_p, [ctypes.c_int]),
    "eat_join": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32)]),
    "eat_leave": (ctypes.c_int, [ctypes.c_int, ctypes.c_uint32]),
    "eat_wait_work": (ctypes.c_int, [ctypes.c_int, ctypes.c_uint32]),
    "eat_work_stream": (ctypes.c_int, [ctypes.c_int, ctypes.c_uint32]),
    "eat_after_fork": (None, []),
    "eat_in_bad_fork": (ctypes.c_int, []),
    "eat_shutdown": (None, []),
    "eat_stats": (ctypes.c_int, [ctypes.POINTER(ctypes.c_int64)]),
    "eat_set_warn": (None, [ctypes.c_void_p]),
}
_WARN = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
STATISTICS = (
    "calls", "waits", "signatures", "bytes_up", "bytes_down", "bytes_sent", "learned", "meta_failed",
    "local_allocations", "forgotten", "shape_rules", "known_values", "asks",
    "sent_ahead", "ahead_used", "packed_uploads", "bytes_ahead", "graph_runs", "values_along",
    "values_computed", "values_checked", "values_wrong",
)  # fmt: skip


class Unusable(Exception):
    """There is no library for this PyTorch; the text says which there are."""


def torch_minor() -> str:
    """The release of PyTorch as 2.13: a library holds for one."""
    return ".".join(str(torch.__version__).split("+")[0].split(".")[:2])


def library(folder: Path, minor: str) -> Path:
    """The library for that minor release. Unusable where there is none."""
    wanted = folder / f"libelastic_ai_torch-{minor}.so"
    if wanted.is_file():
        return wanted
    names = sorted(p.name.split("-")[-1].removesuffix(".so") for p in folder.glob("libelastic_ai_torch-*.so"))
    if not names:
        raise Unusable(f"{folder} has no library of the engine; install the engine of the site again")
    names.sort(key=lambda name: [int(n) for n in name.split(".") if n.isdigit()])
    raise Unusable(
        f"this is PyTorch {torch.__version__}, and the lease's engine is for {' and '.join(names)}; install one of them"
    )


class Native:
    """The library's functions with Python's types and errors."""

    def __init__(self, path: Path) -> None:
        """Load it. Unusable where the machine's loader refuses it."""
        try:
            self._lib = ctypes.CDLL(str(path))
            for name, (result, arguments) in _EVERY.items():
                function = getattr(self._lib, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as fault:
            raise Unusable(
                f"{path.name} cannot be loaded with PyTorch {torch.__version__} on {platform.machine()}: {fault}"
            ) from None
        self._warn: Any = None  # the callback must live as long as the library may call it

    def _check(self, result: int) -> None:
        if result == 0:
            return
        kind = int(self._lib.eat_error_kind())
        if kind == _INTERRUPTED:
            raise KeyboardInterrupt  # Python's own handler raises it first where it has seen the signal
        text = (self._lib.eat_error() or b"").decode(errors="replace")
        raise _KINDS.get(kind, RuntimeError)(text)

    def register(self, devices: int, where: str) -> None:
        """Kernels, guard, hooks, allocator, generators. Opens nothing."""
        self._check(self._lib.eat_register(devices, where.encode()))

    def connect(self) -> None:
        """Connect the current device's server; RuntimeError names it and what next."""
        self._check(self._lib.eat_connect())

    def connected(self) -> bool:
        """Whether a connection was made."""
        return bool(self._lib.eat_is_initialized())

    def foreign(self) -> list[str]:
        """Operators whose CUDA kernel is not ours."""
        return [name for name in (self._lib.eat_foreign() or b"").decode().splitlines() if name]

    def device(self) -> int:
        """The current device of this thread."""
        return int(self._lib.eat_device())

    def set_device(self, device: int) -> None:
        """Make it current; a negative number changes nothing."""
        self._check(self._lib.eat_set_device(device))

    def properties(self, device: int) -> dict[str, Any]:
        """What the server told of it; connects when needed."""
        text = self._lib.eat_properties(device)
        if text is None:
            self._check(-1)
        told = json.loads(text)
        assert isinstance(told, dict)
        return told

    def synchronize(self, device: int) -> None:
        """Wait for all that was asked of it."""
        self._check(self._lib.eat_synchronize(device))

    def memory(self, device: int) -> list[int]:
        """Allocated, peak, reserved, peak reserved, allocations, frees, total, out-of-memory errors."""
        numbers = (ctypes.c_int64 * 8)()
        self._check(self._lib.eat_memory(device, numbers))
        return list(numbers)

    def empty_cache(self) -> None:
        """Memory that servers keep though it was freed is given back; no wait."""
        self._check(self._lib.eat_empty_cache())

    def reset_peak(self, device: int) -> None:
        """Peaks start again at what is held now."""
        self._check(self._lib.eat_memory_reset_peak(device))

    def keep_state(self, device: int) -> int:
        """A number for the random state of now; no wait."""
        state = ctypes.c_uint32()
        self._check(self._lib.eat_rng_keep(device, state))
        return int(state.value)

    def use_state(self, device: int, state: int) -> None:
        """Go back to that state."""
        self._check(self._lib.eat_rng_use(device, state))

    def drop_state(self, device: int, state: int) -> None:
        """Forget it."""
        self._check(self._lib.eat_rng_drop(device, state))

    def member(self, device: int) -> str:
        """The device's session as a member of groups; "" where the lease's servers do not know each other."""
        told = self._lib.eat_member(device)
        return "" if told is None else told.decode()

    def join(self, device: int, request: str) -> int:
        """The number of a group, when all its members are there."""
        group = ctypes.c_uint32()
        self._check(self._lib.eat_join(device, request.encode(), group))
        return int(group.value)

    def leave(self, device: int, group: int) -> None:
        """Forget it."""
        self._check(self._lib.eat_leave(device, group))

    def work_stream(self, device: int, work: int) -> None:
        """This thread's stream stands for that collective; 0 for none."""
        self._check(self._lib.eat_work_stream(device, work))

    def after_fork(self) -> None:
        """In the child: close without a word to the servers."""
        self._lib.eat_after_fork()

    def in_bad_fork(self) -> bool:
        """Whether this process was forked from one that had used CUDA."""
        return bool(self._lib.eat_in_bad_fork())

    def shutdown(self) -> None:
        """Close the connections at the end of the process."""
        self._lib.eat_shutdown()

    def statistics(self) -> dict[str, int]:
        """Counters since the start, by name."""
        numbers = (ctypes.c_int64 * 24)()
        self._check(self._lib.eat_stats(numbers))
        return dict(zip(STATISTICS, numbers, strict=False))

    def on_warning(self, function: Any) -> None:
        """Have `function(text)` called for each warning of an operator."""

        def call(text: bytes) -> None:
            function(text.decode(errors="replace"))

        self._warn = _WARN(call)
        self._lib.eat_set_warn(ctypes.cast(self._warn, ctypes.c_void_p))
