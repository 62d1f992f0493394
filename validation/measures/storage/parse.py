"""Reports of the storage probes as samples and facts. Each figure must follow from what fio counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, json_object, number, real, short
from validation.measures.storage import beside, gds, pictures
from validation.measures.storage.facts import StorageFacts, StorageOp, StorageSharedFacts, StorageTogetherFacts
from validation.model import Sample
from validation.probes import ProbeDoc
from validation.probes.storage_files import PHASES
from validation.probes.storage_fio import INTERVAL_MS, OPS
from validation.probes.storage_meet import rounds

#: Metric and unit of each operation, of one node by itself.
METRICS = {
    "write": ("storage_write_gb_s", "GB/s"),
    "read": ("storage_read_gb_s", "GB/s"),
    "one-write": ("storage_one_write_gb_s", "GB/s"),
    "one-read": ("storage_one_read_gb_s", "GB/s"),
    "randwrite": ("storage_write_iops", "1/s"),
    "randread": ("storage_read_iops", "1/s"),
}
AGREEMENT = 0.01
"""Between a rate as fio prints it and its bytes and milliseconds."""
LATE = 1.5  # how much longer than asked for a run may take, and two seconds
MOST_GB_S = 1e5  # no storage of one node is so fast; against numbers that are none
LEAST_INTERVALS = 4
TOLD = ("holder", "meanwhile", "after", "turns", "done", "total", "fault", "late")
UNEVEN = 10.0
"""How far the mean of the intervals may be from the whole: they are not all of it, and a storage may pause. Of a run
with as many intervals as fit, no more than half."""


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ParseError(f"{what}: {short(value)} is no list")
    return value


def _dict(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParseError(f"{what}: {short(value)} is no JSON object")
    return value


def _rates(name: str, raw: Mapping[str, Any]) -> list[float]:
    """Bytes a second of each interval, which must be the sum of the streams'."""
    what = f"storage: {name}: intervals"
    streams = [[count(v, what) for v in _list(row, what)] for row in _list(raw["streams_kib_s"], what)]
    sums = [count(value, what) for value in _list(raw["kib_s"], what)]
    if not streams or any(len(row) != len(sums) for row in streams):
        raise ParseError(f"{what}: streams and their sum have not as many")
    if [sum(same) for same in zip(*streams, strict=True)] != sums:
        raise ParseError(f"{what}: the sum is not that of the streams")
    if len(sums) < LEAST_INTERVALS:
        raise ParseError(f"{what}: {len(sums)}, at least {LEAST_INTERVALS} are needed")
    return [value * 1024 for value in sums]


