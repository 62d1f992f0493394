"""What probe gpu-load would print of real GPUs: constructed in the form of its recording, nothing of it measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support import gpu_tools_documents
from tests.support.gpu_copies_documents import gpu
from tests.support.site import result
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.measures.gpu.kinds import EMULATED_LOAD
from validation.model import Measurement, Result

START_S = 5e-6
ALONE = {"h2d": 12.3, "d2h": 12.9}
FAR = 0.8
"""Of what the own node has."""


def gpus(count: int, nodes: int = 2) -> list[dict[str, Any]]:
    """GPUs in slots of their own, the first half of them on node 0."""
    return [{**gpu(i), "numa": i * nodes // count} for i in range(count)]


def usual(cell: Mapping[str, Any], own: int | None) -> float:
    """GB/s of a healthy V100 on PCI Express 3.0 x16."""
    return ALONE[cell["what"]] * (1.0 if cell["node"] == own or own is None else FAR)


def report(
    params: Mapping[str, Any],
    devices: int | Sequence[Mapping[str, Any]] = 2,
    nodes: int = 2,
    rate: Callable[[Mapping[str, Any], int | None], float] = usual,
    together: Callable[[str], Sequence[float]] | None = None,
    placed: float | None = 1.0,
    unusable: Sequence[int] = (),
    **changes: Any,
) -> dict[str, Any]:
    """The report; `together`: what each GPU has of a round in a direction, GB/s."""
    found = gpus(devices, nodes) if isinstance(devices, int) else [dict(one) for one in devices]
    size, copies, repeat = int(params["largest_bytes"]), int(params["copies"]), int(params["repeat"])
    cells = []
    for number, device in enumerate(found):
        own = device["numa"]
        for node in (n for n in range(nodes) if n not in unusable):
            for what in ("h2d", "d2h"):
                cell = {"gpu": number, "node": node, "what": what, "bytes": size, "placed": placed}
                seconds = [size / rate(cell, own) / 1e9 * (1 + i % 3 / 1000) for i in range(repeat)]
                clocks = [round(s + START_S, 9) for s in seconds]
                cells.append({**cell, "event_s": [round(s, 9) for s in seconds], "clock_s": clocks, "verified": True})
    whole = []
    for what in ("h2d", "d2h"):
        each = together(what) if together else [ALONE[what]] * len(found)
        seconds = [size * copies / one / 1e9 for one in each]
        turn = {"clock_s": round(max(seconds) + START_S, 9), "event_s": [round(s, 9) for s in seconds]}
        of = {"what": what, "bytes": size, "copies": copies, "verified": [True] * len(found)}
        whole.append({**of, "rounds": [turn] * repeat})
    kept = ("name", "uuid", "address", "numa", "card", "generation", "lanes", "state")
    shown = [
        {"number": n, "usable": n not in unusable, "distances": [10 if n == m else 21 for m in range(nodes)]}
        for n in range(nodes)
    ]
    values = {
        "emulated": False, "nodes": shown, "devices": [{key: one[key] for key in kept} for one in found],
        "cells": cells, "together": whole,
    }  # fmt: skip
    return {**values, **changes}


def document(found: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The probe's document around a report."""
    facts = {"driver": "550.54.15", "emulated": bool(found.get("emulated"))}
    said: dict[str, Any] = doc("gpu-load", json.dumps(found), facts, tool="probes", **changes)
    return said


def healthy_others(measurement: Measurement) -> Result:
    """What follows the copies of a healthy node: emulated GPUs of the lab by what is asked, no tool of NVIDIA's."""
    params: Any = measurement.params
    if measurement.kind == "gpu-tools":
        said = gpu_tools_documents.document()
    else:
        emulated = params["largest_bytes"] == EMULATED_LOAD["largest_bytes"]
        said = document(report(params, int(params["gpus"]) or 2, nodes=1 if emulated else 2, emulated=emulated))
    samples, facts = parse(measurement.kind, said, params)  # type: ignore[arg-type]
    return result(measurement, samples, facts=facts)
