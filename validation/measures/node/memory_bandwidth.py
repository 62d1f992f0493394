"""Host memory bandwidth of a node: STREAM's Copy on all its processors, and Triad where its probe finds numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Facts, Parsed, ParseError, count, expect, json_object, number, real
from validation.kinds.record import Kind, OnEach, on_node
from validation.model import Job, Measurement, Node, Param, Sample, Topology
from validation.probes import ProbeDoc

REPEATS = 10  # STREAM's own number; of each, 0.25 s with the pause after it
QUICK_REPEATS = 5  # as many as co.membw is judged on at least
WINDOW_S = 0.2
VIRTUAL_ARRAY_BYTES = 16 << 20  # virtual nodes are small, and what they measure judges nothing
ROUNDED_S = 2e-6  # three times to the microsecond, one of which is the sum of the others
AGREEMENT = 1e-4  # between a rate as the probe wrote it and its bytes and seconds


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _params(node: Node) -> dict[str, Param]:
    params: dict[str, Param] = {"repeats": REPEATS, "window_s": WINDOW_S}
    return {**params, "array_bytes": VIRTUAL_ARRAY_BYTES} if node.virtual else params


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`memory_copy_gb_s`, and `memory_triad_gb_s` where it was taken: what all processors moved in each window."""
    report = json_object(doc["stdout"], "memory bandwidth: the report")
    cpus = int(count(report["cpus"], "memory bandwidth: cpus"))
    if params.get("array_bytes"):
        expect(params, "array_bytes", report["array_bytes"], "memory bandwidth: bytes of an array")
    samples = [
        Sample(metric=f"memory_{name}_gb_s", value=value, unit="GB/s")
        for name in ("copy", "triad")
        if name == "copy" or name in report
        for value in _together(name, report[name], cpus, params)
    ]
    sizes: Facts = {
        "cpus": cpus,
        "array_bytes": doc["facts"]["array_bytes"],
        "cache_bytes": doc["facts"]["cache_bytes"],
    }
    return samples, {**sizes, "operations": [name for name in ("copy", "triad") if name in report]}


def _together(name: str, processes: Any, cpus: int, params: Mapping[str, Any]) -> list[float]:
    """GB/s of each window; ParseError unless every processor copied right, in all windows, to their ends."""
    if len(processes) != cpus or len({process["cpu"] for process in processes}) != cpus:
        raise ParseError(f"memory bandwidth: {name}: {len(processes)} reports of {cpus} processors")
    wrong = [process["cpu"] for process in processes if process["verified"] is not True]
    if wrong:
        raise ParseError(f"memory bandwidth: {name}: the data of processors {wrong[:4]} were wrong")
    windows = [process["windows"] for process in processes]
    for mine in windows:
        expect(params, "repeats", len(mine), f"memory bandwidth: {name}: windows")
        if [window["window"] for window in mine] != list(range(len(mine))):
            raise ParseError(f"memory bandwidth: {name}: windows are not in their order")
    return [_rate(name, same, params) for same in zip(*windows, strict=True)]


def _rate(name: str, window: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> float:
    moved, ends = [], []
    for mine in window:
        carried, end = count(mine["bytes"], f"{name}: bytes"), number(mine["end_s"], f"{name}: end of a window")
        late, seconds = real(mine["late_s"], f"{name}: late"), real(mine["seconds"], f"{name}: seconds")
        if abs(late + seconds - end) > ROUNDED_S or late < -ROUNDED_S or end < params.get("window_s", 0) - ROUNDED_S:
            raise ParseError(f"memory bandwidth: {name}: a window of {end:g} s: began at {late:g}, took {seconds:g}")
        if abs(carried / end / 1e9 - real(mine["gb_s"], f"{name}: rate")) > AGREEMENT * carried / end / 1e9:
            raise ParseError(
                f"memory bandwidth: {name}: {number_of(carried, 'byte')} in {end:g} s are not {mine['gb_s']:g} GB/s"
            )
        moved.append(carried)
        ends.append(end)
    return sum(moved) / max(ends) / 1e9


KINDS = (
    Kind(
        name="memory-bandwidth",
        title="Host memory bandwidth",
        measures="Lets every processor of a node copy memory at the same time and verifies the data.",
        tool="STREAM's Copy (and Triad with numpy) in the probe",
        more="explanation/measuring/hosts.md",
        job=_job,
        parse=parse,
        headline="memory_copy_gb_s",
        repeat_by="probe",
        on_each=OnEach(_params, estimated_s=8.0, quick={"repeats": QUICK_REPEATS}, quick_s=5.0),
    ),
)
