"""What the ends of an incast or of all to all print, made here: nothing of it was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.tool_documents import doc
from validation.model import Measurement

COUNTERS = {"carrier_changes": 1, "rx_bytes": 10**6, "rx_prio3_pause": 4}
LOSS = {"out_of_sequence": 7, "rx_discards_phy": 0}
PLENTY = 10**15


def seat(asked: Mapping[str, Any], serves: bool, senders: int, gbps: float) -> str:
    """What one end prints when each receiver gets `gbps` from so many senders, all at once."""
    seconds, tcp = float(asked["seconds"]), asked["transport"] == "tcp"
    before = {**COUNTERS, **({} if tcp else LOSS)}
    sessions: list[dict[str, Any]] = []
    for peer, port in zip(asked["peers"], asked["ports"], strict=True):
        one = {"peer": peer, "port": port, "error": ""}
        moved = {
            "seconds": seconds,
            "bytes": int(gbps * 1e9 / 8 / senders * seconds),
            "retransmits": 3 if tcp else None,
        }
        sessions.append({**one, **({"ended_s": seconds + 0.2} if serves else moved)})
    after = {**before, "rx_bytes": PLENTY}
    kept = {key: asked[key] for key in ("address", "seconds", "streams", "transport")}
    return json.dumps({**kept, "sessions": sessions, "before": before, "after": after})


def printed(m: Measurement, gbps: float) -> dict[str, dict[str, Any]]:
    """What all ends print, by part and node, as objects."""
    address = {end: f"192.0.2.{number + 1}" for number, end in enumerate(m.endpoints)}
    receivers = m.endpoints[:1] if m.kind == "incast" else m.endpoints
    found: dict[str, dict[str, Any]] = {"sending": {}, "serving": {}}
    first = int(str(m.params["port"]))
    for part in found:
        for end in m.endpoints:
            serves = part == "serving"
            others = [o for o in m.endpoints if o != end and (end in receivers if serves else o in receivers)]
            if not others:
                continue
            ports = [first + m.endpoints.index(other if serves else end) for other in others]
            asked = {**m.params, "address": address[end], "peers": [address[o] for o in others], "ports": ports}
            found[part][end.node] = json.loads(seat(asked, serves, len(m.endpoints) - 1, gbps))
    return found


def joined(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The document's `stdout` of what all ends print."""
    return json.dumps({part: {node: json.dumps(said) for node, said in ends.items()} for part, ends in found.items()})


def switch_document(m: Measurement, gbps: float) -> dict[str, Any]:
    """The whole document."""
    tool = "iperf3" if m.params["transport"] == "tcp" else "perftest"
    return dict(doc(m.kind, joined(printed(m, gbps)), tool=tool, command=[tool]))
