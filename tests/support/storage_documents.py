"""What the storage probes would print of storages of known rates: made here, nothing was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.site import hardware, result
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.model import Measurement, Result, Storage, Topology
from validation.probes.storage_fio import OPS
from validation.probes.storage_meet import CONTENT, rounds

NODES = ("gpu1", "gpu2", "gpu3")
RATES = {"write": 1e9, "read": 2e9, "one-write": 0.5e9, "one-read": 0.7e9, "randwrite": 2e8, "randread": 4e8}
HOME = Storage(name="home", path="/mnt/home", shared=True)
SCRATCH = Storage(name="scratch", path="/scratch")


def site(*storage: Storage, names: Sequence[str] = NODES, **changes: Any) -> Topology:
    return hardware(names, storage=storage or (HOME, SCRATCH), **changes)


def fio(name: str, streams: int, seconds: int, rate: float) -> dict[str, Any]:
    op, took = OPS[name], seconds * 1000 + 3
    ios = int(rate * took / 1000 / op.block_bytes)
    moved = ios * op.block_bytes
    none = {"io_bytes": 0, "total_ios": 0, "runtime": 0, "bw_bytes": 0, "iops": 0.0, "short_ios": 0, "drop_ios": 0}
    side = {**none, "io_bytes": moved, "total_ios": ios, "runtime": took, "bw_bytes": int(moved / took * 1000)}
    side |= {"iops": ios / took * 1000, "clat_ns": {"percentile": {"99.000000": 2_000_000}}}
    options = {"rw": op.rw, "bs": str(op.block_bytes), "direct": "1", "runtime": str(seconds)}
    options["numjobs"] = "1" if op.one else str(streams)
    way = ("write", "read") if "write" in op.rw else ("read", "write")
    return {"jobs": [{"error": 0, "job options": options, way[0]: side, way[1]: none}]}


def operation(name: str, params: Mapping[str, Any], rate: float, **more: Any) -> dict[str, Any]:
    streams = 1 if OPS[name].one else int(params["streams"])
    each = [[int(rate / streams / 1024)] * 9] * streams
    made = fio(name, int(params["streams"]), int(params["seconds"]), rate)
    return {"error": "", "fio": made, "streams_kib_s": each, "kib_s": [sum(s) for s in zip(*each, strict=True)], **more}


def place(**changes: Any) -> dict[str, Any]:
    found = {"filesystem": "nfs4", "source": "nfs:/home", "options": "rw,nconnect=8", "read_ahead_kb": 128}
    return {**found, "device": "0:50", "free_bytes": 10**13, "total_bytes": 10**14, **changes}


def shown_pictures(cached: float = 0.0) -> dict[str, Any]:
    """Two processes, 300 pictures a second each, read; a tenth of it where they are decoded, too."""
    of = {"read": 300, "decoded": 30}
    each = {name: {"count": 3 * rate, "bytes": 3 * rate * 88_000, "seconds": 3.0,
                   "from_storage": int(3 * rate * 88_000 * (1 - cached))} for name, rate in of.items()}  # fmt: skip
    both = {name: {"workers": [one, one]} for name, one in each.items()}
    return {"error": "", "count": 256, "bytes": 256 * 88_000, "kind": "JPEG", "processes": 2, **both}


def shown_beside(p: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A node that receives 1.25 GB/s alone, and less of network and storage when both are used."""
    net = {"alone": 1.25, "both": 1.0}
    rows = {name: {"error": "", "late": [], "bytes": int(rate * 6e9), "seconds": 6.0} for name, rate in net.items()}
    return {**rows, "read": operation("read", p, 1.5e9), **changes}


def report(m: Measurement, node: str, rates: Mapping[str, float] | None = None, **changes: Any) -> dict[str, Any]:
    p = m.params
    more = {"late": [], "waited_s": 0.1} if m.kind == "storage-together" else {}
    asked: Any = p["ops"]
    ops = {name: operation(name, p, {**RATES, **(rates or {})}[name], **more) for name in asked}
    found = {"name": p["name"], "node": node, "path": "/mnt/home", "place": place(), "cleared": [], "engine": "libaio"}
    found |= {"layout": {"error": "", "file_bytes": 1 << 28, "bytes": 1 << 31}, "ops": ops}
    if m.kind == "storage-alone":
        counts = {"create": 2000, "open": 8000, "list": 100_000, "remove": 4000}
        each = {phase: {"count": p["files"], "seconds": int(str(p["files"])) / rate, "per_s": float(rate)}
                for phase, rate in counts.items()}  # fmt: skip
        found |= {"files": {"files": p["files"], **each}, "path": p["path"], "pictures": shown_pictures()}
    else:
        found["present"] = list(m.nodes)
    if "port" in p:
        found["beside"] = shown_beside(p)
    return {**found, **changes}


def alone(m: Measurement, rates: Mapping[str, float] | None = None, **changes: Any) -> Any:
    made = report(m, m.nodes[0], rates, **changes)
    good = sum(not one["error"] for one in made["ops"].values())
    return doc(m.kind, json.dumps(made), {"ops": good, "fio": "fio-3.33"}, tool="fio")


def joined(m: Measurement, reports: Mapping[str, Mapping[str, Any]]) -> Any:
    texts = {node: json.dumps(one) for node, one in reports.items()}
    return doc(m.kind, json.dumps({"sending": texts, "serving": {}}), {}, tool="fio")


def watcher(m: Measurement, node: str, seconds: float = 0.02, **changes: Any) -> dict[str, Any]:
    others = [one for one in m.nodes if one != node]
    rows = []
    for writer, what in rounds(list(m.nodes)):
        if writer == node:
            row: dict[str, Any] = {"what": what, "done_s": 1.0, "unseen": [], "deaf": []}
            rows.append(
                {**row, "told_s": dict.fromkeys(others, 1 + seconds), "seconds": dict.fromkeys(others, seconds)}
            )
    held = {"holder": "taken"} if node == m.nodes[0] else {"meanwhile": "refused", "after": "taken"}
    count = {"turns": 50, "done": 50, "total": 50 * len(m.nodes), "fault": "", "late": []}
    base = {"name": m.params["name"], "node": node, "path": "/mnt/home", "place": place(), "missed": []}
    return {**base, "present": list(m.nodes), "seen": rows, "held": held, "count": count, **changes}


def hidden(m: Measurement, node: str, what: str = CONTENT) -> dict[str, Any]:
    """As `watcher`, with what the node writes of a sort unseen by the others."""
    made = watcher(m, node)
    for row in made["seen"]:
        if row["what"] == what:
            row["unseen"], row["seconds"], row["told_s"] = sorted(row["seconds"]), {}, {}
    return made


def measured(m: Measurement, document: Any) -> Result:
    samples, facts = parse(m.kind, document, m.params)
    return result(m, samples, facts=facts)


def healthy_storage(m: Measurement) -> Result:
    if m.kind == "storage-alone":
        return measured(m, alone(m))
    make: Any = watcher if m.kind == "storage-shared" else report
    return measured(m, joined(m, {node: make(m, node) for node in m.nodes}))
