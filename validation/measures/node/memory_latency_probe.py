"""Latency of this node's memory: a chase of pointers, from the processors of each NUMA node to the memory of each.

Every element of a ring holds the address of the next, in a random order, so that no load can begin before the previous
one has ended, and nothing can be fetched ahead. Python is too slow to follow it, and nothing in libc does: the two
loops are machine code, here in bytes beside their instructions, put into memory that is first written and then made
executable, never both. Elements are two lines of a cache apart, since processors fetch lines in pairs, and the lines
that are touched are four times the last cache. Memory is bound to a NUMA node (mbind), on huge pages where the kernel
gives them; where it really lies is read from /proc/self/numa_maps, and what lies elsewhere is no figure.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.host_memory import available
from validation.probes.processors import numa_nodes
from validation.probes.rdma_ports_sysfs import SYSFS, read
from validation.probes.tool import Ran, Stopped, document, stopped

PROC = Path("/proc")
MIB = 1 << 20
STRIDE_BYTES = 128  # from an element to the next one in memory: a pair of lines
LINE_BYTES = 64
CACHES = 4  # what is touched, in last caches: an order of chance leaves some 2 % of it there, of twice a cache 20 %
LEAST_BYTES = 256 * MIB  # where the caches are small, or the kernel does not report them
RINGS = (16 << 10, 256 << 10, 4 * MIB, 64 * MIB)  # smaller ones, which show the caches: the chase is real
SHARE = 0.5  # of the memory that is available, at most
HUGE_BYTES = 2 * MIB
PLACED = 0.99  # of a ring, in the memory that it was to be in
MPOL_BIND, MBIND = 2, 237  # linux/mempolicy.h; x86_64's number of the call
CHASE = bytes.fromhex(
    "f30f1efa"  # endbr64                   rdi: an element, rsi: how many loads
    "488b3f"  # 1: mov rdi, [rdi]
    "48ffce"  # dec rsi
    "75f8"  # jnz 1b
    "4889f8c3"  # mov rax, rdi; ret         the element that it came to
)
LINK = bytes.fromhex(
    "f30f1efa"  # endbr64                   rdi: the first element, rsi: how many, rdx: a seed, not 0
    "4989d0"  # mov r8, rdx
    "4889f84889f1"  # mov rax, rdi; mov rcx, rsi
    "488900"  # 1: mov [rax], rax           each is its own next
    "480580000000"  # add rax, 128
    "48ffc975f2"  # dec rcx; jnz 1b
    "4889f1"  # mov rcx, rsi
    "48ffc97441"  # 2: dec rcx; jz 3f       Sattolo: from the last, swap with one before it, which makes one cycle
    "4c89c048c1e00d4931c0"  # mov rax, r8; shl rax, 13; xor r8, rax      xorshift64
    "4c89c048c1e8074931c0"  # mov rax, r8; shr rax, 7; xor r8, rax
    "4c89c048c1e0114931c0"  # mov rax, r8; shl rax, 17; xor r8, rax
    "4c89c048f7e1"  # mov rax, r8; mul rcx  rdx: below rcx
    "48c1e207"  # shl rdx, 7
    "4889c848c1e007"  # mov rax, rcx; shl rax, 7
    "4c8b0c174c8b1407"  # mov r9, [rdi+rdx]; mov r10, [rdi+rax]
    "4c8914174c890c07"  # mov [rdi+rdx], r10; mov [rdi+rax], r9
    "ebbac3"  # jmp 2b; 3: ret
)
SEED = 88172645463325252  # xorshift64's own (Marsaglia, 2003)


@dataclass
class Asked:
    """What is asked of this probe."""

    repeats: int  # chases that are timed, of each pair of processors and memory
    loads: int  # of each chase
    ring_bytes: int = 0  # from the first element to the last; 0: by the size of this node's caches


class Refused(Exception):
    """Why nothing can be measured here."""


class Loops:
    """The two loops, ready to be called."""

    def __init__(self) -> None:
        """Refused where this machine has no such code, or lets none be run."""
        if platform.machine() != "x86_64":
            raise Refused(f"the chase is machine code of x86_64, and this is {platform.machine()}")
        libc = ctypes.CDLL(None, use_errno=True)
        self._kept = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._kept.write(CHASE + LINK)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self._kept))
        if libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_EXEC):
            why = os.strerror(ctypes.get_errno())
            raise Refused(f"this machine lets a program run no code of its own (mprotect: {why}); look at SELinux")
        word = ctypes.c_uint64
        self.chase = ctypes.CFUNCTYPE(word, word, word)(at)
        self.link = ctypes.CFUNCTYPE(None, word, word, word)(at + len(CHASE))


def last_cache_bytes(root: Path = SYSFS) -> int:
    """Bytes of the largest last-level cache; 0 where the kernel reports none. No processor uses another's."""
    found = []
    for index in (root / "devices/system/cpu").glob("cpu[0-9]*/cache/index[0-9]*"):
        level, size = read(index / "level"), re.fullmatch(r"(\d+)K", read(index / "size"))
        if level.isdigit() and size and read(index / "type") != "Instruction":
            found.append((int(level), int(size[1]) << 10))
    return max(found, default=(0, 0))[1]


