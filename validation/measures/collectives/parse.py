"""Collective operations: bus bandwidth by the field's formulas, from seconds that torch or nccl-tests measured.

algbw = bytes / seconds, of the larger buffer of a rank; busbw = algbw x a factor that makes it the rate of the slowest
link, whatever the number of ranks (nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, json_object, number
from validation.measures.collectives.collectives_probe import MARK
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.collectives.nccl_tests import PRINTED, table
from validation.measures.gpu.watch import checked
from validation.measures.training.carriers import carriers
from validation.measures.training.facts import RankDevice
from validation.measures.training.nccl_log import nccl_path
from validation.model import Sample
from validation.probes import ProbeDoc
from validation.probes.collectives_rank import BYTES, OPS, factor
from validation.probes.port_bytes import MARK as PORTS

WHAT = "collectives"
AGREEMENT = 1e-4  # between a rate as a rank wrote it and its bytes and seconds, which are rounded to a nanosecond
SHARP = re.compile(r"\bNCCL INFO .*(?:/SHARP\b|\bCollNet\b|\bCollnet\b)")


def metric(op: str) -> str:
    """The metric of an operation's samples."""
    return f"{op}_busbw_gb_s"


class _Timed(NamedTuple):
    """An operation at a size, and the seconds of each block."""

    op: str
    size: int
    seconds: Sequence[float]
    times: int  # how often it was done, at least


