"""Copies between pinned host memory and GPUs from a chosen NUMA node, and of all GPUs of this node at the same time.

Of each GPU: its own NUMA node, and on purpose the one that is farthest from that; of one whose node nobody knows, all.
The process runs on a node's processors when it first touches the memory, which the kernel therefore places there; where
it really lies is read from /proc/self/numa_maps and told (`placed`), before it is pinned. Then all GPUs at once, each
with memory of its own node: `copies` copies in a row on each GPU's stream, issued in turns. A round is timed by the
clock, from the first copy that is issued to the last that is done; each GPU's part by its own events.

A GPU that does not let itself be taken costs its own figures and those of all GPUs at once, and so does one whose error
ends all work of this process: a new one measures the others (gpu_spoilt.py). In a round of all it is the one that NVML
counts an error of, or does not see any more, since; else the first whose call failed.

`stdout`: every single time, as JSON; parsers make the figures. Nothing stays on a GPU, for all of it is the process's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from validation.measures.gpu import gpu_copies_probe
from validation.measures.gpu.gpu_health_probe import memory_errors
from validation.nvml import NoNvml, Nvml, NvmlError
from validation.probes import ProbeDoc
from validation.probes.cuda import PORTABLE, Cuda, CudaError, Device, NoDriver
from validation.probes.gpu_bench import HOST_SHARE, LIBC, Bench
from validation.probes.gpu_host import DEVICES, NODES, Buffers, pattern
from validation.probes.gpu_spoilt import Spoilt, again
from validation.probes.host_memory import available
from validation.probes.tool import Ran, document

MAPS = Path("/proc/self/numa_maps")
Cell = dict[str, Any]


@dataclass
class Asked:
    """What is asked of this probe."""

    largest_bytes: int  # of a copy
    repeat: int  # timed copies from each node, and rounds of all GPUs; after one that is not timed
    copies: int  # of each GPU in a round
    warm_s: float  # how long each GPU copies before it is measured
    gpus: int = 0  # how many the node is said to have; 0: nobody says, and there may be none
    anyway: bool = False  # measure a GPU that somebody works on
    without: dict[str, str] = field(default_factory=dict)  # UUIDs of GPUs that are not taken, and why


def spans(text: str) -> set[int]:
    """A kernel's list, `0-3,8`, as numbers."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}


def numa_nodes(allowed: set[int], nodes: Path = NODES) -> list[Cell]:
    """NUMA nodes of this host that have processors: number, processors that may be used, distances to all nodes."""
    every = sorted(int(path.name[4:]) for path in nodes.glob("node[0-9]*"))
    found: list[Cell] = []
    for number in every:
        try:
            cpus = spans((nodes / f"node{number}/cpulist").read_text())
            words = (nodes / f"node{number}/distance").read_text().split()
            away = dict(zip(every, map(int, words)))
        except (OSError, ValueError):
            continue
        if cpus:  # a node without has memory of a GPU, or on CXL
            found.append({"number": number, "cpus": sorted(cpus & allowed), "away": away})
    for node in found:
        node["distances"] = [node["away"].get(other["number"], 0) for other in found]
    return found or [{"number": 0, "cpus": sorted(allowed), "away": {}, "distances": [10]}]


