"""Remoting: copies through an engine, attempts on isolation, fractions of memory."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, short
from validation.measures.remoting.facts import CopyDevice, CopyFacts, CopyPair, FractionFacts, GpuPart, IsolationFacts
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

HOST = "H"
MIB = 1 << 20
#: Payload of a packet of RDMA: the largest MTU that InfiniBand and RoCE have.
MOST_PACKET_BYTES = 4096
#: No GPU's memory has a hundredth of it; against numbers that are none.
MOST_GB_S = 1e6
#: How close to its end a part can be filled: allocations come in steps of 2 MiB.
FILLED_WITHIN_BYTES = 4 * MIB
#: PyTorch takes GPU memory in pieces of up to 20 MiB: of a part it fills all but a hundredth.
TORCH_WITHIN = 0.01


def _metric(source: str, target: str, node_of: Mapping[str, str]) -> str:
    if source == HOST:
        return "client_to_gpu"
    if target == HOST:
        return "gpu_to_client"
    if source == target:
        return "gpu_itself"
    return "gpu_to_gpu_same_server" if node_of[source] == node_of[target] else "gpu_to_gpu_between_servers"


def copies(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Bandwidths (GB/s) and latencies (us) by kind of pair, and `holes`: 0, for a matrix with a hole is refused.

    Fact `matrix` has the medians of each ordered pair.
    """
    facts = doc["facts"]
    lines = [line for line in doc["stdout"].splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise ParseError(f"copybench: {len(lines)} reports, exactly one is expected")
    report: Mapping[str, Any] = json_object(lines[0], "copybench: the report")
    if report["verified"] is not True or report["wrong"]:
        raise ParseError(
            f"copybench: data were wrong after copies: {', '.join(report['wrong'][:4]) or 'not said which'}"
        )
    devices = report["devices"]
    if len(devices) != facts["gpus"] or len({d["uuid"] for d in devices}) != len(devices):
        raise ParseError(
            f"copybench: {number_of(len(devices), 'device')}, {facts['gpus']} different ones are in the lease"
        )
    expect(params, "servers", tuple(facts["servers"]), "copybench: servers")
    ends = [HOST, *(str(i) for i in range(len(devices)))]
    wanted = {(a, b) for a in ends for b in ends if (a, b) != (HOST, HOST)}
    pairs = {(pair["source"], pair["target"]): pair for pair in report["pairs"]}
    if set(pairs) != wanted or len(report["pairs"]) != len(wanted):
        raise ParseError(f"copybench: {len(pairs)} of {number_of(len(wanted), 'pair')} are there")
    samples = [Sample(metric="holes", value=0, unit="count")]
    node_of = _servers(report, devices)
    matrix = []
    for (source, target), pair in pairs.items():
        if pair["verified"] is not True:
            raise ParseError(f"copybench: the data from {source} to {target} were not verified")
        expect(params, "size_bytes", pair["bytes"], "copybench: bytes of a copy")
        metric = _metric(source, target, node_of)
        for key, unit, times in (("bandwidth_gb_s", "GB/s", "repeat"), ("latency_us", "us", "latency_count")):
            values = [number(value, f"copybench: {key} from {source} to {target}") for value in pair[key]]
            if max(values) > MOST_GB_S and unit == "GB/s":
                raise ParseError(f"copybench: {max(values):g} GB/s from {source} to {target}: no memory is so fast")
            expect(params, times, len(values), f"copybench: {key} from {source} to {target}")
            ordered = sorted(values)
            middle = ordered[len(ordered) // 2]
            samples.append(Sample(metric=f"{metric}_{key}", value=middle, unit=unit))
        here, there = (None if end == HOST else int(end) for end in (source, target))
        matrix.append(CopyPair(source=here, target=there, gb_s=samples[-2].value, us=samples[-1].value))
    for values in report["sync_latency_us"]:
        ordered = sorted(number(value, "copybench: round trip") for value in values)
        samples.append(Sample(metric="round_trip_us", value=ordered[len(ordered) // 2], unit="us"))
    return samples, CopyFacts(
        emulated=flag(facts["emulated"], "emulated"),
        engine=facts["engine"],
        engine_release=facts["engine_release"],
        client=str(report["host"]),
        servers=tuple(facts["servers"]),
        transport=_transport(report),
        devices=tuple(
            CopyDevice(name=str(d["name"]), uuid=str(d["uuid"]), server=node_of[str(i)]) for i, d in enumerate(devices)
        ),
        matrix=tuple(matrix),
    )


def _transport(report: Mapping[str, Any]) -> Literal["", "tcp", "verbs"]:
    """What carried the copies, "" where the engine does not say. By verbs the client's RDMA port has counted them."""
    said = {server.get("transport", "") for server in report["servers"]}
    if len(said) > 1 or not said <= {"", "tcp", "verbs"}:
        raise ParseError(f"copybench: the servers say that {' and '.join(sorted(map(str, said)))} carried the copies")
    if said != {"verbs"}:
        return "tcp" if said == {"tcp"} else ""
    ports = report["rdma_packets"].values()
    for position, end in enumerate(("source", "target")):
        copied = sum(p["bytes"] * len(p["bandwidth_gb_s"]) for p in report["pairs"] if p[end] == HOST)
        packets = max((count(port[position], "copybench: packets of a port") for port in ports), default=0)
        if packets * MOST_PACKET_BYTES < copied:
            words = f"no RDMA port of the client has {'received' if position else 'sent'} as many packets"
            raise ParseError(f"copybench: verbs carried {number_of(copied, 'byte')}, say the servers, and {words}")
    return "verbs"


def _servers(report: Mapping[str, Any], devices: list[Mapping[str, Any]]) -> dict[str, str]:
    """Device number -> what tells its server apart; all the same where the engine does not say."""
    found = {str(i): "" for i in range(len(devices))}
    by_uuid = {d["uuid"]: str(i) for i, d in enumerate(devices)}
    for position, server in enumerate(report["servers"]):
        for device in server.get("devices", []):
            number_ = by_uuid.get(device.get("uuid"))
            if number_ is not None:
                found[number_] = str(server.get("host") or server.get("address") or position)
    return found


def isolation(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`breaches`, and how long (s) the server was still there after its lease had ended."""
    raw = doc["facts"]
    expect(params, "server", raw["server"], "isolation: server")
    keys = ("emulated", "engine", "engine_release", "server", "attempts")
    facts = as_facts(IsolationFacts, {key: raw[key] for key in keys if key in raw}, "isolation")
    if fault := facts.fault(params.get("elsewhere")):
        raise ParseError(f"isolation: {fault}")
    gone = number(raw["gone_s"], "isolation: seconds until the server was gone")
    return [
        Sample(metric="breaches", value=len(facts.breaches), unit="count"),
        Sample(metric="gone_s", value=gone, unit="s"),
    ], facts


def fractions(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`memory_error_mib`: the largest difference between a part's memory and its share of what the driver leaves of the
    GPU's; `context_mib`: what each tenant's context took of his part, as measured on the server."""
    facts = doc["facts"]
    parts = [Fraction(part) for part in facts["parts"]]
    expect(params, "parts", tuple(facts["parts"]), "fractions: parts")
    for key in ("uuids", "total_bytes", "taken_bytes", "codes"):
        if len(facts[key]) != len(parts):
            raise ParseError(f"fractions: {len(facts[key])} {key} of {number_of(len(parts), 'part')}")
    if len(set(facts["uuids"])) != 1:
        raise ParseError(
            f"fractions: the parts lay on {number_of(len(set(facts['uuids'])), 'GPU')}, so that none was cut into all"
        )
    whole_mib = number(facts["memory_mib"], "fractions: memory of the GPU")
    context = number(facts["context_bytes"], "fractions: memory of a context")
    usable_mib = whole_mib - count(facts["reserved_mib"], "fractions: memory of the driver")
    totals = [number(value, "fractions: memory of a part") for value in facts["total_bytes"]]
    if sum(totals) > usable_mib * MIB:
        raise ParseError(f"fractions: the parts together have {sum(totals) / MIB:.6g} MiB of {usable_mib:g}")
    if context >= min(totals):
        raise ParseError(f"fractions: a context of {context / MIB:.6g} MiB leaves nothing of a part")
    for part, total, taken in zip(facts["parts"], totals, facts["taken_bytes"], strict=True):
        within = max(FILLED_WITHIN_BYTES, TORCH_WITHIN * total) if facts["engine"] == "torch" else FILLED_WITHIN_BYTES
        if not total - context - within <= number(taken, "fractions: memory taken") <= total:
            raise ParseError(
                f"fractions: {part} has {total / MIB:.6g} MiB, {context / MIB:.3g} of it for a context, and could take "
                f"{taken / MIB:.6g}"
            )
    if facts["beyond"] not in ("waiting", "pending", "refused"):
        raise ParseError(f"fractions: a part more than the whole was {short(facts['beyond'])}")
    error = max(abs(float(part) * usable_mib - total / MIB) for part, total in zip(parts, totals, strict=True))
    samples = [
        Sample(metric="memory_error_mib", value=error, unit="MiB"),
        Sample(metric="context_mib", value=context / MIB, unit="MiB"),
    ]
    return samples, FractionFacts(
        emulated=flag(facts["emulated"], "emulated"),
        engine=facts["engine"],
        engine_release=facts["engine_release"],
        server=str(facts["server"]),
        parts=tuple(GpuPart(part=p, memory_mib=total / MIB) for p, total in zip(facts["parts"], totals, strict=True)),
        memory_mib=whole_mib,
        reserved_mib=facts["reserved_mib"],
        context_mib=context / MIB,
        beyond=facts["beyond"],
    )