class _Report(NamedTuple):
    """What either tool reports."""

    timed: list[_Timed]
    facts: dict[str, Any]


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`OPERATION_busbw_gb_s` at the largest size that was measured of each, one sample for each block."""
    tests = doc["facts"]["tool"] == "nccl-tests"
    found = _nccl_tests(doc, params) if tests else _torch(doc, params)
    ranks = found.facts["world_size"]
    if ranks < 2:
        raise ParseError(f"{WHAT}: {ranks} rank moves nothing")
    expect(params, "ranks", ranks, f"{WHAT}: ranks")
    _placed(found.facts, params)
    log = doc["stdout"] + "\n" + doc["stderr"]
    told = {**found.facts, "tool": doc["facts"]["tool"], "sharp": SHARP.search(log) is not None}
    told["path"] = nccl_path(log, found.facts["hosts"]).model_dump()
    told["carried"] = _carried(log, found.facts["hosts"])
    told["carriers"] = [one.model_dump() for one in carriers(log)]
    told["rows"] = [
        {
            "op": t.op,
            "bytes": t.size,
            "us": statistics.median(t.seconds) * 1e6,
            "busbw_gb_s": _rates(t, ranks)[0],
            "times": t.times,
        }
        for t in found.timed
    ]
    largest = {t.op: t for t in found.timed}  # sizes ascend
    samples = [
        Sample(metric=metric(op), value=rate, unit="GB/s") for op, t in largest.items() for rate in _rates(t, ranks)[1]
    ]
    return samples, as_facts(CollectivesFacts, told, f"{WHAT}: the report")


def _rates(timed: _Timed, ranks: int) -> tuple[float, list[float]]:
    """Median and all bus bandwidths in GB/s."""
    every = [factor(timed.op, ranks) * timed.size / seconds / 1e9 for seconds in timed.seconds]
    return statistics.median(every), every


def _placed(facts: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """ParseError unless there is a host and a device for each rank, as many on each as planned, no GPU twice."""
    hosts, devices, ranks = facts["hosts"], facts["devices"], facts["world_size"]
    if not len(hosts) == len(devices) == ranks:
        raise ParseError(
            f"{WHAT}: {number_of(len(hosts), 'host')} and {number_of(len(devices), 'device')} of "
            f"{number_of(ranks, 'rank')}"
        )
    each = params.get("ranks_per_node")
    odd = {host for host in hosts if isinstance(each, int) and hosts.count(host) != each}
    if odd:
        host = sorted(odd)[0]
        raise ParseError(f"{WHAT}: {number_of(hosts.count(host), 'rank')} on {host}, {each} on each node planned")
    gpus = [(host, device) for host, device in zip(hosts, devices, strict=True) if RankDevice.read(device).gpu]
    twice = next((g for g in gpus if gpus.count(g) > 1), None)
    if twice is not None:
        raise ParseError(f"{WHAT}: two ranks share {twice[1]} of {twice[0]}")
    if len(gpus) not in (0, ranks) or (facts["backend"] == "nccl") != bool(gpus):
        raise ParseError(
            f"{WHAT}: {len(gpus)} of {number_of(ranks, 'rank')} have a GPU, the backend is {facts['backend']}"
        )


def _carried(log: str, hosts: Sequence[str]) -> list[dict[str, Any]]:
    """What the ports of each node carried; ParseError of a line that cannot be, none where there is no line."""
    found = []
    for line in log.splitlines():
        if line.startswith(PORTS):
            one: Any = json_object(line.removeprefix(PORTS), f"{WHAT}: bytes of the ports")
            if str(one["host"]).partition(".")[0] not in {host.partition(".")[0] for host in hosts}:
                raise ParseError(f"{WHAT}: bytes of the ports of {one['host']}, which has no rank")
            names = [(port["way"], port["port"]) for port in one["ports"]]
            if len(set(names)) != len(names):
                raise ParseError(f"{WHAT}: bytes of the ports of {one['host']}: a port twice")
            found.append(one)
    return found


def _ops(params: Mapping[str, Any]) -> list[str]:
    """The operations that were planned."""
    return list(params.get("ops", OPS))


def _sizes(params: Mapping[str, Any]) -> list[int]:
    return [int(size) for size in params.get("sizes", ())]


def _torch(doc: ProbeDoc, params: Mapping[str, Any]) -> _Report:
    lines = [line for line in doc["stdout"].splitlines() if line.startswith('{"world_size"')]
    if len(lines) != 1:  # ranks that do not know of each other print a report each
        raise ParseError(f"{WHAT}: {len(lines)} reports from rank 0, exactly one is expected")
    report: dict[str, Any] = json_object(lines[0], f"{WHAT}: the report")
    ranks = int(count(report["world_size"], f"{WHAT}: ranks"))
    expect(params, "repeats", report["repeats"], f"{WHAT}: repeats")
    timed = []
    for row in report["rows"]:
        at = f"{WHAT}: {row['op']} of {number_of(row['bytes'], 'byte')}"
        if count(row["wrong"], f"{at}: wrong elements"):
            raise ParseError(f"{at}: {row['wrong']} elements were wrong")
        if len(row["seconds"]) != report["repeats"]:
            raise ParseError(f"{at}: {len(row['seconds'])} of {report['repeats']} blocks")
        seconds = [number(value, f"{at}: seconds") for value in row["seconds"]]
        times = int(count(row.get("iterations", 0), f"{at}: iterations")) * len(seconds)
        mine = _Timed(row["op"], int(count(row["bytes"], f"{at}: bytes")), seconds, times)
        for rate, told in zip(_rates(mine, ranks)[1], row["busbw_gb_s"], strict=True):
            if abs(rate - number(told, f"{at}: rate")) > AGREEMENT * rate + 2e-9:
                raise ParseError(f"{at}: {told:g} GB/s do not follow from its seconds")
        timed.append(mine)
    left = [
        {"op": op, "bytes": [int(count(size, f"{WHAT}: a size")) for size in gap["bytes"]], "why": gap["why"]}
        for op, gap in report["left_out"].items()
    ]
    if params.get("sizes"):
        if odd := {t.op for t in timed} - set(_ops(params)):
            raise ParseError(f"{WHAT}: {', '.join(sorted(odd))} measured, which was not planned")
        for op in _ops(params):
            _whole(op, [t.size for t in timed if t.op == op], left, _sizes(params), ranks)
    facts = {key: report[key] for key in ("world_size", "backend", "hosts", "devices", "nccl", "torch")}
    watches = [checked(one) for one in report.get("watch", ())]
    if watches and len(watches) != ranks:
        raise ParseError(f"{WHAT}: {number_of(len(watches), 'GPU')} of {number_of(ranks, 'rank')} were looked at")
    told = {"left_out": left, "watches": watches, "launcher": report.get("launcher", "")}
    return _Report(timed, {**facts, **told})


def _whole(op: str, done: list[int], left: list[dict[str, Any]], sizes: list[int], ranks: int) -> None:
    """ParseError unless each planned size was measured, rounded to whole elements of each rank, or left out."""
    gaps = [size for gap in left if gap["op"] == op for size in gap["bytes"]]
    unit = BYTES * ranks
    if [size // unit * unit for size in sizes] != done + [size // unit * unit for size in gaps]:
        raise ParseError(f"{WHAT}: {op}: {len(done)} sizes measured and {len(gaps)} left out of {len(sizes)} planned")


def _nccl_tests(doc: ProbeDoc, params: Mapping[str, Any]) -> _Report:
    parts = ("\n" + doc["stdout"]).split(f"\n{MARK}")[1:]
    tables = {name.strip(): table(text, name.strip()) for name, _, text in (part.partition("\n") for part in parts)}
    if list(tables) != _ops(params) or len(parts) != len(tables):
        raise ParseError(f"{WHAT}: tables of {', '.join(tables) or 'nothing'}, one of each operation is expected")
    first = next(iter(tables.values()))
    timed, left, sizes = [], [], _sizes(params)
    for op, found in tables.items():
        if found.ranks != first.ranks:
            raise ParseError(f"{WHAT}: {op} ran on other GPUs than {next(iter(tables))}")
        for row in found.rows:
            rate = factor(op, len(found.ranks)) * row.algbw
            if abs(row.busbw - rate) > PRINTED * row.busbw + 0.011:
                raise ParseError(f"{WHAT}: {op}: {row.busbw:g} GB/s do not follow from {row.algbw:g} on these ranks")
            timed.append(_Timed(op, row.size, [row.seconds], int(count(params.get("iterations", 0), f"{WHAT}: -n"))))
        gone = [size for size in sizes if size > found.most]
        if gone and not found.reduced:
            raise ParseError(f"{WHAT}: {op} was run up to {number_of(found.most, 'byte')}, {sizes[-1]} planned")
        left += [{"op": op, "bytes": gone, "why": "the GPU's memory, says nccl-tests"}] if gone else []
    ranks = [(host, f"GPU {address} {model}") for host, address, model in first.ranks]
    facts = {
        "world_size": len(ranks),
        "backend": "nccl",
        "hosts": [host for host, _ in ranks],
        "devices": [device for _, device in ranks],
        "nccl": first.nccl,
        "torch": "",
        "left_out": left,
    }
    return _Report(timed, facts)
