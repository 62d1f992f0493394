"""The part of probe burn_in that needs no torch: copies on all GPUs at once, by the CUDA driver API.

To each GPU, many times inside it, and back; what comes back is compared with what was sent.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from typing import Any

from validation.probes.cuda import Cuda, CudaError
from validation.probes.gpu_copies import LIBC, Asked, Bench
from validation.probes.gpu_host import pattern
from validation.probes.tool import Stopped, stopped

WINDOWS = 240  # of which a rate is told, at most; none is shorter than SHORTEST_S
SHORTEST_S = 1.0
COPY_BYTES = 256 << 20
INSIDE = 16  # copies inside a GPU: what loads its memory; even, so that it is written an odd number of times in all and
# a bit that each write turns over does not come back right
Device = dict[str, Any]


def window_s(seconds: float) -> float:
    """How long a window of a burn-in is."""
    return max(SHORTEST_S, seconds / WINDOWS) if seconds >= 20 * SHORTEST_S else seconds / 20


def device_document(name: str, model: str, address: str, unit: str, words: str) -> Device:
    """A device of which nothing is known yet."""
    return {"device": name, "name": model, "address": address, "fault": "", "load": words, "unit": unit, "rates": [],
            "checks": 0, "wrong": 0, "exact": []}  # fmt: skip


class Copies:
    """All GPUs at once: host to GPU, inside it, and back; what comes back is what was sent."""

    def __init__(self, bench: Bench) -> None:
        """Host memory of each GPU, with bytes of its own in it."""
        self.bench, self.cuda, self.size = bench, bench.cuda, bench.largest
        self.buffers = []
        self.devices: list[Device] = []
        for number, gpu in enumerate(bench.devices):
            self.buffers.append(bench.buffers(number))
            self.buffers[-1].fill(pattern(number))
            words = f"copies of {self.size >> 10} KiB: to the GPU, {INSIDE} times inside it, and back"
            self.devices.append(device_document(f"cuda:{number}", gpu.name, gpu.address, "GB/s", words))
            self.devices[-1]["fault"] = str(gpu.broken or "")

    def close(self) -> None:
        """Give the host's memory back."""
        for one in self.buffers:
            one.close()

    def issue(self, number: int) -> None:
        """A GPU's copies, from its start event to its end event."""
        gpu, (first, second), cuda = self.bench.devices[number], self.bench.blocks[number], self.cuda
        out, back = (ctypes.c_void_p(address) for address in self.buffers[number].memory["pinned"])
        count = ctypes.c_size_t(self.size)
        ctypes.memset(back, 0, self.size)  # what was there before must not pass for what came back
        gpu.use()
        cuda.cuEventRecord(gpu.start, gpu.stream)
        cuda.cuMemcpyHtoDAsync_v2(first, out, count, gpu.stream)
        for step in range(INSIDE):  # an even number of them ends in the first block
            to, of = (second, first) if step % 2 == 0 else (first, second)
            cuda.cuMemcpyDtoDAsync_v2(to, of, count, gpu.stream)
        cuda.cuMemcpyDtoHAsync_v2(back, first, count, gpu.stream)
        cuda.cuEventRecord(gpu.end, gpu.stream)

    def check(self, number: int) -> float:
        """Wait for a GPU, compare; seconds of its copies."""
        gpu, (out, back) = self.bench.devices[number], self.buffers[number].memory["pinned"]
        gpu.use()
        gpu.wait()
        took = gpu.elapsed_s()
        self.devices[number]["checks"] += 1
        self.devices[number]["wrong"] += LIBC.memcmp(out, back, self.size) != 0
        return took

    def digest(self, when: str) -> None:
        """Of what came back last from each GPU, beside that of what was sent."""
        for device, buffers in zip(self.devices, self.buffers):
            if device["fault"]:
                continue
            sent, back = (
                hashlib.sha256(ctypes.string_at(address, self.size)).hexdigest() for address in buffers.memory["pinned"]
            )
            device["exact"].append({"when": when, "precision": "copies", "digests": {back: 1}, "sent": sent})

    def round(self, sums: dict[int, list[float]]) -> None:
        """Each GPU once, all at the same time. One whose call fails is left alone from then on, and says why."""
        for number in list(sums):
            try:
                self.issue(number)
            except CudaError as fault:
                self.devices[number]["fault"] = str(fault)
                del sums[number]
        for number in list(sums):
            try:
                sums[number].append(self.check(number))
            except CudaError as fault:
                self.devices[number]["fault"] = str(fault)
                del sums[number]

    def run(self, seconds: float) -> list[Device]:
        """Until the time is over, or no GPU is left."""
        until, counted, when = time.monotonic() + seconds, self.size * (2 + 2 * INSIDE), "cold"
        while when or time.monotonic() < until:
            ends = min(until, time.monotonic() + window_s(seconds))
            sums: dict[int, list[float]] = {n: [] for n, one in enumerate(self.devices) if not one["fault"]}
            while sums:
                if stopped():
                    raise Stopped
                self.round(sums)
                if when:
                    self.digest(when)
                    when = ""
                if time.monotonic() >= ends:
                    break
            if not sums:
                return self.devices
            for number, taken in sums.items():
                self.devices[number]["rates"].append(round(counted * len(taken) / max(sum(taken), 1e-9) / 1e9, 6))
        self.digest("hot")
        return self.devices


def by_copies(seconds: float, asked: Asked) -> list[Device]:
    """Copies on all GPUs; CudaError where they do not let themselves be taken."""
    bench = Bench(Cuda(), asked)
    try:
        copies = Copies(bench)
        try:
            return copies.run(seconds)
        finally:
            copies.close()
    finally:
        bench.close()
