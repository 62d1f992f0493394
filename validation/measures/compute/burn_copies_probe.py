"""The part of probe burn_in that needs no torch: copies on all GPUs at once, by the CUDA driver API.

To each GPU, many times inside it, and back; what comes back is compared with what was sent. Each GPU has a process of
its own, for some errors end all CUDA work of theirs: they are of the GPU that had them, and no other stops for it. The
processes begin together, when all have taken their GPUs.

    python -m validation.measures.compute.burn_copies_probe '{"number": 0, "seconds": 60, ...}'    # one of them
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from validation.probes.cuda import Cuda, CudaError
from validation.probes.cuda import Device as CudaDevice
from validation.probes.gpu_bench import HOST_SHARE, LIBC, SPARE_BYTES
from validation.probes.gpu_host import Buffers, near, pattern
from validation.probes.host_memory import available
from validation.probes.power_steps import Pace
from validation.probes.supervise import die_with_parent
from validation.probes.tool import Stopped, last_line, stopped

WINDOWS = 240  # of which a rate is told, at most; none is shorter than SHORTEST_S
SHORTEST_S = 1.0
COPY_BYTES = 256 << 20
INSIDE = 16  # copies inside a GPU: what loads its memory; even, so that it is written an odd number of times in all and
# a bit that each write turns over does not come back right
READY_S = 40.0  # in which a process has taken its GPU
LATE_S = 30.0  # after the time that was asked for, a process that has not ended is killed: before the whole probe is
BUFFERS = 4  # of a process's host memory, each as large as a copy
ROOT = Path(__file__).parents[3]
Device = dict[str, Any]


def window_s(seconds: float) -> float:
    """How long a window of a burn-in is."""
    return max(SHORTEST_S, seconds / WINDOWS) if seconds >= 20 * SHORTEST_S else seconds / 20


def device_document(name: str, model: str, address: str, unit: str, words: str) -> Device:
    """A device of which nothing is known yet."""
    return {"device": name, "name": model, "address": address, "fault": "", "load": words, "unit": unit, "rates": [],
            "checks": 0, "wrong": 0, "exact": []}  # fmt: skip


class Copies:
    """One GPU: host to GPU, inside it, and back; what comes back is what was sent."""

    def __init__(self, cuda: Cuda, number: int, most_bytes: int) -> None:
        """Take it, two blocks of its memory, and host memory with bytes of its own; CudaError where one is not there.

        `most_bytes`: of a copy; less where the GPU has less.
        """
        self.cuda, self.gpu = cuda, CudaDevice(cuda, number)
        free = self.gpu.free_bytes()
        room = (free - min(SPARE_BYTES, free // 4)) // 2
        self.size = max(min(most_bytes, room) // 4096 * 4096, 4096)
        self.blocks = self.gpu.alloc(self.size), self.gpu.alloc(self.size)
        self.buffers = Buffers(cuda, self.size)
        self.buffers.fill(pattern(number))
        words = f"copies of {self.size >> 10} KiB: to the GPU, {INSIDE} times inside it, and back"
        self.device = device_document(f"cuda:{number}", self.gpu.name, self.gpu.address, "GB/s", words)

    def once(self) -> float:
        """All copies, one after the other; wait, compare; seconds of them."""
        gpu, (first, second), cuda = self.gpu, self.blocks, self.cuda
        sent, came = self.buffers.memory["pinned"]
        out, back, count = ctypes.c_void_p(sent), ctypes.c_void_p(came), ctypes.c_size_t(self.size)
        ctypes.memset(came, 0, self.size)  # what was there before must not pass for what came back
        gpu.use()
        cuda.cuEventRecord(gpu.start, gpu.stream)
        cuda.cuMemcpyHtoDAsync_v2(first, out, count, gpu.stream)
        for step in range(INSIDE):  # an even number of them ends in the first block
            to, of = (second, first) if step % 2 == 0 else (first, second)
            cuda.cuMemcpyDtoDAsync_v2(to, of, count, gpu.stream)
        cuda.cuMemcpyDtoHAsync_v2(back, first, count, gpu.stream)
        cuda.cuEventRecord(gpu.end, gpu.stream)
        gpu.wait()
        took = gpu.elapsed_s()
        self.device["checks"] += 1
        self.device["wrong"] += LIBC.memcmp(sent, came, self.size) != 0
        return took

    def digest(self, when: str) -> None:
        """Of what came back last, beside that of what was sent."""
        sent, back = (
            hashlib.sha256(ctypes.string_at(address, self.size)).hexdigest()
            for address in self.buffers.memory["pinned"]
        )
        self.device["exact"].append({"when": when, "precision": "copies", "digests": {back: 1}, "sent": sent})

    def run(self, seconds: float, steps: Sequence[str] = ()) -> Device:
        """Until the time is over, or a call fails, of which the words are the fault."""
        until, counted, when = time.monotonic() + seconds, self.size * (2 + 2 * INSIDE), "cold"
        pace = Pace(steps, until)
        try:
            while when or time.monotonic() < until:
                ends, taken = min(until, time.monotonic() + window_s(seconds)), list[float]()
                while not taken or time.monotonic() < ends:
                    taken.append(self.once())
                    if when:
                        self.digest(when)
                        when = ""
                    pace.rest(taken[-1])
                self.device["rates"].append(round(counted * len(taken) / max(sum(taken), 1e-9) / 1e9, 6))
            self.digest("hot")
        except CudaError as fault:
            self.device["fault"] = str(fault)
        self.device["steps"] = pace.spent
        return self.device


class Process:
    """The process of one GPU."""

    def __init__(self, gpu: CudaDevice, seconds: float, most_bytes: int, steps: Sequence[str]) -> None:
        """Started; it takes its GPU, says so, and waits."""
        self.of = device_document(f"cuda:{gpu.ordinal}", gpu.name, gpu.address, "GB/s", "copies")
        params = json.dumps({"number": gpu.ordinal, "seconds": seconds, "most_bytes": most_bytes, "steps": list(steps)})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "validation.measures.compute.burn_copies_probe", params],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def report(self, until: float) -> Device:
        """What it says at its end; a fault where it does not, or has not ended by then."""
        try:
            while True:
                try:
                    out, err = self.process.communicate(timeout=max(0.0, min(0.2, until - time.monotonic())))
                    break
                except subprocess.TimeoutExpired:
                    if stopped():
                        raise Stopped from None
                    if time.monotonic() >= until:
                        return {**self.of, "fault": f"its process had not ended {LATE_S:g} s after the time"}
            found: Device = json.loads(last_line(out.decode("utf-8", "replace")))
            return found
        except ValueError:
            said = last_line(err.decode("utf-8", "replace"))
            return {**self.of, "fault": f"its process ended with {self.process.returncode}: {said or 'no word'}"}

    def end(self) -> None:
        """Whatever it does."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):  # what was not written has nobody to read it
                pipe.close()  # type: ignore[union-attr]


