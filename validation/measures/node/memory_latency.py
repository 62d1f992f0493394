"""Latency of a node's memory: a chase of pointers from the processors of each NUMA node to the memory of each."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Facts, Parsed, ParseError, count, expect, flag, json_object, number
from validation.kinds.record import Kind, OnEach, on_node
from validation.model import Job, Measurement, Node, Param, Sample, Topology
from validation.probes import ProbeDoc

REPEATS = 10
QUICK_REPEATS = 5
LOADS = 1 << 18  # a chase of some 25 ms
VIRTUAL_RING_BYTES = 64 << 20  # virtual nodes are small, and what they measure judges nothing
LEAST_NS = 20.0
"""Less is a cache's figure: to open a row and read it takes tRCD + tAA, 25 ns or more of DDR4 and DDR5 (JEDEC JESD79-4,
JESD79-5), and the way there comes on top."""
CACHED = 5.0
"""How many times slower than a ring in the first cache memory is at least: 1 to 2 ns are to be expected there. Ours."""
CACHES = 4  # as the probe has it: lines that are touched, in last caches
LINES = 2  # bytes of the ring for each byte that is touched
PLACED = 0.99
AGREEMENT_NS = 0.001  # as the probe rounds
CLOCKS = (
    1.001  # the clock of a processor's work and that of the time of day: the second is kept in step by up to 0.05 %
)
_WHAT = "memory latency"
_SIZES = ("ring_bytes", "cache_bytes", "stride_bytes")


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _params(node: Node) -> dict[str, Param]:
    params: dict[str, Param] = {"repeats": REPEATS, "loads": LOADS}
    return {**params, "ring_bytes": VIRTUAL_RING_BYTES} if node.virtual else params


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`memory_latency_ns`: each chase to the own memory of the NUMA node that has the slowest, by the median.

    `memory_far_latency_ns`: the same of the slowest pair of processors and memory of another NUMA node.
    """
    report = json_object(doc["stdout"], f"{_WHAT}: the report")
    sizes = {key: int(count(report[key], f"{_WHAT}: {key}")) for key in _SIZES}
    expect(params, "loads", report["loads"], f"{_WHAT}: loads of a chase")
    loads = number(report["loads"], f"{_WHAT}: loads of a chase")
    if params.get("ring_bytes"):
        expect(params, "ring_bytes", sizes["ring_bytes"], f"{_WHAT}: bytes of the ring")
    elif sizes["ring_bytes"] < LINES * CACHES * sizes["cache_bytes"]:
        raise ParseError(f"{_WHAT}: a ring of {sizes['ring_bytes']} bytes is no {CACHES} caches")
    memories: Any = report["memories"]
    cells = _cells(report["cells"], loads, params)
    rings = {str(int(count(one["bytes"], "bytes"))): _ns(one, loads) for one in report["rings"]}  # type: ignore[attr-defined]
    left_out: Any = report["left_out"]
    found = doc["facts"]
    if found["cells"] != list(cells) or found["left_out"] != left_out or sizes != {key: found[key] for key in _SIZES}:
        raise ParseError(f"{_WHAT}: {number_of(len(cells), 'pair')} of NUMA nodes, which the facts contradict")
    medians = {name: statistics.median(values) for name, values in cells.items()}
    if not params.get("ring_bytes"):
        _beyond(medians, rings)
    samples = []
    for metric, own in (("memory_latency_ns", True), ("memory_far_latency_ns", False)):
        mine = [name for name in cells if (len(set(name.split("-"))) == 1) is own]
        slowest = cells[max(mine, key=lambda name: medians[name])] if mine else []
        samples += [Sample(metric=metric, value=value, unit="ns") for value in slowest]
    facts: Facts = {
        **sizes,
        "pairs_ns": {name: round(value, 1) for name, value in medians.items()},
        "rings_ns": {name: round(value, 1) for name, value in rings.items()},
        "huge_share": min(_share(one["huge_share"], "on huge pages") for one in memories),
        "bound": all(flag(one["bound"], f"{_WHAT}: bound") for one in memories),
        "left_out": [str(why) for why in left_out],
    }
    return samples, facts


def _cells(raw: Any, loads: float, params: Mapping[str, Any]) -> dict[str, list[float]]:
    """Nanoseconds of each chase, by `NUMA node of the processors-NUMA node of the memory`."""
    cells: dict[str, list[float]] = {}
    for cell in raw:
        near, far = (int(count(cell[key], f"{_WHAT}: {key}")) for key in ("processors_of", "memory_of"))
        name, chases = f"{near}-{far}", cell["chases"]
        if _share(cell["placed_share"], "where it was to be") < PLACED:
            raise ParseError(f"{_WHAT}: {name}: {cell['placed_share']:g} of the memory lies on its node")
        expect(params, "repeats", len(chases), f"{_WHAT}: {name}: chases")
        if name in cells or not chases or [one["chase"] for one in chases] != list(range(len(chases))):
            raise ParseError(f"{_WHAT}: {name}: chases are not in their order")
        cells[name] = [_ns(one, loads) for one in chases]
    return cells


def _ns(chase: Mapping[str, Any], loads: float) -> float:
    worked, elapsed = (number(chase[key], f"{_WHAT}: {key}") for key in ("cpu_ns", "elapsed_ns"))
    if worked > CLOCKS * elapsed:
        raise ParseError(f"{_WHAT}: a processor worked {worked:g} ns in {elapsed:g} ns")
    if abs(worked / loads - number(chase["ns"], f"{_WHAT}: ns")) > AGREEMENT_NS:
        raise ParseError(f"{_WHAT}: {loads:g} loads in {worked:g} ns are not {chase['ns']:g} ns each")
    return worked / loads


def _share(value: object, what: str) -> float:
    share = 0.0 if value == 0 and not isinstance(value, bool) else number(value, f"{_WHAT}: share {what}")
    if share > 1:
        raise ParseError(f"{_WHAT}: a share {what} of {share:g}")
    return share


def _beyond(medians: Mapping[str, float], rings: Mapping[str, float]) -> None:
    """ParseError where the caches served the chase, or did not even serve a ring of their size."""
    first = rings[min(rings, key=int)] if rings else 0.0
    for name, ns in medians.items():
        if ns < LEAST_NS or not 0 < CACHED * first < ns:
            raise ParseError(f"{_WHAT}: {name}: {ns:.3g} ns, {first:.3g} ns in the first cache: not memory's figure")


KINDS = (
    Kind(
        name="memory-latency",
        title="Host memory latency",
        measures="Follows pointers through memory, from the processors of each NUMA node to the memory of each.",
        tool="a pointer chase in the probe",
        more="explanation/measuring/hosts.md",
        job=_job,
        parse=parse,
        headline="memory_latency_ns",
        repeat_by="probe",
        on_each=OnEach(_params, estimated_s=8.0, quick={"repeats": QUICK_REPEATS}, quick_s=7.0, virtual_s=3.0),
    ),
)
