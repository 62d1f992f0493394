"""Copies between host memory and the GPUs of a node: every single time to rates and latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from validation.analysis.stats import summarize
from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, short
from validation.measures.gpu.copies_facts import BY_SMS, TOGETHER, GpuCopyFacts
from validation.measures.gpu.watch import watch_of
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc
from validation.probes.gpu_bench import LARGE_BYTES, SMALL_BYTES, sizes
from validation.probes.gpu_sm import copied_bytes
from validation.probes.gpu_sm import plan as by_sms
from validation.probes.gpu_together import plan

BY_EVENTS_BYTES = LARGE_BYTES
"""From this size on the GPU's own time is the copy's; of smaller ones most is the start, which the clock sees."""
EVENT_SLACK, EVENT_SLACK_S = 1.02, 50e-6
"""An event's time lies within the clock's. The two clocks differ by some 10^-4, and an event has a grain of 0.5 us."""
MOST_GB_S = 1e5  # no GPU's memory has a tenth of it; against numbers that are none
TWICE = ("local", "both", "sm_local")
STATE = ("sm_mhz", "sm_max_mhz", "throttle_reasons")
_WHAT = "gpu copies"


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Medians of each GPU or pair: `gpu_h2d_gb_s`, `gpu_d2h_gb_s`, `gpu_local_gb_s`, `gpu_peer_gb_s`, of several at
    once `gpu_pair_gb_s`, `gpu_gather_gb_s`, `gpu_scatter_gb_s`, by SMs `gpu_sm_*_gb_s`, and latencies `gpu_*_us`;
    `holes`: cells of the matrix that are not there. All of it in the facts.

    Of a copy with an error or wrong data there is no rate. ParseError where nothing was measured, where two ordinals
    are one GPU, or where times contradict each other.
    """
    report = json_object(doc["stdout"], f"{_WHAT}: the report")
    declared = int(count(params.get("gpus", 0), f"{_WHAT}: declared GPUs"))
    devices: Any = report["devices"]
    facts = doc["facts"]
    emulated = flag(facts["emulated"], f"{_WHAT}: emulated")
    if not devices:
        if declared or not report["why"]:
            raise ParseError(f"{_WHAT}: nothing was measured of {number_of(declared, 'GPU')}")
        empty = {"declared": 0, "why": report["why"], "largest_bytes": 0, "cuda": 0}
        raw = {**empty, "emulated": emulated, "driver": facts["driver"]}
        return [], as_facts(GpuCopyFacts, {**raw, "gpus": [], "peers": [], "copies": [], "waits": []}, _WHAT)
    if report["emulated"] is not emulated:
        raise ParseError(f"{_WHAT}: NVML and CUDA are not of one driver")
    _once(devices)
    largest = int(count(report["largest_bytes"], f"{_WHAT}: largest copy"))
    if not SMALL_BYTES < largest <= int(count(params.get("largest_bytes", largest), f"{_WHAT}: largest copy")):
        raise ParseError(f"{_WHAT}: copies of {number_of(largest, 'byte')}, which was not asked for")
    peers: Any = report["peers"]
    silent: Any = report.get("silent", ())
    copies, waits = _cells(report["cells"], params), _waits(report["latencies"], params)
    _complete(copies, waits, peers, len(devices), largest)
    raw = {
        "emulated": emulated, "driver": facts["driver"], "cuda": report["cuda"], "declared": declared,
        "largest_bytes": largest, "peers": peers, "copies": copies, "waits": waits,
        "silent": [short(str(words)) for words in silent],
        "no_sm_copies": short(str(report.get("no_sm_copies", ""))),
        "nvlink": report["nvlink"], "nvlink_unread": report["nvlink_unread"],
        "gpus": [{**_gpu(device), "watch": watch_of(report.get("watch"), device["address"])} for device in devices],
    }  # fmt: skip
    found = as_facts(GpuCopyFacts, raw, _WHAT)
    return _samples(found), found


