"""What gdsio printed as rates: each has to follow from the bytes and seconds beside it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from validation.kinds.parsing import ParseError, count, short
from validation.probes.storage_gds import OPS

DIRECT = "GPUD"
GIB = 1 << 30
AGREEMENT = 0.02
"""Between a rate as gdsio prints it and its bytes and seconds. Project default."""
LATE = 2.0
LINE = re.compile(
    r"IoType:\s*(?P<way>\w+)\s+XferType:\s*(?P<how>\w+)\s+Threads:\s*(?P<threads>\d+)\s+"
    r"DataSetSize:\s*(?P<kib>\d+)/\d+\(KiB\)\s+IOSize:\s*\S+\s+Throughput:\s*(?P<rate>[\d.]+)\s*GiB/sec,\s+"
    r"Avg_Latency:\s*(?P<latency>[\d.]+)\s*usecs\s+ops:\s*(?P<ops>\d+)\s+total_time\s+(?P<seconds>[\d.]+)\s*secs"
)
"""As in NVIDIA's guide (Getting Started with GPUDirect Storage, release 1.12)."""


def rows(raw: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Each run of gdsio, and why one is missing, "" where none is. ParseError where one contradicts itself."""
    if not raw or raw["error"]:
        return [], short(str(raw.get("error", "")), 400)
    found: list[dict[str, Any]] = []
    for name in OPS:
        one = raw["ops"].get(name)
        if one is None or one["error"]:
            return found, short(str(one["error"] if one else f"gdsio did not {name}"), 400)
        found.append(_row(name, one, params))
    return found, ""


def _row(name: str, one: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    what = f"storage: gdsio: {name}"
    lines = list(LINE.finditer(str(one["stdout"])))
    if len(lines) != 1:
        raise ParseError(f"{what}: {short(str(one['stdout']).strip())} has no result, or several")
    line = lines[0]
    moved, seconds, rate = int(line["kib"]) << 10, float(line["seconds"]), float(line["rate"]) * GIB
    if line["way"].lower() != name or line["how"] != DIRECT:
        raise ParseError(f"{what}: it was {line['way']} by {line['how']}, asked was {name} by {DIRECT}")
    if "streams" in params and int(line["threads"]) != params["streams"]:
        raise ParseError(f"{what}: {line['threads']} threads, planned were {params['streams']}")
    if not moved or not 0 < seconds <= LATE * float(params.get("seconds", seconds)) + 10:
        raise ParseError(f"{what}: {moved} bytes in {seconds:g} s")
    if abs(moved / seconds - rate) > AGREEMENT * rate:
        raise ParseError(f"{what}: {moved} bytes in {seconds:g} s are not {rate / GIB:g} GiB a second")
    nvfs = one["nvfs"]
    return {
        "phase": name, "bytes": moved, "seconds": seconds, "threads": int(line["threads"]),
        "latency_us": float(line["latency"]), "nvfs": None if nvfs is None else int(count(nvfs, f"{what}: nvidia-fs")),
    }  # fmt: skip