def ready(processes: list[Process]) -> None:
    """Wait until each has taken its GPU, or has ended; then all begin."""
    until = time.monotonic() + READY_S
    with selectors.DefaultSelector() as waiting:
        for one in processes:
            waiting.register(one.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        while waiting.get_map() and time.monotonic() < until:
            if stopped():
                raise Stopped
            for key, _ in waiting.select(0.2):
                waiting.unregister(key.fileobj)
    for one in processes:
        with contextlib.suppress(OSError):  # it has ended, and its report says why
            one.process.stdin.write(b"go\n")  # type: ignore[union-attr]
            one.process.stdin.flush()  # type: ignore[union-attr]


def by_copies(seconds: float, most_bytes: int, steps: Sequence[str] = ()) -> list[Device]:
    """Copies on all GPUs, all at once; CudaError where there is no driver or no GPU. `most_bytes`: of a copy."""
    cuda = Cuda()
    gpus = [CudaDevice(cuda, ordinal, refused="only looked at") for ordinal in range(cuda.count())]
    if not gpus:
        raise CudaError("CUDA shows no GPU")
    share = int(HOST_SHARE * available()) // (BUFFERS * len(gpus))
    processes: list[Process] = []
    try:
        for gpu in gpus:
            processes.append(Process(gpu, seconds, min(most_bytes, share), steps))
        ready(processes)
        until = time.monotonic() + seconds + LATE_S
        return [one.report(until) for one in processes]
    finally:
        for one in processes:
            one.end()


def main() -> None:
    """One GPU: take it, say so, wait for the word, and print its document."""
    given = json.loads(sys.argv[1])
    cuda, number = Cuda(), given["number"]
    about = CudaDevice(cuda, number, refused="only looked at")
    device = device_document(f"cuda:{number}", about.name, about.address, "GB/s", "copies")
    copies = None
    with near(about.address, os.sched_getaffinity(0)):
        try:
            copies = Copies(cuda, number, given["most_bytes"])
        except CudaError as fault:
            device["fault"] = str(fault)
        print("ready", flush=True)
        if sys.stdin.readline() and copies is not None:
            device = copies.run(given["seconds"], given["steps"])
    print(json.dumps(device), flush=True)


if __name__ == "__main__":
    main()
