"""Copies between GPUs at the same time: both ways of a pair, from all others to one, and from one to all others.

Each copy has a stream of its own. The first begins with the event by which all are timed, the others wait for it, and
its stream ends when all have ended. What arrives is verified. Several that arrive at one GPU go to parts of its block.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from validation.probes.cuda import Cuda, CudaError, Device
from validation.probes.gpu_host import Buffers, pattern

TOGETHER_BYTES = 256 << 20  # of all copies that arrive at one GPU, at most
GRAIN_BYTES = 4096
STREAM = ("cuStreamCreate", 1, "cuStreamDestroy_v2")  # CU_STREAM_NON_BLOCKING
EVENT = ("cuEventCreate", 2, "cuEventDestroy_v2")  # CU_EVENT_DISABLE_TIMING
What = Literal["pair", "gather", "scatter"]


class Bench(Protocol):
    """What is needed of the bench (gpu_bench.py)."""

    cuda: Cuda
    devices: list[Device]
    blocks: list[tuple[ctypes.c_uint64, ctypes.c_uint64]]
    cells: list[dict[str, Any]]
    largest: int
    repeat: int

    def timed(self, at: Device, issue: Callable[[], None], times: int, size: int = 0) -> dict[str, Any]:
        """Seconds of each run on the stream of a device."""

    def cell(self, of: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> None:
        """A cell with what is measured, or with the words of the call that failed."""

    def clear(self, at: Device, block: Any, size: int) -> None:
        """What was there before goes."""

    def same(self, at: Device, block: Any, buffers: Buffers, size: int) -> bool:
        """Whether a block holds what the host's `out` holds."""

    def enable(self, other: Device) -> None:
        """Peer access from the current context."""


@dataclass(frozen=True)
class Way:
    """A copy of `size` bytes from the beginning of one GPU's first block to `offset` in another's second one."""

    source: int
    target: int
    size: int
    offset: int = 0


def plan(devices: int, largest: int) -> Iterator[tuple[What, int | None, int | None, list[Way]]]:
    """What is copied at once: each pair once, and with three GPUs or more each one's all-to-one and one-to-all."""
    whole = min(largest, TOGETHER_BYTES)
    for one in range(devices):
        for other in range(one + 1, devices):
            yield "pair", one, other, [Way(one, other, whole), Way(other, one, whole)]
    if devices < 3:
        return
    part = max(GRAIN_BYTES, whole // (devices - 1) // GRAIN_BYTES * GRAIN_BYTES)
    for one in range(devices):
        others = [other for other in range(devices) if other != one]
        yield "gather", None, one, [Way(other, one, part, at * part) for at, other in enumerate(others)]
        yield "scatter", one, None, [Way(one, other, whole) for other in others]


def copies_at_once(bench: Bench, access: Mapping[tuple[int, int], bool]) -> None:
    """Cells of all of them. access: whether the driver gives peer access from one GPU to another."""
    broken = {number for number, device in enumerate(bench.devices) if device.broken}
    if len(bench.devices) < 2:
        return
    buffers = Buffers(bench.cuda, bench.largest, pin=False)  # to verify with; nothing is timed with it
    try:
        for what, source, target, ways in plan(len(bench.devices), bench.largest):
            taken = [way for way in ways if not {way.source, way.target} & broken]
            needed = {number for number in (source, target) if number is not None}
            of = {
                "what": what, "source": source, "target": target, "memory": "", "bytes": ways[0].size,
                "access": all(access.get((way.source, way.target), False) for way in ways),
                "ways": len(taken), "counted": ways[0].size * len(taken),
            }  # fmt: skip
            if needed & broken or len(taken) < 2:
                why = next((str(bench.devices[number].broken) for number in sorted(needed & broken)), "too few GPUs")
                bench.cells.append({**of, "ways": len(ways), "counted": ways[0].size * len(ways), "error": why})
            else:
                bench.cell(of, lambda taken=taken, of=of: _measured(bench, taken, buffers, bool(of["access"])))  # type: ignore[misc]
    finally:
        buffers.close()


def _measured(bench: Bench, ways: Sequence[Way], buffers: Buffers, access: bool) -> dict[str, Any]:
    with ExitStack() as stack:
        if access:
            stack.enter_context(peers(bench, {(way.source, way.target) for way in ways}))
        lead = bench.devices[ways[0].source]
        streams = [lead.stream, *(stack.enter_context(_made(bench.devices[way.source], *STREAM)) for way in ways[1:])]
        ends = [stack.enter_context(_made(bench.devices[way.source], *EVENT)) for way in ways[1:]]
        for way in ways:
            target = bench.devices[way.target]
            target.use()
            bench.clear(target, _at(bench, way), way.size)
        lead.use()
        bench.cuda.cuEventRecord(lead.start, lead.stream)  # the first wait is for an event that was recorded

        def issue() -> None:
            for at, way in enumerate(ways[1:]):
                stream, end = streams[at + 1], ends[at]
                bench.devices[way.source].use()
                bench.cuda.cuStreamWaitEvent(stream, lead.start, ctypes.c_uint(0))
                _copy(bench, way, stream)
                bench.cuda.cuEventRecord(end, stream)
            lead.use()
            _copy(bench, ways[0], lead.stream)
            for end in ends:
                bench.cuda.cuStreamWaitEvent(lead.stream, end, ctypes.c_uint(0))

        took = bench.timed(lead, issue, bench.repeat, ways[0].size)
        return {**took, "verified": all(_arrived(bench, way, buffers) for way in ways)}


def _copy(bench: Bench, way: Way, stream: Any) -> None:
    source, target = bench.devices[way.source], bench.devices[way.target]
    there, from_ = _at(bench, way), bench.blocks[way.source][0]
    bench.cuda.cuMemcpyPeerAsync(there, target.context, from_, source.context, ctypes.c_size_t(way.size), stream)


def _at(bench: Bench, way: Way) -> ctypes.c_uint64:
    return ctypes.c_uint64(bench.blocks[way.target][1].value + way.offset)


def _arrived(bench: Bench, way: Way, buffers: Buffers) -> bool:
    buffers.fill(pattern(way.source))
    return bench.same(bench.devices[way.target], _at(bench, way), buffers, way.size)


@contextmanager
def _made(device: Device, create: str, flag: int, destroy: str) -> Iterator[ctypes.c_void_p]:
    """A stream or an event of a device, by the driver's calls for it."""
    made = ctypes.c_void_p()
    device.use()
    getattr(device.cuda, create)(ctypes.byref(made), ctypes.c_uint(flag))
    try:
        yield made
    finally:
        with suppress(CudaError):
            device.use()
            getattr(device.cuda, destroy)(made)


@contextmanager
def peers(bench: Bench, ways: Collection[tuple[int, int]]) -> Iterator[None]:
    """Peer access between the GPUs of each way, and none afterwards."""
    pairs = {end for one, other in ways for end in ((one, other), (other, one))}
    try:
        for one, other in sorted(pairs):
            bench.devices[one].use()
            bench.enable(bench.devices[other])
        yield
    finally:
        for one, other in sorted(pairs):
            with suppress(CudaError):
                bench.devices[one].use()
                bench.cuda.cuCtxDisablePeerAccess(bench.devices[other].context)
