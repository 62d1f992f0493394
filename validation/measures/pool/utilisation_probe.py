"""How much of the pool was leased and used over time, as the head's Prometheus has recorded it.

`facts`: leased_ratio, gpu_utilization_ratio, gpu_memory_ratio (lists of float, oldest first), each with its _from_s
(seconds since the oldest), days, step_s, emulated. `stdout`: the same as JSON.
"""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document

URL = "http://127.0.0.1:9090"
STEPS = 500  # readings over the whole time, at most; Prometheus itself refuses more than 11000
SERIES = {
    "leased_ratio": "elastic_ai:pool_leased:ratio",
    "gpu_utilization_ratio": "elastic_ai:gpu_utilization:ratio",
    "gpu_memory_ratio": "elastic_ai:gpu_memory:ratio",
}


@dataclass
class Asked:
    """What is asked of this probe."""

    days: float  # how far back
    url: str = URL  # where Prometheus answers on this node


def ask(url: str, path: str, query: dict[str, str]) -> Any:
    """Data of Prometheus's answer; OSError or ValueError where it gives none."""
    address = f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 - http to this node
        found = json.load(answer)
    if found.get("status") != "success":
        raise ValueError(str(found.get("error", "no success")))
    return found["data"]


def probe(args: Asked) -> ProbeDoc:
    """Readings of each series, from the oldest to the newest."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        now = time.time()
        step = max(math.ceil(args.days * 86400 / STEPS), 15)
        facts: dict[str, Any] = {"days": args.days, "step_s": step}
        # whole steps back from now: the newest reading is one of them, also where recording began minutes ago
        start = now - math.floor(args.days * 86400 / step) * step
        window = {"start": f"{start:.3f}", "end": f"{now:.3f}", "step": str(step)}
        try:
            for name, query in SERIES.items():
                series = ask(args.url, "query_range", {"query": query, **window})["result"]
                readings = series[0]["values"] if series else []
                facts[name] = [float(value) for _, value in readings]
                facts[f"{name}_from_s"] = round(now - float(readings[0][0])) if readings else 0
            emulated = ask(args.url, "query", {"query": 'count(elastic_ai_gpu_info{emulated="true"})'})["result"]
            facts["emulated"] = bool(emulated)
        except (urllib.error.URLError, OSError, ValueError, KeyError) as fault:
            return Ran([args.url], 0, "", ""), facts, f"Prometheus at {args.url}: {fault}"
        return Ran([args.url], 0, json.dumps(facts), ""), facts, None

    return document("utilisation", "prometheus", measure, lambda _: "")