def _once(devices: Sequence[Mapping[str, Any]]) -> None:
    """ParseError where two ordinals are one GPU: what is measured between them is no pair."""
    seen: dict[str, int] = {}
    for ordinal, device in enumerate(devices):
        if device["uuid"] in seen:
            raise ParseError(f"{_WHAT}: ordinals {seen[device['uuid']]} and {ordinal} are one GPU, {device['uuid']}")
        seen[device["uuid"]] = ordinal


def _gpu(device: Mapping[str, Any]) -> dict[str, Any]:
    state = device["state"] or {}
    kept = {key: value for key, value in device.items() if key != "state"}
    return {**kept, **{key: state.get(key) for key in STATE}}


def _cells(cells: Any, params: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    """All copies with the rate of each time."""
    found = []
    for cell in cells:
        mine = {key: cell[key] for key in ("what", "source", "target", "memory", "bytes")}
        mine["access"] = cell.get("access", False)
        size = count(cell["bytes"], f"{_WHAT}: bytes")
        mine["ways"] = _ways(cell)
        if count(cell["counted"], f"{_WHAT}: bytes counted") != size * (2 if cell["what"] in TWICE else mine["ways"]):
            raise ParseError(
                f"{_WHAT}: {cell['what']}: {number_of(cell['counted'], 'byte')} counted of copies of {size:g}"
            )
        if "error" in cell:
            found.append({**mine, "error": short(str(cell["error"]) or "it failed")})
            continue
        right = flag(cell["verified"], f"{_WHAT}: verified")
        rates = [_rate(cell, event, clock) for event, clock in zip(cell["event_s"], cell["clock_s"], strict=True)]
        expect(params, "repeat", len(rates), f"{_WHAT}: copies of {number_of(size, 'byte')}")
        found.append({**mine, "verified": right, "gb_s": rates if right else []})
    return found


def _ways(cell: Mapping[str, Any]) -> int:
    """How many copies there are at once."""
    if cell["what"] not in TOGETHER:
        return 1
    ways = int(count(cell["ways"], f"{_WHAT}: copies at once"))
    if ways < 2 or (cell["what"] == "pair" and ways != 2):
        raise ParseError(f"{_WHAT}: {cell['what']}: {number_of(ways, 'copy')} at once")
    return ways


def _rate(cell: Mapping[str, Any], event: Any, clock: Any) -> float:
    clock_s = number(clock, f"{_WHAT}: seconds by the clock")
    by_events = cell["bytes"] >= BY_EVENTS_BYTES
    event_s = number(event, f"{_WHAT}: seconds by events") if by_events else count_s(event)
    if event_s > EVENT_SLACK * clock_s + EVENT_SLACK_S:
        raise ParseError(f"{_WHAT}: {cell['what']}: {event_s:g} s by events in {clock_s:g} s by the clock")
    rate = cell["counted"] / (event_s if by_events else clock_s) / 1e9
    if rate > MOST_GB_S:
        raise ParseError(f"{_WHAT}: {rate:g} GB/s: no memory is so fast")
    return float(f"{rate:.5g}")


def count_s(value: Any) -> float:
    """Seconds that may be none: below an event's grain."""
    return 0.0 if value == 0 and not isinstance(value, bool) else number(value, f"{_WHAT}: seconds by events")


def _waits(waits: Any, params: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    """Median and interval of each latency."""
    found = []
    for wait in waits:
        mine = {key: wait[key] for key in ("what", "source", "target")}
        mine["access"] = wait.get("access", False)
        if mine["what"] == "kernel":
            mine["started"] = flag(wait["started"], f"{_WHAT}: a kernel that started")
        if "error" in wait:
            found.append({**mine, "error": short(str(wait["error"]) or "it failed")})
            continue
        values = [number(value, f"{_WHAT}: latency") for value in wait["us"]]
        expect(params, "latency_count", len(values), f"{_WHAT}: latencies")
        s = summarize(values)
        found.append({**mine, "us": s.median, "low_us": s.low, "high_us": s.high, "samples": s.count})
    return found


def _complete(copies: list[dict[str, Any]], waits: list[dict[str, Any]], peers: Any, gpus: int, largest: int) -> None:
    """ParseError where not everything that was to be tried is there, each thing once."""
    ways = {(p["source"], p["target"]): flag(p["access"], f"{_WHAT}: peer access") for p in peers}
    pairs = {(a, b) for a in range(gpus) for b in range(gpus) if a != b}
    if set(ways) != pairs or len(peers) != len(pairs):
        raise ParseError(f"{_WHAT}: {len(ways)} of {number_of(len(pairs), 'pair')} of GPUs are there")
    wanted: set[tuple[Any, ...]] = set()
    slow: set[tuple[Any, ...]] = set()
    for gpu in range(gpus):
        for size in sizes(largest):
            for memory in ("pinned", "pageable"):
                wanted |= {("h2d", None, gpu, memory, False, size), ("d2h", gpu, None, memory, False, size)}
            wanted.add(("local", gpu, gpu, "", False, size))
        wanted.add(("both", None, gpu, "pinned", False, largest))
        slow |= {("h2d", None, gpu, False), ("d2h", gpu, None, False), ("local", gpu, gpu, False)}
        slow.add(("sync", gpu, gpu, False))
        if any(w["what"] == "kernel" for w in waits):  # of a run before probes had kernels there is none
            slow.add(("kernel", gpu, gpu, False))
    of_pairs = {c["bytes"] for c in copies if c["what"] == "peer"}
    if len(of_pairs) > 1:
        raise ParseError(f"{_WHAT}: copies between GPUs are of {len(of_pairs)} sizes")
    for pair in pairs:
        for access in (False, True) if ways[pair] else (False,):
            wanted |= {("peer", *pair, "", access, size) for size in of_pairs}
            slow.add(("peer", *pair, access))
    if any(c["what"] in TOGETHER for c in copies):  # of a run before probes copied several at once there is none
        for what, source, target, at_once in plan(gpus, largest):
            access = all(ways[way.source, way.target] for way in at_once)
            wanted.add((what, source, target, "", access, at_once[0].size))
    if any(c["what"] in BY_SMS for c in copies):
        size = copied_bytes(largest)
        wanted |= {(what, source, target, "", source != target, size) for what, source, target in by_sms(gpus, ways)}
    keys = [tuple(c[k] for k in ("what", "source", "target", "memory", "access", "bytes")) for c in copies]
    late = [tuple(w[k] for k in ("what", "source", "target", "access")) for w in waits]
    for words, there, these in (("copies", keys, wanted), ("latencies", late, slow)):
        if set(there) != these or len(there) != len(these):
            raise ParseError(
                f"{_WHAT}: {len(set(there) & these)} of {len(these)} {words} are there, {len(there)} in all"
            )


def _samples(facts: GpuCopyFacts) -> list[Sample]:
    found = [Sample(metric="holes", value=len(facts.holes), unit="count")]
    ends = (None, *range(len(facts.gpus)))
    for source in ends:
        for target in ends:
            if source is None and target is None:
                continue
            copy, wait = facts.cell(source, target)
            if copy is not None and copy.gb_s:
                name = f"gpu_{copy.what}_gb_s"
                found.append(Sample(metric=name, value=summarize(copy.gb_s).median, unit="GB/s"))
            if wait is not None and not wait.error:
                found.append(Sample(metric=f"gpu_{wait.what}_us", value=wait.us, unit="us"))
    for copy in facts.copies:
        if copy.what in (*TOGETHER, *BY_SMS) and copy.gb_s:
            name = f"gpu_{copy.what}_gb_s"
            found.append(Sample(metric=name, value=summarize(copy.gb_s).median, unit="GB/s"))
    calls = [wait for wait in facts.waits if wait.what in ("sync", "kernel") and not wait.error]
    return found + [Sample(metric=f"gpu_{wait.what}_us", value=wait.us, unit="us") for wait in calls]
