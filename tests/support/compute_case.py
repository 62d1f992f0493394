"""What probe gpu_compute would print of a server with GPUs. Constructed: names and rates are invented."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from validation.kinds import KINDS, job_for
from validation.measures.compute import rates
from validation.model import Measurement, Result, Topology
from validation.probes import ProbeDoc, deepbench, exact_products

Spoil = Callable[[dict[str, Any]], object]
MODEL = "NVIDIA Imaginary 100"
RATES = {"fp32": 40e12, "tf32": 300e12, "bf16": 500e12, "fp16": 500e12, "fp8": 900e12}


def params(**changes: Any) -> dict[str, Any]:
    """A short measurement of a server."""
    short = {"lists": deepbench.LISTS, "precisions": ("fp32", "bf16"), "most": 4, "sustained": (), "exact": 2}
    return {**short, "least_s": 0.01, "batches": 3, **changes}


OF_MODEL = {
    "Tesla V100-SXM2-16GB": {"fp32": 14.8e12, "fp16": 113e12},
    "Tesla P100-PCIE-16GB": {"fp32": 9.1e12, "fp16": 18e12},
    "Tesla P40": {"fp32": 10e12, "fp16": 0.15e12},
}
"""Invented rates of models that the founding documents name, below their makers' peaks."""


def gpu(
    index: int, asked: Mapping[str, Any], name: str = MODEL, rates: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What the worker of a healthy GPU prints; it has the precisions that it has a rate of."""
    rates = rates or OF_MODEL.get(name, RATES)
    without = {precision: "constructed without it" for precision in asked["precisions"] if precision not in rates}
    lists: dict[str, Any] = {which: {} for which in asked["lists"]}
    for precision in asked["precisions"]:
        if precision in without:
            continue
        for which in asked["lists"]:
            lists[which][precision] = [
                [at, 10, [seconds(which, deepbench.PROBLEMS[which][at], rates[precision])] * asked["batches"], True]
                for at in deepbench.chosen(which, asked["most"], cpu=False)
            ]
        shapes = [word.partition(":")[2] for word in asked["sustained"] if word.startswith(f"{precision}:")]
        if shapes:
            rows = [
                [at, 10, [seconds("gemm", shape, rates[precision])] * asked["batches"], True]
                for at, shape in enumerate(shapes)
            ]
            lists.setdefault("sustained", {})[precision] = rows
    exact = [
        {"when": when, "precision": precision, "size": exact_products.GPU_SIZE,
         "digests": {exact_products.reference(precision, exact_products.GPU_SIZE): asked["exact"]}}
        for when in ("cold", "hot") for precision in asked["precisions"] if precision not in without
    ]  # fmt: skip
    seen = {"least": 1700, "median": 1755, "most": 1980}
    watch = {"samples": 50, "said": "", "sm_mhz": seen, "power_w": seen, "temperature_c": seen, "sm_max_mhz": 1980,
             "power_limit_w": 700, "reasons": {"sw_power_cap": 0.8}, "reason_s": {"sw_power_cap": 8.0}, "seconds": 10.0,
             "address": f"0000:{index + 1:02x}:00.0", "uuid": f"GPU-{index}", "cost_s": 0.01}  # fmt: skip
    return {
        "device": f"cuda:{index}", "name": name, "threads": 0, "memory_bytes": 80 << 30, "capability": "9.0",
        "address": f"0000:{index + 1:02x}:00.0", "serial": f"165{index}", "uuid": f"GPU-{index}", "exact": exact,
        "lists": lists, "without": without, "watch": watch,
    }  # fmt: skip


def seconds(which: str, problem: str, rate: float) -> float:
    """How long a problem takes at a rate, in operations a second."""
    return deepbench.operations(which, problem) / rate


def document(devices: list[dict[str, Any]], **changes: Any) -> ProbeDoc:
    """The document of the probe around devices."""
    report = {"torch": "2.7.1", "cuda": "12.8", "cudnn": "90701", "where": "cuda", "devices": devices}
    facts = {"gpus": len(devices), "where": "cuda", "torch": "2.7.1", "cuda": "12.8", "devices": len(devices)}
    return ProbeDoc(
        **{
            "kind": "gpu-compute", "tool": "torch", "tool_version": "2.7.1", "command": ["python3"], "returncode": 0,
            "stdout": json.dumps(report), "stderr": "", "facts": facts, "started": "2026-11-21T10:00:00Z",
            "ended": "2026-11-21T10:00:01Z", "duration_s": 1, "error": None, **changes,
        }  # type: ignore[typeddict-item]
    )  # fmt: skip


def result_of(m: Measurement, result: Callable[..., Result], spoil: Mapping[int, Spoil], gpus: int = 4) -> Result:
    """What a server with so many GPUs measured, some of which `spoil` changes."""
    devices = [gpu(index, m.params) for index in range(gpus)]
    for index, change in spoil.items():
        change(devices[index])
    samples, facts = rates.parse(document(devices), m.params)
    return result(m, samples, facts=facts)


def slower(by: float) -> Spoil:
    """A GPU that takes longer for everything."""

    def change(device: dict[str, Any]) -> None:
        for precisions in device["lists"].values():
            for rows in precisions.values():
                for row in rows:
                    row[2] = [value / (1 - by) for value in row[2]]

    return change


def planned_params(m: Measurement, topology: Topology) -> dict[str, Any]:
    """What the probe is asked for."""
    assert m.kind in KINDS
    return job_for(m, topology).probe.params