def ring_bytes(asked: int, cache_bytes: int) -> int:
    """Of a ring whose lines are CACHES times the last cache; a power of two, so that half a round proves one cycle."""
    wanted = asked or max(LEAST_BYTES, CACHES * cache_bytes * STRIDE_BYTES // LINE_BYTES)
    return 1 << (max(wanted, HUGE_BYTES) - 1).bit_length()


def spans(text: str) -> set[int]:
    """A kernel's list, `0-3,8`, as numbers."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}


def nodes_of(allowed: set[int], sysfs: Path = SYSFS) -> tuple[dict[int, list[int]], list[int]]:
    """Processors that may be used by NUMA node, and the NUMA nodes with memory. A machine without NUMA has node 0."""
    cpus = {node["number"]: sorted(spans(node["cpus"]) & allowed) for node in numa_nodes(sysfs)}
    with_memory = sorted(spans(read(sysfs / "devices/system/node/has_memory"))) or sorted(cpus)
    return {number: mine for number, mine in cpus.items() if mine} or {0: sorted(allowed)}, with_memory or [0]


def spare_bytes(node: int, sysfs: Path = SYSFS) -> int | None:
    """Bytes of a NUMA node's memory that are free or could be; None where the kernel does not report it."""
    text = read(sysfs / f"devices/system/node/node{node}/meminfo")
    kib = re.findall(r"(?:MemFree|Active\(file\)|Inactive\(file\)):\s+(\d+) kB", text)
    return sum(map(int, kib)) << 10 if kib else None


class Ring:
    """Memory of one NUMA node, as far as the kernel lets it be bound."""

    def __init__(self, loops: Loops, size: int, node: int) -> None:
        """`size` in bytes. OSError where there is not that much."""
        self.loops, self.size, self.node = loops, size, node
        self._kept = mmap.mmap(-1, size + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.begin = ctypes.addressof(ctypes.c_char.from_buffer(self._kept))
        self.at = -(-self.begin // HUGE_BYTES) * HUGE_BYTES
        with contextlib.suppress(OSError):  # a kernel without huge pages: huge_share has it
            self._kept.madvise(mmap.MADV_HUGEPAGE)
        mask = (ctypes.c_ulong * 16)()
        mask[node // 64] = 1 << node % 64
        libc = ctypes.CDLL(None, use_errno=True)
        place, word = ctypes.c_void_p(self.begin), ctypes.c_ulong
        done = libc.syscall(MBIND, place, word(size + HUGE_BYTES), MPOL_BIND, mask, word(1024), 0)
        self.unbound = os.strerror(ctypes.get_errno()) if done else ""

    def link(self, size: int, lap: bool = False) -> None:
        """Make a ring of the first `size` bytes. `lap`: go round once, which fills the caches and proves that it is a
        single cycle, or is Refused; of a large one that takes as long as all the rest.
        """
        count = size // STRIDE_BYTES
        self.loops.link(self.at, count, SEED)
        self.now = self.at
        if lap:
            half = self.loops.chase(self.at, count // 2)
            if half == self.at or self.loops.chase(half, count - count // 2) != self.at:
                raise Refused(f"the ring of {size} bytes is no single cycle")

    def chase(self, loads: int) -> dict[str, Any]:
        """So many loads, from where the last ones ended: no line is met twice in a round. `cpu_ns`: what the processor
        worked on them, which is their time; `elapsed_ns`: the same with what others had the processor for.
        """
        _look()
        begun, worked = time.perf_counter_ns(), time.thread_time_ns()
        self.now = self.loops.chase(self.now, loads)
        worked, elapsed = time.thread_time_ns() - worked, time.perf_counter_ns() - begun
        return {"cpu_ns": worked, "elapsed_ns": elapsed, "ns": round(worked / loads, 3)}

    def pages(self, proc: Path = PROC) -> dict[int, int]:
        """Pages by NUMA node; empty where the kernel does not report it."""
        return placed(read(proc / "self/numa_maps"), self.begin)

    def huge_share(self, proc: Path = PROC) -> float:
        """Share of it on huge pages."""
        return round(min(1.0, huge_bytes(read(proc / "self/smaps"), self.begin) / self.size), 4)


def _look() -> None:
    """Stopped where this probe was told to stop."""
    if stopped():
        raise Stopped


def placed(maps: str, begin: int) -> dict[int, int]:
    """Pages by NUMA node of the mapping that begins there, as numa_maps has them."""
    mine = next((line for line in maps.splitlines() if line.startswith(f"{begin:x} ")), "")
    return {int(number): int(count) for number, count in re.findall(r"\bN(\d+)=(\d+)", mine)}


def huge_bytes(smaps: str, begin: int) -> int:
    """Bytes on huge pages of the mapping that begins there, as smaps has them."""
    mine = re.search(rf"^0*{begin:x}-.*?^AnonHugePages:\s+(\d+) kB", smaps, re.MULTILINE | re.DOTALL)
    return int(mine[1]) << 10 if mine else 0


def measure(args: Asked, report: dict[str, Any]) -> list[str]:
    """Fill in the report; why which pair of processors and memory has no figure."""
    loops, everywhere = Loops(), os.sched_getaffinity(0)
    cpus, memories = nodes_of(everywhere)
    size, left_out = report["ring_bytes"], []
    if size + HUGE_BYTES > SHARE * available():
        raise Refused(f"{size // MIB} MiB are needed, half of what is available, {available() // MIB} MiB, is less")
    for node in memories:
        spare = spare_bytes(node)
        if spare is not None and size > SHARE * spare:
            left_out.append(f"memory of node {node}: {size // MIB} MiB are needed, {spare // MIB} MiB could be free")
            continue
        os.sched_setaffinity(0, cpus.get(node, everywhere))
        ring = Ring(loops, size, node)
        if not report["rings"]:
            report["rings"] = [_small(ring, small, args) for small in RINGS if small < size]
        ring.link(size)
        placing = {"node": node, "bound": not ring.unbound, "why": ring.unbound, "huge_share": ring.huge_share()}
        report["memories"].append(placing)
        for near, mine in cpus.items():
            os.sched_setaffinity(0, {mine[-1]})  # interrupts are mostly served by the first
            timed = [ring.chase(args.loads) for _ in range(args.repeats)]
            where = ring.pages() or ({node: 1} if len(memories) == 1 else {})
            share = round(where.get(node, 0) / sum(where.values()), 4) if where else None
            if share is None or share < PLACED:
                how = "nobody knows where it lies" if share is None else f"{share:g} of it lies there"
                left_out.append(f"processors of node {near}, memory of node {node}: {how}")
                continue
            chases = [{"chase": number, **one} for number, one in enumerate(timed)]
            cell = {"processors_of": near, "cpu": mine[-1], "memory_of": node, "placed_share": share}
            report["cells"].append({**cell, "chases": chases})
        os.sched_setaffinity(0, everywhere)
    if not report["cells"]:
        raise Refused("; ".join(left_out))
    return left_out


def _small(ring: Ring, size: int, args: Asked) -> dict[str, Any]:
    """A ring of that size, which caches hold."""
    ring.link(size, lap=True)
    return {"bytes": size, **min((ring.chase(args.loads) for _ in range(3)), key=lambda one: one["cpu_ns"])}


def probe(args: Asked) -> ProbeDoc:
    """Nanoseconds of a load, for each pair of processors and memory, and of rings that the caches hold."""

    def run() -> tuple[Ran, dict[str, Any], str | None]:
        cache = last_cache_bytes()
        sizes = {"ring_bytes": ring_bytes(args.ring_bytes, cache), "cache_bytes": cache, "stride_bytes": STRIDE_BYTES}
        report: dict[str, Any] = {**sizes, "loads": args.loads, "rings": [], "memories": [], "cells": []}
        ran = Ran(["memory-latency"], 0, "", "")
        try:
            report["left_out"] = measure(args, report)
        except (Refused, OSError) as fault:
            return ran, sizes, str(fault)
        cells = [f"{cell['processors_of']}-{cell['memory_of']}" for cell in report["cells"]]
        facts = {**sizes, "cells": cells, "left_out": report["left_out"]}
        return ran._replace(stdout=json.dumps(report)), facts, None

    return document("memory-latency", "probes", run, lambda _: platform.python_version())