def _op(name: str, raw: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[dict[str, Any], list[float]]:
    """What fio says of one operation, and bytes a second of its intervals."""
    what = f"storage: {name}"
    late = raw.get("late", [])
    if raw["error"]:
        return {"name": name, "error": short(str(raw["error"])), "late": late}, []
    op, (job,) = OPS[name], _list(_dict(raw["fio"], what)["jobs"], what)
    options = {**_dict(raw["fio"].get("global options", {}), what), **_dict(job["job options"], what)}
    streams = "1" if op.one else str(params.get("streams", options["numjobs"]))
    seconds = int(params.get("seconds", options["runtime"]))
    wanted = {"rw": op.rw, "bs": str(op.block_bytes), "direct": "1", "numjobs": streams, "runtime": str(seconds)}
    for key, value in wanted.items():
        if options.get(key) != value:
            raise ParseError(f"{what}: {key} is {short(options.get(key))}, planned was {value}")
    if count(job["error"], f"{what}: error"):
        raise ParseError(f"{what}: fio reports error {job['error']}")
    side = _dict(job["write" if "write" in op.rw else "read"], what)
    other = _dict(job["read" if "write" in op.rw else "write"], what)
    moved, ios = int(count(side["io_bytes"], f"{what}: bytes")), int(count(side["total_ios"], f"{what}: requests"))
    took, rate = number(side["runtime"], f"{what}: runtime") / 1000, number(side["bw_bytes"], f"{what}: rate")
    if count(other["io_bytes"], f"{what}: bytes the other way"):
        raise ParseError(f"{what}: it went the other way, too")
    if count(side["short_ios"], f"{what}: short requests") or count(side["drop_ios"], f"{what}: dropped requests"):
        raise ParseError(f"{what}: requests came back short")
    # what was begun in the ramp is counted with its bytes: as many requests as are in flight, of each stream
    slack = (op.depth + 1) * int(streams) * op.block_bytes
    if abs(ios * op.block_bytes - moved) > slack:
        raise ParseError(f"{what}: {ios} requests of {op.block_bytes} bytes are not {moved} bytes")
    if not seconds - 0.5 <= took <= LATE * seconds + 2:
        raise ParseError(f"{what}: {took:g} s of the {seconds} s that were asked for")
    if abs(moved / took - rate) > AGREEMENT * rate or rate / 1e9 > MOST_GB_S:
        raise ParseError(f"{what}: {moved} bytes in {took:g} s are not {rate:.6g} bytes a second")
    if abs(real(side["iops"], f"{what}: IOPS") - ios / took) > AGREEMENT * ios / took + 1:
        raise ParseError(f"{what}: {ios} requests in {took:g} s are not {side['iops']:.6g} a second")
    rates = _rates(name, raw)
    mean = sum(rates) / len(rates)
    if len(rates) > took * 1000 / INTERVAL_MS + 2 or not rate / UNEVEN < mean < rate * 2:
        raise ParseError(f"{what}: intervals of {mean:.4g} bytes a second, {rate:.4g} over all")
    p99 = number(_dict(side["clat_ns"], what)["percentile"]["99.000000"], f"{what}: latency") / 1000
    found = {"name": name, "bytes": moved, "ios": ios, "seconds": took, "bytes_per_s": rate, "p99_us": p99}
    return {**found, "late": late}, rates


def _unmeasured(report: Mapping[str, Any]) -> str:
    laid = _dict(report.get("layout", {}), "storage: files").get("error", "")
    return short(str(report.get("refused") or report.get("silent") or laid or ""), 400)


def _place(raw: Any) -> dict[str, Any] | None:
    if raw is None:
        return None
    return {key: raw[key] for key in ("filesystem", "source", "options", "read_ahead_kb", "free_bytes", "total_bytes")}


def _files(raw: Mapping[str, Any], params: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not raw:
        return []
    expect(params, "files", raw["files"], "storage: small files")
    made, rows = None, []
    for phase in PHASES:
        what = f"storage: small files: {phase}"
        done, took = int(count(raw[phase]["count"], what)), number(raw[phase]["seconds"], what)
        if abs(number(raw[phase]["per_s"], what) - done / took) > AGREEMENT * done / took:
            raise ParseError(f"{what}: {done} in {took:g} s are not {raw[phase]['per_s']:g} a second")
        made = done if made is None else made
        if not 0 < done <= made or made > raw["files"] or (phase == "list" and done != made):
            raise ParseError(f"{what}: {done} of {made}")
        rows.append({"phase": phase, "count": done, "seconds": took})
    return rows


def _node(report: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """One node, and the rates of the intervals of each of its operations."""
    planned = params.get("ops")
    raw = _dict(report.get("ops", {}), "storage: operations")
    if unknown := sorted(set(raw) - set(planned or OPS)):
        raise ParseError(f"storage: operation {short(unknown[0])} was not planned")
    ops, rates = [], {}
    for name, one in raw.items():
        found, rates[name] = _op(name, _dict(one, f"storage: {name}"), params)
        ops.append(found)
    why = _unmeasured(report)
    if not why and planned is not None and len(ops) != len(planned):
        raise ParseError(f"storage: {len(ops)} operations, {len(planned)} were planned")
    laid, shown = report.get("layout", {}), _dict(report.get("pictures", {}), "storage: pictures")
    direct, why_not = gds.rows(_dict(report.get("gds", {}), "storage: gdsio"), params)
    node = {
        "node": report["node"], "path": report["path"], "unmeasured": why, "place": _place(report.get("place")),
        "engine": report.get("engine", ""), "file_bytes": laid.get("file_bytes", 0), "ops": ops,
        "files": _files(report.get("files", {}), params),
        "pictures": pictures.rows(shown), "pictures_kind": shown.get("kind", ""),
        "pictures_error": short(str(shown.get("error", ""))), "gds": direct, "gds_error": why_not,
    }  # fmt: skip
    return node, rates


def _samples(name: str, rates: Sequence[float], prefix: str = "storage_") -> list[Sample]:
    metric, unit = METRICS[name]
    by = 1e9 if unit == "GB/s" else OPS[name].block_bytes
    metric = metric.replace("storage_", prefix, 1)
    return [Sample(metric=metric, value=rate / by, unit=unit) for rate in rates]


def parse_alone(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """Of each operation its rate in each half second, and of small files how many in a second."""
    report = json_object(doc["stdout"], "storage: the report")
    expect(params, "name", report["name"], "storage: name")
    expect(params, "path", report["path"], "storage: path")
    node, rates = _node(report, params)
    facts = as_facts(StorageFacts, {"storage": report["name"], "fio": doc["facts"]["fio"], "node": node}, "storage")
    if doc["facts"]["ops"] != sum(not one.error for one in facts.node.ops):
        raise ParseError(f"storage: {doc['facts']['ops']} operations were counted, others are reported")
    if not facts.node.unmeasured and not facts.node.files:
        raise ParseError("storage: small files are missing")
    samples = [sample for name, found in rates.items() for sample in _samples(name, found)]
    for one in facts.node.files:
        samples.append(Sample(metric=f"storage_{one.phase}_per_s", value=one.per_s, unit="1/s"))
    for shown in facts.node.pictures:
        metric = "storage_images_per_s" if shown.phase == "decoded" else "storage_images_read_per_s"
        samples.append(Sample(metric=metric, value=shown.per_s, unit="1/s"))
    for run in facts.node.gds:
        samples.append(Sample(metric=f"storage_gds_{run.phase}_gb_s", value=run.gb_s, unit="GB/s"))
    return samples, facts


def _reports(doc: ProbeDoc, params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each node printed; ParseError unless every planned one did."""
    printed = json_object(doc["stdout"], "storage: the reports")
    texts = _dict(printed["sending"], "storage: the reports")
    if "nodes" in params and set(texts) != set(params["nodes"]):
        raise ParseError("storage: reports are of other nodes than planned")
    found = {}
    for node, text in texts.items():
        one = json_object(text, f"storage: the report of {node}")
        if one["node"] != node:
            raise ParseError(f"storage: {node} calls itself {short(one['node'])}")
        expect(params, "name", one["name"], f"storage: name at {node}")
        found[node] = one
    return found


def parse_together(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`storage_all_read_gb_s` and others: what all nodes together moved in each half second, where all have it."""
    nodes, rates, rows = [], [], []
    reports = _reports(doc, params)
    for node, report in reports.items():
        made, mine = _node(report, params)
        nodes.append(made)
        rates.append(mine)
        met = report.get("present")
        if not made["unmeasured"] and (met is None or node not in met or not set(met) <= set(reports)):
            raise ParseError(f"storage: {node} does not say whom it met")
        if raw := _dict(report.get("beside", {}), f"storage: {node}: beside the network"):
            rows.append(beside.row(node, raw, _op("read", raw["read"], params)))
    found = {"storage": next(iter(reports.values()))["name"], "nodes": nodes, "beside": rows}
    facts = as_facts(StorageTogetherFacts, found, "storage")
    samples: list[Sample] = []
    for name in params.get("ops", OPS):
        every = [mine.get(name) or [] for mine in rates]
        if all(every) and not any(late(facts, name)):
            samples += _samples(name, [sum(same) for same in zip(*every, strict=False)], "storage_all_")
    return samples, facts


def late(facts: StorageTogetherFacts, name: str) -> list[str]:
    """Nodes that others had to begin an operation without."""
    found = [who for node in facts.nodes for one in node.ops if one.name == name for who in one.late]
    return list(dict.fromkeys(found))


def whole(ops: Sequence[StorageOp], unit: str) -> float:
    """What operations at the same time come to."""
    return sum(one.gb_s if unit == "GB/s" else one.iops for one in ops)


def _writes(node: str, report: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    rows = []
    others = {one for one in report["present"] if one != node}
    for raw in _list(report.get("seen", []), what):
        done, told = real(raw["done_s"], what), _dict(raw["told_s"], what)
        seconds = {other: number(value, f"{what}: {other}") for other, value in _dict(raw["seconds"], what).items()}
        silent = [*_list(raw["unseen"], what), *_list(raw["deaf"], what)]
        if sorted([*seconds, *silent]) != sorted(others) or set(told) != set(seconds):
            raise ParseError(f"{what}: not every other node is named once")
        for other, value in seconds.items():
            if abs(number(told[other], what) - done - value) > 1e-5:
                raise ParseError(f"{what}: {other}: {value:g} s are not from {done:g} to {told[other]:g} s")
        row = {"writer": node, "what": raw["what"], "seconds": seconds}
        rows.append({**row, "unseen": raw["unseen"], "deaf": raw["deaf"]})
    return rows


def parse_shared(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`storage_seen_s`: of each write until the last node had read it, there and back; `storage_appeared_s`: the same
    of a new name."""
    watchers, writes = [], []
    reports = _reports(doc, params)
    for node, report in reports.items():
        what = f"storage: {node}"
        why = _unmeasured(report)
        met = _list(report.get("present", []), what)
        if not why and (node not in met or (len(met) > 1 and "count" not in report)):
            raise ParseError(f"{what}: its report is not whole")
        held, counted = _dict(report.get("held", {}), what), _dict(report.get("count", {}), what)
        if not why and len(met) > 1 and not (held.get("holder") or (held.get("meanwhile") and held.get("after"))):
            raise ParseError(f"{what}: it does not say what became of the lock")
        both = {**held, **counted}
        told = {key: both[key] for key in TOLD if key in both}
        watchers.append({"node": node, "unmeasured": why, "present": met, **told})
        made = _writes(node, report, what) if met else []
        wanted = [row for writer, row in rounds(met) if writer == node and len(met) > 1]
        if not why and [row["what"] for row in made] != wanted:
            raise ParseError(f"{what}: {len(made)} writes are reported, others were to be made")
        writes += made
    storage = next(iter(reports.values()))["name"]
    facts = as_facts(StorageSharedFacts, {"storage": storage, "nodes": watchers, "writes": writes}, "storage")
    samples = []
    for one in facts.writes:
        if one.seconds and not one.unseen:
            metric = "storage_seen_s" if one.what == "content" else "storage_appeared_s"
            samples.append(Sample(metric=metric, value=max(one.seconds.values()), unit="s"))
    return samples, facts
