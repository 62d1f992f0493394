"""What probe burn-in would print of a server with GPUs. Constructed: rates and states are invented."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support import gpu_health_case
from tests.support.site import criterion, hardware, plan_of, result, verdict_of
from validation.kinds import parse
from validation.measures.compute.burn_copies_probe import window_s
from validation.model import CriterionVerdict
from validation.probes import exact_products

SECONDS = 600.0
Spoil = Callable[[dict[str, Any]], object]


def device(index: int, address: str, windows: int) -> dict[str, Any]:
    """A healthy GPU by torch."""
    exact = [
        {"when": when, "precision": "bf16", "size": exact_products.GPU_SIZE,
         "digests": {exact_products.reference("bf16", exact_products.GPU_SIZE): 1}}
        for when in ("cold", "during", "during", "hot")
    ]  # fmt: skip
    return {
        "device": f"cuda:{index}", "fault": "", "load": "8192 x 8192 x 8192 in bf16", "unit": "TFLOP/s",
        "rates": [100.0] * windows, "checks": 2 * windows, "wrong": 0, "exact": exact, "address": address,
        "name": "Tesla V100-SXM2-16GB",
    }  # fmt: skip


def seen(address: str, index: int) -> dict[str, Any]:
    """What the sampler saw of it."""
    clock, power, heat = ({"least": v, "median": v, "most": v} for v in (1455, 290, 61))
    return {
        "address": address, "uuid": f"GPU-{index}", "samples": 3000, "seconds": SECONDS, "said": "", "sm_mhz": clock,
        "power_w": power, "temperature_c": heat, "sm_max_mhz": 1530, "memory_max_mhz": 877, "power_limit_w": 300.0,
        "utilisation_percent": {"least": 97, "median": 100, "most": 100}, "reasons": {"sw_power_cap": 0.9},
        "reason_s": {"sw_power_cap": 540.0},
    }  # fmt: skip


def report(gpus: int = 4) -> dict[str, Any]:
    """Of a node that passes."""
    addresses = [gpu_health_case.gpu(n)["address"] for n in range(gpus)]
    windows = int(SECONDS / window_s(SECONDS))
    health = gpu_health_case.facts(gpus)
    return json.loads(json.dumps({  # type: ignore[no-any-return] - no part of it is shared
        "load": "torch-cuda", "how": "torch 2.7.1", "seconds": SECONDS, "took_s": SECONDS + 9,
        "window_s": window_s(SECONDS), "devices": [device(n, at, windows) for n, at in enumerate(addresses)],
        "watch": {"said": "", "cost_s": 1.0, "gpus": [seen(at, n) for n, at in enumerate(addresses)]},
        "courses": {at: [[t * 10.0, 100, 40 + t / 3, 290, 1455] for t in range(60)] for at in addresses},
        "before": health, "after": health,
    }))  # fmt: skip


def document(found: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The probe's document."""
    now = "2026-11-22T10:00:00.000+00:00"
    facts = {"gpus": len(found["devices"]), "emulated": False, "load": found["load"], "devices": len(found["devices"])}
    values = {
        "kind": "burn-in", "tool": "probes", "tool_version": "", "command": ["burn-in"], "returncode": 0,
        "stdout": json.dumps(found), "stderr": "", "facts": facts, "started": now, "ended": now, "duration_s": 610.0,
        "error": None,
    }  # fmt: skip
    return {**values, **changes}


def judged(id_: str, spoil: Spoil = lambda _: None) -> CriterionVerdict:
    """The verdict on a criterion of one node of hardware whose report `spoil` changes."""
    site = hardware(("gpu1",))
    plan = plan_of(site, ("burn-in",), options={"minutes": 10})
    (m,) = plan.measurements
    found = report()
    spoil(found)
    samples, facts = parse("burn-in", document(found), m.params)  # type: ignore[arg-type]
    return criterion(verdict_of(site, plan, [result(m, samples, facts=facts)]), id_)
