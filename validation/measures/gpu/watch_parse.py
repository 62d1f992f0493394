"""What a sampler beside a measurement saw of a GPU, from a probe's document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import ParseError, real
from validation.measures.gpu.watch_facts import GpuWatch

RANGES = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "utilisation_percent")
LIMITS = ("sm_max_mhz", "memory_max_mhz", "power_limit_w")
_WHAT = "what a GPU was doing"


def watch_of(report: Any, address: str) -> dict[str, Any] | None:
    """Of the GPU at that PCI address, as GpuWatch has it; None where the probe does not tell."""
    if report is None:
        return None
    mine = [one for one in report["gpus"] if one["address"] == address]
    if len(mine) > 1:
        raise ParseError(f"{_WHAT}: {number_of(len(mine), 'GPU')} are at {address or 'no address'}")
    if not mine:
        why = str(report["said"]) or "NVML has no GPU at its address"
        return GpuWatch(address=address, said=why).model_dump(mode="json")
    return checked(mine[0])


def checked(one: Mapping[str, Any]) -> dict[str, Any]:
    """One GPU's document; ParseError where its figures contradict each other."""
    found: dict[str, Any] = {key: one[key] for key in ("address", "uuid", "samples", "seconds", "said")}
    found.update({key: one.get(key) for key in LIMITS})
    for key in RANGES:
        if one.get(key) is None:
            continue
        least, median, most = (real(one[key][part], f"{_WHAT}: {key}") for part in ("least", "median", "most"))
        if not 0 <= least <= median <= most or not one["samples"]:
            span = f"{least:g} to {most:g}, of {one['samples']} looks"
            raise ParseError(f"{_WHAT}: {key}: {median:g} is not within {span}")
        found[key] = {"least": least, "median": median, "most": most}
    for key, limit in (("reasons", 1.0), ("reason_s", found["seconds"])):
        found[key] = {str(name): real(value, f"{_WHAT}: {name}") for name, value in one[key].items()}
        if any(not 0 <= value <= limit + 0.011 for value in found[key].values()):
            raise ParseError(f"{_WHAT}: {key}: more than the whole")
    return found
