"""The bench of copies between host memory and the GPUs of a node, of the probes gpu-copies and gpu-load."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from validation.nvml import NvmlError
from validation.probes import gpu_kernel, pcie
from validation.probes.cuda import HELD, Cuda, CudaError, Device
from validation.probes.gpu_host import DEVICES, Buffers, near, pattern
from validation.probes.gpu_sm import copies_by_sms
from validation.probes.gpu_spoilt import Spoilt, suspect
from validation.probes.gpu_together import copies_at_once
from validation.probes.host_memory import available

SMALL_BYTES = 4
STEP = 16  # from one size to the next
PAIR_BYTES = 256 << 20  # of copies between GPUs, at most
SPARE_BYTES = 64 << 20  # of a GPU's memory, beside the two blocks
HOST_SHARE = 0.5  # of the host memory that is available, at most
LARGE_BYTES = 1 << 20  # from this size on the GPU's own time is the copy's
MOST_BETWEEN, BETWEEN_S = 16, 0.01  # copies between two events, and how long they take about (nvbandwidth: 16)
PEER_ALREADY = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
LIBC = ctypes.CDLL(None)
LIBC.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
Cell = dict[str, Any]


@dataclass
class Asked:
    """What is asked of the probe gpu-copies."""

    largest_bytes: int  # of a copy; the sizes are 4 bytes, each 16 times the one before, and this one
    repeat: int  # timed copies of each size, after one that is not timed
    latency_count: int  # copies of 4 bytes
    warm_s: float  # how long each GPU copies before it is measured
    gpus: int = 0  # how many the node is said to have; 0: nobody says, and there may be none
    anyway: bool = False  # measure a GPU that somebody works on
    without: dict[str, str] = field(default_factory=dict)  # UUIDs of GPUs that are not taken, and why


def sizes(largest: int) -> list[int]:
    """4 bytes, 64, 1 KiB, ... and `largest`."""
    found, size = [], SMALL_BYTES
    while size < largest:
        found.append(size)
        size *= STEP
    return [*found, largest]


def runs_between(size: int, once_s: float) -> int:
    """How many copies of this size, of which one took so long, are between two events."""
    if size < LARGE_BYTES:
        return 1  # these are timed by the clock, for their start is most of them
    return max(1, min(MOST_BETWEEN, round(BETWEEN_S / max(once_s, 1e-9))))


class Bench:
    """All copies of a node. Every cell has the seconds of each copy by events and by the clock."""

    def __init__(
        self,
        cuda: Cuda,
        asked: Asked,
        refused: Mapping[str, str] = MappingProxyType({}),
        others: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take all devices and their memory, but those that are `refused` (UUID: why); CudaError where none is left.

        `others`: UUID -> whose processes are on the GPU too.
        """
        self.cuda, self.asked, self.others, self.repeat = cuda, asked, others, asked.repeat
        self.devices: list[Device] = []
        self.cells: list[Cell] = []
        self.latencies: list[Cell] = []
        uuids = [Device(cuda, ordinal, refused="only looked at").uuid for ordinal in range(cuda.count())]
        try:
            for ordinal, uuid in enumerate(uuids):
                why, code = (asked.without[uuid], -1) if uuid in asked.without else (refused.get(uuid, ""), HELD)
                self.devices.append(Device(cuda, ordinal, why, code))
            free = min(filter(None, (self._free(device) for device in self.devices)), default=0)
            room = (free - min(SPARE_BYTES, free // 4)) // 2
            host = int(HOST_SHARE * available()) // 4
            fits = max(min(room, host) // 4096 * 4096, 4096)
            self.largest = min(asked.largest_bytes, fits)
            self.blocks = [(self._block(device), self._block(device)) for device in self.devices]
            if all(device.broken for device in self.devices):
                raise CudaError("; ".join(str(device.broken) for device in self.devices) or "CUDA shows no GPU")
        except CudaError:
            self.close()
            raise

    def _free(self, device: Device) -> int:
        try:
            return device.free_bytes()
        except CudaError as fault:
            self._broken(device, fault)
            return 0

    def _block(self, device: Device) -> ctypes.c_uint64:
        try:
            return device.alloc(self.largest)
        except CudaError as fault:
            self._broken(device, fault)
            return ctypes.c_uint64()

    def _broken(self, device: Device, fault: CudaError) -> None:
        """It costs itself, and no other."""
        device.broken = device.broken or CudaError(f"GPU {device.ordinal} of CUDA: {fault}", fault.code)

    def spoilt(self, number: int, cells: int, latencies: int) -> Spoilt | None:
        """The error in the turn of a GPU, after so many cells and latencies, that has ended the work on all others."""
        untaken = {n for n, one in enumerate(self.devices) if one.broken}
        found = suspect(number, [*self.cells[cells:], *self.latencies[latencies:]], untaken)
        if found is None:
            return None
        others = [n for n in range(len(self.devices)) if n != found[0] and n not in untaken]
        if not others or any(map(self.works, others)):
            return None
        return Spoilt(self.devices[found[0]].uuid, f"GPU {found[0]} of CUDA: {found[1]}")

    def works(self, number: int) -> bool:
        """Whether a GPU does anything at all."""
        try:
            self.clear(self.devices[number], self.blocks[number][1], SMALL_BYTES)
        except CudaError:
            return False
        return True

    def buffers(self, number: int) -> Buffers:
        """Host memory of a GPU's turn, pinned for all: by another GPU's context where its own is broken."""
        mine = self.devices[number]
        for gpu in (mine, *(one for one in self.devices if one is not mine)):
            try:
                gpu.use()
                return Buffers(self.cuda, self.largest)
            except CudaError as fault:
                said = fault
        raise said

    def close(self) -> None:
        """Give all of it back."""
        for device in self.devices:
            device.close()

    # --- one kind of copy

    def timed(self, at: Device, issue: Callable[[], None], times: int, size: int = 0) -> dict[str, Any]:
        """Seconds of a run of `issue` on the stream of `at`, `times` times, after one that is not timed.

        Where `size` is large and it is short, several runs are `between` two events, and each has its share of them.
        """
        at.use()
        began = time.perf_counter()
        issue()
        at.wait()
        between = runs_between(size, time.perf_counter() - began)
        events, clocks = [], []
        for _ in range(times):
            at.use()
            began = time.perf_counter()
            self.cuda.cuEventRecord(at.start, at.stream)
            for _ in range(between):
                issue()
            at.use()
            self.cuda.cuEventRecord(at.end, at.stream)
            at.wait()
            clocks.append(round((time.perf_counter() - began) / between, 9))
            events.append(round(at.elapsed_s() / between, 9))
        return {"event_s": events, "clock_s": clocks, "between": between}

    def cell(self, of: Cell, measure: Callable[[], Cell]) -> None:
        """A cell with what `measure` finds, or with the words of the call that failed."""
        try:
            self.cells.append({**of, **measure()})
        except CudaError as fault:
            self.cells.append({**of, "error": str(fault)})

    def latency(self, of: Cell, at: Device, issue: Callable[[], None]) -> None:
        """Microseconds of each run of `issue` until the stream of `at` is done."""
        try:
            at.use()
            for _ in range(10):
                issue()
                at.wait()
            found = []
            for _ in range(self.asked.latency_count):
                began = time.perf_counter()
                issue()
                at.wait()
                found.append(round((time.perf_counter() - began) * 1e6, 2))
            self.latencies.append({**of, "us": found})
        except CudaError as fault:
            self.latencies.append({**of, "error": str(fault)})

    def kernel(self, number: int) -> None:
        """Microseconds of an empty kernel. `started`: the GPU took its code. Spoilt where it never ends."""
        of, gpu, started = {"what": "kernel", "source": number, "target": number}, self.devices[number], False
        try:
            launch = gpu_kernel.empty(gpu)
            started = True
            found: Cell = {"us": gpu_kernel.latencies_us(gpu, launch, self.asked.latency_count)}
        except CudaError as fault:
            found = {"error": str(fault)}
        except gpu_kernel.Endless as fault:
            raise Spoilt(gpu.uuid, str(fault)) from None
        self.latencies.append({**of, "started": started, **found})

    def same(self, at: Device, block: Any, buffers: Buffers, size: int) -> bool:
        """Whether a block holds what `out` holds."""
        out, back = buffers.memory["pinned"]
        ctypes.memset(back, 0, size)
        at.use()
        self.cuda.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(back), block, ctypes.c_size_t(size), at.stream)
        at.wait()
        return bool(LIBC.memcmp(out, back, size) == 0)

    def clear(self, at: Device, block: Any, size: int) -> None:
        """What was there before must not pass for what was copied."""
        at.use()
        self.cuda.cuMemsetD8Async(block, ctypes.c_ubyte(0), ctypes.c_size_t(size), at.stream)
        at.wait()

    # --- a GPU's turn

    def host(self, number: int, buffers: Buffers) -> None:
        """Copies between host memory and a GPU, and inside it. Block 0 holds the pattern of `out` afterwards."""
        gpu, (first, second), cuda = self.devices[number], self.blocks[number], self.cuda
        for memory, (out, back) in buffers.memory.items():
            for size in sizes(self.largest):
                count = ctypes.c_size_t(size)

                def up(out: int = out, count: Any = count) -> None:
                    cuda.cuMemcpyHtoDAsync_v2(first, ctypes.c_void_p(out), count, gpu.stream)

                def down(back: int = back, count: Any = count) -> None:
                    cuda.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(back), first, count, gpu.stream)

                def upward(size: int = size, up: Any = up) -> Cell:
                    self.clear(gpu, first, size)
                    took = self.timed(gpu, up, self.repeat, size)
                    return {**took, "verified": self.same(gpu, first, buffers, size)}

                def downward(size: int = size, down: Any = down, out: int = out, back: int = back) -> Cell:
                    ctypes.memset(back, 0, size)
                    took = self.timed(gpu, down, self.repeat, size)
                    return {**took, "verified": LIBC.memcmp(out, back, size) == 0}

                of = {"memory": memory, "bytes": size, "counted": size}
                self.cell({"what": "h2d", "source": None, "target": number, **of}, upward)
                self.cell({"what": "d2h", "source": number, "target": None, **of}, downward)
        for size in sizes(self.largest):

            def inside(size: int = size) -> Cell:
                self.clear(gpu, second, size)
                count = ctypes.c_size_t(size)
                issue = lambda: cuda.cuMemcpyDtoDAsync_v2(second, first, count, gpu.stream)  # noqa: E731
                took = self.timed(gpu, issue, self.repeat, size)
                return {**took, "verified": self.same(gpu, second, buffers, size)}

            # read and written: both are counted
            of = {"what": "local", "source": number, "target": number, "memory": "", "bytes": size, "counted": 2 * size}
            self.cell(of, inside)
        self.both_ways(number, buffers)
        four = ctypes.c_size_t(SMALL_BYTES)
        here, there = (ctypes.c_void_p(address) for address in buffers.memory["pinned"])
        for what, source, target, issue in (
            ("h2d", None, number, lambda: cuda.cuMemcpyHtoDAsync_v2(first, here, four, gpu.stream)),
            ("d2h", number, None, lambda: cuda.cuMemcpyDtoHAsync_v2(there, first, four, gpu.stream)),
            ("local", number, number, lambda: cuda.cuMemcpyDtoDAsync_v2(second, first, four, gpu.stream)),
            ("sync", number, number, lambda: None),
        ):
            self.latency({"what": what, "source": source, "target": target}, gpu, issue)
        self.kernel(number)

    def both_ways(self, number: int, buffers: Buffers) -> None:
        """Pinned memory, to and from the GPU at once, on two streams; both are counted."""
        gpu, (first, second), cuda, size = self.devices[number], self.blocks[number], self.cuda, self.largest
        out, back = (ctypes.c_void_p(address) for address in buffers.memory["pinned"])
        count, other, done = ctypes.c_size_t(size), ctypes.c_void_p(), ctypes.c_void_p()

        def issue() -> None:
            cuda.cuStreamWaitEvent(other, gpu.start, ctypes.c_uint(0))
            cuda.cuMemcpyHtoDAsync_v2(second, out, count, gpu.stream)
            cuda.cuMemcpyDtoHAsync_v2(back, first, count, other)
            cuda.cuEventRecord(done, other)
            cuda.cuStreamWaitEvent(gpu.stream, done, ctypes.c_uint(0))

        def measure() -> Cell:
            gpu.use()
            cuda.cuStreamCreate(ctypes.byref(other), ctypes.c_uint(1))
            cuda.cuEventCreate(ctypes.byref(done), ctypes.c_uint(2))  # CU_EVENT_DISABLE_TIMING
            try:
                self.clear(gpu, second, size)
                ctypes.memset(back, 0, size)
                cuda.cuEventRecord(gpu.start, gpu.stream)  # the first wait is for an event that was recorded
                took = self.timed(gpu, issue, self.repeat, size)
                right = LIBC.memcmp(out, back, size) == 0 and self.same(gpu, second, buffers, size)
            finally:
                cuda.cuEventDestroy_v2(done)
                cuda.cuStreamDestroy_v2(other)
            return {**took, "verified": right}

        of = {"what": "both", "source": None, "target": number, "memory": "pinned", "bytes": size, "counted": 2 * size}
        self.cell(of, measure)

    def peer(self, source: int, target: int, buffers: Buffers) -> Cell:
        """Copies from one GPU to another, through the host's driver and, where it is possible, with peer access."""
        if broken := self.devices[source].broken or self.devices[target].broken:
            return self.no_peer(source, target, str(broken))
        a, b, size = self.devices[source], self.devices[target], min(self.largest, PAIR_BYTES)
        from_, to = self.blocks[source][0], self.blocks[target][1]
        count, four = ctypes.c_size_t(size), ctypes.c_size_t(SMALL_BYTES)
        can, said = ctypes.c_int(), {"source": source, "target": target, "access": False, "why": ""}

        def issue(count: Any = count) -> None:
            self.cuda.cuMemcpyPeerAsync(to, b.context, from_, a.context, count, a.stream)

        def measure() -> Cell:
            self.clear(b, to, size)
            took = self.timed(a, issue, self.repeat, size)
            return {**took, "verified": self.same(b, to, buffers, size)}

        for access in (False, True):
            if access:
                try:
                    self.cuda.cuDeviceCanAccessPeer(ctypes.byref(can), b.device, a.device)
                    if not can.value:
                        return {**said, "why": "the driver gives no peer access"}
                    for one, other in ((a, b), (b, a)):
                        one.use()
                        self.enable(other)
                except CudaError as fault:
                    return {**said, "why": str(fault)}
            of = {"what": "peer", "source": source, "target": target, "access": access}
            self.cell({**of, "memory": "", "bytes": size, "counted": size}, measure)
            self.latency(of, a, lambda: issue(four))
        for one, other in ((a, b), (b, a)):  # so that the next pair begins without
            with contextlib.suppress(CudaError):  # the cells tell what is wrong with the GPU
                one.use()
                self.cuda.cuCtxDisablePeerAccess(other.context)
        return {**said, "access": True}

    def no_peer(self, source: int, target: int, why: str) -> Cell:
        """A pair of which one was not taken."""
        of, size = {"what": "peer", "source": source, "target": target, "access": False}, min(self.largest, PAIR_BYTES)
        self.cells.append({**of, "memory": "", "bytes": size, "counted": size, "error": why})
        self.latencies.append({**of, "error": why})
        return {"source": source, "target": target, "access": False, "why": why}

    def enable(self, other: Device) -> None:
        """Peer access from the current context."""
        try:
            self.cuda.cuCtxEnablePeerAccess(other.context, ctypes.c_uint(0))
        except CudaError as fault:
            if fault.code != PEER_ALREADY:
                raise

    def warm(self, number: int, buffers: Buffers, nvml: dict[str, Any]) -> Cell:
        """Work until the clocks are up; what the GPU and its link say while they work."""
        gpu, (first, second) = self.devices[number], self.blocks[number]
        count, out = ctypes.c_size_t(self.largest), ctypes.c_void_p(buffers.memory["pinned"][0])
        until = time.monotonic() + self.asked.warm_s
        with contextlib.suppress(CudaError):  # the cells tell what is wrong with the GPU
            gpu.use()
            while time.monotonic() < until:
                self.cuda.cuMemcpyDtoDAsync_v2(second, first, count, gpu.stream)
                self.cuda.cuMemcpyHtoDAsync_v2(first, out, count, gpu.stream)
                gpu.wait()
            for _ in range(4):  # on their way while the state is read
                self.cuda.cuMemcpyHtoDAsync_v2(first, out, count, gpu.stream)
        known = nvml.get(gpu.uuid)
        function = DEVICES / gpu.address
        said: Cell = {
            "card": {"what": "gpu", **pcie.describe(function.resolve())} if function.exists() else None,
            **dict.fromkeys(("generation", "lanes", "state")),
        }
        if known is not None:
            with contextlib.suppress(NvmlError):  # it was lost meanwhile
                said["generation"] = known.said("CurrPcieLinkGeneration")
                said["lanes"] = known.said("CurrPcieLinkWidth")
                said["state"] = known.state().document()
        with contextlib.suppress(CudaError):
            gpu.wait()
        return said

    def run(self, nvml: dict[str, Any], turn: Callable[..., None] = lambda *_: None) -> dict[str, Any]:
        """The report. `nvml`: GPUs by UUID. `turn` is told the address of the GPU whose turn it is."""
        everywhere, found, peers = os.sched_getaffinity(0), [], []
        for number, gpu in enumerate(self.devices):
            had = len(self.cells), len(self.latencies)
            with near(gpu.address, everywhere) as bound:
                try:
                    buffers = self.buffers(number)
                except CudaError as fault:  # no memory to pin: this GPU's turn has errors, and the next may have some
                    self._broken(gpu, fault)
                    buffers = Buffers(self.cuda, self.largest, pin=False)
                try:
                    buffers.fill(pattern(number))
                    turn(gpu.address)
                    said = self.warm(number, buffers, nvml)
                    self.host(number, buffers)
                    peers += [
                        self.peer(number, other, buffers) for other in range(len(self.devices)) if other != number
                    ]
                finally:
                    turn()
                    buffers.close()
            if (spoilt := self.spoilt(number, *had)) is not None:
                raise spoilt
            keys = ("name", "uuid", "address", "memory_bytes", "held")
            untaken = {"untaken": str(gpu.broken or ""), "beside": self.others.get(gpu.uuid, "")}
            found.append({**{key: getattr(gpu, key) for key in keys}, **untaken, "near": bound, **said})
        access = {(one["source"], one["target"]): one["access"] for one in peers}
        copies_at_once(self, access)
        without = copies_by_sms(self, access)
        report = {"cuda": self.cuda.version(), "emulated": self.cuda.emulated, "largest_bytes": self.largest}
        return {
            **report,
            "no_sm_copies": without,
            "devices": found,
            "peers": peers,
            "cells": self.cells,
            "latencies": self.latencies,
        }
