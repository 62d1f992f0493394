"""linux-rdma perftest, bandwidth and latency, releases 4.5 to 26: text as it is printed with -F, and JSON beside it.

4.5 (Debian 12) has --out_json too, but writes keys without quotes: what is no JSON is left aside, for the text holds
the same figures. Gbit/s are 10^9 bit/s (the tool divides by 125 000 000); latency is half the round trip, of reads the
whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, number, once, real, short
from validation.measures.rdma import tools_output
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc
from validation.probes.rdma import packets

TESTS = {"write": "RDMA_Write", "read": "RDMA_Read", "send": "Send"}
LINE = re.compile(r"^-{80,}\s*?$", re.MULTILINE)
BANDWIDTH_HEAD = re.compile(r"^ #bytes +#iterations +BW peak\[Gb/sec\] +BW average\[Gb/sec\] +MsgRate\[Mpps\]", re.M)
LATENCY_HEAD = re.compile(r"^ #bytes #iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\] +t_avg\[usec\]", re.M)
SWEEP_SIZES = tuple(float(2**power) for power in range(1, 24))
"""-a measures 2 to 2^23 bytes, in powers of two."""
AGREEMENT = 0.01
"""By what share the average bandwidth may differ from message rate x size, which is the same figure. Project
default."""
MEASURED_SHARE = 0.45
"""Share of its run time (-D) that a run must have measured: perftest leaves out a margin of a quarter at each end
(perftest_parameters.c, margin), which leaves a half; the rest is a busy node's. Project default."""


class Header(NamedTuple):
    """What perftest says that it did."""

    test: str
    device: str
    qps: int
    mtu: int
    link: str
    gid_index: int | None
    cm: bool


def _find(pattern: str, text: str, what: str) -> str:
    return once(pattern, text, f"perftest: {what}").group(1)


def header(text: str) -> Header:
    """The head of a report; ParseError where it is cut."""
    gid = re.search(r"^ GID index +: (\d+)\s*$", text, re.MULTILINE)
    transport = _find(r"\bTransport type *: (\S+)", text, "transport type")
    connection = _find(r"^ Connection type *: (\S+)", text, "connection type")
    if transport != "IB" or connection != "RC":
        raise ParseError(f"perftest used {transport}/{connection} instead of IB/RC")
    return Header(
        test=_find(r"^ +(\S.* Test)\s*$", text, "name of the test"),
        device=_find(r"\bDevice +: (\S+)", text, "device"),
        qps=int(_find(r"^ Number of qps +: (\d+)\b", text, "number of queue pairs")),
        mtu=int(_find(r"^ Mtu +: (\d+)\[B\]", text, "MTU")),
        link=_find(r"^ Link type +: (\S+)", text, "link type"),
        gid_index=int(gid.group(1)) if gid else None,
        cm=_find(r"^ rdma_cm QPs\s+: (ON|OFF)\b", text, "way of connecting") == "ON",
    )


def rows(text: str, head: re.Pattern[str], columns: int) -> list[list[float]]:
    """The figures under the heading, one list for each message size; ParseError where the closing line is missing."""
    start = once(head, text, "perftest: heading of the figures")
    end = LINE.search(text, start.end())
    if end is None:
        raise ParseError("perftest: its output is cut in the figures")
    found = []
    # the first is the rest of the heading; some releases warn between the figures, in words
    for line in text[start.end() : end.start()].splitlines()[1:]:
        words = line.split()
        if not words or not re.fullmatch(r"\d+", words[0]):
            continue
        if len(words) < columns:
            raise ParseError(f"perftest: a line of figures is cut: {line.strip()!r}")
        try:
            found.append([real(word, "perftest: a figure") for word in words[:columns]])
        except ParseError as fault:
            raise ParseError(f"{fault} in {short(line.strip())!r}") from None
    if not found:
        raise ParseError("perftest: no figures in its output")
    return found


