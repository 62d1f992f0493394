"""What probe gpu-health says of imaginary GPUs: four V100 without a fault. Tests spoil them; nothing is measured."""

from __future__ import annotations

import json
from typing import Any

from tests.support.site import result
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.model import Measurement, Result

STATE = {
    "sm_mhz": 135, "sm_max_mhz": 1530, "memory_mhz": 877, "memory_max_mhz": 877, "power_w": 42.1,
    "power_limit_w": 300.0, "temperature_c": 34, "utilisation_percent": 0, "memory_utilisation_percent": 0,
    "throttle_reasons": ["gpu_idle"],
}  # fmt: skip
GPU: dict[str, Any] = {
    "name": "Tesla V100-SXM2-16GB", "serial": "0320118000001", "vbios": "88.00.43.00.01", "persistence": True,
    "compute_mode": "default", "mig": None, "mig_pending": None, "ecc": True, "ecc_pending": True, "ecc_uncorrected": 0,
    "ecc_corrected": 0, "ecc_uncorrected_ever": 0, "ecc_corrected_ever": 0, "pages_retired": 0, "pages_pending": False,
    "rows_corrected": None, "rows_uncorrected": None, "rows_pending": None, "rows_failed": None, "pcie_generation": 3,
    "pcie_max_generation": 3, "pcie_width": 16, "pcie_max_width": 16, "pcie_replays": 0, "slowdown_c": 87,
    "set_mhz": 1312, "default_mhz": 1312,
}  # fmt: skip

LOG: dict[str, Any] = {
    "boot": "b", "oldest_us": 0, "newest_us": 60_000_000, "lines": [], "dropped": 0, "unread": "",
}  # fmt: skip


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    """One GPU; `state` in `changes` is changed of its state."""
    state = {**STATE, **changes.pop("state", {})}
    mine = {"index": index, "uuid": f"GPU-{index}", "address": f"0000:{0x1A + index:02x}:00.0"}
    return {**GPU, **mine, "state": state, **changes}


def facts(count: int = 4, emulated: bool = False, model: str = str(GPU["name"]), **of_last: Any) -> dict[str, Any]:
    """A node's GPUs; `of_last` is changed of the last one."""
    gpus = [gpu(index, name=model, **(of_last if index == count - 1 else {})) for index in range(count)]
    return {
        "type": "gpu-health",
        "driver": "580.159.03",
        "emulated": emulated,
        "gpus": gpus,
        "lost": [],
        "unread": "",
        "kernel_log": LOG,
    }


def document(said: dict[str, Any]) -> dict[str, Any]:
    """The probe's document."""
    return dict(doc("gpu-health", json.dumps(said), said, tool="NVML", tool_version=said["driver"]))


def read(m: Measurement, said: dict[str, Any], minutes: int = 0) -> Result:
    """Its result by the real parser, `minutes` after the run's begin."""
    samples, parsed = parse("gpu-health", document(said), m.params)  # type: ignore[arg-type]
    made = result(m, samples, facts=parsed)
    at = {"started": f"2026-11-21T10:{minutes:02d}:00Z", "ended": f"2026-11-21T10:{minutes:02d}:00Z"}
    return made.model_copy(update={"provenance": made.provenance.model_copy(update=at)})
