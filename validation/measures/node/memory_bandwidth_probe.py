"""Host memory bandwidth of this node: every processor that it may use copies at the same time, as STREAM's Copy does.

One process for each processor, pinned there, so that its arrays lie in the memory of its own socket (first touch). The
copy is libc's, through ctypes: the standard library is enough, and what is measured is the same on every node. Where
numpy can be imported here, STREAM's Triad (a = b + s x c) is taken too. Bytes are counted as STREAM counts them: what
the operation names, 16 for each copied double, 24 for each of a triad.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.host_memory import available
from validation.probes.supervise import die_with_parent
from validation.probes.tool import Ran, document

CPUS = Path("/sys/devices/system/cpu")
MIB = 1 << 20
BLOCK_BYTES = 16 * MIB  # between two looks at the clock; so large that libc copies past the caches
CACHES = 4  # STREAM: each array at least four times the size of the caches
LEAST_BYTES = BLOCK_BYTES  # of a process's array, where the caches are small
SHARE = 0.5  # of the memory that is available, at most
SCALAR = 3.0  # STREAM's own


@dataclass
class Asked:
    """What is asked of this probe."""

    repeats: int  # windows that are measured, of each operation
    window_s: float  # length of one; all processors are busy from its begin to its end
    array_bytes: int = 0  # of each process's arrays; 0: by the size of this node's caches


def caches(root: Path = CPUS) -> int:
    """Bytes of all last-level caches of the node; 0 where the kernel tells none."""
    found: dict[str, tuple[int, int]] = {}
    for index in root.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size = int((index / "level").read_text()), (index / "size").read_text().strip()
            shared, kind = (index / "shared_cpu_list").read_text().strip(), (index / "type").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size.endswith("K"):
            found[f"{level} {shared}"] = (level, int(size[:-1]) << 10)
    last = max((level for level, _ in found.values()), default=0)
    return sum(size for level, size in found.values() if level == last)


def array_bytes(asked: int, cpus: int) -> int:
    """Bytes of one array of one process, a multiple of a block."""
    wanted = asked or max(LEAST_BYTES, CACHES * caches() // cpus)
    return -(-wanted // BLOCK_BYTES) * BLOCK_BYTES


class Arrays:
    """The arrays of one process, touched here for the first time."""

    def __init__(self, size: int, seed: int) -> None:
        """`size` in bytes; what is copied depends on `seed`, so that no two processes have the same."""
        self.size = size
        self.kept = [mmap.mmap(-1, size) for _ in range(3)]
        self.a, self.b, self.c = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in self.kept)
        pattern = bytes((seed * 31 + i * 7) % 251 for i in range(BLOCK_BYTES // 256)) * 256
        for offset in range(0, size, BLOCK_BYTES):
            self.kept[1][offset : offset + BLOCK_BYTES] = pattern
        for offset in range(0, size, mmap.PAGESIZE):
            self.kept[0][offset] = 1

    def copy(self) -> tuple[Callable[[int], object], Callable[[], bool], int]:
        """A block of Copy at an offset, whether all was copied right, and bytes that a block counts for."""

        def block(offset: int) -> object:
            return ctypes.memmove(self.a + offset, self.b + offset, BLOCK_BYTES)

        def right() -> bool:
            blocks = (slice(offset, offset + BLOCK_BYTES) for offset in range(0, self.size, BLOCK_BYTES))
            return all(self.kept[0][block] == self.kept[1][block] for block in blocks)

        return block, right, 2 * BLOCK_BYTES

    def triad(self) -> tuple[Callable[[int], object], Callable[[], bool], int]:
        """The same of Triad; the product stays in the processor's own cache. ImportError without numpy."""
        numpy: Any = importlib.import_module("numpy")  # where the node has it
        a, b, c = (numpy.frombuffer(kept, dtype=numpy.float64) for kept in self.kept)
        b[:], c[:] = numpy.arange(b.size) % 1009, numpy.arange(c.size) % 1013
        step = 8192
        product = numpy.empty(step)

        def block(offset: int) -> None:
            first = offset // 8
            for i in range(first, first + BLOCK_BYTES // 8, step):
                numpy.multiply(c[i : i + step], SCALAR, out=product)
                numpy.add(b[i : i + step], product, out=a[i : i + step])

        def right() -> bool:
            return all(bool((a[i : i + step] == b[i : i + step] + SCALAR * c[i : i + step]).all())
                       for i in range(0, a.size, step))  # fmt: skip

        return block, right, 3 * BLOCK_BYTES


def _work(cpu: int, size: int, seed: int, operation: str, asked: Asked, line: Connection) -> None:
    """One process: says that it is ready, is told when the first window begins, and reports all windows."""
    die_with_parent()
    os.sched_setaffinity(0, {cpu})
    try:
        arrays = Arrays(size, seed)
        block, right, counted = getattr(arrays, operation)()
    except (ImportError, OSError, ValueError) as fault:
        line.send({"fault": f"{type(fault).__name__}: {fault}"})
        return
    for offset in range(0, size, BLOCK_BYTES):  # every block once before it counts
        block(offset)
    line.send({"ready": True})
    begin = line.recv()
    windows = []
    offset = 0
    for number in range(asked.repeats):
        start = begin + 1.25 * number * asked.window_s  # a quarter of a window between two, to gather in
        time.sleep(max(0.0, start - time.monotonic()))
        began, end, blocks = time.monotonic(), start + asked.window_s, 0
        now = began
        while now < end:
            block(offset)
            offset = (offset + BLOCK_BYTES) % size
            blocks += 1
            now = time.monotonic()
        moved, took = blocks * counted, now - start
        one = {"late_s": round(began - start, 6), "seconds": round(now - began, 6), "end_s": round(took, 6)}
        windows.append({"window": number, **one, "bytes": moved, "gb_s": round(moved / took / 1e9, 6)})
    line.send({"cpu": cpu, "verified": right(), "windows": windows})


def together(operation: str, cpus: list[int], size: int, asked: Asked) -> list[dict[str, Any]]:
    """What the process of each processor reports; RuntimeError with words where one cannot measure."""
    context = multiprocessing.get_context("fork")
    lines, processes = [], []
    for seed, cpu in enumerate(cpus):
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(cpu, size, seed, operation, asked, there))
        process.start()
        there.close()
        lines.append(here)
        processes.append(process)
    try:
        for line in lines:
            said = line.recv()
            if "fault" in said:
                raise RuntimeError(said["fault"])
        begin = time.monotonic() + 0.1
        for line in lines:
            line.send(begin)
        return [line.recv() for line in lines]
    except EOFError:
        raise RuntimeError("a process ended before it had reported; was there too little memory?") from None
    finally:
        for process in processes:
            process.kill()
            process.join()


def probe(args: Asked) -> ProbeDoc:
    """Copy, and Triad where numpy is there: for each window what every processor moved, and in which time."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        cpus = sorted(os.sched_getaffinity(0))
        size = array_bytes(args.array_bytes, len(cpus))
        facts: dict[str, Any] = {"cpus": len(cpus), "array_bytes": size, "cache_bytes": caches(), "operations": []}
        report: dict[str, Any] = {"block_bytes": BLOCK_BYTES, **facts}
        ran = Ran(["memory-bandwidth"], 0, "", "")
        if 3 * size * len(cpus) > SHARE * available():
            return ran, facts, f"{3 * size * len(cpus) // MIB} MiB are needed, {available() // MIB} MiB are available"
        for operation in ("copy", "triad"):
            try:
                report[operation] = together(operation, cpus, size, args)
            except RuntimeError as fault:
                if operation == "copy":
                    return ran, facts, str(fault)
                report["no_triad"] = str(fault)
                continue
            facts["operations"].append(operation)
        return ran._replace(stdout=json.dumps(report)), facts, None

    return document("memory-bandwidth", "probes", measure, lambda _: platform.python_version())