def _checked(doc: ProbeDoc, params: Mapping[str, Scalar], latency: bool) -> Header:
    """That the tool did what was planned, on the device and GID that the probe had found."""
    text, facts = doc["stdout"], doc["facts"]
    op, both_ways = str(params.get("op", facts["op"])), bool(params.get("bidirectional"))
    name = f"{TESTS[op]} {'Bidirectional ' if both_ways else ''}{'Latency' if latency else 'BW'} Test"
    found = header(text)
    if found.test != name:
        raise ParseError(f"perftest ran {found.test!r} instead of {name!r}")
    if found.device != facts["device"]:
        raise ParseError(f"perftest used {found.device}, the port's device is {facts['device']}")
    if found.qps != params.get("qps", 1):
        raise ParseError(f"perftest used {number_of(found.qps, 'queue pair')}, {params.get('qps', 1)} planned")
    if found.cm != (params.get("cm", facts["cm"]) == "rdma_cm"):
        raise ParseError(f"perftest connected {'with' if found.cm else 'without'} rdma_cm, which was not planned")
    if found.link not in ("Ethernet", "IB"):
        raise ParseError(f"perftest ran over link type {found.link}")
    if (found.link == "IB") != (facts["link_layer"] == "InfiniBand"):
        raise ParseError(f"perftest ran over link type {found.link}, the port is {facts['link_layer']}")
    if not found.cm and found.link == "Ethernet" and found.gid_index != facts["gid_index"]:
        raise ParseError(f"perftest used GID index {found.gid_index}, the port's is {facts['gid_index']}")
    tools_output.check_ends(facts, params)
    return found


def _report(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON report's results, where there is one that is JSON."""
    try:
        report = json.loads(facts.get("json") or "")
        return report["results"]  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError):
        return None


def _agree(facts: Mapping[str, Any], **figures: float) -> str:
    """ParseError where JSON and text differ; "json" or "text": what the figures stand in. A figure that its JSON leaves
    out contradicts nothing."""
    report = _report(facts)
    if not isinstance(report, Mapping) or not figures.keys() & report.keys():
        return "text"
    for key, value in figures.items():
        if key not in report:
            continue
        if abs(real(report[key], f"perftest: {key} of its JSON") - value) > 1e-6 + 1e-3 * abs(value):
            raise ParseError(f"perftest: {key} is {report[key]} in its JSON and {value:g} in its text")
    return "json"


def _planned_size(params: Mapping[str, Scalar], size: float) -> None:
    planned = params.get("size_bytes")
    if isinstance(planned, int) and planned and size != planned:
        raise ParseError(f"perftest sent messages of {number_of(size, 'byte')}, {planned} planned")


def _claim(found: Header, op: str, size: int, messages: int, both_ways: bool) -> tuple[tuple[int, int], ...]:
    """(packets, bytes) from client to server, and back, that moved `messages` messages of `size` bytes, at least."""
    data = (packets(size, found.mtu) * messages, size * messages)
    none = (0, 0)
    there, back = (none, data) if op == "read" else (data, none)
    return (data, data) if both_ways else (there, back)


def _tied(row: list[float]) -> None:
    """ParseError where a line's messages, message rate and average bandwidth do not belong together."""
    size, messages, _, average, rate = row
    if messages < 1:
        raise ParseError(f"perftest: a rate from {number_of(messages, 'message')}")
    number(average, "perftest: average bandwidth")
    # below 0.1 Gbit/s six places are printed, else two (perftest_resources.c, inc_accuracy); of the rate always six
    printed = 0.5e-6 if average < 0.1 else 0.005
    carried, rounded = rate * size * 8e-3, 0.5e-6 * size * 8e-3  # million messages of so many bytes, as Gbit/s
    if abs(average - carried) > AGREEMENT * average + printed + rounded:
        raise ParseError(f"perftest: {average:g} Gbit/s in its output, {carried:.4g} by its message rate and size")


def _long_enough(row: list[float], seconds: Scalar, ways: int) -> None:
    """ParseError where a run by time measured much less of it than it must: so few messages are no such rate."""
    size, messages, _, average, _ = row
    measured = messages * ways * size * 8 / (average * 1e9)
    if isinstance(seconds, (int, float)) and measured < MEASURED_SHARE * seconds:
        raise ParseError(
            f"perftest: {number_of(messages, 'message')} at {average:g} Gbit/s are {measured:.2g} s of {seconds:g} s"
        )


