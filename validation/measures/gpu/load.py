"""Facts of kind gpu-load: copies of GPUs from a chosen NUMA node, and of all GPUs of a node at the same time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, short
from validation.measures.gpu.copies_parse import EVENT_SLACK, EVENT_SLACK_S, MOST_GB_S
from validation.model import Sample, Scalar
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive
from validation.model.pci import PciCard
from validation.probes import ProbeDoc

Way = Literal["h2d", "d2h"]


class LoadGpu(Model):
    """A GPU, its link while it copied, and its NUMA node; None: nobody knows."""

    name: str
    uuid: Name
    address: str
    numa: Count | None = None
    card: PciCard | None = None
    generation: Count | None = None
    lanes: Count | None = None


class LoadNode(Model):
    """A NUMA node with processors. `usable`: this process might run there. `distances`: to all of them in order."""

    number: Count
    usable: bool
    distances: tuple[Count, ...] = ()


class NodeCopy(Model):
    """Copies of one GPU from or to memory of one node, by the GPU's events.

    `placed`: share of the memory that does lie there, None where the kernel does not say. `fault`: why there are none.
    """

    gpu: Count
    node: Count
    what: Way
    placed: Annotated[float, Field(ge=0, le=1)] | None = None
    gb_s: tuple[Positive, ...] = ()
    fault: str = ""


class AllAtOnce(Model):
    """Rounds of all GPUs in one direction: the sum of all by the clock, and the median of each GPU by its events."""

    what: Way
    gb_s: tuple[Positive, ...] = ()
    each_gb_s: tuple[Positive, ...] = ()
    fault: str = ""


class GpuLoadFacts(Facts):
    """All of a node. `why`: why there is no GPU."""

    type: Literal["gpu-load"] = "gpu-load"
    emulated: bool
    driver: str
    why: str = ""
    bytes: Count = 0
    copies: Count = 0
    nodes: tuple[LoadNode, ...] = ()
    gpus: tuple[LoadGpu, ...] = ()
    cells: tuple[NodeCopy, ...] = ()
    together: tuple[AllAtOnce, ...] = ()

    def of(self, gpu: int, what: Way) -> dict[int, NodeCopy]:
        """Copies of a GPU in one direction by the node of the memory."""
        return {cell.node: cell for cell in self.cells if (cell.gpu, cell.what) == (gpu, what)}


# --- Copies of GPUs from a chosen NUMA node, and of all GPUs at once: every single time to rates ---------------------


WAYS = ("h2d", "d2h")
_WHAT = "gpu load"


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`gpu_all_h2d_gb_s` and `gpu_all_d2h_gb_s`: of all GPUs at once, a sample of each round; the rest in the facts.

    Of copies with an error or wrong data there is no rate. ParseError where times contradict each other, or something
    that was to be tried is missing.
    """
    report: Any = json_object(doc["stdout"], f"{_WHAT}: the report")
    facts, declared = doc["facts"], int(count(params.get("gpus", 0), f"{_WHAT}: declared GPUs"))
    of = {"emulated": flag(facts["emulated"], f"{_WHAT}: emulated"), "driver": facts["driver"]}
    devices: Any = report["devices"]
    if not devices:
        if declared or not report["why"]:
            raise ParseError(f"{_WHAT}: nothing was measured of {number_of(declared, 'GPU')}")
        return [], as_facts(GpuLoadFacts, {**of, "why": report["why"]}, _WHAT)
    if report["emulated"] is not of["emulated"]:
        raise ParseError(f"{_WHAT}: NVML and CUDA are not of one driver")
    if declared and len(devices) != declared:
        raise ParseError(f"{_WHAT}: {len(devices)} of {number_of(declared, 'GPU')} are there")
    uuids = [device["uuid"] for device in devices]
    if len(set(uuids)) != len(uuids):
        raise ParseError(f"{_WHAT}: two of the {number_of(len(uuids), 'GPU')} are one")
    cells = [_cell(cell, params) for cell in report["cells"]]
    numbers = {node["number"] for node in report["nodes"]}
    keys = [(c["gpu"], c["node"], c["what"]) for c in cells]
    places = {key[:2] for key in keys}
    whole = {(gpu, node, what) for gpu, node in places for what in WAYS}
    if len(set(keys)) != len(keys) or set(keys) != whole or {p[1] for p in places} - numbers:
        raise ParseError(f"{_WHAT}: {len(set(keys))} of {len(whole)} directions are there, {len(keys)} in all")
    together = [_together(one, params, len(devices)) for one in report["together"]]
    if [one["what"] for one in together] != list(WAYS):
        raise ParseError(f"{_WHAT}: {len(together)} of {len(WAYS)} directions of all GPUs at once are there")
    sizes = {one["bytes"] for one in (*report["cells"], *report["together"])}
    size = int(count(sizes.pop(), f"{_WHAT}: bytes")) if len(sizes) == 1 else 0
    if not 0 < size <= int(count(params.get("largest_bytes", size), f"{_WHAT}: largest copy")):
        raise ParseError(f"{_WHAT}: copies of {number_of(size, 'byte')}, which was not asked for")
    raw = {
        **of, "bytes": size, "copies": report["together"][0]["copies"], "nodes": report["nodes"], "cells": cells,
        "gpus": [{key: value for key, value in device.items() if key != "state"} for device in devices],
        "together": together,
    }  # fmt: skip
    samples = [
        Sample(metric=f"gpu_all_{one['what']}_gb_s", value=rate, unit="GB/s")
        for one in together
        for rate in one.get("gb_s", [])
    ]
    return samples, as_facts(GpuLoadFacts, raw, _WHAT)