def own_node(address: str, nodes: list[Cell], devices: Path = DEVICES) -> int | None:
    """The NUMA node of a PCI device; None where nobody knows. A host's only node is that of all its devices."""
    if len(nodes) == 1:
        return int(nodes[0]["number"])
    try:
        number = int((devices / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return number if number in [node["number"] for node in nodes] else None


def chosen(own: int | None, nodes: list[Cell]) -> list[int]:
    """The nodes to copy from: a GPU's own, then the one that is farthest from it; all where its own is unknown."""
    numbers = [int(node["number"]) for node in nodes]
    if own is None:
        return numbers
    away = next(node["away"] for node in nodes if node["number"] == own)
    others = sorted((n for n in numbers if n != own), key=lambda number: (-away.get(number, 0), number))
    return [own, *others[:1]]


def placed(address: int, node: int, maps: Path = MAPS) -> float | None:
    """Share of the mapping at this address that lies in a node's memory; None where the kernel does not say."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return None
    mine = next((line for line in lines if line.startswith(f"{address:x} ")), "")
    pages = {int(number): int(count) for number, count in re.findall(r"\bN(\d+)=(\d+)", mine)}
    total = sum(pages.values())
    return round(pages.get(node, 0) / total, 4) if total else None


class Placed(Buffers):
    """Host memory of one node, `out` and `back`, pinned; `share`: how much of it does lie there."""

    def __init__(self, cuda: Cuda, size: int, node: Cell) -> None:
        """Touched on the node's processors; CudaError where the driver does not pin it."""
        self.cuda, self.size = cuda, size
        everywhere = os.sched_getaffinity(0)
        self._maps = [mmap.mmap(-1, size) for _ in range(2)]
        here = [ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in self._maps]
        self._pinned: list[int] = []
        self.memory = {"pinned": here}
        try:
            os.sched_setaffinity(0, node["cpus"])
            for address in here:
                ctypes.memset(address, 1, size)
            shares = [placed(address, node["number"]) for address in here]
            self.share = None if None in shares else min(share for share in shares if share is not None)
            for address in here:
                cuda.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(PORTABLE))
                self._pinned.append(address)
        except CudaError:
            self.close()
            raise
        finally:
            os.sched_setaffinity(0, everywhere)

    def close(self) -> None:
        """No longer pinned."""
        for address in self._pinned:
            with contextlib.suppress(CudaError):
                self.cuda.cuMemHostUnregister(ctypes.c_void_p(address))


def counted(nvml: dict[str, Any]) -> dict[str, int | None]:
    """Uncorrectable memory errors of each GPU by UUID; None where NVML does not read them."""
    found: dict[str, int | None] = {}
    for uuid, gpu in nvml.items():
        try:
            found[uuid] = memory_errors(gpu)
        except NvmlError:  # it has fallen off the bus
            found[uuid] = None
    return found


class Loads:
    """All that is measured here, on the devices of a Bench."""

    def __init__(self, bench: Bench, asked: Asked, nodes: list[Cell]) -> None:
        """`nodes`: of numa_nodes."""
        self.bench, self.asked, self.cuda = bench, asked, bench.cuda
        self.size = bench.largest
        self.nodes = {node["number"]: node for node in nodes}
        self.at = 0  # the GPU that the last call was for

    def issue(self, number: int, what: str, buffers: Buffers) -> None:
        """One copy on a GPU's stream; its context must be current."""
        gpu, block, count = self.bench.devices[number], self.bench.blocks[number][0], ctypes.c_size_t(self.size)
        out, back = (ctypes.c_void_p(address) for address in buffers.memory["pinned"])
        if what == "h2d":
            self.cuda.cuMemcpyHtoDAsync_v2(block, out, count, gpu.stream)
        else:
            self.cuda.cuMemcpyDtoHAsync_v2(back, block, count, gpu.stream)

    def right(self, number: int, buffers: Buffers, what: str) -> bool:
        """Whether what `out` holds is in the GPU's block, or has come back from it."""
        if what == "h2d":
            return self.bench.same(self.bench.devices[number], self.bench.blocks[number][0], buffers, self.size)
        out, back = buffers.memory["pinned"]
        return bool(LIBC.memcmp(out, back, self.size) == 0)

    def forget(self, number: int, buffers: Buffers, what: str) -> None:
        """What was there before must not pass for what was copied."""
        if what == "h2d":
            self.bench.clear(self.bench.devices[number], self.bench.blocks[number][0], self.size)
        else:
            ctypes.memset(buffers.memory["pinned"][1], 0, self.size)

    def from_node(self, number: int, at: int, buffers: Placed) -> list[Cell]:
        """Both directions of a GPU with memory of a node, on that node's processors."""
        gpu, found, everywhere = self.bench.devices[number], [], os.sched_getaffinity(0)
        buffers.fill(pattern(number))
        for what in ("h2d", "d2h"):
            of: Cell = {"gpu": number, "node": at, "what": what, "bytes": self.size, "placed": buffers.share}
            try:
                os.sched_setaffinity(0, self.nodes[at]["cpus"])
                self.forget(number, buffers, what)
                took = self.bench.timed(gpu, partial(self.issue, number, what, buffers), self.asked.repeat)
                found.append({**of, **took, "verified": self.right(number, buffers, what)})
            except CudaError as fault:
                found.append({**of, "error": str(fault)})
            finally:
                os.sched_setaffinity(0, everywhere)
        return found

    def round(self, what: str, held: list[Placed]) -> Cell:
        """All GPUs at once: seconds by the clock of the whole, and of each GPU by its events."""
        began = time.perf_counter()
        for number, gpu in self.each():
            self.cuda.cuEventRecord(gpu.start, gpu.stream)
            self.issue(number, what, held[number])
        for _ in range(1, self.asked.copies):
            for number, _gpu in self.each():
                self.issue(number, what, held[number])
        for _number, gpu in self.each():
            self.cuda.cuEventRecord(gpu.end, gpu.stream)
        for _number, gpu in self.each():
            gpu.wait()
        clock_s = round(time.perf_counter() - began, 9)
        return {"clock_s": clock_s, "event_s": [round(gpu.elapsed_s(), 9) for _, gpu in self.each()]}

    def each(self) -> Iterator[tuple[int, Device]]:
        """All GPUs, each with its context current."""
        for number, gpu in enumerate(self.bench.devices):
            self.at = number
            gpu.use()
            yield number, gpu

    def together(self, held: list[Placed], nvml: dict[str, Any]) -> list[Cell]:
        """Each direction: rounds of all GPUs. `nvml`: GPUs by UUID."""
        found: list[Cell] = []
        before, why = counted(nvml), ""
        for what in ("h2d", "d2h"):
            of: Cell = {"what": what, "bytes": self.size, "copies": self.asked.copies}
            try:
                for (number, _), buffers in zip(self.each(), held):
                    self.forget(number, buffers, what)
                rounds = [self.round(what, held) for _ in range(self.asked.repeat + 1)][1:]
                right = [self.right(number, buffers, what) for (number, _), buffers in zip(self.each(), held)]
                found.append({**of, "rounds": rounds, "verified": right})
            except CudaError as fault:
                found.append({**of, "error": why or f"GPU {self.at} of CUDA: {fault}"})
                if not why and not any(map(self.bench.works, range(len(held)))):
                    why = found[-1]["error"] = self.culprit(fault, before, nvml)
        return found

    def culprit(self, fault: CudaError, before: dict[str, int | None], nvml: dict[str, Any]) -> str:
        """In words, whose error has ended the work on all GPUs at once: by what NVML counts since `before`."""
        now, ended = counted(nvml), "this ended all work of its process"
        for number, gpu in enumerate(self.bench.devices):
            had, has = before.get(gpu.uuid), now.get(gpu.uuid)
            if had is not None and (has is None or has > had):
                more = "cannot read it any more" if has is None else f"counts {has - had} memory errors more of it"
                return f"GPU {number} of CUDA: {fault}; NVML {more}; {ended}"
        return f"GPU {self.at} of CUDA, whose call was the first that failed: {fault}; {ended}"

    def spoilt(self, number: int, cells: list[Cell]) -> None:
        """Raise Spoilt where an error in the turn of a GPU has ended the work on all others."""
        error, devices = next((cell["error"] for cell in cells if "error" in cell), ""), self.bench.devices
        others = [n for n, one in enumerate(devices) if n != number and not one.broken]
        if error and others and not any(map(self.bench.works, others)):
            raise Spoilt(devices[number].uuid, f"GPU {number} of CUDA: {error}")

    def run(self, nvml: dict[str, Any]) -> dict[str, Any]:
        """The report; Spoilt where one GPU's error leaves the others nothing. `nvml`: GPUs by UUID."""
        nodes = [self.nodes[number] for number in sorted(self.nodes)]
        devices: list[Cell] = []
        cells: list[Cell] = []
        held: list[Placed] = []
        why = ""
        try:
            for number, gpu in enumerate(self.bench.devices):
                own = own_node(gpu.address, nodes)
                said: Cell = {}
                if gpu.broken:
                    why = why or str(gpu.broken)
                    of = {"gpu": number, "node": chosen(own, nodes)[0], "bytes": self.size, "placed": None}
                    cells += [{**of, "what": what, "error": str(gpu.broken)} for what in ("h2d", "d2h")]
                had = len(cells)
                for at in chosen(own, nodes) if not gpu.broken else ():
                    if not self.nodes[at]["cpus"]:
                        continue
                    try:
                        buffers = Placed(self.cuda, self.size, self.nodes[at])
                    except CudaError as fault:
                        why = why or f"GPU {number}: {fault}"
                        continue
                    said = said or self.bench.warm(number, buffers, nvml)
                    cells += self.from_node(number, at, buffers)
                    if at == own or (own is None and len(held) == number):
                        held.append(buffers)
                    else:
                        buffers.close()
                self.spoilt(number, cells[had:])
                keys = ("name", "uuid", "address")
                silent = dict.fromkeys(("card", "generation", "lanes", "state"))
                devices.append({**{key: getattr(gpu, key) for key in keys}, "numa": own, **silent, **said})
            if len(held) == len(devices):
                whole = self.together(held, nvml)
            else:
                why = why or "not every GPU has memory of its own node that this process may use"
                all_: Cell = {"bytes": self.size, "copies": self.asked.copies, "error": why}
                whole = [{"what": what, **all_} for what in ("h2d", "d2h")]
        finally:
            for buffers in held:
                buffers.close()
        shown = [{"number": n["number"], "usable": bool(n["cpus"]), "distances": n["distances"]} for n in nodes]
        return {"emulated": self.cuda.emulated, "nodes": shown, "devices": devices, "cells": cells, "together": whole}


def probe(args: Asked) -> ProbeDoc:
    """All GPUs of this node, one after the other and together."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        ran, facts = Ran(["gpu-load"], 0, "", ""), {"driver": "", "emulated": False}
        of = (args.largest_bytes, args.repeat, 0, args.warm_s, args.gpus, args.anyway, args.without)
        asked = gpu_copies_probe.Asked(*of)
        try:
            with Nvml() as nvml:
                facts |= {"driver": nvml.driver(), "emulated": nvml.emulated}
                # two buffers of each GPU are held until all have theirs
                room = int(HOST_SHARE * available()) // (2 * max(nvml.count(), 1)) // 4096 * 4096
                asked.largest_bytes = max(min(args.largest_bytes, room), 4096)
                bench, gpus, _ = gpu_copies_probe.bench(nvml, asked)
                try:
                    loads = Loads(bench, args, numa_nodes(os.sched_getaffinity(0)))
                    report = loads.run({gpu.uuid: gpu for gpu in gpus})
                finally:
                    bench.close()
        except Spoilt as fault:
            return again("gpu-load", args, fault)
        except (CudaError, NvmlError) as fault:
            if args.gpus == 0 and isinstance(fault, (NoDriver, NoNvml)):  # nobody says that there is one
                return ran._replace(stdout=json.dumps({"devices": [], "why": str(fault)})), facts, None
            return ran, facts, str(fault)
        return ran._replace(stdout=json.dumps(report)), facts, None

    return document("gpu-load", "probes", measure, lambda _: "")
