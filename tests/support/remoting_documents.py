"""What the remoting probes print."""

from __future__ import annotations

from typing import Any

from tests.support.tool_documents import doc as tool_doc
from validation.measures.remoting.facts import asked_attempts

WHO = {"engine": "reference", "engine_release": "1", "emulated": True}


def doc(kind: str, facts: dict[str, Any], stdout: str = "", **changes: Any) -> Any:
    return tool_doc(kind, stdout, {**WHO, **facts}, **{"tool": "toolkit", **changes})


def copybench(**changes: Any) -> dict[str, Any]:
    ends = ["H", "0", "1"]
    pairs = [
        {
            "source": a, "target": b, "bytes": 2 << 20, "bandwidth_gb_s": [1.0, 1.1, 0.9], "latency_us": [80.0] * 20,
            "verified": True,
        }
        for a in ends for b in ends if (a, b) != ("H", "H")
    ]  # fmt: skip
    devices = [{"name": "Emulated V100", "uuid": f"GPU-{i}", "memory_bytes": 2**28} for i in range(2)]
    return {
        "tool": "elastic-ai-copybench", "host": "client1", "emulated": True, "devices": devices, "pairs": pairs,
        "servers": [{"host": f"gpu{i + 1}", "devices": [{"uuid": f"GPU-{i}"}]} for i in range(2)],
        "sync_latency_us": [[50.0, 60.0, 70.0]] * 2, "verified": True, "wrong": [], **changes,
    }  # fmt: skip


COPY = {"servers": ("gpu1", "gpu2"), "size_bytes": 2 << 20, "repeat": 3, "latency_count": 20}


ISOLATE = {"server": "gpu1", "elsewhere": "gpu2"}


def attempts_made(*breached: str, elsewhere: str = "gpu2") -> list[dict[str, Any]]:
    """All attempts, in their order; those that are named got through."""
    ends: dict[str, tuple[Any, Any]] = {"cuda": (46, 0), "strange": (0, 1), "status": (75, 0)}
    ends["connection"] = ("refused", "kept")
    ends["native"] = ("closed", "opened")
    ends["unharmed"] = (True, False)
    return [
        {"name": name, "breach": name in breached, "words": "why", shown: ends[shown][name in breached]}
        for name, shown in asked_attempts(elsewhere).items()
    ]


def isolated(*breached: str, without: tuple[str, ...] = (), **changes: Any) -> Any:
    attempts = [attempt for attempt in attempts_made(*breached) if attempt["name"] not in without]
    facts = {"server": "gpu1", "elsewhere": "gpu2", "attempts": attempts, "gone_s": 1.5}
    return doc("remoting-isolate", {**facts, **changes})


MIB = 1 << 20


def cut(**changes: Any) -> Any:
    facts = {
        "server": "gpu1", "parts": ["3/4", "5/20"], "uuids": ["GPU-0"] * 2, "total_bytes": [192 * MIB, 64 * MIB],
        "taken_bytes": [192 * MIB, 62 * MIB], "codes": [2, 2], "beyond": "waiting", "memory_mib": 256,
        "reserved_mib": 0, "context_bytes": MIB // 2, **changes,
    }  # fmt: skip
    return doc("remoting-fraction", facts)


PARTS = {"server": "gpu1", "parts": ("3/4", "5/20")}
