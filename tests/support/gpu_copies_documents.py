"""What probe gpu-copies would print of real GPUs: constructed in the form of its recording, nothing of it measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from validation.probes.gpu_bench import PAIR_BYTES, sizes

PCIE3, SWITCH = (8.0, 16), "0000:16:00.0"
START_S = 5e-6
Rate = Callable[[Mapping[str, Any]], float]


def card(address: str, link: tuple[float, int] = PCIE3, slot: tuple[float, int] | None = None) -> dict[str, Any]:
    """A GPU in a slot of its own, as validation.probes.pcie has it."""
    trained, able = (dict(zip(("gt_s", "lanes"), one)) for one in (link, slot or link))  # noqa: B905 - Python 3.9
    above = {"address": f"{address[:5]}f{address[6:]}", "link": trained, "card": able}
    return {
        "what": "gpu", "address": address, "link": trained, "card": able, "numa": 0, "above": [above],
        "host_bridge": f"{address[:5]}f0",
    }  # fmt: skip


def gpu(number: int, name: str = "Tesla V100-SXM2-16GB", **changes: Any) -> dict[str, Any]:
    """One device of the report; `state` is what it says under load."""
    address = f"0000:{0x1A + number:02x}:00.0"
    values = {
        "name": name, "uuid": f"GPU-00000000-0000-0000-0000-{number:012d}", "address": address,
        "memory_bytes": 16 << 30, "near": True, "card": card(address), "generation": 3, "lanes": 16,
        "state": {"sm_mhz": 1455, "sm_max_mhz": 1530, "throttle_reasons": []},
    }  # fmt: skip
    return {**values, **changes}


def watch(device: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """What a sampler beside the copies saw of a GPU in the state that it says."""
    state = device["state"]
    clock, power, heat = ({"least": v, "median": v, "most": v} for v in (state["sm_mhz"], 110, 44))
    reasons = dict.fromkeys(state["throttle_reasons"], 1.0)
    seen = {
        "address": device["address"], "uuid": device["uuid"], "samples": 60, "seconds": 28.0, "said": "",
        "sm_mhz": clock, "power_w": power, "temperature_c": heat, "sm_max_mhz": 1530, "memory_max_mhz": 877,
        "power_limit_w": 300.0, "reasons": reasons, "reason_s": dict.fromkeys(reasons, 28.0),
    }  # fmt: skip
    return {**seen, **changes}


def usual(cell: Mapping[str, Any]) -> float:
    """GB/s of a healthy V100 that hangs on PCI Express 3.0 x16, about as published; of bytes counted."""
    rates = {"h2d": 12.3, "d2h": 12.9, "both": 22.0, "local": 780.0, "peer": 10.2 if cell.get("access") else 7.5}
    return rates[cell["what"]] * (0.5 if cell["memory"] == "pageable" else 1.0)


def latency(wait: Mapping[str, Any]) -> float:
    """Microseconds of the same."""
    return {"h2d": 6.5, "d2h": 6.9, "local": 5.2, "peer": 9.5 if wait.get("access") else 16.0, "sync": 1.9,
            "kernel": 5.6}[wait["what"]]  # fmt: skip


def report(
    params: Mapping[str, Any],
    devices: int | list[dict[str, Any]] = 2,
    rate: Rate = usual,
    wait: Rate = latency,
    access: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """The report on these GPUs; `rate` and `wait` of each cell."""
    gpus = [gpu(i) for i in range(devices)] if isinstance(devices, int) else devices
    largest, count = int(params["largest_bytes"]), len(gpus)
    cells: list[dict[str, Any]] = []
    waits: list[dict[str, Any]] = []
    peers = []

    def add(size: int, counted: int = 1, memory: str = "", **of: Any) -> None:
        cell = {**of, "memory": memory, "bytes": size, "counted": counted * size}
        seconds = [cell["counted"] / rate(cell) / 1e9 * (1 + i % 3 / 1000) for i in range(int(params["repeat"]))]
        cells.append({
            **cell, "event_s": [round(s + START_S / 10, 9) for s in seconds],
            "clock_s": [round(s + START_S, 9) for s in seconds], "verified": True,
        })  # fmt: skip

    def late(**of: Any) -> None:
        waits.append({**of, "us": [round(wait(of) + i % 5 / 50, 2) for i in range(int(params["latency_count"]))]})

    for i in range(count):
        for size in sizes(largest):
            for memory in ("pinned", "pageable"):
                add(size, 1, memory, what="h2d", source=None, target=i)
                add(size, 1, memory, what="d2h", source=i, target=None)
            add(size, 2, what="local", source=i, target=i)
        add(largest, 2, "pinned", what="both", source=None, target=i)
        late(what="h2d", source=None, target=i)
        late(what="d2h", source=i, target=None)
        late(what="local", source=i, target=i)
        late(what="sync", source=i, target=i)
        late(what="kernel", source=i, target=i, started=True)
        for j in range(count):
            if i == j:
                continue
            why = "" if access else "the driver gives no peer access"
            peers.append({"source": i, "target": j, "access": access, "why": why})
            for way in (False, True) if access else (False,):
                add(min(largest, PAIR_BYTES), what="peer", source=i, target=j, access=way)
                late(what="peer", source=i, target=j, access=way)
    values = {
        "cuda": 12040, "emulated": False, "largest_bytes": largest, "devices": gpus, "peers": peers, "cells": cells,
        "latencies": waits, "nvlink": None, "nvlink_unread": "constructed",
        "watch": {"said": "", "cost_s": 0.1, "gpus": [watch(device) for device in gpus]},
    }  # fmt: skip
    return {**values, **changes}


def document(found: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The probe's document around a report."""
    facts = {"driver": "550.54.15", "emulated": bool(found.get("emulated")), "gpus": len(found["devices"])}
    now = "2026-11-22T10:00:00.000+00:00"
    values = {
        "kind": "gpu-copies", "tool": "probes", "tool_version": "12.4", "command": ["gpu-copies"], "returncode": 0,
        "stdout": json.dumps(found), "stderr": "", "facts": facts, "started": now, "ended": now, "duration_s": 1.0,
        "error": None,
    }  # fmt: skip
    return {**values, **changes}