def _rate(counted: int, seconds: float) -> float:
    rate = counted / seconds / 1e9
    if rate > MOST_GB_S:
        raise ParseError(f"{_WHAT}: {rate:g} GB/s: no link is so fast")
    return float(f"{rate:.5g}")


def _within(event: Any, clock: Any, what: str) -> tuple[float, float]:
    """Seconds by events and by the clock; ParseError where the events took longer than the clock saw."""
    event_s, clock_s = number(event, f"{_WHAT}: seconds by events"), number(clock, f"{_WHAT}: seconds by the clock")
    if event_s > EVENT_SLACK * clock_s + EVENT_SLACK_S:
        raise ParseError(f"{_WHAT}: {what}: {event_s:g} s by events in {clock_s:g} s by the clock")
    return event_s, clock_s


def _cell(cell: Mapping[str, Any], params: Mapping[str, Scalar]) -> dict[str, Any]:
    mine = {key: cell[key] for key in ("gpu", "node", "what", "placed")}
    if "error" in cell:
        return {**mine, "fault": short(str(cell["error"]) or "it failed")}
    if not flag(cell["verified"], f"{_WHAT}: verified"):
        return {**mine, "fault": "its data were wrong"}
    pairs = list(zip(cell["event_s"], cell["clock_s"], strict=True))
    expect(params, "repeat", len(pairs), f"{_WHAT}: copies")
    size = int(count(cell["bytes"], f"{_WHAT}: bytes"))
    return {**mine, "gb_s": [_rate(size, _within(*pair, cell["what"])[0]) for pair in pairs]}


def _together(one: Mapping[str, Any], params: Mapping[str, Scalar], gpus: int) -> dict[str, Any]:
    mine = {"what": one["what"]}
    expect(params, "copies", one["copies"], f"{_WHAT}: copies in a round")
    if "error" in one:
        return {**mine, "fault": short(str(one["error"]) or "it failed")}
    right = [flag(each, f"{_WHAT}: verified") for each in one["verified"]]
    expect(params, "repeat", len(one["rounds"]), f"{_WHAT}: rounds")
    if len(right) != gpus or not all(right):
        return {**mine, "fault": f"the data of {number_of(right.count(False), 'GPU')} were wrong"}
    size = int(count(one["bytes"], f"{_WHAT}: bytes")) * int(count(one["copies"], f"{_WHAT}: copies"))
    sums, each = [], []
    for turn in one["rounds"]:
        if len(turn["event_s"]) != gpus:
            raise ParseError(f"{_WHAT}: a round of {len(turn['event_s'])} of {number_of(gpus, 'GPU')}")
        took = [_within(event, turn["clock_s"], one["what"]) for event in turn["event_s"]]
        sums.append(_rate(gpus * size, took[0][1]))
        each.append([_rate(size, event) for event, _ in took])
    return {**mine, "gb_s": sums, "each_gb_s": [statistics.median(column) for column in zip(*each, strict=True)]}