def bandwidth(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`rdma_OP_bandwidth_gbps` (both directions together: `rdma_OP_bidirectional_gbps`) and `rdma_retransmits`.

    A sweep over all sizes gives its best, `rdma_OP_sweep_peak_gbps`, and the figures of all sizes as facts.
    """
    facts, op = doc["facts"], str(params.get("op", doc["facts"]["op"]))
    found, both_ways = _checked(doc, params, latency=False), bool(params.get("bidirectional"))
    table = rows(doc["stdout"], BANDWIDTH_HEAD, 5)
    sweep = params.get("size_bytes") == 0
    if len(table) != (len(SWEEP_SIZES) if sweep else 1):
        raise ParseError(
            f"perftest: figures of {len(table)} message sizes, {len(SWEEP_SIZES) if sweep else 1} expected"
        )
    if sweep and tuple(row[0] for row in table) != SWEEP_SIZES:
        raise ParseError("perftest: a sweep over other sizes than 2, 4, 8 ... 2^23 bytes")
    claims = [(0, 0), (0, 0)]
    for row in table:
        if not sweep:
            _planned_size(params, row[0])
        _tied(row)
        claimed = _claim(found, op, int(row[0]), int(row[1]), both_ways)
        claims = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(claims, claimed, strict=True)]
    tools_output.prove(facts, claims[0], claims[1])
    _, messages, peak, average, rate = table[-1]
    planned = params.get("iterations")
    if isinstance(planned, int) and planned and messages < planned * found.qps:
        raise ParseError(f"perftest sent {number_of(messages, 'message')}, {planned * found.qps} planned")
    if not planned:
        _long_enough(table[-1], params.get("seconds"), 2 if both_ways else 1)
    stands_in = "text" if sweep else _agree(facts, BW_peak=peak, BW_average=average, MsgRate=rate)
    metric = f"rdma_{op}_bidirectional_gbps" if both_ways else f"rdma_{op}_bandwidth_gbps"
    value = average
    if sweep:
        metric, value = f"rdma_{op}_sweep_peak_gbps", max(row[3] for row in table)
    samples = [Sample(metric=metric, value=value, unit="Gbit/s"), tools_output.retransmits_sample(facts)]
    result = tools_output.both(facts, active_mtu=found.mtu, qps=found.qps, tool_transport=f"RC over {_over(facts)}")
    result["report"] = stands_in
    if sweep:
        result["sweep"] = {str(int(row[0])): row[3] for row in table}  # Gbit/s by message size in bytes
    else:
        result |= {"messages": int(messages), "message_rate_mpps": rate}
    return samples, result


def _over(facts: Mapping[str, Any]) -> str:
    return str(facts["roce_version"] or facts["link_layer"])


def latency(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`rdma_OP_latency_us` (the median, what the tool calls typical), its 99th percentile, and `rdma_retransmits`."""
    facts, op = doc["facts"], str(params.get("op", doc["facts"]["op"]))
    found = _checked(doc, params, latency=True)
    table = rows(doc["stdout"], LATENCY_HEAD, 9)
    if len(table) != 1:
        raise ParseError(f"perftest: figures of {len(table)} message sizes, one expected")
    size, messages, least, most, typical, average, _, p99, p999 = table[0]
    _planned_size(params, size)
    planned = params.get("iterations")
    if isinstance(planned, int) and planned and messages != planned:
        raise ParseError(f"perftest took {number_of(messages, 'sample')}, {planned} planned")
    for value, what in ((least, "least"), (typical, "typical"), (average, "average"), (p99, "99th percentile")):
        number(value, f"perftest: {what} latency")
    if not least <= typical <= most or not typical <= p99 <= most or p99 > p999:
        raise ParseError("perftest: its latencies are in no order")
    stands_in = _agree(facts, t_typical=typical, t_min=least, t_avg=average)
    each = (packets(int(size), found.mtu) * int(messages), int(size * messages))
    # a read is asked for in one packet and answered with data; in the others both ends send
    tools_output.prove(facts, (int(messages), 0) if op == "read" else each, each)
    samples = [
        Sample(metric=f"rdma_{op}_latency_us", value=typical, unit="us"),
        Sample(metric=f"rdma_{op}_latency_p99_us", value=p99, unit="us"),
        tools_output.retransmits_sample(facts),
    ]
    result = tools_output.both(facts, active_mtu=found.mtu, tool_transport=f"RC over {_over(facts)}")
    return samples, {**result, "report": stands_in, "messages": int(messages), "least_us": least, "average_us": average}
